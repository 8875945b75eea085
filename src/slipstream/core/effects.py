"""What the scheduler wants done: messages per endpoint, a time to be called again, and who broke the protocol.

All transitions of a turn append to these lists; the engine sends each list once.
"""

from slipstream.protocol.ids import CallableDigest, ClientId, WorkerId
from slipstream.protocol.messages import Notice, Submit, WorkerCommand


class Effects:
    """The effects of one turn. Empty lists are never made, so what is there is to be sent."""

    __slots__ = (
        "clients",
        "dismissed",
        "faulty_clients",
        "faulty_workers",
        "lacking",
        "refused",
        "wake_at",
        "wanted",
        "workers",
    )

    def __init__(self) -> None:
        self.workers: dict[WorkerId, list[WorkerCommand]] = {}
        self.clients: dict[ClientId, list[Notice]] = {}
        #: When `handle` wants to be called again at the latest, in ns; None if nothing is due.
        self.wake_at: int | None = None
        #: Endpoints that broke the protocol in this turn, and how. Their other messages were still handled.
        self.faulty_workers: dict[WorkerId, str] = {}
        self.faulty_clients: dict[ClientId, str] = {}
        #: Submissions that were refused, since a task that they depend on has ended and is not kept: its end was told
        #: before.
        self.refused: list[tuple[ClientId, Submit]] = []
        #: How many workers there should be from now on, if that has changed; and who is to leave.
        self.wanted: int | None = None
        self.dismissed: list[WorkerId] = []
        #: Definitions that a worker does not have, although it was sent them.
        self.lacking: list[tuple[WorkerId, CallableDigest]] = []

    def tell_worker(self, worker: WorkerId, command: WorkerCommand) -> None:
        """Append a message for a worker."""
        outgoing = self.workers.get(worker)
        if outgoing is None:
            self.workers[worker] = [command]
        else:
            outgoing.append(command)

    def tell_client(self, client: ClientId, notice: Notice) -> None:
        """Append a message for a client; nothing for one that has left."""
        if client < 0:
            return
        outgoing = self.clients.get(client)
        if outgoing is None:
            self.clients[client] = [notice]
        else:
            outgoing.append(notice)
