"""Tasks that have ended: what is counted, what is kept of them and for whom, and when they are forgotten.

The scheduler has these steps beside its own.

Never here: how a task came to its end.
"""

from abc import ABC, abstractmethod

from slipstream.core.counters import Counters
from slipstream.core.effects import Effects
from slipstream.core.states import CANCELLED, EXPECTED, LIVE, SUCCEEDED, Input, State
from slipstream.core.tasks import Task
from slipstream.protocol.ids import STORED, TaskId


class EndingSteps(ABC):
    """The scheduler's part that is about the ends of tasks."""

    tasks: dict[TaskId, Task]
    live: int
    counters: Counters
    _effects: Effects

    @abstractmethod
    def _step(self, task: Task, what: Input, cause: object) -> None:
        """Take the step of the table for what happens to a task."""

    @abstractmethod
    def _keep_recipe(self, task: Task) -> tuple[TaskId, ...]:
        """A task with a large result has succeeded: keep what can run it again. The tasks that are part of that."""

    @abstractmethod
    def _bind(self, task: Task, by: int) -> None:
        """So many more dependents have it in their recipes only."""

    def _release_early(self, task: Task, cause: object) -> None:
        task.kept, task.released = False, True

    def _release(self, task: Task, cause: object) -> None:
        task.kept, task.released = False, True
        self._forget_if_unused(task)

    def _end_badly(self, task: Task, state: State) -> None:
        """A final state without a result. The dependents are for the caller."""
        task.state = state
        weight = task.items or 1
        if task.value_losses:  # it had succeeded before, and is counted as such
            return
        if state is CANCELLED:
            self.counters.cancelled += weight
        else:
            self.counters.failed += weight

    def _ended(self, task: Task) -> None:
        """The task is in a final state, told to its client, and its dependents know: drop what it no longer needs."""
        self.live -= 1
        needed: tuple[TaskId, ...] = ()
        if task.state is SUCCEEDED and task.value_retries and task.result is not None and task.result[:1] == STORED:
            needed = self._keep_recipe(task)
        else:
            task.payload = task.definition = task.classes = b""
            task.inputs = ()
        dependencies, task.dependencies, held = task.dependencies, needed, frozenset(needed)
        for identity in dependencies:
            if identity in held:
                self._bind(self.tasks[identity], 1)
                continue
            dependency = self._let_go(task, identity)
            if dependency.state is EXPECTED and not dependency.dependents:
                self._step(dependency, Input.CANCEL, None)
            elif dependency.state not in LIVE:
                self._forget_if_unused(dependency)
        self._forget_if_unused(task)

    def _let_go(self, task: Task, identity: TaskId) -> Task:
        """A task does not depend on another one any more; that other one."""
        dependency = self.tasks[identity]
        assert dependency.dependents is not None
        del dependency.dependents[task.task]
        if dependency.bound:
            self._bind(dependency, 0)
        return dependency

    def _forget_if_unused(self, task: Task) -> None:
        """Forget a task that has ended, and then those that its recipe needed, if that was all that they were for."""
        unused = [task]
        while unused:
            task = unused.pop()
            if not task.kept and not task.dependents and task.state not in LIVE:
                # Perhaps for the second time: where a diamond fails, a task's last dependent may be through before it.
                self.tasks.pop(task.task, None)
                if task.recipe:  # else it has let go of them, or will when it is through
                    dependencies, task.dependencies = task.dependencies, ()
                    for identity in dependencies:
                        self._bind(self.tasks[identity], -1)
                        unused.append(self._let_go(task, identity))
