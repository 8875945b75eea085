"""The page of memory that a worker shares with its client: what it is running right now.

Results are reported up to a millisecond late and "started" only after the tick, so after a SIGKILL no message tells
which of 200 prefetched tasks to charge. The page does, whatever the worker died of, and at 0.2 µs a task. It is
written by the worker's main thread only, and read by the client and by the worker's sentry.
"""

from __future__ import annotations

import mmap
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slipstream.protocol.ids import TaskId

PAGE_BYTES = 4096
_TASK, _ATTEMPT, _STARTED, _ITEM, _RUNS, _BROKEN = range(6)
#: No item of a chunk has begun: it is being loaded, or it is no chunk.
_NO_ITEM = (1 << 64) - 1


class Running:
    """An attempt that runs: since when (monotonic clock, ns), and at which item of a map chunk (-1 for none)."""

    __slots__ = ("attempt", "item", "started_ns", "task")

    def __init__(self, task: TaskId, attempt: int, started_ns: int, item: int) -> None:
        self.task = task
        self.attempt = attempt
        self.started_ns = started_ns
        self.item = item


class SharedPage:
    """One mapped page. Task ids start at 1: zero says that nothing runs.

    Args:
        descriptor: of a file of at least PAGE_BYTES, which may be closed afterwards.
    """

    __slots__ = ("_map", "_words", "detached")

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, PAGE_BYTES)
        self._words = memoryview(self._map).cast("Q")
        #: Nobody reads it any more: this is a forked child.
        self.detached = False

    @staticmethod
    def create() -> int:
        """A descriptor of a new zeroed page that has no name in any file system."""
        descriptor = os.memfd_create("slipstream-page")
        os.truncate(descriptor, PAGE_BYTES)
        return descriptor

    def begin(self, task: TaskId, attempt: int, now_ns: int) -> None:
        """Say that this attempt starts. That it runs is written last: who sees it sees the rest."""
        words = self._words
        words[_TASK] = task
        words[_ATTEMPT] = attempt
        words[_STARTED] = now_ns
        words[_ITEM] = _NO_ITEM
        words[_RUNS] = 1

    def at_item(self, index: int) -> None:
        """Say which item of a chunk starts."""
        self._words[_ITEM] = index

    def end(self) -> None:
        """Say that nothing runs."""
        self._words[_RUNS] = 0

    def report_broken(self) -> None:
        """Say that the connection broke, though the client may live: then a task has broken it."""
        self._words[_BROKEN] = 1

    @property
    def broken(self) -> bool:
        """Whether the worker found its connection broken."""
        return bool(self._words[_BROKEN])

    def running(self) -> Running | None:
        """What runs now, or ran when the worker died."""
        return self.last() if self._words[_RUNS] else None

    def last(self) -> Running | None:
        """What runs now or ran last."""
        words = self._words
        if not words[_TASK]:
            return None
        item = words[_ITEM]
        task: TaskId = words[_TASK]  # pyright: ignore[reportAssignmentType]
        return Running(task, words[_ATTEMPT], words[_STARTED], -1 if item == _NO_ITEM else item)

    def detach(self) -> None:
        """Write to memory of this process only from now on: in a forked child, which does not speak for the worker."""
        self._words = memoryview(bytearray(PAGE_BYTES)).cast("Q")
        self.detached = True

    def close(self) -> None:
        """Unmap."""
        self._words.release()
        self._map.close()
