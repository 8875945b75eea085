"""The engine as a client sees it, and a client as the engine does.

Never here: what either does.
"""

from collections.abc import Sequence
from typing import Protocol

from slipstream.protocol.ids import TaskId
from slipstream.protocol.messages import Expect, Missed, Notice, Provide, Submit
from slipstream.runtime.reactor import Sleeper


class Client(Protocol):
    """An endpoint that submits tasks and is told what became of them."""

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Take notices, in order. Called outside of the engine's lock."""
        ...

    def refused(self, message: Submit) -> None:
        """A task depends on one that has ended, and whose end was told before. Called outside of the engine's lock."""
        ...

    def fail_all(self, error: Exception) -> None:
        """Nothing more will come: end every pending future with this error."""
        ...

    def pending(self) -> list[TaskId]:
        """Tasks that have not ended."""
        ...

    def finish_handed_over(self) -> None:
        """Finish what must be finished in the I/O thread, which calls this."""
        ...

    def abandon(self, error: Exception) -> None:
        """In a forked child: end every pending future with this error, without any lock."""
        ...


class ClientEngine(Protocol):
    """The engine, as a client sees it: in this process, or at the other end of a worker's connection."""

    @property
    def answers_at_once(self) -> bool:
        """Whether what follows from a message has been told when the call with it returns."""
        ...

    @property
    def over(self) -> bool:
        """Whether no more tasks are taken."""
        ...

    def refuse_if_over(self) -> None:
        """Raise what `submit` would raise now, whatever the task."""
        ...

    def submit(self, *messages: Expect | Submit) -> None:
        """A new task, after values that it expects."""
        ...

    def tell(self, message: Provide | Missed) -> None:
        """A value that was expected, or is gone."""
        ...

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Cancel those of the tasks that are not assigned yet."""
        ...

    def may_end(self, task: TaskId) -> bool:
        """Whether the task has still to end, after `cancel`."""
        ...

    def wait_for(self, sleeper: Sleeper, timeout_s: float | None) -> None:
        """Wait until the sleeper is woken or the time is over."""
        ...

    def awaited(self, task: TaskId) -> None:
        """Somebody waits for a future by other means than `wait_for`."""
        ...

    def release(self, task: TaskId) -> None:
        """A task with a large result is needed no more; called by finalizers."""
        ...

    def leads(self) -> bool:
        """Whether callbacks are not to be called by the calling thread."""
        ...

    def hand_over(self) -> None:
        """Have `finish_handed_over` called by the thread that may."""
        ...

    def live_tasks(self) -> int:
        """How many tasks have not ended."""
        ...

    def count(self) -> dict[str, int]:
        """Counters by name."""
        ...

    def close(self) -> None:
        """Take no more tasks, and end when there is none."""
        ...

    def cancel_pending(self) -> None:
        """Cancel whatever has not been assigned."""
        ...

    def wait_ended(self) -> None:
        """Wait until all is over, after `close`."""
        ...
