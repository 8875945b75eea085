"""Tasks that could run: by priority, and first come first served within one.

Taking one costs the same however many there are. A cancelled task stays where it is until it would be taken, or until
half of all entries are such; so the structure stays within twice what is live. One that has to wait once more, since
its input was lost, may stand here twice when it is READY again: the first place counts.
"""

from bisect import insort
from collections import deque

from slipstream.core.states import READY
from slipstream.core.tasks import Task


class ReadyQueue:
    """READY tasks. `len()` counts those that are live."""

    __slots__ = ("_by_priority", "_gone", "_priorities", "live")

    def __init__(self) -> None:
        self._by_priority: dict[int, deque[Task]] = {}
        #: Priorities in use, negated: the most urgent is first.
        self._priorities: list[int] = []
        #: How many tasks here are READY. (An attribute: placement looks at it ten times a turn.)
        self.live = 0
        #: How many are not any more.
        self._gone = 0

    def __len__(self) -> int:
        return self.live

    def add(self, task: Task) -> None:
        """Append a task that has become READY."""
        queue = self._by_priority.get(task.priority)
        if queue is None:
            queue = self._open(task.priority)
        queue.append(task)
        self.live += 1

    def put_back(self, task: Task) -> None:
        """Put a task first that had been taken and came back."""
        queue = self._by_priority.get(task.priority)
        if queue is None:
            queue = self._open(task.priority)
        queue.appendleft(task)
        self.live += 1

    def precedes(self, priority: int) -> bool:
        """Whether a task of higher priority is here."""
        return bool(self.live and self._priorities and -self._priorities[0] > priority)

    def first(self) -> Task:
        """The task that `take` would return. There must be one."""
        task = self._by_priority[-self._priorities[0]][0]
        if task.state is not READY:  # cancelled: behind it is the one that is meant
            task = self.take()
            self.put_back(task)
        return task

    def take(self) -> Task:
        """Remove and return the task whose turn it is. There must be one."""
        while True:
            priority = self._priorities[0]
            queue = self._by_priority[-priority]
            task = queue.popleft()
            if not queue and len(self._priorities) > 1:  # the last one will be used again at once
                del self._by_priority[-priority]
                del self._priorities[0]
            if task.state is READY:
                self.live -= 1
                return task
            self._gone -= 1

    def forget(self) -> None:
        """Take note that one of the tasks here is no longer READY."""
        self.live -= 1
        self._gone += 1
        if self._gone > 64 and self._gone > self.live:
            self._sweep()

    def tasks(self) -> list[Task]:
        """The live tasks, most urgent first (for checks and tests)."""
        return [task for p in self._priorities for task in _once(self._by_priority[-p])]

    def _open(self, priority: int) -> deque[Task]:
        if len(self._priorities) == 1 and not self._by_priority[-self._priorities[0]]:  # `take` has left it there
            self._by_priority.clear()
            self._priorities.clear()
        queue = self._by_priority[priority] = deque()
        insort(self._priorities, -priority)
        return queue

    def _sweep(self) -> None:
        for priority, queue in list(self._by_priority.items()):
            live = deque(_once(queue))
            if live:
                self._by_priority[priority] = live
            else:
                del self._by_priority[priority]
                self._priorities.remove(-priority)
        self._gone = 0


def _once(queue: deque[Task]) -> list[Task]:
    """The READY tasks of a queue, each in its first place."""
    return list({task.task: task for task in queue if task.state is READY}.values())
