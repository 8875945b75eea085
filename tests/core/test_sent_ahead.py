"""Tasks that are sent to the worker that makes their inputs, ahead of these: which, when, and what if it goes wrong."""

import pytest
from turns import MS, US, Told, Turns, given, run, submit

from slipstream.core.events import ClientWaits, FromClient, FromWorker, WorkerEnd, WorkerLeft
from slipstream.core.inputs import MAX_FOLLOWED, MAX_FOLLOWERS
from slipstream.core.placement import GATHER, GATHER_NS, HIGH_WATER_NS, MAX_PREFETCH
from slipstream.core.states import State
from slipstream.protocol.messages import (
    Cancel,
    Done,
    Expect,
    Failed,
    Gave,
    InputFailed,
    Kept,
    Lacks,
    Started,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskSucceeded,
)


def link(task: int, **fields: object):
    """Takes the result of the task before."""
    return submit(task, inputs=(task - 1,), **fields)


def ahead(turns: Turns, *tasks: int) -> bool:
    """Whether these are at a worker while they miss an input."""
    known = [turns.scheduler.tasks[task] for task in tasks]
    return all(task.state is State.ASSIGNED and task.missing for task in known)


def followers(turns: Turns, worker: int = 7) -> list[int]:
    return [task.task for task in turns.scheduler.placement.workers[worker].followers]


# --- which, and with what ---------------------------------------------------------------------------------------------


def test_a_task_is_sent_to_the_worker_that_has_its_input_with_the_number_of_the_input() -> None:
    turns = given(7, 8)
    turns.submit(1)
    assert turns.submit(2, inputs=(b"there", 1, 1)) == Told(workers={7: [run(2, inputs=(b"there", 1, 1))]})
    assert turns.worker(7, Done(1, 1, US, b"one"), Done(2, 1, US, b"two")) == Told(
        clients={0: [TaskSucceeded(1, b"one", US), TaskSucceeded(2, b"two", US)]}
    )
    assert turns.scheduler.tasks == {}


def test_what_was_submitted_with_its_input_is_sent_with_it() -> None:
    turns = given(7)
    assert turns.client(submit(1), link(2), link(3)).workers == {7: [run(1), run(2, inputs=(1,)), run(3, inputs=(2,))]}


def test_what_waits_for_a_ready_task_is_sent_with_it() -> None:
    turns = given()
    turns.client(submit(1), link(2), link(3))
    assert turns.join(7).workers == {7: [run(1), run(2, inputs=(1,)), run(3, inputs=(2,))]}


def test_inputs_that_are_there_are_sent_as_they_are_beside_those_that_are_not() -> None:
    turns = given(7)
    turns.submit(1, keep=True)
    turns.done(7, 1)
    turns.submit(2)
    assert turns.submit(3, inputs=(2, 1)).workers == {7: [run(3, inputs=(2, b"r"))]}


def test_a_task_of_a_callable_never_measured_waits_until_its_inputs_are_there() -> None:
    turns = given(7)
    turns.submit(1)
    assert turns.submit(2, digest=b"unknown", inputs=(1,)) == Told()
    assert turns.done(7, 1).workers == {7: [run(2, digest=b"unknown", inputs=(b"r",))]}


def test_inputs_of_two_workers_are_waited_for() -> None:
    turns = given(7, 8)
    turns.submit(1, 2)
    assert [turns.held_by(7), turns.held_by(8)] == [[1], [2]]
    assert turns.submit(3, inputs=(1, 2)) == Told()
    assert turns.done(7, 1).workers == {}
    assert turns.state(3) is State.WAITING
    assert turns.done(8, 2).workers == {8: [run(3, inputs=(b"r", b"r"))]}


@pytest.mark.parametrize("expected", [False, True])
def test_inputs_of_which_one_is_nowhere_are_waited_for(expected: bool) -> None:
    turns = given(7)
    turns.submit(1)
    turns.client(Expect(2) if expected else submit(2, b"unknown"))
    assert turns.submit(3, inputs=(1, 2)).workers == {}
    assert turns.turn(ClientWaits(0)).workers == {}
    assert turns.state(3) is State.WAITING


