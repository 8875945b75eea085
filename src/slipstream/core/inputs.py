"""Tasks that take what others give: waiting for inputs, handing results on, failing by an input, going ahead of them.

The scheduler has these steps beside its own, which are about one task and its worker.

Never here: which worker a task gets (see `placement`), and what a worker says.
"""

from abc import abstractmethod
from itertools import islice

from slipstream.core.endings import EndingSteps
from slipstream.core.placement import Placement
from slipstream.core.states import (
    ASSIGNED,
    CANCELLED,
    EXPECTED,
    FAILED,
    LIVE,
    SUCCEEDED,
    WAITING,
    Input,
)
from slipstream.core.tasks import NOWHERE, Task, Worker
from slipstream.protocol.ids import NO_DIGEST, ClientId, TaskId
from slipstream.protocol.messages import Expect, InputFailed, Provide

#: A task with more dependencies is not sent ahead; of more dependents of one task the rest is not.
MAX_FOLLOWED = 16
MAX_FOLLOWERS = 256


class InputSteps(EndingSteps):
    """The scheduler's part that is about inputs and dependents."""

    placement: Placement

    @abstractmethod
    def _take_from(self, task: Task, worker: Worker) -> None:
        """The task is not with that worker any more."""

    def _expect(self, client: ClientId, message: Expect) -> None:
        if message.task in self.tasks:
            self._effects.faulty_clients[client] = f"task {message.task} was submitted twice"
            return
        self.tasks[message.task] = Task(message.task, client, NO_DIGEST, b"", kept=message.keep, state=EXPECTED)
        self.live += 1

    def _await_inputs(self, task: Task) -> None:
        """A WAITING task takes stock of its inputs: it goes on, waits, or fails."""
        failed = self._count_inputs(task)
        if failed is not None:
            self._step(task, Input.INPUT_FAILED, failed)
            self._fail_dependents(task)
        elif not task.missing:
            self._step(task, Input.INPUTS_READY, None)
        else:
            self._may_follow(task)

    def _count_inputs(self, task: Task) -> Task | None:
        """Note which inputs are missing. The first that failed, if any has."""
        failed: Task | None = None
        task.missing = 0
        for identity in task.dependencies:
            dependency = self.tasks[identity]
            if dependency.dependents is None:
                dependency.dependents = {}
            missing = dependency.state in LIVE
            dependency.dependents[task.task] = missing
            if missing:
                task.missing += 1
            elif dependency.state is not SUCCEEDED and failed is None:
                failed = dependency
        return failed

    def _home_of(self, task: Task) -> Worker | None:
        """The worker that has, or makes, all inputs of a WAITING task that are not there yet."""
        tasks, home = self.tasks, NOWHERE
        for identity in task.dependencies:
            dependency = tasks[identity]
            if dependency.state is not SUCCEEDED:
                worker = dependency.worker
                if worker == NOWHERE or dependency.retracting or (home != worker and home != NOWHERE):
                    return None
                home = worker
        return self.placement.workers.get(home)

    def _may_follow(self, task: Task) -> None:
        if len(task.dependencies) <= MAX_FOLLOWED:
            home = self._home_of(task)
            if home is not None:
                self.placement.follow(task, home)

    def _let_follow(self, task: Task) -> None:
        """What depends on a task that has just been assigned may be sent after it."""
        for identity in islice(task.dependents or (), MAX_FOLLOWERS):
            dependent = self.tasks[identity]
            if dependent.state is WAITING:
                self._may_follow(dependent)

    def _count_ahead(self, task: Task, by: int) -> None:
        """A task that was sent ahead of its inputs is with their worker, or is not any more."""
        for identity in task.dependencies:
            dependency = self.tasks[identity]
            assert dependency.dependents is not None
            if dependency.dependents[task.task]:
                dependency.ahead += by

    def _inputs_of(self, task: Task) -> tuple[TaskId | bytes, ...]:
        """What it takes, with results in place of the tasks that have succeeded."""
        tasks, known = self.tasks, list(task.inputs)
        for place, value in enumerate(known):
            if not isinstance(value, bytes):
                result = tasks[value].result
                if result is not None:
                    known[place] = result
        return tuple(known)

    def _hand_on(self, task: Task, payload: bytes) -> None:
        """The dependents have one input more."""
        # A payload may own a file. That of a result which the client keeps is its own business; one that nobody keeps,
        # and that was made again for the sake of others, is here until they have taken it.
        task.result = bytes(payload) if task.kept else payload
        dependents = task.dependents or {}
        for identity, missing in tuple(dependents.items()):
            if missing:
                dependents[identity] = False
                dependent = self.tasks[identity]
                dependent.missing -= 1
                if not dependent.missing and dependent.state is WAITING:
                    self._step(dependent, Input.INPUTS_READY, None)

    def _take_value(self, task: Task, message: Provide) -> None:
        if message.payload is None:
            task.state = FAILED
            self._fail_dependents(task)
        else:
            task.state = SUCCEEDED
            self._hand_on(task, message.payload)
            self._ended(task)

    def _drop(self, task: Task, cause: object) -> None:
        """Nobody waits for the value any more, or its client has left."""
        task.state = CANCELLED
        self._fail_dependents(task)

    def _fail_by_input(self, task: Task, cause: Task) -> None:
        if task.state is ASSIGNED:  # sent ahead: its worker will find that it lacks the input
            worker = self.placement.workers[task.worker]
            self._take_from(task, worker)
            self.placement.touched[worker.worker] = worker
        task.root = cause.task if cause.root is None else cause.root
        self._end_badly(task, FAILED)
        self._effects.tell_client(task.client, InputFailed(task.task, task.root, cause.task))

    def _fail_dependents(self, task: Task) -> None:
        """End whatever depends on a task that ended badly; a chain of 100,000 needs no recursion."""
        ended = [task]
        while ended:
            failed = ended.pop()
            # None has ended: what is below in the stack was submitted before this one, so it does not depend on it.
            # Those that have been given the value, though it was lost since, do not mind.
            dependents = [self.tasks[identity] for identity, missing in (failed.dependents or {}).items() if missing]
            for dependent in dependents:
                self._step(dependent, Input.INPUT_FAILED, failed)
            ended += dependents
            self._ended(failed)


def tasks_among(inputs: tuple[TaskId | bytes, ...]) -> tuple[TaskId, ...]:
    """The tasks among the inputs of another, each once.

    Args:
        inputs: Tasks, and results that are there already.

    Example:
        >>> tasks_among((7, b"result", 5, 7))
        (7, 5)
    """
    tasks = [value for value in inputs if not isinstance(value, bytes)]
    return tuple(tasks) if len(tasks) < 2 else tuple(dict.fromkeys(tasks))
