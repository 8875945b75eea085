"""What the engine asks of a pool, and what a pool tells the engine.

A frame given to `send` reaches its worker at most once. A pool never decides anything about tasks.
"""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from slipstream.core.events import WorkerEnd
from slipstream.protocol.ids import FrameId, SlotId
from slipstream.worker.page import Running


class Capabilities(Struct, frozen=True):
    """What a kind of pool can do; known before it starts."""

    name: str
    #: A frame goes to the worker that was named, not to some worker.
    addressable: bool
    #: Frames to one worker arrive in the order in which they were sent.
    ordered: bool
    #: A single worker can be ended.
    can_stop: bool
    #: The pool's own engine may run a frame again without saying so.
    may_rerun: bool


class WorkerInfo(Struct, frozen=True):
    """Who a worker is."""

    host: str
    pid: int
    python: str
    slipstream: str


class EventSink(Protocol):
    """What the engine offers to a pool. Called from any thread; returns soon, never blocks, never raises."""

    def joined(self, slot: SlotId, worker: WorkerInfo) -> None:
        """A worker is up. A slot is one incarnation: a replacement comes in another slot."""
        ...

    def received(self, slot: SlotId, body: bytes) -> None:
        """A frame body came from a worker."""
        ...

    def left(self, slot: SlotId, end: WorkerEnd) -> None:
        """A worker that had joined is gone, with all frames that were on their way to it or from it."""
        ...

    def broken(self, reason: str) -> None:
        """The pool cannot work any more: every pending future is to end with this reason."""
        ...


class Pool(Protocol):
    """Where tasks run."""

    capabilities: Capabilities

    def start(self, workers: int, sink: EventSink) -> None:
        """Begin to start so many workers, and keep so many. Returns at once; workers arrive as events."""
        ...

    def keep(self, workers: int) -> None:
        """Keep so many workers from now on. Nobody is ended for it, and who ends is not replaced."""
        ...

    def guard(self, directories: Sequence[str]) -> None:
        """Have these directories removed should the client die; nothing where nobody could."""
        ...

    def send(self, slot: SlotId, frame: FrameId, body: bytes) -> None:
        """Send a frame. Never blocks or raises; a frame to a slot that is gone is dropped, as `left` says."""
        ...

    def running(self, slot: SlotId) -> Running | None:
        """What that worker runs now, where the pool can tell."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable when `read_ready` has something to do."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Block until `read_ready` has something to do, `wake` was called, or the time is over (negative: no limit).

        Signals may interrupt it, and their handlers raise from it.
        """
        ...

    def wake(self) -> None:
        """Have the thread that is in `wait` return. By any thread; may be called after `close`."""
        ...

    def read_ready(self) -> None:
        """Read what has come and call the sink. By any thread, one at a time."""
        ...

    @property
    def untended(self) -> bool:
        """Whether `tend` has something to do."""
        ...

    def tend(self) -> None:
        """Start what is to be started. By the I/O thread only, since the kernel ends children with their thread."""
        ...

    def stop(self, slot: SlotId, *, kill: bool, reason: str = "") -> bool:
        """End one worker, by asking or by force. False: this pool cannot.

        A reason says what the worker did wrong that only a task can have caused.
        """
        ...

    def close(self, *, kill: bool = False) -> None:
        """End all workers and release everything. Blocks for a bounded time; called once, by the reading thread."""
        ...

    def abandon(self) -> None:
        """Forget everything in a forked child: close descriptors, touch neither workers nor anything shared."""
        ...