def test_a_diamond_is_sent_ahead_as_a_whole() -> None:
    turns = given(7, 8)
    told = turns.client(submit(1), submit(2, inputs=(1,)), submit(3, inputs=(1,)), submit(4, inputs=(2, 3)))
    assert told.workers == {7: [run(1), run(2, inputs=(1,)), run(3, inputs=(1,)), run(4, inputs=(2, 3))]}
    turns.done(7, 1, 2, 3, 4)
    assert turns.scheduler.tasks == {}
    assert followers(turns) == []


@pytest.mark.parametrize(("inputs", "sent"), [(MAX_FOLLOWED, True), (MAX_FOLLOWED + 1, False)])
def test_a_task_of_many_inputs_is_not_sent_ahead(inputs: int, sent: bool) -> None:
    turns = given(7)
    turns.submit(*range(inputs))
    turns.submit(99, inputs=tuple(range(inputs)))
    turns.turn(ClientWaits(0))
    assert (turns.state(99) is State.ASSIGNED) is sent
    turns.done(7, *range(inputs))
    turns.done(7, 99)
    assert turns.scheduler.tasks == {}


def test_a_suspect_is_not_sent_ahead_since_it_runs_alone() -> None:
    turns = given(7)
    turns.client(submit(1, worker_retries=9), link(2, worker_retries=9))
    turns.turn(ClientWaits(0))
    turns.turn(WorkerLeft(7, WorkerEnd("lost", last=(2, 1))))
    assert [turns.scheduler.tasks[task].suspicions for task in (1, 2)] == [1, 1]
    assert turns.join(8).sent_to(8) == [1]
    turns.turn(ClientWaits(0))
    turns.worker(8)
    assert turns.state(2) is State.WAITING
    assert turns.done(8, 1).sent_to(8) == [2]


# --- when: room, priority, frames -------------------------------------------------------------------------------------


def test_a_worker_is_filled_to_the_high_water_and_no_further() -> None:
    turns = given(7, duration_ns=6 * MS)
    turns.client(submit(1), link(2), link(3))
    turns.turn(ClientWaits(0))
    assert turns.held_by(7) == [1, 2]
    assert turns.scheduler.placement.workers[7].backlog_ns <= HIGH_WATER_NS
    assert turns.done(7, 1, duration_ns=6 * MS).workers == {7: [run(3, inputs=(2,))]}


def test_a_worker_of_many_tasks_is_full() -> None:
    turns = given(7)
    turns.submit(*range(100))
    turns.submit(*range(100, 1000), inputs=(0,))
    turns.turn(ClientWaits(0))
    assert len(turns.held_by(7)) == MAX_PREFETCH
    while turns.scheduler.live:
        turns.done(7, *turns.held_by(7)[:10])
    assert followers(turns) == []


def test_a_worker_is_refilled_when_it_is_below_the_low_water() -> None:
    """As with tasks that are READY: not with each report that makes room for one more."""
    turns = given(7, duration_ns=MS)
    turns.client(submit(0), *[link(n) for n in range(1, 40)])
    turns.turn(ClientWaits(0))
    assert turns.held_by(7) == list(range(15))
    for task in range(8):
        assert turns.done(7, task, duration_ns=MS).workers == {}
    assert turns.done(7, 8, duration_ns=MS).sent_to(7) == list(range(15, 24))


def test_a_task_of_less_priority_than_what_is_ready_waits() -> None:
    turns = given(7)
    turns.submit(1)
    turns.submit(8, digest=b"unknown", priority=1)
    assert turns.submit(2, inputs=(1,)).workers == {}
    assert turns.done(7, 1).sent_to(7) == [8]
    assert turns.state(2) is State.READY


