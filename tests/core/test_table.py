"""Every (state, input) pair does what the table says, and every outcome that the table names comes about.

Each pair starts from a task that legal events brought into the state. Where an event causes the input, the event is
fed; where none can, since the scheduler never does such a thing or takes the message for stale, the step is called.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest
from turns import MS, US, Turns, submit

from slipstream.core.events import Event, FromClient, FromWorker, WorkerEnd, WorkerJoined, WorkerLeft
from slipstream.core.scheduler import Scheduler
from slipstream.core.states import FAULT, IGNORED, LIVE, PLACED, TABLE, Input, State, Step
from slipstream.core.tasks import Task, Worker
from slipstream.errors import InternalError
from slipstream.protocol.ids import MAIN_CLIENT, STORED
from slipstream.protocol.messages import (
    Blocked,
    Cancel,
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
    Started,
)

#: The task that the tests are about, its worker, a task that it may depend on, and one that may depend on it.
TASK, WORKER, INPUT, OUTPUT = 1, 7, 100, 200
#: Makes a turn's worth of RETRACT: this many more tasks at the worker, and a worker that has nothing to do.
FILLERS, IDLE_WORKER = 4, 8
#: Results that lie in files: that of TASK, and that of INPUT.
RESULT, VALUE = STORED + b"result", STORED + b"value"

BY_CLIENT = frozenset({Input.CANCEL, Input.RELEASE, Input.PROVIDED, Input.VALUE_GONE})
BY_WORKER = frozenset(
    {Input.STARTED, Input.DONE, Input.RAISED, Input.GAVE, Input.KEPT, Input.LACKED}
    | {Input.INPUT_GONE, Input.BLOCKED, Input.RESUMED}
)
#: What may happen to a task that was sent ahead as long as its input is missing.
AHEAD = frozenset({Input.INPUT_FAILED, Input.GAVE, Input.LACKED, Input.WORKER_LOST, Input.LOST_RUNNING})
#: What takes a task from its worker without an end: it may find then that a value was lost that it had been given.
BACK = frozenset({Input.GAVE, Input.LACKED, Input.WORKER_LOST, Input.LOST_RUNNING, Input.INPUT_GONE})
CELLS = [(state, what) for state in State for what in Input]
HANDLED = [(state, what) for state, what in CELLS if isinstance(TABLE[state][what], Step)]
FORGOTTEN = "forgotten"


class Transition(NamedTuple):
    task: int
    state: State
    what: Input
    after: State | str


def watch(scheduler: Scheduler) -> list[Transition]:
    """Every step that the scheduler takes from now on, in order of completion."""
    seen: list[Transition] = []

    def watched(state: State, what: Input, step: Callable[[Task, Any], None]) -> Callable[[Task, Any], None]:
        def handler(task: Task, cause: Any) -> None:
            step(task, cause)
            forgotten = task.task not in scheduler.tasks and state is not State.EXPECTED  # which nobody keeps
            seen.append(Transition(task.task, state, what, FORGOTTEN if forgotten else task.state))

        return handler

    scheduler._steps = [[watched(s, i, scheduler._steps[s][i]) for i in Input] for s in State]

    def assign(task: Task, worker: Worker) -> None:
        scheduler._steps[task.state][Input.ASSIGN](task, worker)

    scheduler.placement._assign = assign  # placement takes this step without a look at the table
    return seen


def bring(state: State, **fields: Any) -> Turns:
    """A scheduler that has TASK in a state, kept by its client. In PLACED states WORKER has it."""
    turns = Turns()
    if state is State.WAITING:
        turns.join(WORKER)
        turns.submit(INPUT, keep=True)
        turns.submit(TASK, inputs=(INPUT,), keep=True, **fields)
    elif state is State.EXPECTED:
        turns.join(WORKER)
        turns.client(Expect(TASK))
        turns.submit(OUTPUT, inputs=(TASK,))
    elif state is State.READY:
        turns.submit(TASK, keep=True, **fields)
    elif state is State.CANCELLED:
        turns.submit(TASK, keep=True, **fields)
        turns.client(Cancel(TASK))
    else:
        turns.join(WORKER)
        turns.submit(TASK, keep=True, **fields)
        for message in {
            State.ASSIGNED: [],
            State.RUNNING: [Started(TASK, 1)],
            State.SUCCEEDED: [Done(TASK, 1, 5, RESULT)],
            State.FAILED: [Failed(TASK, 1, 5, b"e")],
        }[state]:
            turns.worker(WORKER, message)
    assert turns.state(TASK) is state
    return turns


def bring_with_input(state: State, *, lost: bool = False, value_retries: int = 0, **fields: Any) -> Turns:
    """TASK has been given a value in a file, which perhaps was lost since; and made again, if it may be."""
    turns = Turns()
    turns.join(WORKER)
    turns.submit(INPUT, keep=True, value_retries=value_retries)
    turns.worker(WORKER, Done(INPUT, 1, 5, VALUE))
    turns.submit(TASK, inputs=(INPUT,), keep=True, value_retries=1, **fields)
    if state is State.RUNNING:
        turns.worker(WORKER, Started(TASK, 1))
    elif state is State.SUCCEEDED:
        turns.worker(WORKER, Done(TASK, 1, 5, RESULT))
        turns.lose(WORKER)
    if lost:
        turns.client(Missed(INPUT, VALUE))
    assert turns.state(TASK) is state
    return turns


def bring_behind_others() -> Turns:
    """TASK is ASSIGNED and the last of a worker with so much to do that some of it will be asked back."""
    turns = Turns()
    turns.learn(b"f", 2 * MS)
    turns.join(WORKER)
    turns.client(*[submit(INPUT + n) for n in range(FILLERS)], submit(TASK, keep=True))
    assert turns.held_by(WORKER)[-1] == TASK
    return turns


def bring_ahead(**fields: Any) -> Turns:
    """TASK is ASSIGNED ahead of INPUT, which its worker has as well."""
    turns = Turns()
    turns.learn(b"f", US)
    turns.join(WORKER)
    turns.submit(INPUT, keep=True)
    turns.submit(TASK, inputs=(INPUT,), keep=True, **fields)
    assert (turns.state(TASK), turns.scheduler.tasks[TASK].missing) == (State.ASSIGNED, 1)
    return turns


def bring_before_a_follower_may_go(**fields: Any) -> Turns:
    """TASK is WAITING for a READY task, and the next worker that joins will get both."""
    turns = Turns()
    turns.learn(b"f", US)
    turns.submit(INPUT, keep=True)
    turns.submit(TASK, inputs=(INPUT,), keep=True, **fields)
    assert turns.state(TASK) is State.WAITING
    return turns


def message_for(what: Input, attempt: int) -> Any:
    """What a client or a worker says to cause an input."""
    return {
        Input.CANCEL: Cancel(TASK),
        Input.RELEASE: Release(TASK),
        Input.PROVIDED: Provide(TASK, b"v"),
        Input.STARTED: Started(TASK, attempt),
        Input.DONE: Done(TASK, attempt, 5, b"r"),
        Input.RAISED: Failed(TASK, attempt, 5, b"e"),
        Input.GAVE: Gave(((TASK, attempt),)),
        Input.KEPT: Kept(((TASK, attempt),)),
        Input.LACKED: Lacks(((TASK, attempt),)),
        Input.INPUT_GONE: Gone(TASK, attempt, (VALUE,)),
        Input.VALUE_GONE: Missed(TASK, RESULT),
        Input.BLOCKED: Blocked(TASK, attempt),
        Input.RESUMED: Resumed(TASK, attempt),
    }[what]


def event_for(what: Input, attempt: int) -> Event:
    """The event that causes an input to a task which `bring` has prepared."""
    if what in BY_CLIENT:
        return FromClient(MAIN_CLIENT, [message_for(what, attempt)])
    if what in BY_WORKER:
        return FromWorker(WORKER, [message_for(what, attempt)])
    return {
        Input.INPUTS_READY: FromWorker(WORKER, [Done(INPUT, 1, 5, b"r")]),
        Input.INPUT_FAILED: FromWorker(WORKER, [Failed(INPUT, 1, 5, b"e")]),
        Input.ASSIGN: WorkerJoined(IDLE_WORKER),
        Input.RETRACT: WorkerJoined(IDLE_WORKER),
        Input.WORKER_LOST: WorkerLeft(WORKER, WorkerEnd("lost")),
        Input.LOST_RUNNING: WorkerLeft(WORKER, WorkerEnd("lost", running=(TASK, attempt))),
    }[what]


def outcomes(state: State, what: Input) -> set[State | str]:
    """What becomes of the task by a handled input, over all the ways that matter: kept or not, to be retried or not."""
    after: set[State | str] = set()
    for turns in prepared(state, what):
        transitions = watch(turns.scheduler)
        turns.turn(event_for(what, turns.attempt(TASK)))
        after |= {t.after for t in transitions if (t.task, t.state, t.what) == (TASK, state, what)}
    if what is Input.PROVIDED:
        turns = bring(state)
        transitions = watch(turns.scheduler)
        turns.client(Provide(TASK, None))
        after |= {t.after for t in transitions if (t.task, t.what) == (TASK, what)}
    return after


def prepared(state: State, what: Input) -> Iterator[Turns]:
    """The task in that state, once for each way that matters: retried or not, with its inputs or ahead of them."""
    if what is Input.RETRACT:
        yield bring_behind_others()
        return
    if (state, what) == (State.SUCCEEDED, Input.VALUE_GONE):
        yield from with_a_value_to_lose()
    for worker_retries in (0, 1):
        if state in PLACED and what in BACK:
            for value_retries in (0, 1):
                yield bring_with_input(
                    state, lost=what is not Input.INPUT_GONE, value_retries=value_retries, worker_retries=worker_retries
                )
        if (state, what) == (State.WAITING, Input.ASSIGN):
            yield bring_before_a_follower_may_go(worker_retries=worker_retries)
        elif (state, what) != (State.ASSIGNED, Input.INPUT_FAILED):
            yield bring(state, worker_retries=worker_retries)
        if state is State.ASSIGNED and what in AHEAD:
            yield bring_ahead(worker_retries=worker_retries)


def with_a_value_to_lose() -> Iterator[Turns]:
    """TASK has succeeded, and may run again, at once or after its input; or it did since, with another result."""
    yield bring(State.SUCCEEDED, value_retries=1)
    yield bring_with_input(State.SUCCEEDED, lost=True, value_retries=1)
    turns = bring(State.SUCCEEDED, value_retries=1)
    turns.client(Missed(TASK, RESULT))
    turns.worker(WORKER, Done(TASK, 2, 5, STORED + b"another"))
    yield turns


@pytest.mark.parametrize(("state", "what"), HANDLED, ids=lambda value: value.name)
def test_a_handled_input_leads_where_the_table_says_and_nowhere_else(state: State, what: Input) -> None:
    step = TABLE[state][what]
    assert isinstance(step, Step)
    assert outcomes(state, what) == (set(step.to) or {FORGOTTEN if what is Input.RELEASE else state})


@pytest.mark.parametrize(
    ("state", "what"), [cell for cell in CELLS if TABLE[cell[0]][cell[1]] is IGNORED], ids=lambda value: value.name
)
def test_an_ignored_input_is_counted_and_changes_nothing_else(state: State, what: Input) -> None:
    turns = bring(state)
    before, ignored = picture(turns), turns.scheduler.counters.ignored
    turns.turn(event_for(what, turns.attempt(TASK)))
    assert turns.scheduler.counters.ignored == ignored + 1
    assert picture(turns) == before


def picture(turns: Turns) -> str:
    """Everything that the scheduler knows, without what it counts of ignored and stale messages."""
    scheduler = turns.scheduler
    counted = {name: getattr(scheduler.counters, name) for name in ("submitted", "succeeded", "failed", "cancelled")}
    workers = [
        (w.worker, list(w.tasks), w.backlog_ns, w.long, w.held, w.retracting)
        for w in scheduler.placement.workers.values()
    ]
    return repr((list(scheduler.tasks.values()), workers, scheduler.live, turns.waiting_room(), counted))


FAULTS = [cell for cell in CELLS if TABLE[cell[0]][cell[1]] is FAULT]


@pytest.mark.parametrize(
    ("state", "what"), [cell for cell in FAULTS if cell[1] not in BY_WORKER], ids=lambda value: value.name
)
def test_an_own_fault_is_an_internal_error_that_tells_the_story(state: State, what: Input) -> None:
    turns = bring(state)
    with pytest.raises(InternalError, match=f"{what.name} cannot happen to task 1, which is {state.name}: Task"):
        turns.scheduler._step(turns.scheduler.tasks[TASK], what, None)


@pytest.mark.parametrize(
    ("state", "what"),
    [cell for cell in FAULTS if cell[1] in BY_WORKER and cell[0] in PLACED],
    ids=lambda value: value.name,
)
def test_a_worker_that_says_what_cannot_be_is_faulty_and_nothing_changes(state: State, what: Input) -> None:
    turns = bring(state)
    before = picture(turns)
    told = turns.turn(event_for(what, turns.attempt(TASK)))
    assert list(told.faulty_workers) == [WORKER]
    assert f"worker {WORKER} said of task {TASK}, which is {state.name}" in told.faulty_workers[WORKER]
    assert (told.workers, told.clients) == ({}, {})
    assert picture(turns) == before


@pytest.mark.parametrize(
    ("state", "what"),
    [cell for cell in FAULTS if cell[1] in BY_WORKER and cell[0] not in PLACED],
    ids=lambda value: value.name,
)
def test_a_worker_that_does_not_have_the_task_is_late_and_not_faulty(state: State, what: Input) -> None:
    turns = bring(state)
    if state is State.READY:  # with a worker that had it, was lost, and is not replaced
        turns.join(WORKER)
        turns.lose(WORKER)
    before, stale = picture(turns), turns.scheduler.counters.stale
    told = turns.turn(event_for(what, turns.attempt(TASK)))
    assert turns.scheduler.counters.stale == stale + 1
    assert (told.workers, told.clients, told.faulty_workers) == ({}, {}, {})
    assert picture(turns) == before
    # The table is the second line of defence.
    turns.scheduler._step(turns.scheduler.tasks[TASK], what, message_for(what, 1))
    assert list(turns.scheduler._effects.faulty_workers) == [turns.scheduler.tasks[TASK].worker]


def test_every_handler_that_the_table_names_exists() -> None:
    named = {cell.handler for row in TABLE.values() for cell in row.values() if isinstance(cell, Step)}
    assert all(callable(getattr(Scheduler, handler)) for handler in named)


def test_the_table_has_a_cell_for_each_pair() -> None:
    assert sorted((state, what) for state, row in TABLE.items() for what in row) == CELLS


def test_states_change_only_by_the_table() -> None:
    """A task may go to the states that its row names; a final one stays what it is, unless its value is lost."""
    for state, what in HANDLED:
        step = TABLE[state][what]
        assert isinstance(step, Step)
        may_change = state in LIVE or (state, what) == (State.SUCCEEDED, Input.VALUE_GONE)
        assert bool(step.to) == may_change, f"{state.name}, {what.name}"


def test_a_second_long_task_at_one_worker_is_the_worker_s_fault() -> None:
    turns = Turns()
    turns.learn(b"f", MS)
    turns.join(WORKER)
    turns.submit(1, 2)
    turns.worker(WORKER, Started(1, 1))
    told = turns.worker(WORKER, Started(2, 1))
    assert told.faulty_workers == {WORKER: "worker 7 said that it started task 2 while it ran 1"}
    assert turns.states(1, 2) == [State.RUNNING, State.ASSIGNED]


def test_a_worker_that_joins_twice_is_an_internal_error() -> None:
    turns = Turns()
    turns.join(WORKER)
    with pytest.raises(InternalError, match="worker 7 joined twice"):
        turns.join(WORKER)


def test_what_is_no_event_is_an_internal_error() -> None:
    with pytest.raises(InternalError, match="not an event: 'hello'"):
        Turns().turn("hello")  # pyright: ignore[reportArgumentType]


def test_what_no_client_may_say_is_an_internal_error() -> None:
    turns = bring(State.READY)
    with pytest.raises(InternalError, match="not a client's message: Done"):
        turns.client(Done(TASK, 1, 5, b"r"))
