"""The scheduler: `handle(events, now) -> effects`.

What concerns the ends of tasks is in `endings`, inputs and dependents in `inputs`, values that are gone in
`lost_values`; this scheduler has their steps too.

Rules of this file: no I/O, no clock, no randomness, no iteration over sets. Whatever happens to a task goes through the
table in `states`, one method per handled cell. A message is believed only if its worker, task and attempt all match
what is known here; what does not match is counted and dropped, since messages cross on the way.

A task that nobody can refer to any more (released or never kept, and no dependent) is deleted when it ends, so memory
follows live tasks.
"""

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from slipstream.core.charges import charged_tasks
from slipstream.core.counters import Counters
from slipstream.core.durations import Durations
from slipstream.core.effects import Effects
from slipstream.core.events import (
    ClientLeft,
    ClientWaits,
    Event,
    FromClient,
    FromWorker,
    WorkerEnd,
    WorkerJoined,
    WorkerLeft,
)
from slipstream.core.inputs import tasks_among
from slipstream.core.lost_values import NOT_HELD, LostValueSteps
from slipstream.core.placement import Placement
from slipstream.core.ready import ReadyQueue
from slipstream.core.slots import Slots
from slipstream.core.states import (
    ASSIGNED,
    BY_WORKER,
    CANCELLED,
    EXPECTED,
    FAILED,
    FAULT,
    IGNORED,
    INPUT_OF,
    PLACED,
    READY,
    RUNNING,
    SUCCEEDED,
    TABLE,
    WAITING,
    Cell,
    Input,
    State,
    Step,
)
from slipstream.core.tasks import NOBODY, NOWHERE, Task, Worker, urgency
from slipstream.errors import InternalError
from slipstream.protocol.ids import STORED, ClientId, TaskId, WorkerId
from slipstream.protocol.messages import (
    Blocked,
    Cancel,
    CannotWait,
    ClientMessage,
    Done,
    Expect,
    Failed,
    Gave,
    Gone,
    Kept,
    Lacks,
    Missed,
    Provide,
    Release,
    Resumed,
    Retract,
    Run,
    Started,
    Submit,
    TaskAttempt,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
    ValueLost,
)

#: What a step is given beside the task: the message or object that caused it.
Handler: TypeAlias = Callable[[Task, Any], None]