@pytest.mark.parametrize("priority", [1, 2])
def test_a_task_of_no_less_priority_than_what_is_ready_is_sent_ahead(priority: int) -> None:
    turns = given(7)
    turns.submit(1)
    turns.submit(8, digest=b"unknown", priority=1)
    assert turns.submit(2, inputs=(1,), priority=priority).sent_to(7) == [2]


def test_what_was_cancelled_precedes_nothing() -> None:
    turns = given(7)
    turns.submit(1)
    turns.submit(8, digest=b"unknown", priority=1)
    turns.submit(9, digest=b"unknown")
    turns.client(Cancel(8))
    assert turns.submit(2, inputs=(1,)).sent_to(7) == [2]


def test_followers_of_a_worker_with_enough_to_do_gather_for_a_frame() -> None:
    turns = given(7)
    turns.submit(1, 2)
    told = turns.submit(3, inputs=(2,))
    assert told == Told(wake_at=turns.now + GATHER_NS)
    turns.pace_ns = 0
    assert turns.submit(4, inputs=(2,)) == told
    turns.now += GATHER_NS
    assert turns.turn() == Told(workers={7: [run(3, inputs=(2,)), run(4, inputs=(2,))]})


def test_followers_that_are_enough_for_a_frame_leave_at_once() -> None:
    turns = given(7)
    turns.submit(1, 2)
    turns.pace_ns = 0
    turns.submit(*range(100, 99 + GATHER), inputs=(2,))
    assert turns.held_by(7) == [1, 2]
    assert len(turns.submit(500, inputs=(2,)).sent_to(7)) == GATHER


def test_followers_leave_when_a_client_waits() -> None:
    turns = given(7)
    turns.submit(1, 2)
    turns.submit(3, inputs=(2,))
    assert turns.turn(ClientWaits(0)) == Told(workers={7: [run(3, inputs=(2,))]})


def test_followers_leave_with_a_report() -> None:
    turns = given(7)
    turns.submit(1, 2)
    turns.submit(3, inputs=(2,))
    assert turns.done(7, 1).workers == {7: [run(3, inputs=(2,))]}


@pytest.mark.parametrize("ready_first", [True, False])
def test_of_two_deadlines_the_first_counts(ready_first: bool) -> None:
    """That of a task that is READY, and that of one that could follow."""
    turns = given(7)
    turns.submit(1, 2)
    turns.pace_ns = GATHER_NS // 4
    pair = [submit(3), submit(4, inputs=(2,))]
    first, second = pair if ready_first else reversed(pair)
    due_at = turns.client(first).wake_at
    assert due_at == turns.now + GATHER_NS
    assert turns.client(second).wake_at == due_at
    turns.now = due_at
    later = turns.turn()
    assert later.sent_to(7) == [first.task]
    assert later.wake_at == due_at + GATHER_NS // 4
    turns.now = later.wake_at
    assert turns.turn() == Told(workers={7: [run(second.task, inputs=second.inputs)]})


def test_nothing_is_due_for_a_worker_that_is_gone() -> None:
    turns = given(7)
    turns.submit(1, 2)
    assert turns.submit(3, inputs=(2,)).wake_at is not None
    assert turns.lose(7) == Told()
    turns.now += MS
    assert turns.turn() == Told()


# --- an input that fails ----------------------------------------------------------------------------------------------


def test_what_was_sent_ahead_fails_with_its_input_and_what_its_worker_says_later_is_stale() -> None:
    turns = given(7)
    turns.client(submit(1), link(2), link(3))
    turns.turn(ClientWaits(0))
    assert ahead(turns, 2, 3)
    told = turns.worker(7, Failed(1, 1, US, b"e"))
    assert told == Told(clients={0: [TaskFailed(1, b"e"), InputFailed(2, 1, 1), InputFailed(3, 1, 2)]})
    assert turns.scheduler.tasks == {}
    assert turns.held_by(7) == []
    assert turns.worker(7, Lacks(((2, 1), (3, 1)))) == Told()
    assert turns.scheduler.counters.stale == 2
    assert turns.submit(4).sent_to(7) == [4]


