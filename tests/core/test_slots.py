"""Workers whose tasks wait for tasks: who has their slot, who is parked, is to come or to leave, who must not wait."""

from typing import Any

import pytest
from turns import MS, US, Told, Turns, given, run, submit

from slipstream.core.events import ClientWaits
from slipstream.core.states import State
from slipstream.protocol.messages import Blocked, CannotWait, Done, Resumed, Started, TaskRunning, TaskSucceeded


def employed(slots: int, most: int, *workers: int, duration_ns: int = US) -> Turns:
    """So many slots, so many workers at most, and these workers; the calls of b'f' are known to take that long."""
    turns = Turns(slots, most)
    turns.learn(b"f", duration_ns)
    turns.join(*workers)
    return turns


def blocks(turns: Turns, worker: int, task: int) -> Told:
    return turns.worker(worker, Blocked(task, turns.attempt(task)))


def resumes(turns: Turns, worker: int, task: int) -> Told:
    return turns.worker(worker, Resumed(task, turns.attempt(task)))


def parked(turns: Turns) -> list[int]:
    return list(turns.scheduler.slots.parked)


def counts(turns: Turns) -> tuple[int, int, int]:
    """Active, blocked and parked workers."""
    slots = turns.scheduler.slots
    return slots.active, slots.blocked, len(slots.parked)


def with_waiting_tasks(slots: int, most: int, count: int) -> Turns:
    """Workers 7, 8, ... run tasks 7, 8, ..., and all of these wait."""
    turns = employed(slots, most)
    for worker in range(7, 7 + count):
        turns.join(worker)
        turns.submit(worker)
        blocks(turns, worker, worker)
    return turns


# --- one that waits ---------------------------------------------------------------------------------------------------


def test_a_worker_whose_task_waits_leaves_its_slot_to_a_new_one() -> None:
    turns = employed(1, 0, 7)
    turns.submit(1)
    assert blocks(turns, 7, 1) == Told(clients={0: [TaskRunning(1)]}, wanted=2)
    assert turns.submit(2) == Told()
    assert turns.join(8) == Told(workers={8: [run(2)]})
    assert counts(turns) == (1, 1, 0)


def test_a_task_that_is_known_to_run_may_wait() -> None:
    turns = employed(1, 0, 7)
    turns.submit(1)
    turns.worker(7, Started(1, 1))
    assert blocks(turns, 7, 1) == Told(wanted=2)


def test_a_worker_that_says_twice_that_it_waits_leaves_one_slot() -> None:
    turns = employed(1, 0, 7)
    turns.submit(1)
    blocks(turns, 7, 1)
    assert blocks(turns, 7, 1) == Told()
    assert counts(turns) == (0, 1, 0)


def test_a_worker_that_goes_on_without_having_waited_changes_nothing() -> None:
    turns = employed(1, 0, 7)
    turns.submit(1)
    turns.worker(7, Started(1, 1))
    assert resumes(turns, 7, 1) == Told()
    assert counts(turns) == (1, 0, 0)


@pytest.mark.parametrize("kind", [Blocked, Resumed])
def test_what_is_said_of_a_task_that_is_over_is_stale(kind: Any) -> None:
    turns = employed(1, 0, 7)
    turns.submit(1)
    turns.done(7, 1)
    assert turns.worker(7, kind(1, 1)) == Told()
    assert turns.scheduler.counters.stale == 1


def test_only_one_task_of_a_worker_waits_at_a_time() -> None:
    turns = employed(1, 0, 7)
    turns.submit(1, 2)
    blocks(turns, 7, 1)
    assert list(blocks(turns, 7, 2).faulty_workers) == [7]
    assert counts(turns) == (0, 1, 0)


def test_a_task_cannot_wait_before_it_has_its_inputs() -> None:
    turns = employed(1, 0, 7)
    turns.client(submit(1), submit(2, inputs=(1,)))
    assert list(blocks(turns, 7, 2).faulty_workers) == [7]
    assert counts(turns) == (1, 0, 0)


def test_where_all_workers_run_tasks_no_number_of_them_is_wanted() -> None:
    turns = given(7, 8)
    turns.submit(1)
    told = blocks(turns, 7, 1)
    assert (told.wanted, told.dismissed) == (None, [])
    assert resumes(turns, 7, 1) == Told()


