"""Values that are gone, and the tasks that make them again.

A result in a file can be lost: somebody removes it, or the machine's memory is cleared. So a task whose result lies in
a file keeps its recipe, as long as anybody may want the result: its call, the small results that it took, and the
tasks that made the large ones, with recipes of their own. When a worker or the client says that a value is gone, its
task runs again; if what it takes is gone too, its worker will say so.

Recipes own no file. What a task took and nobody else needs any more may be gone when the task is to run again; then
that is made first, if it has a recipe.

Never here: who owns files, and how it is found that one is gone (see `store`).
"""

from abc import abstractmethod

from slipstream.core.inputs import InputSteps
from slipstream.core.ready import ReadyQueue
from slipstream.core.states import FAILED, READY, SUCCEEDED, WAITING, Input
from slipstream.core.tasks import Task
from slipstream.protocol.ids import TaskId
from slipstream.protocol.messages import Gone, ValueLost

#: So many recipes may need one another in a row. A loop that makes a large value out of the last one, a million times,
#: would keep a million of them.
MAX_DEPTH = 100

NOT_HELD = "it cannot be computed again, since its recipe is not held any more"
_NO_RETRIES = "it is not computed again, since worker_retries is 0"
_NO_RECIPE = "it cannot be computed again, since it is no result of a task of this executor"
_TOO_OFTEN = "it was computed again, and lost again, as often as worker_retries allows: {count}"
_INPUT_GONE = (
    "a value that it takes, which was put or came from another executor, is gone: its file was removed or cut short, "
    "and there is no task that could compute it again. Put it again, and submit the task with that"
)


class LostValueSteps(InputSteps):
    """The scheduler's part that is about values that are gone."""

    ready: ReadyQueue

    @abstractmethod
    def _back_to_ready(self, task: Task) -> None:
        """It is with no worker any more, and has to run."""

    def _keep_recipe(self, task: Task) -> tuple[TaskId, ...]:
        """A task with a large result has succeeded: keep what can run it again. The tasks that are part of that."""
        parts = [self.tasks[identity] for identity in task.dependencies]
        depth = 1 + max((part.depth for part in parts), default=-1)
        task.depth = depth if depth <= MAX_DEPTH else 0
        # Of a part whose value was lost while this task had it, there is nothing else to keep.
        needed = [part for part in parts if part.result is None or (part.recipe and depth <= MAX_DEPTH)]
        self._miss_nothing(task, needed)
        held = frozenset([part.task for part in needed])
        task.inputs = tuple([value if value in held else self._plain(value) for value in task.inputs])
        # Parts that are in files themselves may go with those.
        task.payload, task.definition, task.classes = bytes(task.payload), bytes(task.definition), bytes(task.classes)
        return tuple([part.task for part in needed])

    def _bind(self, task: Task, by: int) -> None:
        """So many more dependents have it in their recipes only: if all have, it needs no value."""
        task.bound += by
        if not task.kept and task.result is not None and task.dependents and task.bound == len(task.dependents):
            task.result = bytes(task.result)

    def _plain(self, value: TaskId | bytes) -> bytes:
        result = value if isinstance(value, bytes) else self.tasks[value].result
        assert result is not None  # or it would have been kept as a task
        return bytes(result)

    def _lose_inputs(self, task: Task, message: Gone) -> None:
        """Its worker could not find what it takes: have that made again, and wait."""
        worker = self.placement.workers[task.worker]
        worker.held = False
        self._take_from(task, worker)
        task.state = WAITING
        gone = frozenset(message.payloads)
        for identity in task.dependencies:
            if task.state is WAITING:
                dependency = self.tasks[identity]
                if dependency.state is SUCCEEDED and dependency.result in gone:
                    self._step(dependency, Input.VALUE_GONE, dependency.result)
        if task.state is not WAITING:  # it has failed by one of them
            return
        if gone.isdisjoint([bytes(value) for value in task.inputs if isinstance(value, bytes)]):
            self._back_to_ready(task)
        else:
            self._end_badly(task, FAILED)
            self._tell_lost(task, _INPUT_GONE)

    def _lose_value(self, task: Task, payload: bytes) -> None:
        """Its value is gone, if it is still that one."""
        if task.result != payload:
            return
        self._miss_again(task)
        task.value_losses += 1
        self.live += 1
        had_recipe, task.depth, task.result = task.recipe, -1, None
        if had_recipe:
            for identity in task.dependencies:
                self._bind(self.tasks[identity], -1)
        if had_recipe and task.value_losses <= task.value_retries:
            self.counters.recomputed += 1
            task.ahead = 0
            self._back_to_ready(task)
            return
        task.state = FAILED
        if had_recipe:
            self._tell_lost(task, _TOO_OFTEN.format(count=task.value_retries))
        else:
            self._tell_lost(task, _NO_RETRIES if task.digest else _NO_RECIPE)

    def _has_what_was_lost(self, task: Task) -> bool:
        """Whether all that a task misses was there before: its worker may have it still, and then it does not wait."""
        parts = [self.tasks[identity] for identity in task.dependencies]
        if not all(part.value_losses for part in parts if part.dependents and part.dependents[task.task]):
            return False
        self._count_ahead(task, -1)
        self._miss_nothing(task, parts)
        return True

    def _miss_nothing(self, task: Task, parts: list[Task]) -> None:
        """Whatever becomes of the values of these, the task has had them."""
        for part in parts:
            assert part.dependents is not None
            part.dependents[task.task] = False
        task.missing = 0

    def _miss_again(self, task: Task) -> None:
        """Those dependents that have not been given the value wait for it again."""
        dependents = task.dependents or {}
        for identity in dependents:
            dependent = self.tasks[identity]
            if dependent.state in (WAITING, READY):
                dependents[identity] = True
                dependent.missing += 1
                if dependent.state is READY:
                    self.ready.forget()
                    dependent.state = WAITING

    def _tell_lost(self, task: Task, reason: str) -> None:
        """A task that cannot have its value, or that of another one, has FAILED."""
        self._effects.tell_client(task.client, ValueLost(task.task, reason))
        self._fail_dependents(task)

    def _say_lost(self, task: Task, payload: bytes) -> None:
        """Its client learned late that it has no value any more."""
        self._effects.tell_client(task.client, ValueLost(task.task, NOT_HELD))
