"""Tasks that could run: by priority, and first come first served within one.

Taking one costs the same however many there are. A cancelled task stays where it is until it would be taken, or until
half of all entries are such; so the structure stays within twice what is live.
"""

from bisect import insort
from collections import deque

from slipstream.core.states import State
from slipstream.core.tasks import Task


class ReadyQueue:
    """READY tasks. `len()` counts those that are live."""

    __slots__ = ("_by_priority", "_gone", "_live", "_priorities")

    def __init__(self) -> None:
        self._by_priority: dict[int, deque[Task]] = {}
        #: Priorities in use, negated: the most urgent is first.
        self._priorities: list[int] = []
        self._live = 0
        self._gone = 0

    def __len__(self) -> int:
        return self._live

    def add(self, task: Task) -> None:
        """Append a task that has become READY."""
        self._queue(task.priority).append(task)
        self._live += 1

    def put_back(self, task: Task) -> None:
        """Put a task first that had been taken and came back."""
        self._queue(task.priority).appendleft(task)
        self._live += 1

    def take(self) -> Task:
        """Remove and return the task whose turn it is. There must be one."""
        while True:
            priority = self._priorities[0]
            queue = self._by_priority[-priority]
            task = queue.popleft()
            if not queue:
                del self._by_priority[-priority]
                del self._priorities[0]
            if task.state is State.READY:
                self._live -= 1
                return task
            self._gone -= 1

    def forget(self) -> None:
        """Take note that one of the tasks here is no longer READY."""
        self._live -= 1
        self._gone += 1
        if self._gone > 64 and self._gone > self._live:
            self._sweep()

    def tasks(self) -> list[Task]:
        """The live tasks, most urgent first (for checks and tests)."""
        return [task for p in self._priorities for task in self._by_priority[-p] if task.state is State.READY]

    def _queue(self, priority: int) -> deque[Task]:
        queue = self._by_priority.get(priority)
        if queue is None:
            queue = self._by_priority[priority] = deque()
            insort(self._priorities, -priority)
        return queue

    def _sweep(self) -> None:
        live = self.tasks()
        self._by_priority.clear()
        self._priorities.clear()
        self._gone = 0
        for task in live:
            self._queue(task.priority).append(task)
