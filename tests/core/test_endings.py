"""How tasks end other than by returning: cancelled, released, lost, left by a client; and whose fault it was."""

import pytest
from turns import MS, US, Told, given, run, submit

from slipstream.core.events import ClientLeft, FromClient, FromWorker, WorkerEnd, WorkerLeft
from slipstream.core.states import State
from slipstream.protocol.messages import (
    Cancel,
    Done,
    Failed,
    Gave,
    InputFailed,
    Kept,
    Release,
    Started,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
)

# --- cancel -----------------------------------------------------------------------------------------------------------


def test_a_ready_task_is_cancelled_at_once_and_never_sent() -> None:
    turns = given()
    turns.submit(1, 2, 3)
    assert turns.client(Cancel(2)) == Told(clients={0: [TaskCancelled(2)]})
    assert turns.join(7).sent_to(7) == [1, 3]


def test_a_waiting_task_is_cancelled_at_once_and_its_input_goes_on() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(2, inputs=(1,))
    assert turns.client(Cancel(2)) == Told(clients={0: [TaskCancelled(2)]})
    assert turns.done(7, 1) == Told(clients={0: [TaskSucceeded(1, b"r", US)]})


@pytest.mark.parametrize("started", [False, True])
def test_a_task_at_a_worker_is_not_cancelled(started: bool) -> None:
    turns = given(7)
    turns.submit(1)
    if started:
        turns.worker(7, Started(1, 1))
    assert turns.client(Cancel(1)) == Told()
    assert turns.done(7, 1).notices() == [TaskSucceeded(1, b"r", US)]
    assert turns.scheduler.counters.cancelled == 0


def test_a_task_that_was_given_back_can_be_cancelled() -> None:
    turns = given(7)
    turns.submit(1, 2)
    turns.worker(7, Started(1, 1), Gave(((2, 1),)))
    assert turns.client(Cancel(2)).notices() == [TaskCancelled(2)]


def test_cancelling_what_has_ended_is_counted_and_nothing_else() -> None:
    turns = given(7)
    turns.submit(1)
    turns.done(7, 1)
    assert turns.client(Cancel(1), Release(1)) == Told()
    assert turns.scheduler.counters.ignored == 2


def test_cancelled_tasks_do_not_pile_up_among_the_ready_ones() -> None:
    turns = given()
    turns.submit(*range(10_000))
    turns.submit(*range(10_000, 11_000), priority=1)
    turns.client(*[Cancel(n) for n in range(10_000, 11_000)])  # not one of this priority is left
    turns.client(*[Cancel(n) for n in range(10_000) if n % 100])
    entries = sum(map(len, turns.scheduler.ready._by_priority.values()))
    assert entries <= 2 * 100 + 64
    assert turns.join(7).sent_to(7) == list(range(0, 10_000, 100))


def test_a_few_cancelled_tasks_stay_until_their_turn_comes() -> None:
    turns = given()
    turns.submit(1, 2)
    turns.submit(3, priority=2)
    turns.client(Cancel(1), Cancel(3))
    assert turns.join(7).sent_to(7) == [2]
    assert turns.scheduler.ready._gone == 0
    assert turns.submit(4).sent_to(7) == [4]


def test_an_urgent_task_after_an_ordinary_one_and_the_other_way_round() -> None:
    """The queue of a priority is gone, or empty, when another is opened."""
    turns = given(7)
    for task, priority in enumerate((0, 5, 0, -5, -5, 5)):
        assert turns.submit(task, priority=priority).sent_to(7) == [task]
        turns.done(7, task)


# --- lost workers -----------------------------------------------------------------------------------------------------


def test_only_the_running_task_is_charged_and_the_others_go_first_in_their_old_order() -> None:
    turns = given(7)
    turns.submit(*range(4))
    turns.client(submit(9, b"unknown"))
    told = turns.turn(WorkerLeft(7, WorkerEnd("killed", 9, None, b"last words", running=(1, 1), item=3)))
    assert told == Told(clients={0: [TaskLost(1, 1, "killed", 9, None, b"last words", 3)]})
    assert turns.waiting_room() == [0, 2, 3, 9]
    assert turns.join(8).workers == {8: [run(0, 2), run(2, 2), run(3, 2)]}


def test_a_worker_that_ran_nothing_costs_no_task_anything() -> None:
    turns = given(7)
    turns.submit(1, worker_retries=0)
    for attempt in range(2, 5):
        turns.lose(7)
        assert turns.join(7).workers == {7: [run(1, attempt)]}
    assert turns.done(7, 1).notices() == [TaskSucceeded(1, b"r", US)]