def test_what_was_sent_ahead_fails_with_an_input_that_is_cancelled_after_it_was_given_back() -> None:
    """Nothing has come from its worker in that turn, which is to get work again nevertheless."""
    turns = given(7)
    turns.client(submit(1), link(2))
    turns.turn(ClientWaits(0))
    turns.client(submit(8, b"unknown", priority=1))
    turns.turn(FromWorker(7, [Gave(((1, 1),))]))
    assert turns.state(1) is State.READY
    told = turns.client(Cancel(1))
    assert told.notices() == [TaskCancelled(1), InputFailed(2, 1, 1)]
    assert told.sent_to(7) == [8]


def test_what_was_sent_ahead_fails_with_an_input_that_another_worker_ran() -> None:
    turns = given(7, 8)
    turns.client(submit(1), link(2))
    turns.turn(ClientWaits(0))
    turns.worker(7, Gave(((1, 1),)))
    assert turns.held_by(8) == [1]
    told = turns.worker(8, Failed(1, 2, US, b"e"))
    assert told.notices() == [TaskFailed(1, b"e"), InputFailed(2, 1, 1)]
    assert turns.held_by(7) == []
    assert turns.scheduler.tasks == {}
    turns.submit(3, 4)
    assert [len(turns.held_by(worker)) for worker in (7, 8)] == [1, 1]


# --- tasks that come back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Gave, Lacks])
def test_what_comes_back_waits_as_long_as_an_input_is_missing(kind: type) -> None:
    turns = given(7)
    turns.client(submit(1), link(2))
    turns.turn(ClientWaits(0))
    told = turns.worker(7, kind(((2, 1),)))
    assert told.workers == {}
    assert turns.states(1, 2) == [State.ASSIGNED, State.WAITING]
    assert turns.done(7, 1).workers == {7: [run(2, 2, inputs=(b"r",))]}


def test_an_input_that_is_given_back_is_run_elsewhere_and_what_followed_it_comes_back() -> None:
    turns = given(7, 8)
    turns.client(submit(1), link(2))
    turns.turn(ClientWaits(0))
    assert turns.worker(7, Gave(((1, 1),))).workers == {8: [run(1, 2)]}
    assert ahead(turns, 2)
    turns.worker(7, Lacks(((2, 1),)))
    assert turns.state(2) is State.WAITING
    assert turns.done(8, 1).sent_to(8) == [2]


def test_what_lacks_an_input_that_has_come_elsewhere_is_sent_again_with_the_result() -> None:
    turns = given(7, 8)
    turns.client(submit(1), link(2))
    turns.turn(ClientWaits(0))
    turns.worker(7, Gave(((1, 1),)))
    turns.worker(8, Done(1, 2, US, b"one"))
    assert turns.state(2) is State.ASSIGNED
    told = turns.worker(7, Lacks(((2, 1),)))
    assert [command for commands in told.workers.values() for command in commands] == [run(2, 2, inputs=(b"one",))]


def test_what_comes_back_with_its_input_follows_it_again() -> None:
    turns = given(7)
    turns.client(submit(1), link(2))
    turns.turn(ClientWaits(0))
    assert turns.worker(7, Gave(((1, 1), (2, 1)))).workers == {7: [run(1, 2), run(2, 2, inputs=(1,))]}


def test_a_worker_that_gave_back_and_lacks_the_rest_is_served_again() -> None:
    """It gave back unasked, so it is held until it completes something; but nothing is left that it could complete."""
    turns = given(7)
    turns.client(submit(1), link(2))
    turns.turn(ClientWaits(0))
    turns.client(submit(8, b"unknown", priority=1))
    told = turns.worker(7, Gave(((1, 1),)))
    assert told.workers == {}  # it is held
    assert turns.worker(7, Lacks(((2, 1),))).sent_to(7) == [8]


def test_a_worker_that_gave_back_unasked_gets_no_followers() -> None:
    turns = given(7)
    turns.submit(1, 2)
    turns.worker(7, Gave(((2, 1),)))
    assert turns.submit(3, inputs=(1,)) == Told()
    assert turns.state(3) is State.WAITING