class Scheduler(LostValueSteps):
    """All tasks that are not forgotten, and all workers.

    Args:
        slots: how many workers are to run tasks at a time, beside those whose tasks wait for others; 0 for all.
        most: how many workers there may be, with those; 0 for no limit.

    Example:
        >>> from slipstream.protocol.ids import MAIN_CLIENT
        >>> scheduler = Scheduler()
        >>> submit = Submit(task=1, digest=b"f", payload=b"...")
        >>> effects = scheduler.handle([WorkerJoined(7), FromClient(MAIN_CLIENT, [submit])], now=0)
        >>> [(run.task, run.attempt) for run in effects.workers[7]]
        [(1, 1)]
    """

    def __init__(self, slots: int = 0, most: int = 0) -> None:
        #: Every task that can still change or be referred to.
        self.tasks: dict[TaskId, Task] = {}
        #: Number of tasks in a LIVE state.
        self.live = 0
        self.ready = ReadyQueue()
        self.durations = Durations()
        self.counters = Counters()
        self.slots = Slots(slots, most)
        self.placement = Placement(self.durations, self.slots, self._assign, self._ask_back, self._home_of)
        self._effects = Effects()
        self._steps: list[list[Handler]] = [[self._handler_of(TABLE[s][i], i) for i in Input] for s in State]

    # --- events -------------------------------------------------------------------------------------------------------

    def handle(self, events: Iterable[Event], now: int) -> Effects:
        """Take events into account and say what follows.

        Args:
            events: what happened, in order.
            now: the time in ns, from any monotonic clock, not before that of the last call.

        Returns:
            The effects. They are the caller's: the scheduler keeps no reference to them.

        Raises:
            InternalError: If an invariant is broken. The scheduler is of no use after that.
        """
        eager = flush = False
        for event in events:
            kind = type(event)
            if kind is FromClient:
                self.placement.submitted(now)
                self._from_client(event)  # pyright: ignore[reportArgumentType]
            elif kind is FromWorker:
                eager = True
                self._from_worker(event)  # pyright: ignore[reportArgumentType]
            elif kind is ClientWaits:
                flush = True
            else:
                eager = True
                self._about_endpoint(event)
        self.placement.place(self.ready, now, self.live, eager=eager, flush=flush)
        effects, self._effects = self._effects, Effects()
        effects.wake_at = self.placement.wake_at
        if self.slots.changed:
            self.slots.tell(effects)
        return effects

    def forget_all(self) -> None:
        """All is over: nobody will ask for a result any more."""
        self.tasks.clear()

    def _about_endpoint(self, event: Event) -> None:
        if isinstance(event, WorkerJoined):
            if event.worker in self.placement.workers:
                raise InternalError(f"worker {event.worker} joined twice")
            self.placement.join(Worker(event.worker))
        elif isinstance(event, WorkerLeft):
            self._worker_left(event)
        elif isinstance(event, ClientLeft):
            self._client_left(event.client)
        else:
            raise InternalError(f"not an event: {event!r}")

    # --- clients ------------------------------------------------------------------------------------------------------

    def _from_client(self, event: FromClient) -> None:
        client = event.client
        for message in event.messages:
            if type(message) is Submit:
                self._submit(client, message)
            elif type(message) is Expect:
                self._expect(client, message)
            else:
                self._about_task(client, message)

    def _submit(self, client: ClientId, message: Submit) -> None:
        tasks, identity = self.tasks, message.task
        if identity in tasks:
            self._effects.faulty_clients[client] = f"task {identity} was submitted twice"
            return
        dependencies: tuple[TaskId, ...] = ()
        if message.inputs:
            dependencies = tasks_among(message.inputs)
            for dependency in dependencies:
                if dependency not in tasks:
                    self._effects.refused.append((client, message))
                    return
        task = Task(
            identity,
            client,
            message.digest,
            message.payload,
            message.items,
            urgency(message.priority, self._parent_at(client) if client else None),
            message.worker_retries,
            message.value_retries,
            message.inputs,
            dependencies,
            message.keep,
            message.definition,
            message.classes_digest,
            message.classes,
        )
        tasks[identity] = task
        self.live += 1
        self.counters.submitted += message.items or 1
        if dependencies:
            self._await_inputs(task)
        else:
            task.state = READY
            self.ready.add(task)

    def _parent_at(self, client: ClientId) -> Task | None:
        """Which task submits something, if the client is the tasks of a worker: the one that runs, or is about to."""
        worker = self.placement.workers.get(WorkerId(client))
        if worker is None:
            return None
        if worker.long is not None:
            return worker.tasks[worker.long]
        return next(iter(worker.tasks.values()), None)

    def _about_task(self, client: ClientId, message: ClientMessage) -> None:
        task = self.tasks.get(message.task)
        if task is None:
            self._about_forgotten(client, message)
        elif task.client != client:
            self._effects.faulty_clients[client] = f"task {message.task} is another client's"
        elif type(message) is Cancel:
            self._step(task, Input.CANCEL, message)
        elif type(message) is Release:
            self._step(task, Input.RELEASE, message)
        elif type(message) is Missed:
            self._step(task, Input.VALUE_GONE, message.payload)
        elif type(message) is Provide:
            if task.state is EXPECTED:
                self._step(task, Input.PROVIDED, message)
            else:
                self._effects.faulty_clients[client] = f"task {message.task} was not waiting for a value"
        else:
            raise InternalError(f"not a client's message: {message!r}")

    def _about_forgotten(self, client: ClientId, message: ClientMessage) -> None:
        self.counters.ignored += 1
        if type(message) is Missed:
            self._effects.tell_client(client, ValueLost(message.task, NOT_HELD))

    def _client_left(self, client: ClientId) -> None:
        """Walks over all tasks, once in the life of a client."""
        left = [task for task in self.tasks.values() if task.client == client]
        for task in left:  # all before the first is cancelled: its dependents end with it, and nobody is to be told
            task.client = NOBODY
        self._effects.clients.pop(client, None)  # effects name endpoints that are there
        for task in left:
            if task.task in self.tasks:
                self._step(task, Input.CANCEL, None)
            if task.task in self.tasks:
                self._step(task, Input.RELEASE, None)

    # --- workers ------------------------------------------------------------------------------------------------------

    def _from_worker(self, event: FromWorker) -> None:
        worker = self.placement.workers.get(event.worker)
        if worker is None:
            self.counters.stale += len(event.messages)
            return
        self.placement.touched[worker.worker] = worker
        tasks, steps, identity = self.tasks, self._steps, worker.worker
        for message in event.messages:
            kind = type(message)
            what = INPUT_OF[kind]
            if kind is Gave or kind is Kept or kind is Lacks:
                self._answered(worker, what, message.tasks)  # pyright: ignore
                continue
            task = tasks.get(message.task)  # pyright: ignore
            if task is None or task.worker != identity or task.attempt != message.attempt:  # pyright: ignore
                self.counters.stale += 1
            else:
                steps[task.state][what](task, message)

    def _answered(self, worker: Worker, what: Input, attempts: Iterable[TaskAttempt]) -> None:
        # Last first: each goes before what was READY, so they end in the order in which they were sent.
        for identity, attempt in reversed(tuple(attempts)):
            task = self.tasks.get(identity)
            if task is None or task.worker != worker.worker or task.attempt != attempt:
                self.counters.stale += 1
            else:
                self._step(task, what, worker)

    def _worker_left(self, event: WorkerLeft) -> None:
        worker = self.placement.workers.get(event.worker)
        if worker is None:
            self.counters.stale += 1
            return
        end = event.end
        charged = charged_tasks(worker, end)
        for task in reversed(list(worker.tasks.values())):
            if task.state in PLACED:  # one that was sent ahead may have failed with its input in this loop
                self._step(task, Input.LOST_RUNNING if task.task in charged else Input.WORKER_LOST, end)
        self.placement.leave(worker)

    # --- steps: one method per handled cell of the table --------------------------------------------------------------

    def _step(self, task: Task, what: Input, cause: object) -> None:
        self._steps[task.state][what](task, cause)

    def _handler_of(self, cell: Cell, what: Input) -> Handler:
        if isinstance(cell, Step):
            return getattr(self, cell.handler)
        if cell is IGNORED:
            return self._ignore
        assert cell is FAULT
        return self._worker_fault if what in BY_WORKER else self._own_fault(what)

    def _ignore(self, task: Task, cause: object) -> None:
        self.counters.ignored += 1

    def _worker_fault(self, task: Task, cause: object) -> None:
        said = (
            cause
            if isinstance(cause, Started | Done | Failed | Gone | Blocked | Resumed)
            else "that it gave it back, kept it or lacks a definition"
        )
        reason = f"worker {task.worker} said of task {task.task}, which is {task.state.name}: {said}"
        self._effects.faulty_workers[task.worker] = reason

    def _own_fault(self, what: Input) -> Handler:
        def broken(task: Task, cause: object) -> None:
            raise InternalError(f"{what.name} cannot happen to task {task.task}, which is {task.state.name}: {task!r}")

        return broken

    def _make_ready(self, task: Task, cause: object) -> None:
        task.state = READY
        self.ready.add(task)

    def _assign(self, task: Task, worker: Worker) -> None:
        """Placement calls this without the table (0.1 µs a task): what it takes is READY, or WAITING and sent ahead."""
        task.state = ASSIGNED
        task.worker = worker.worker
        task.attempt += 1
        worker.tasks[task.task] = task
        if task.missing:
            self._count_ahead(task, 1)
        if task.dependents:
            self._let_follow(task)
        run = Run(
            task.task,
            task.attempt,
            task.digest,
            task.payload,
            task.items,
            self._inputs_of(task) if task.dependencies else task.inputs,
            task.classes_digest,
            task.definition,
            task.classes,
        )
        self._effects.tell_worker(worker.worker, run)

    def _ask_back(self, worker: Worker, tasks: list[Task]) -> None:
        for task in tasks:
            self._step(task, Input.RETRACT, worker)
        attempts = tuple((task.task, task.attempt) for task in reversed(tasks))
        self._effects.tell_worker(worker.worker, Retract(attempts))

    def _retract(self, task: Task, worker: Worker) -> None:
        task.retracting = True
        worker.retracting += 1

    def _start(self, task: Task, message: Started) -> None:
        worker = self.placement.workers[task.worker]
        if worker.long is not None:
            reason = f"worker {worker.worker} said that it started task {task.task} while it ran {worker.long}"
            self._effects.faulty_workers[worker.worker] = reason
            return
        if task.missing and not self._has_what_was_lost(task):
            reason = f"worker {worker.worker} said that it started task {task.task}, whose inputs it cannot have"
            self._effects.faulty_workers[worker.worker] = reason
            return
        task.state = RUNNING
        worker.long = task.task
        self._effects.tell_client(task.client, TaskRunning(task.task))

    def _block(self, task: Task, message: Blocked) -> None:
        worker = self.placement.workers[task.worker]
        if task.state is ASSIGNED:
            self._start(task, Started(task.task, task.attempt))
        if task.state is not RUNNING or worker.blocked:
            return
        if self.slots.may_block():
            self.placement.block(worker)
        else:
            client = ClientId(worker.worker)
            self._effects.tell_client(client, CannotWait(task.task, self.slots.most))

    def _resume(self, task: Task, message: Resumed) -> None:
        self.placement.resume(self.placement.workers[task.worker])

    def _succeed(self, task: Task, message: Done) -> None:
        self._completed(task, message.duration_ns)
        task.state = SUCCEEDED
        counters, failures = self.counters, message.failures
        if not task.value_losses:
            counters.succeeded += (task.items or 1) - len(failures)
            counters.failed += len(failures)
        self._effects.tell_client(task.client, TaskSucceeded(task.task, message.payload, message.duration_ns, failures))
        if message.payload[:1] == STORED and not task.released:
            task.kept = True
        if task.dependents or task.kept:
            self._hand_on(task, message.payload)
            if task.bound:
                self._bind(task, 0)
        elif not task.dependencies:  # what most tasks are: no one to tell, nothing to keep
            self.live -= 1
            del self.tasks[task.task]
            return
        self._ended(task)

    def _fail(self, task: Task, message: Failed) -> None:
        self._completed(task, message.duration_ns)
        self._end_badly(task, FAILED)
        self._effects.tell_client(task.client, TaskFailed(task.task, message.payload))
        self._fail_dependents(task)

    def _completed(self, task: Task, duration_ns: int) -> None:
        """A worker has reported the end of a task: what was measured, and what it means for the worker."""
        worker = self.placement.workers[task.worker]
        worker.held = False
        self._take_from(task, worker)
        self.counters.run_ns += duration_ns
        self.durations.learn(task.digest, duration_ns // task.items if task.items else duration_ns)

    def _take_back(self, task: Task, worker: Worker) -> None:
        # A worker that gives back unasked is busy for a while; one that was asked is not. With nothing left it has
        # nothing to complete either: held, it would never get a task again.
        unasked = not task.retracting
        self._take_from(task, worker)
        worker.held = bool(worker.tasks) and (worker.held or unasked)
        self._back_to_ready(task)

    def _lack(self, task: Task, worker: Worker) -> None:
        """It is dispatched again, and all that it needs with it."""
        self._effects.lacking += [(worker.worker, digest) for digest in (task.digest, task.classes_digest)]
        self._take_from(task, worker)
        self._back_to_ready(task)

    def _keep(self, task: Task, worker: Worker) -> None:
        self._end_retraction(task, worker)

    def _lose_unstarted(self, task: Task, end: WorkerEnd) -> None:
        self._take_from(task, self.placement.workers[task.worker])
        self._back_to_ready(task)

    def _lose_running(self, task: Task, end: WorkerEnd) -> None:
        self._take_from(task, self.placement.workers[task.worker])
        task.losses += 1
        if task.losses <= task.worker_retries:
            self._back_to_ready(task)
            return
        self._end_badly(task, FAILED)
        lost = TaskLost(task.task, task.attempt, end.reason, end.signal, end.exit_status, end.last_output, end.item)
        self._effects.tell_client(task.client, lost)
        self._fail_dependents(task)

    def _cancel(self, task: Task, cause: object) -> None:
        if task.state is READY:
            self.ready.forget()
        self._end_badly(task, CANCELLED)
        self._effects.tell_client(task.client, TaskCancelled(task.task))
        self._fail_dependents(task)

    # --- parts of steps -----------------------------------------------------------------------------------------------

    def _take_from(self, task: Task, worker: Worker) -> None:
        """The task is not with that worker any more."""
        del worker.tasks[task.task]
        if not worker.tasks:
            worker.held = False  # nothing is left that it could complete
        if task.missing:
            self._count_ahead(task, -1)
        worker.backlog_ns -= task.estimate_ns
        task.worker = NOWHERE
        if worker.long == task.task:
            worker.long = None
            if worker.blocked:
                self.placement.resume(worker)
        if task.retracting:
            self._end_retraction(task, worker)

    def _end_retraction(self, task: Task, worker: Worker) -> None:
        if task.retracting:
            task.retracting = False
            worker.retracting -= 1
            if not worker.retracting:
                self.placement.answered(worker)

    def _back_to_ready(self, task: Task) -> None:
        task.state = WAITING
        failed = self._count_inputs(task) if task.dependencies else None
        if failed is not None:  # its value was lost while this task had it
            self._step(task, Input.INPUT_FAILED, failed)
            self._fail_dependents(task)
        elif not task.missing:
            task.state = READY
            self.ready.put_back(task)