@pytest.mark.parametrize("worker_retries", [0, 2])
def test_a_task_outlives_as_many_losses_as_it_may(worker_retries: int) -> None:
    turns = given(7)
    turns.submit(1, worker_retries=worker_retries)
    for attempt in range(1, worker_retries + 1):
        assert turns.lose(7, running=(1, attempt)) == Told()
        assert turns.join(7).workers == {7: [run(1, attempt + 1)]}
    last = worker_retries + 1
    assert turns.lose(7, running=(1, last)).notices() == [TaskLost(1, last, "lost", None, None, b"", -1)]
    assert turns.scheduler.tasks == {}


def test_a_task_that_had_started_before_and_is_not_the_running_one_is_not_charged() -> None:
    """It has ended, and its report is lost."""
    turns = given(7)
    turns.submit(1, 2)
    turns.worker(7, Started(1, 1))
    assert turns.lose(7, running=(2, 1)).notices() == [TaskLost(2, 1, "lost", None, None, b"", -1)]
    assert turns.join(8).workers == {8: [run(1, 2)]}


def test_a_report_that_came_before_the_loss_counts() -> None:
    turns = given(7)
    turns.submit(1)
    turns.done(7, 1)
    assert turns.lose(7, running=(1, 1)) == Told()


def test_another_attempt_than_the_present_one_is_not_charged() -> None:
    turns = given(7)
    turns.submit(1, 2)
    turns.worker(7, Started(2, 1), Gave(((1, 1),)))
    turns.done(7, 2)
    assert turns.attempt(1) == 2
    assert turns.lose(7, running=(1, 1)) == Told()
    assert turns.state(1) is State.READY


def test_lost_work_goes_to_the_other_workers_in_the_same_turn() -> None:
    turns = given(7, 8)
    turns.submit(1, 2, 3)
    assert turns.held_by(8) == [3]
    assert turns.lose(7).workers == {8: [run(1, 2), run(2, 2)]}


def test_what_a_lost_worker_still_says_is_counted_and_dropped() -> None:
    turns = given(7)
    turns.submit(1, 2)
    turns.lose(7)
    told = turns.worker(7, Done(1, 1, US, b"late"), Started(2, 1), Gave(((2, 1),)))
    assert told == Told()
    assert turns.scheduler.counters.stale == 3
    assert turns.lose(7) == Told()
    assert turns.scheduler.counters.stale == 4
    assert turns.states(1, 2) == [State.READY, State.READY]


@pytest.mark.parametrize(
    "late",
    [Started(1, 1), Done(1, 1, US, b"late"), Failed(1, 1, US, b"late"), Gave(((1, 1),)), Kept(((1, 1),))],
    ids=lambda message: type(message).__name__,
)
def test_what_is_said_of_an_attempt_that_is_over_is_dropped(late: Started | Done | Failed | Gave | Kept) -> None:
    turns = given(7)
    turns.submit(1, 2)
    turns.worker(7, Started(2, 1), Gave(((1, 1),)))
    turns.done(7, 2)
    assert turns.attempt(1) == 2
    assert turns.worker(7, late) == Told()
    assert turns.scheduler.counters.stale == 1
    assert turns.done(7, 1).notices() == [TaskSucceeded(1, b"r", US)]


# --- endpoints that break the protocol --------------------------------------------------------------------------------


def test_a_task_submitted_twice_is_the_client_s_fault_and_the_first_one_goes_on() -> None:
    turns = given(7)
    turns.submit(1, client=3)
    assert turns.submit(1, client=4) == Told(faulty_clients={4: "task 1 was submitted twice"})
    assert turns.done(7, 1) == Told(clients={3: [TaskSucceeded(1, b"r", US)]})


def test_what_depends_on_an_unknown_task_is_refused_and_is_nobody_s_fault() -> None:
    """The task may have ended, and been forgotten, while the message was on its way."""
    turns = given(7)
    refused = submit(1, inputs=(2, 5), keep=True)
    assert turns.client(submit(2), refused, submit(3), client=3) == Told(
        workers={7: [run(2), run(3)]}, refused=[(3, refused)]
    )
    assert list(turns.scheduler.tasks) == [2, 3]
    assert (turns.scheduler.live, turns.scheduler.counters.submitted) == (2, 2)
    assert not turns.scheduler.tasks[2].dependents
    assert turns.submit(1, client=3).workers == {}  # its number is free
    assert turns.state(1) is State.READY


def test_what_depends_on_a_refused_task_is_refused_too() -> None:
    turns = given()
    first, second = submit(1, inputs=(5,)), submit(2, inputs=(1,))
    assert turns.client(first, second) == Told(refused=[(0, first), (0, second)])