def test_a_worker_in_a_long_task_gets_no_followers() -> None:
    turns = given(7)
    turns.submit(1)
    turns.worker(7, Started(1, 1))
    assert turns.submit(2, inputs=(1,)).workers == {}
    assert turns.turn(ClientWaits(0)).workers == {}
    assert turns.done(7, 1).workers == {7: [run(2, inputs=(b"r",))]}


# --- retraction -------------------------------------------------------------------------------------------------------


def test_what_misses_an_input_is_not_asked_back() -> None:
    turns = given(7, duration_ns=2 * MS)
    turns.submit(1, 2, 3)
    turns.submit(4, inputs=(1,))
    turns.turn(ClientWaits(0))
    assert turns.held_by(7) == [1, 2, 3, 4]
    assert turns.join(8).retracted_from(7) == [(2, 1), (3, 1)]


def test_a_worker_with_nothing_but_a_chain_is_asked_for_its_first_task_and_for_no_more_of_it() -> None:
    turns = given(7, duration_ns=2 * MS)
    turns.client(submit(1), link(2), link(3))
    turns.turn(ClientWaits(0))
    turns.worker(7, Started(1, 1))
    assert turns.held_by(7) == [1, 2, 3]
    assert turns.join(8) == Told()
    assert turns.scheduler.placement.asked == set()
    turns.done(7, 1, duration_ns=2 * MS)
    assert turns.scheduler.live == 2


def test_what_was_sent_ahead_is_asked_back_when_its_inputs_are_there() -> None:
    turns = given(7, duration_ns=2 * MS)
    turns.submit(1)
    turns.submit(2, 3, 4, inputs=(1,))
    turns.turn(ClientWaits(0))
    assert ahead(turns, 2, 3, 4)
    turns.done(7, 1, duration_ns=2 * MS)
    assert turns.join(8).retracted_from(7) == [(4, 1)]
    told = turns.worker(7, Gave(((4, 1),)))
    assert told.workers == {8: [run(4, 2, inputs=(b"r",))]}


@pytest.mark.parametrize("answer", [Gave, Kept])
def test_what_is_being_asked_back_has_no_followers(answer: type) -> None:
    turns = given(7, duration_ns=3 * MS)
    turns.submit(1, 2)
    assert turns.join(8).retracted_from(7) == [(2, 1)]
    turns.submit(3, inputs=(2,))
    assert turns.turn(ClientWaits(0)).workers == {}
    assert turns.state(3) is State.WAITING
    told = turns.worker(7, answer(((2, 1),)))
    if answer is Gave:
        assert told.workers == {8: [run(2, 2), run(3, inputs=(2,))]}
    else:
        assert told.sent_to(7) == told.sent_to(8) == []
        told = turns.worker(7, Done(1, 1, US, b"r"), Done(2, 1, US, b"two"))
        assert told.workers == {7: [run(3, inputs=(b"two",))]} or told.workers == {8: [run(3, inputs=(b"two",))]}


def test_an_input_that_is_asked_back_leaves_what_was_sent_ahead_to_come_back_by_itself() -> None:
    turns = given(7, duration_ns=2 * MS)
    turns.submit(1, 2, 3)
    turns.submit(4, inputs=(3,))
    turns.turn(ClientWaits(0))
    turns.join(8)
    turns.worker(7, Gave(((2, 1), (3, 1))))
    assert ahead(turns, 4)
    turns.done(8, 2, 3, duration_ns=2 * MS)
    told = turns.worker(7, Done(1, 1, 2 * MS, b"r"), Lacks(((4, 1),)))
    assert [command for commands in told.workers.values() for command in commands] == [run(4, 2, inputs=(b"r",))]


# --- lost workers -----------------------------------------------------------------------------------------------------


