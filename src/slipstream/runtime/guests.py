"""Tasks of workers as clients: what they say, what they are told, and the files that they need.

A worker has no hand in the life of files: the client's process owns what its tasks submit and what comes back to them,
as long as these say that they need it.

Never here: what the tasks of this process itself do (see `client`).
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from slipstream.core.effects import Effects
from slipstream.core.events import Event, FromClient
from slipstream.protocol.ids import MAIN_CLIENT, TaskId, WorkerId
from slipstream.protocol.messages import (
    Cancel,
    ClientMessage,
    Notice,
    Provide,
    Release,
    Submit,
    TaskSucceeded,
    WorkerCommand,
)
from slipstream.runtime.outbox import Outbox
from slipstream.store.payload import is_stored
from slipstream.store.values import own


class Guests:
    """The workers whose tasks have submitted tasks."""

    def __init__(self) -> None:
        #: By worker: large values that were provided by its tasks, or that are results of what they submitted.
        self._held: dict[WorkerId, dict[TaskId, bytes]] = {}

    @property
    def present(self) -> bool:
        """Whether there is any."""
        return bool(self._held)

    def take(self, worker: WorkerId, messages: Sequence[ClientMessage]) -> list[ClientMessage]:
        """Take over the files that these messages of a worker's tasks announce."""
        held = self._held.setdefault(worker, {})
        taken: list[ClientMessage] = []
        for message in messages:
            if isinstance(message, Submit):
                message = _owning(message)
            elif isinstance(message, Provide) and message.payload is not None and is_stored(message.payload):
                held[message.task] = own(message.payload)
            elif isinstance(message, Release):
                held.pop(message.task, None)
            taken.append(message)
        return taken

    def leave(self, worker: WorkerId) -> bool:
        """A worker is gone. Whether its tasks have been clients."""
        return self._held.pop(worker, None) is not None

    def tell(self, events: Iterable[Event], effects: Effects, outboxes: Mapping[WorkerId, Outbox]) -> list[Outbox]:
        """File what tasks of workers are told after a turn. The outboxes that are to be sent for it."""
        told: dict[WorkerId, list[WorkerCommand]] = {}
        for client, notices in effects.clients.items():
            if client != MAIN_CLIENT:
                self._hold(WorkerId(client), notices)
                told.setdefault(WorkerId(client), []).extend(notices)
        for client, message in effects.refused:
            if client != MAIN_CLIENT:
                told.setdefault(WorkerId(client), []).append(message)
        for event in events:  # who cancels waits for what comes of it: after that comes the question itself
            if isinstance(event, FromClient) and event.client != MAIN_CLIENT:
                cancels = [message for message in event.messages if isinstance(message, Cancel)]
                if cancels:
                    told.setdefault(WorkerId(event.client), []).extend(cancels)
        present = [(outboxes[worker], commands) for worker, commands in told.items() if worker in outboxes]
        for outbox, commands in present:
            outbox.commands += commands
        return [outbox for outbox, _ in present]

    def _hold(self, worker: WorkerId, notices: Iterable[Notice]) -> None:
        held = self._held.get(worker)
        if held is not None:
            for notice in notices:
                if isinstance(notice, TaskSucceeded) and is_stored(notice.payload):
                    held[notice.task] = notice.payload


def _owning(message: Submit) -> Submit:
    """The same, with payloads that own their files."""
    inputs = tuple([own(value) if isinstance(value, bytes) else value for value in message.inputs])
    return replace(message, payload=own(message.payload), inputs=inputs)