def test_a_task_cannot_depend_on_itself() -> None:
    assert given().submit(1, inputs=(1,)) == Told(refused=[(0, submit(1, inputs=(1,)))])


@pytest.mark.parametrize("message", [Cancel(1), Release(1)], ids=lambda message: type(message).__name__)
def test_touching_another_client_s_task_is_a_fault(message: Cancel | Release) -> None:
    turns = given()
    turns.submit(1, client=3, keep=True)
    assert turns.client(message, client=4) == Told(faulty_clients={4: "task 1 is another client's"})
    assert turns.state(1) is State.READY
    assert turns.scheduler.tasks[1].kept


# --- clients that leave -----------------------------------------------------------------------------------------------


def test_what_a_client_that_left_wanted_and_has_not_started_is_cancelled_and_told_to_nobody() -> None:
    turns = given()
    turns.submit(1, 2, client=3)
    turns.submit(3, client=3, inputs=(1,))
    turns.submit(4, client=4)
    assert turns.client_left(3) == Told()
    assert list(turns.scheduler.tasks) == [4]
    assert turns.scheduler.counters.cancelled == 2


def test_a_client_that_leaves_in_the_turn_in_which_something_ends_is_not_told() -> None:
    turns = given(7)
    turns.submit(1, client=3)
    told = turns.turn(FromWorker(7, [Done(1, 1, US, b"r")]), ClientLeft(3))
    assert told == Told()
    assert turns.scheduler.tasks == {}


def test_what_has_started_runs_to_its_end_and_is_told_to_nobody() -> None:
    turns = given(7)
    turns.submit(1, 2, 3, client=3, keep=True)
    turns.done(7, 1)
    turns.worker(7, Started(2, 1))
    assert turns.client_left(3) == Told()
    assert turns.states(1, 2, 3) == [None, State.RUNNING, State.ASSIGNED]
    assert turns.worker(7, Done(2, 1, MS, b"r"), Failed(3, 1, US, b"e")) == Told()
    assert turns.scheduler.tasks == {}


def test_a_client_that_leaves_takes_the_tasks_of_others_that_need_its_own_along() -> None:
    turns = given()
    turns.submit(1, client=3)
    turns.submit(2, client=4, inputs=(1,))
    assert turns.client_left(3) == Told(clients={4: [InputFailed(2, 1, 1)]})


def test_a_result_of_a_client_that_left_stays_for_the_tasks_of_others() -> None:
    turns = given(7)
    turns.submit(1, client=3, keep=True)
    turns.done(7, 1)
    turns.submit(2, client=4, inputs=(1,))
    turns.lose(7)
    turns.client_left(3)
    assert turns.join(8).workers == {8: [run(2, 2, inputs=(b"r",))]}
    turns.done(8, 2)
    assert turns.scheduler.tasks == {}


# --- what is told and counted -----------------------------------------------------------------------------------------


def test_each_client_is_told_of_its_own_tasks_in_one_list() -> None:
    turns = given(7)
    turns.turn(FromClient(3, [submit(1), submit(2)]), FromClient(4, [submit(3)]))
    told = turns.worker(7, Done(1, 1, US, b"r"), Failed(2, 1, US, b"e"), Started(3, 1))
    assert told == Told(clients={3: [TaskSucceeded(1, b"r", US), TaskFailed(2, b"e")], 4: [TaskRunning(3)]})


def test_items_of_a_chunk_count_as_tasks() -> None:
    turns = given(7)
    turns.submit(1, items=10)
    turns.client(submit(2, b"unknown", items=5), submit(3))
    told = turns.worker(7, Done(1, 1, 50 * US, b"r", failures=((2, b"e"), (5, b"e"))))
    assert told.notices() == [TaskSucceeded(1, b"r", 50 * US, ((2, b"e"), (5, b"e")))]
    turns.client(Cancel(3))
    turns.lose(7, running=(2, 1))
    counters = turns.scheduler.counters
    assert (counters.submitted, counters.succeeded, counters.failed, counters.cancelled) == (16, 8, 7, 1)
    assert counters.run_ns == 50 * US


def test_the_scheduler_does_not_touch_effects_that_it_has_handed_out() -> None:
    turns = given(7)
    told = turns.submit(1)
    turns.done(7, 1)
    assert told == Told(workers={7: [run(1)]})


def test_when_all_is_over_nothing_is_kept() -> None:
    turns = given(7)
    turns.submit(1, keep=True)
    turns.done(7, 1)
    assert turns.state(1) is State.SUCCEEDED
    turns.scheduler.forget_all()
    assert turns.scheduler.tasks == {}