def test_a_chain_of_a_lost_worker_goes_to_the_next_in_its_order() -> None:
    turns = given(7)
    turns.client(submit(1), link(2), link(3))
    turns.turn(ClientWaits(0))
    assert turns.lose(7) == Told()
    assert turns.states(1, 2, 3) == [State.READY, State.WAITING, State.WAITING]
    assert turns.join(8).sent_to(8) == [1, 2, 3]


def test_a_task_that_was_lost_ahead_of_its_input_waits_for_it_again() -> None:
    """Its input had returned, and the report of that was lost with the worker."""
    turns = given(7)
    turns.client(submit(1), link(2, worker_retries=1))
    turns.turn(ClientWaits(0))
    assert turns.lose(7, running=(2, 1)) == Told()
    assert turns.states(1, 2) == [State.READY, State.WAITING]
    assert turns.scheduler.tasks[2].losses == 1
    turns.join(8)
    turns.done(8, 1)
    turns.done(8, 2)
    assert turns.scheduler.tasks == {}


def test_a_task_that_is_lost_for_good_ahead_of_its_input_leaves_the_input_alone() -> None:
    turns = given(7)
    turns.client(submit(1), link(2), link(3))
    turns.turn(ClientWaits(0))
    assert turns.lose(7, running=(2, 1)).notices() == [
        TaskLost(2, 1, "lost", None, None, b"", -1),
        InputFailed(3, 2, 2),
    ]
    assert turns.states(1, 2, 3) == [State.READY, None, None]
    assert turns.join(8).sent_to(8) == [1]


def test_what_follows_a_task_that_is_lost_for_good_fails_once() -> None:
    turns = given(7)
    turns.client(submit(1), link(2), link(3))
    turns.turn(ClientWaits(0))
    assert turns.lose(7, running=(1, 1)).notices() == [
        TaskLost(1, 1, "lost", None, None, b"", -1),
        InputFailed(2, 1, 1),
        InputFailed(3, 1, 2),
    ]
    assert turns.scheduler.tasks == {}


def test_what_came_before_its_input_to_a_worker_that_is_lost_in_the_input_fails_once() -> None:
    """The input was given back, and came to the same worker again, behind what had followed it."""
    turns = given(7)
    turns.client(submit(1), submit(5), submit(2, inputs=(1,)))
    turns.turn(ClientWaits(0))
    turns.worker(7, Gave(((1, 1),)))
    turns.done(7, 5)
    assert turns.held_by(7) == [2, 1]
    assert turns.lose(7, running=(1, 2)).notices() == [
        TaskLost(1, 2, "lost", None, None, b"", -1),
        InputFailed(2, 1, 1),
    ]
    assert turns.scheduler.tasks == {}


def test_a_worker_that_says_it_started_what_cannot_have_its_inputs_is_faulty() -> None:
    """It says things in their order, and has not said that the input returned."""
    turns = given(7)
    turns.client(submit(1), link(2))
    turns.turn(ClientWaits(0))
    assert list(turns.worker(7, Started(2, 1)).faulty_workers) == [7]
    assert turns.state(2) is State.ASSIGNED
    assert turns.worker(7, Failed(1, 1, US, b"e")).notices() == [TaskFailed(1, b"e"), InputFailed(2, 1, 1)]


# --- many -------------------------------------------------------------------------------------------------------------


def frames_to_the_end(turns: Turns, at_once: int, duration_ns: int = US) -> int:
    """Number of frames to a worker that reports so many tasks at a time; never more than one to a report."""
    frames = 0
    while turns.scheduler.live:
        turns.now += at_once * duration_ns
        told = turns.done(7, *turns.held_by(7)[:at_once], duration_ns=duration_ns)
        sent = bool(told.workers)
        while told.wake_at is not None:
            turns.now = max(turns.now, told.wake_at)
            told = turns.turn()
            sent += bool(told.workers)
        assert sent <= 1
        frames += sent
    return frames


