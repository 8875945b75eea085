"""What the scheduler is told: who says what, and what became of workers.

Never here: what follows from it.
"""

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct

from slipstream.protocol.ids import ClientId, WorkerId
from slipstream.protocol.messages import ClientMessage, TaskAttempt, WorkerMessage


class FromClient(Struct, frozen=True):
    """Messages of one client, in the order in which it sent them."""

    client: ClientId
    messages: Sequence[ClientMessage]


class FromWorker(Struct, frozen=True):
    """Messages of one worker, in the order in which it sent them."""

    worker: WorkerId
    messages: Sequence[WorkerMessage]


class ClientLeft(Struct, frozen=True):
    """The client is gone: what it wanted and has not started is cancelled, and nothing is told to it any more."""

    client: ClientId


class ClientWaits(Struct, frozen=True):
    """A client begins to wait for a result: nothing is to be held back for the sake of fuller frames."""

    client: ClientId


class WorkerJoined(Struct, frozen=True):
    """A worker takes tasks from now on."""

    worker: WorkerId


class WorkerEnd(Struct, frozen=True):
    """How a worker ended, as far as its pool can tell."""

    reason: str
    signal: int | None = None
    exit_status: int | None = None
    last_output: bytes = b""
    #: The attempt that ran at that moment; None if it ran none.
    running: TaskAttempt | None = None
    #: The attempt that ran last, or runs: of what was sent before it, all has started.
    last: TaskAttempt | None = None
    #: Only a task can have caused this end, though perhaps not the one that ran: it wrote to the worker's connection,
    #: say.
    by_task: bool = False
    #: Index of the item that ran, where that attempt is a map chunk; -1 for none.
    item: int = -1


class WorkerLeft(Struct, frozen=True):
    """A worker is gone, and whatever was sent to it and not reported with it."""

    worker: WorkerId
    end: WorkerEnd


Event: TypeAlias = FromClient | FromWorker | ClientLeft | ClientWaits | WorkerJoined | WorkerLeft