# --- the end of waiting -----------------------------------------------------------------------------------------------


def test_the_worker_that_has_taken_the_slot_is_parked_when_it_idles_and_back_at_the_next_wait() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    turns.join(8)
    assert resumes(turns, 7, 7) == Told()
    assert (counts(turns), parked(turns)) == ((1, 0, 1), [8])
    assert turns.submit(1) == Told()  # 7 has a long task, and 8 no slot
    assert blocks(turns, 7, 7) == Told(workers={8: [run(1)]})
    assert counts(turns) == (1, 1, 0)


def test_the_worker_that_has_taken_the_slot_is_parked_once_its_long_task_is_done() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    turns.join(8)
    turns.submit(1)
    turns.worker(8, Started(1, 1))
    resumes(turns, 7, 7)
    assert counts(turns) == (2, 0, 0)
    turns.done(8, 1)
    assert (counts(turns), parked(turns)) == ((1, 0, 1), [8])


def test_the_worker_that_goes_on_is_parked_itself_if_the_other_is_busy_when_it_is_done() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    turns.join(8)
    turns.submit(1)
    turns.worker(8, Started(1, 1))
    resumes(turns, 7, 7)
    turns.done(7, 7)
    assert parked(turns) == [7]


def test_a_task_that_ends_does_not_wait_any_more() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    turns.join(8)
    turns.done(7, 7)
    assert (counts(turns), parked(turns)) == ((1, 0, 1), [8])


def test_a_worker_that_comes_too_late_is_parked() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    assert resumes(turns, 7, 7) == Told(wanted=1)
    assert turns.join(8) == Told(wanted=2)  # one is kept for the next time
    assert parked(turns) == [8]


def test_a_worker_that_is_lost_while_it_waits_leaves_no_trace() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    turns.join(8)
    told = turns.lose(7, running=(7, 1))
    assert (told.wanted, counts(turns)) == (1, (1, 0, 0))


def test_parked_workers_come_back_in_the_order_in_which_they_were_parked() -> None:
    turns = with_waiting_tasks(2, 0, 2)
    turns.join(10, 9)
    resumes(turns, 7, 7)
    resumes(turns, 8, 8)
    first, second = parked(turns)
    blocks(turns, 7, 7)
    assert (parked(turns), list(turns.scheduler.placement.idle)) == ([second], [first])
    blocks(turns, 8, 8)
    assert (parked(turns), list(turns.scheduler.placement.idle)) == ([], [first, second])


def test_a_parked_worker_takes_the_slot_of_one_that_is_lost() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    turns.join(8)
    resumes(turns, 7, 7)
    told = turns.lose(7)
    assert (told.wanted, told.sent_to(8), counts(turns)) == (1, [7], (1, 0, 0))


def test_a_parked_worker_that_is_lost_is_not_replaced() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    turns.join(8)
    resumes(turns, 7, 7)
    assert turns.lose(8) == Told(wanted=1)
    assert counts(turns) == (1, 0, 0)


# --- parked with tasks ------------------------------------------------------------------------------------------------


def parked_with_tasks(*before: int) -> Turns:
    """7 goes on in its long task, so 8, which has several, is parked at its next report, after others if there are."""
    turns = employed(1, 0, 7, duration_ns=2 * MS)
    turns.submit(7)
    blocks(turns, 7, 7)
    turns.join(8)
    turns.client(*[submit(n) for n in range(1, 7)])
    turns.join(*before)
    resumes(turns, 7, 7)
    turns.done(8, 1, duration_ns=2 * MS)
    assert (parked(turns), turns.held_by(8)) == ([*before, 8], [2, 3, 4, 5, 6])
    return turns


def test_a_parked_worker_runs_what_it_has_and_takes_nothing_more() -> None:
    turns = parked_with_tasks()
    for task in turns.held_by(8):
        told = turns.done(8, task)
        assert told.notices() == [TaskSucceeded(task, b"r", US)]
        assert told.sent_to(8) == []
    assert parked(turns) == [8]


def test_what_a_parked_worker_has_is_asked_back_by_one_that_idles() -> None:
    turns = parked_with_tasks()
    assert turns.done(7, 7).retracted_from(8) == [(5, 1), (6, 1)]