@pytest.mark.parametrize("at_once", [1, 10, 100, MAX_PREFETCH])
@pytest.mark.parametrize("turns_of", [1, 100, 10_000])
def test_a_chain_of_10_000_travels_in_few_frames(at_once: int, turns_of: int) -> None:
    turns = given(7)
    turns.checked = False
    chain = [submit(0), *[link(n) for n in range(1, 10_000)]]
    turns.pace_ns = 20 * US
    frames = 0
    for first in range(0, 10_000, turns_of):
        frames += len(turns.client(*chain[first : first + turns_of]).workers)
    turns.turn(ClientWaits(0))
    assert frames + frames_to_the_end(turns, at_once) <= 200
    assert turns.scheduler.tasks == {}
    assert followers(turns) == []


def test_a_chain_of_10_000_of_some_length_travels_in_few_frames() -> None:
    """Of 100 µs, so a report every ms has ten of them."""
    turns = given(7, duration_ns=100 * US)
    turns.checked = False
    turns.client(submit(0), *[link(n) for n in range(1, 10_000)])
    assert frames_to_the_end(turns, 10, duration_ns=100 * US) <= 200


def test_a_fan_out_of_1_000_is_sent_ahead_as_far_as_there_is_room() -> None:
    turns = given(7)
    told = turns.client(submit(0), *[submit(n, inputs=(0,)) for n in range(1, 1001)])
    assert told.sent_to(7) == list(range(MAX_FOLLOWERS))
    assert frames_to_the_end(turns, 100) <= 20
    assert turns.scheduler.tasks == {}
    assert followers(turns) == []


def test_a_fan_out_is_shared_when_its_root_is_done() -> None:
    turns = given(7, 8, 9, duration_ns=MS)
    turns.client(submit(0), *[submit(n, inputs=(0,)) for n in range(1, 1001)])
    turns.done(7, 0, duration_ns=MS)
    assert all(len(turns.held_by(worker)) >= 10 for worker in (7, 8, 9))


def test_what_follows_and_is_cancelled_does_not_pile_up_at_a_worker_in_a_long_task() -> None:
    turns = given(7)
    turns.checked = False
    turns.submit(0)
    turns.worker(7, Started(0, 1))
    for task in range(1, 2001):
        turns.client(submit(task, inputs=(0,)), Cancel(task))
        turns.turn(ClientWaits(0))
    assert list(turns.scheduler.tasks) == [0]
    assert len(followers(turns)) <= 64


def test_what_follows_and_has_ended_does_not_pile_up_at_a_worker_that_is_always_full() -> None:
    turns = given(7, duration_ns=5 * MS)
    turns.checked = False
    for task in range(0, 4000, 2):
        turns.client(submit(task), submit(task + 1, inputs=(task,)))
        turns.done(7, *turns.held_by(7)[:2], duration_ns=5 * MS)
    assert len(followers(turns)) <= 64


def test_a_chain_after_a_bag_of_the_same_priority_does_not_hold_it_up() -> None:
    """First come, first served: what is READY goes before what may follow."""
    turns = given(7)
    turns.checked = False
    turns.submit(*range(2_000))
    turns.client(submit(10_000), *[link(n) for n in range(10_001, 14_000)])
    for _ in range(20):
        turns.done(7, *turns.held_by(7)[:100])
    assert all(turns.state(task) is None for task in range(1_800))


def test_each_of_a_hundred_chains_stays_where_it_began() -> None:
    workers = range(7, 11)
    turns = given(*workers)
    turns.checked = False
    chains = [range(first, first + 50) for first in range(0, 5000, 50)]
    heads = FromClient(0, [submit(chain[0]) for chain in chains])
    turns.turn(heads, FromClient(0, [link(n) for chain in chains for n in chain[1:]]))
    ran_at: dict[int, int] = {}
    while turns.scheduler.live:
        for worker in workers:
            held = turns.held_by(worker)
            ran_at |= dict.fromkeys(held, worker)
            turns.done(worker, *held)
    assert len(ran_at) == 5000
    moves = sum(ran_at[n] != ran_at[n - 1] for chain in chains for n in chain[1:])
    assert moves <= 500