def test_a_parked_worker_whose_own_task_waits_is_not_parked_any_more() -> None:
    turns = parked_with_tasks(9)
    blocks(turns, 8, turns.held_by(8)[0])
    assert (counts(turns), parked(turns)) == ((1, 1, 1), [9])


def test_nothing_is_sent_ahead_to_a_parked_worker() -> None:
    turns = parked_with_tasks()
    turns.done(8, 2, 3, 4, 5)
    turns.client(submit(50, inputs=(6,)))
    assert turns.turn(ClientWaits(0)) == Told()
    assert turns.done(8, 6).sent_to(8) == []
    assert turns.state(50) is State.READY


# --- too many ---------------------------------------------------------------------------------------------------------


def test_no_more_are_parked_than_there_are_slots_and_the_rest_is_dismissed() -> None:
    turns = with_waiting_tasks(1, 0, 2)
    turns.join(9)
    assert turns.scheduler.slots.blocked == 2
    resumes(turns, 7, 7)
    told = resumes(turns, 8, 8)
    assert (parked(turns), told.dismissed) == ([9], [])
    told = turns.done(8, 8)
    assert (parked(turns), told.dismissed) == ([9], [8])
    assert turns.lose(8).dismissed == []
    assert counts(turns) == (1, 0, 1)


def test_a_dismissed_worker_is_told_of_once_and_given_nothing() -> None:
    turns = with_waiting_tasks(1, 0, 1)
    turns.join(8)
    resumes(turns, 7, 7)
    told = turns.join(9)
    assert (told.dismissed, parked(turns)) == ([9], [8])
    turns.submit(1)
    assert blocks(turns, 7, 7) == Told(workers={8: [run(1)]})
    turns.submit(2)
    blocks(turns, 8, 1)
    assert turns.held_by(9) == []
    assert turns.worker(9).dismissed == []


def test_the_last_worker_that_there_may_be_must_not_wait() -> None:
    turns = employed(1, 2, 7)
    turns.submit(1)
    assert blocks(turns, 7, 1).wanted == 2
    turns.join(8)
    turns.submit(2)
    told = blocks(turns, 8, 2)
    assert told == Told(clients={0: [TaskRunning(2)], 8: [CannotWait(2, 2)]})
    assert counts(turns) == (1, 1, 0)
    assert resumes(turns, 8, 2) == Told()
    assert turns.worker(8, Done(2, 1, US, b"r")).notices() == [TaskSucceeded(2, b"r", US)]


def test_the_only_worker_that_there_may_be_must_not_wait() -> None:
    turns = employed(1, 1, 7)
    turns.submit(1)
    assert blocks(turns, 7, 1).notices(client=7) == [CannotWait(1, 1)]


def test_a_task_may_wait_again_when_another_does_not_any_more() -> None:
    turns = employed(1, 2, 7)
    turns.submit(1)
    blocks(turns, 7, 1)
    turns.join(8)
    turns.submit(2)
    blocks(turns, 8, 2)
    resumes(turns, 7, 1)
    assert blocks(turns, 8, 2) == Told(wanted=2)
    assert counts(turns) == (1, 1, 0)


def test_no_more_workers_are_wanted_than_there_may_be() -> None:
    turns = employed(2, 3, 7, 8)
    turns.submit(1, 2)
    assert blocks(turns, 7, 1).wanted == 3
    assert blocks(turns, 8, 2).wanted is None
    assert counts(turns) == (0, 2, 0)


def test_what_a_task_has_submitted_goes_before_what_was_queued_with_it() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1, 2)
    assert turns.held_by(7) == [1]
    turns.submit(10, client=7)  # before its worker has said that it runs
    turns.worker(7, Started(1, 1))
    turns.submit(11, client=7)
    turns.submit(3, priority=1)
    turns.submit(12, client=8)  # another client from outside
    assert turns.waiting_room() == [3, 10, 11, 2, 12]
    turns.worker(7, Done(1, 1, US, b"r"))
    assert turns.held_by(7) == [3, 10, 11, 2, 12]


def test_the_deeper_a_task_is_nested_the_sooner_it_goes() -> None:
    turns = given(7, 8, duration_ns=None)
    turns.submit(1)
    turns.submit(10, client=7)
    assert (turns.held_by(7), turns.held_by(8)) == ([1], [10])
    turns.submit(11, client=7)
    turns.submit(100, client=8)
    assert turns.waiting_room() == [100, 11]
