"""Values that get lost: what runs again, what waits for it, who is told, and what is kept for the sake of it."""

from typing import Any

import pytest
from turns import MS, US, Told, Turns, given, run, submit

from slipstream.core.lost_values import MAX_DEPTH, NOT_HELD
from slipstream.core.states import State
from slipstream.protocol.ids import STORED
from slipstream.protocol.messages import (
    Blocked,
    Cancel,
    Done,
    Expect,
    Failed,
    Gave,
    Gone,
    InputFailed,
    Lacks,
    Missed,
    Provide,
    Release,
    Started,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
    ValueLost,
)

#: A task with a value in a file, two that take it, and one that takes those.
VALUE, TAKER, OTHER, LAST = 1, 2, 3, 4


def file(task: int, attempt: int = 1) -> bytes:
    """The payload of a value in a file; each attempt makes another one."""
    return STORED + b"%d-%d" % (task, attempt)


def made(turns: Turns, worker: int, *tasks: int) -> Told:
    """One turn in which a worker reports tasks that it has, whose results lie in files."""
    return turns.worker(worker, *[Done(n, turns.attempt(n), US, file(n, turns.attempt(n))) for n in tasks])


def gone(turns: Turns, worker: int, task: int, *payloads: bytes) -> Told:
    return turns.worker(worker, Gone(task, turns.attempt(task), payloads))


def with_value(*workers: int, duration_ns: int | None = US, **fields: Any) -> Turns:
    """The first worker has made VALUE, which its client may refer to."""
    turns = given(*(workers or (7,)), duration_ns=duration_ns)
    turns.submit(VALUE, **{"value_retries": 1, **fields})
    made(turns, workers[0] if workers else 7, VALUE)
    return turns


def counted(turns: Turns) -> tuple[int, int, int, int]:
    counters = turns.scheduler.counters
    return counters.submitted, counters.succeeded, counters.failed, counters.recomputed


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_a_value_in_a_file_is_kept_with_its_recipe_until_it_is_released() -> None:
    turns = with_value()
    task = turns.scheduler.tasks[VALUE]
    assert (task.payload, task.recipe, task.result) == (b"p", True, file(VALUE))
    turns.client(Release(VALUE))
    assert turns.scheduler.tasks == {}


def test_a_value_that_was_released_before_it_was_there_is_not_kept() -> None:
    turns = given(7)
    turns.submit(VALUE, value_retries=1)
    turns.client(Release(VALUE))
    assert made(turns, 7, VALUE).notices() == [TaskSucceeded(VALUE, file(VALUE), US)]
    assert turns.scheduler.tasks == {}


def test_a_value_that_travels_needs_no_recipe() -> None:
    turns = given(7)
    turns.submit(VALUE, value_retries=1, keep=True)
    turns.done(7, VALUE)
    assert (turns.scheduler.tasks[VALUE].payload, turns.scheduler.tasks[VALUE].recipe) == (b"", False)


def test_a_value_that_is_not_to_be_made_again_has_no_recipe() -> None:
    turns = with_value(value_retries=0)
    assert (turns.scheduler.tasks[VALUE].payload, turns.scheduler.tasks[VALUE].recipe) == (b"", False)


def test_a_recipe_holds_small_inputs_and_names_the_tasks_of_large_ones() -> None:
    turns = with_value()
    turns.submit(OTHER, keep=True)
    turns.done(7, OTHER)
    turns.submit(TAKER, inputs=(VALUE, b"there", OTHER), value_retries=1)
    made(turns, 7, TAKER)
    turns.client(Release(VALUE), Release(OTHER))
    assert sorted(turns.scheduler.tasks) == [VALUE, TAKER]
    assert turns.scheduler.tasks[TAKER].inputs == (VALUE, b"there", b"r")
    turns.client(Release(TAKER))
    assert turns.scheduler.tasks == {}


def chain(turns: Turns, length: int) -> None:
    """Each takes the value of the one before, and only the last is held by the client."""
    for first in range(1, length + 1, 64):
        links = range(first, min(first + 64, length + 1))
        turns.client(*[submit(n, inputs=(n - 1,) if n > 1 else (), value_retries=1) for n in links])
        if first > 1:
            turns.client(Release(first - 1))
        for n in links:
            made(turns, 7, n)
        turns.client(*[Release(n) for n in links if n != links[-1]])


def test_a_chain_of_recipes_goes_with_its_last_value() -> None:
    turns = given(7)
    chain(turns, 50)
    assert len(turns.scheduler.tasks) == 50
    turns.client(Release(50))
    assert turns.scheduler.tasks == {}


def test_a_long_chain_keeps_no_more_recipes_than_may_need_one_another() -> None:
    turns = given(7)
    turns.checked = False
    chain(turns, MAX_DEPTH + 1)
    assert [turns.scheduler.tasks[n].depth for n in (1, MAX_DEPTH, MAX_DEPTH + 1)] == [0, MAX_DEPTH - 1, MAX_DEPTH]
    turns.submit(MAX_DEPTH + 2, inputs=(MAX_DEPTH + 1,), value_retries=1)
    made(turns, 7, MAX_DEPTH + 2)
    turns.client(Release(MAX_DEPTH + 1))
    (task,) = turns.scheduler.tasks.values()
    assert (task.task, task.depth, task.inputs) == (MAX_DEPTH + 2, 0, (file(MAX_DEPTH + 1),))


def test_what_follows_a_value_that_is_lost_for_good_ends_however_long_it_is() -> None:
    """No recursion, and nothing is left; nor is what was expected from outside for its sake."""
    turns = with_value(value_retries=0)
    turns.checked = False
    length = 20_000
    turns.client(Expect(9))  # so that all of it waits
    turns.client(*[submit(n, inputs=(n - 1, VALUE) if n > 10 else (9, VALUE)) for n in range(10, length)])
    told = turns.client(Missed(VALUE, file(VALUE)), Release(VALUE))
    assert len(told.notices()) == 1 + length - 10
    assert turns.scheduler.tasks == {}


# --- made again -------------------------------------------------------------------------------------------------------


def test_a_value_that_its_client_misses_is_made_again() -> None:
    turns = with_value()
    assert turns.client(Missed(VALUE, file(VALUE))) == Told(workers={7: [run(VALUE, 2)]})
    assert made(turns, 7, VALUE) == Told(clients={0: [TaskSucceeded(VALUE, file(VALUE, 2), US)]})
    assert counted(turns) == (1, 1, 0, 1)


@pytest.mark.parametrize("value_retries", [1, 2])
def test_a_value_is_made_again_as_often_as_it_may_be(value_retries: int) -> None:
    turns = with_value(value_retries=value_retries)
    for attempt in range(1, value_retries + 1):
        turns.client(Missed(VALUE, file(VALUE, attempt)))
        made(turns, 7, VALUE)
    (notice,) = turns.client(Missed(VALUE, file(VALUE, value_retries + 1))).notices()
    assert notice == ValueLost(VALUE, notice.reason)
    assert f"as often as worker_retries allows: {value_retries}" in notice.reason
    assert turns.state(VALUE) is State.FAILED
    assert counted(turns) == (1, 1, 0, value_retries)
    turns.client(Release(VALUE))
    assert turns.scheduler.tasks == {}


def test_a_value_that_may_not_be_made_again_is_lost() -> None:
    turns = with_value(value_retries=0)
    (notice,) = turns.client(Missed(VALUE, file(VALUE))).notices()
    assert "worker_retries is 0" in notice.reason
    assert counted(turns) == (1, 1, 0, 0)


def test_a_chunk_that_runs_again_is_counted_once() -> None:
    turns = given(7)
    turns.submit(VALUE, items=4, value_retries=1)
    failures = ((1, b"e"),)
    turns.worker(7, Done(VALUE, 1, US, file(VALUE), failures))
    assert turns.client(Missed(VALUE, file(VALUE))).sent_to(7) == [VALUE]
    told = turns.worker(7, Done(VALUE, 2, US, file(VALUE, 2), failures))
    assert told.notices() == [TaskSucceeded(VALUE, file(VALUE, 2), US, failures)]
    assert counted(turns) == (4, 3, 1, 1)


def test_who_misses_a_value_that_has_been_made_again_was_told_already() -> None:
    turns = with_value()
    turns.client(Missed(VALUE, file(VALUE)))
    assert turns.client(Missed(VALUE, file(VALUE))) == Told()  # it is being made
    made(turns, 7, VALUE)
    assert turns.client(Missed(VALUE, file(VALUE))) == Told()
    assert counted(turns) == (1, 1, 0, 1)


def test_who_misses_the_value_of_a_task_that_has_none_is_told_so() -> None:
    turns = with_value(value_retries=0)
    turns.client(Missed(VALUE, file(VALUE)))
    assert turns.client(Missed(VALUE, file(VALUE))).notices() == [ValueLost(VALUE, NOT_HELD)]
    turns.client(Release(VALUE))
    assert turns.client(Missed(VALUE, file(VALUE))).notices() == [ValueLost(VALUE, NOT_HELD)]


def test_what_runs_again_goes_first() -> None:
    turns = with_value(duration_ns=None)
    turns.learn(b"f", 10**9)
    turns.submit(20, 21, 22)
    turns.client(Missed(VALUE, file(VALUE)))
    assert turns.waiting_room() == [VALUE, 21, 22]


# --- dependents -------------------------------------------------------------------------------------------------------


def test_dependents_that_wait_or_are_ready_wait_again() -> None:
    turns = with_value()
    turns.lose(7)
    turns.client(Expect(9))
    turns.client(submit(TAKER, inputs=(VALUE,)), submit(OTHER, inputs=(VALUE, 9)))
    assert turns.states(TAKER, OTHER) == [State.READY, State.WAITING]
    turns.client(Missed(VALUE, file(VALUE)))
    assert turns.states(VALUE, TAKER, OTHER) == [State.READY, State.WAITING, State.WAITING]
    assert turns.join(8).workers == {8: [run(VALUE, 2), run(TAKER, inputs=(VALUE,))]}
    made(turns, 8, VALUE)
    turns.done(8, TAKER)
    assert turns.client(Provide(9, b"v")).workers == {8: [run(OTHER, inputs=(file(VALUE, 2), b"v"))]}
    turns.done(8, OTHER)
    assert list(turns.scheduler.tasks) == [VALUE]


def test_what_waited_once_more_is_ready_once_and_taken_once() -> None:
    turns = with_value(duration_ns=10 * MS)
    turns.lose(7)
    takers = range(10, 30)
    turns.submit(*takers, inputs=(VALUE,))
    turns.client(Missed(VALUE, file(VALUE)))
    turns.join(8)
    made(turns, 8, VALUE)
    (first,) = turns.held_by(8)
    ready = turns.scheduler.ready
    assert (first, turns.waiting_room(), len(ready)) == (10, [*takers[1:]], 19)
    ready._sweep()
    assert sum(map(len, ready._by_priority.values())) == 19
    for task in takers:
        turns.done(8, task)
    assert list(turns.scheduler.tasks) == [VALUE]


@pytest.mark.parametrize("started", [False, True])
def test_a_dependent_that_was_given_the_value_does_not_care(started: bool) -> None:
    turns = with_value()
    turns.submit(TAKER, inputs=(VALUE,))
    if started:
        turns.worker(7, Started(TAKER, 1))
    turns.client(Missed(VALUE, file(VALUE)))
    assert turns.state(TAKER) is (State.RUNNING if started else State.ASSIGNED)
    assert turns.done(7, TAKER).notices() == [TaskSucceeded(TAKER, b"r", US)]


def test_a_dependent_that_was_given_the_value_and_comes_back_waits_for_the_next() -> None:
    turns = with_value(7, 8)
    turns.submit(TAKER, inputs=(VALUE,))
    turns.client(Missed(VALUE, file(VALUE)))
    assert (turns.held_by(7), turns.held_by(8)) == ([TAKER], [VALUE])
    turns.worker(7, Gave(((TAKER, 1),)))
    assert turns.state(TAKER) is State.WAITING
    assert made(turns, 8, VALUE).workers == {8: [run(TAKER, 2, inputs=(file(VALUE, 2),))]}


def test_a_dependent_that_comes_back_when_the_value_is_lost_for_good_has_failed() -> None:
    turns = with_value(value_retries=0)
    turns.submit(TAKER, inputs=(VALUE,))
    turns.submit(LAST, digest=b"unknown", inputs=(TAKER,))
    turns.client(Missed(VALUE, file(VALUE)))
    assert turns.state(TAKER) is State.ASSIGNED
    told = turns.worker(7, Lacks(((TAKER, 1),)))
    assert told.notices() == [InputFailed(TAKER, VALUE, VALUE), InputFailed(LAST, VALUE, TAKER)]
    assert list(turns.scheduler.tasks) == [VALUE]


def test_a_dependent_that_was_sent_ahead_may_find_the_value_gone() -> None:
    turns = given(7)
    turns.submit(VALUE, value_retries=1)
    turns.submit(TAKER, inputs=(VALUE,))
    made(turns, 7, VALUE)
    told = gone(turns, 7, TAKER, file(VALUE))
    assert told.workers == {7: [run(VALUE, 2), run(TAKER, 2, inputs=(VALUE,))]}


def test_two_dependents_that_miss_a_value_have_it_made_once() -> None:
    turns = with_value(7, 8)
    turns.submit(TAKER, OTHER, inputs=(VALUE,))
    assert (turns.held_by(7), turns.held_by(8)) == ([TAKER], [OTHER])
    assert gone(turns, 7, TAKER, file(VALUE)).sent_to(7) == [VALUE, TAKER]
    assert gone(turns, 8, OTHER, file(VALUE)) == Told()
    assert made(turns, 7, VALUE).workers == {8: [run(OTHER, 2, inputs=(file(VALUE, 2),))]}
    assert counted(turns) == (3, 1, 0, 1)


def test_a_dependent_that_says_late_that_the_value_is_gone_is_given_the_next() -> None:
    turns = with_value(7, 8)
    turns.submit(TAKER, OTHER, inputs=(VALUE,))
    turns.client(Missed(VALUE, file(VALUE)))
    made(turns, turns.scheduler.tasks[VALUE].worker, VALUE)
    assert gone(turns, 8, OTHER, file(VALUE)).workers == {8: [run(OTHER, 2, inputs=(file(VALUE, 2),))]}
    assert counted(turns) == (3, 1, 0, 1)


def test_a_dependent_in_a_long_task_may_find_the_value_gone() -> None:
    """Its worker has said that it started: reading the inputs took long."""
    turns = Turns(slots=1)
    turns.join(7)
    turns.submit(VALUE, value_retries=1)
    made(turns, 7, VALUE)
    turns.submit(TAKER, inputs=(VALUE,))
    turns.worker(7, Blocked(TAKER, 1))
    gone(turns, 7, TAKER, file(VALUE))
    assert turns.held_by(7) == [VALUE, TAKER]
    assert turns.scheduler.slots.blocked == 0


def test_a_worker_that_misses_what_nobody_gave_it_is_given_the_task_again() -> None:
    turns = with_value()
    turns.submit(TAKER, inputs=(VALUE,))
    assert gone(turns, 7, TAKER, b"another").workers == {7: [run(TAKER, 2, inputs=(file(VALUE),))]}


def test_a_value_that_was_there_at_the_submit_is_not_made_again() -> None:
    turns = given(7)
    turns.submit(TAKER, inputs=(file(VALUE),))
    turns.submit(LAST, digest=b"unknown", inputs=(TAKER,))
    lost, failed = gone(turns, 7, TAKER, file(VALUE)).notices()
    assert lost == ValueLost(TAKER, lost.reason)
    assert "a value that it takes, which was put" in lost.reason
    assert failed == InputFailed(LAST, TAKER, TAKER)
    assert turns.scheduler.tasks == {}
    assert counted(turns) == (2, 0, 2, 0)


def test_a_dependent_fails_with_the_first_value_that_is_lost_for_good() -> None:
    turns = given(7)
    turns.client(submit(VALUE, value_retries=0), submit(OTHER, value_retries=1))
    made(turns, 7, VALUE, OTHER)
    turns.submit(TAKER, inputs=(VALUE, OTHER))
    lost, failed = gone(turns, 7, TAKER, file(VALUE), file(OTHER)).notices()
    assert (lost.task, failed) == (VALUE, InputFailed(TAKER, VALUE, VALUE))
    assert turns.state(OTHER) is State.SUCCEEDED


def test_a_value_from_outside_that_is_gone_cannot_be_made_again() -> None:
    turns = given(7)
    turns.client(Expect(9), submit(TAKER, inputs=(9,)), Provide(9, file(9)))
    lost, failed = gone(turns, 7, TAKER, file(9)).notices()
    assert lost == ValueLost(9, lost.reason)
    assert "no result of a task of this executor" in lost.reason
    assert failed == InputFailed(TAKER, 9, 9)
    assert turns.scheduler.tasks == {}


# --- what becomes of the second run -----------------------------------------------------------------------------------


def test_a_second_run_that_raises_fails_those_that_wait_for_it_and_no_others() -> None:
    turns = with_value(7, 8)
    turns.submit(TAKER, OTHER, inputs=(VALUE,))
    gone(turns, 7, TAKER, file(VALUE))
    told = turns.worker(7, Failed(VALUE, 2, US, b"e"))
    assert told.notices() == [TaskFailed(VALUE, b"e"), InputFailed(TAKER, VALUE, VALUE)]
    assert turns.state(OTHER) is State.ASSIGNED
    turns.done(8, OTHER)
    assert counted(turns) == (3, 2, 1, 1)


@pytest.mark.parametrize("worker_retries", [0, 1])
def test_a_second_run_may_be_lost_with_its_worker(worker_retries: int) -> None:
    turns = with_value(worker_retries=worker_retries)
    turns.client(Missed(VALUE, file(VALUE)))
    told = turns.lose(7, running=(VALUE, 2))
    if worker_retries:
        assert turns.join(8).workers == {8: [run(VALUE, 3)]}
    else:
        assert isinstance(told.notices()[0], TaskLost)
        assert (turns.state(VALUE), counted(turns)) == (State.FAILED, (1, 1, 0, 1))


def test_a_release_during_the_second_run_forgets_it_at_its_end() -> None:
    turns = with_value()
    turns.client(Missed(VALUE, file(VALUE)))
    turns.client(Release(VALUE))
    made(turns, 7, VALUE)
    assert turns.scheduler.tasks == {}


def test_a_value_that_was_released_and_is_made_again_for_a_dependent_goes_with_that() -> None:
    turns = with_value()
    turns.submit(TAKER, inputs=(VALUE,))
    turns.client(Release(VALUE))
    gone(turns, 7, TAKER, file(VALUE))
    made(turns, 7, VALUE)
    turns.done(7, TAKER)
    assert turns.scheduler.tasks == {}


def test_a_second_run_that_has_not_begun_can_be_cancelled() -> None:
    turns = with_value()
    turns.lose(7)
    turns.client(Missed(VALUE, file(VALUE)))
    turns.submit(TAKER, inputs=(VALUE,))
    told = turns.client(Cancel(VALUE))
    assert told.notices() == [TaskCancelled(VALUE), InputFailed(TAKER, VALUE, VALUE)]
    assert turns.scheduler.counters.cancelled == 0  # it had succeeded


@pytest.mark.parametrize("begun", [False, True])
def test_a_client_may_leave_during_the_second_run(begun: bool) -> None:
    turns = given(7)
    turns.submit(VALUE, client=5, value_retries=1)
    made(turns, 7, VALUE)
    turns.submit(TAKER, client=5, inputs=(VALUE,))
    if not begun:
        turns.lose(7)
    turns.client(Missed(VALUE, file(VALUE)), client=5)
    assert turns.client_left(5).clients == {}
    for task in turns.held_by(7) if begun else []:
        assert made(turns, 7, task).clients == {}
    assert turns.scheduler.tasks == {}


# --- recipes of recipes -----------------------------------------------------------------------------------------------


def three_links() -> Turns:
    """VALUE, TAKER that takes it and LAST that takes that have run; the client holds LAST only."""
    turns = with_value()
    turns.submit(TAKER, inputs=(VALUE,), value_retries=1)
    made(turns, 7, TAKER)
    turns.submit(LAST, inputs=(TAKER,), value_retries=1)
    made(turns, 7, LAST)
    turns.client(Release(VALUE), Release(TAKER))
    return turns


def test_what_the_second_run_takes_is_made_again_where_it_is_gone_too() -> None:
    turns = three_links()
    assert turns.client(Missed(LAST, file(LAST))).workers == {7: [run(LAST, 2, inputs=(file(TAKER),))]}
    assert gone(turns, 7, LAST, file(TAKER)).sent_to(7) == [TAKER, LAST]
    told = turns.worker(7, Gone(TAKER, 2, (file(VALUE),)), Lacks(((LAST, 3),)))
    assert told.workers == {7: [run(VALUE, 2), run(TAKER, 3, inputs=(VALUE,)), run(LAST, 4, inputs=(TAKER,))]}
    made(turns, 7, VALUE)
    made(turns, 7, TAKER)
    assert made(turns, 7, LAST).notices() == [TaskSucceeded(LAST, file(LAST, 4), US)]
    assert counted(turns) == (3, 3, 0, 3)
    assert sorted(turns.scheduler.tasks) == [VALUE, TAKER, LAST]
    turns.client(Release(LAST))
    assert turns.scheduler.tasks == {}


def test_a_chain_that_is_released_while_it_is_made_again_ends_with_its_last_link() -> None:
    turns = three_links()
    turns.client(Missed(LAST, file(LAST)))
    gone(turns, 7, LAST, file(TAKER))
    turns.client(Release(LAST))
    made(turns, 7, TAKER)
    made(turns, 7, LAST)
    assert turns.scheduler.tasks == {}


def test_a_diamond_is_made_again_from_its_root() -> None:
    turns = with_value()
    turns.submit(TAKER, OTHER, inputs=(VALUE,), value_retries=1)
    made(turns, 7, TAKER, OTHER)
    turns.submit(LAST, inputs=(TAKER, OTHER), value_retries=1)
    made(turns, 7, LAST)
    turns.client(*map(Release, (VALUE, TAKER, OTHER)))
    turns.client(Missed(LAST, file(LAST)))
    gone(turns, 7, LAST, file(TAKER), file(OTHER))
    sent = {task: turns.attempt(task) for task in turns.held_by(7)}
    assert list(sent) == [OTHER, TAKER, LAST]
    turns.worker(7, Gone(OTHER, 2, (file(VALUE),)), Gone(TAKER, 2, (file(VALUE),)), Lacks(((LAST, sent[LAST]),)))
    assert turns.held_by(7) == [VALUE, TAKER, OTHER, LAST] or turns.held_by(7) == [VALUE, OTHER, TAKER, LAST]
    for task in turns.held_by(7):
        made(turns, 7, task)
    assert counted(turns) == (4, 4, 0, 4)
    turns.client(Release(LAST))
    assert turns.scheduler.tasks == {}


def test_a_recipe_that_lacks_a_value_lost_for_good_fails_when_it_is_needed() -> None:
    turns = three_links()
    turns.scheduler.tasks[TAKER].value_retries = 0  # as if it had been made again before
    turns.client(Missed(LAST, file(LAST)))
    told = gone(turns, 7, LAST, file(TAKER))
    assert [type(notice) for notice in told.notices()] == [ValueLost, InputFailed]
    assert told.notices()[1] == InputFailed(LAST, TAKER, TAKER)
    assert list(turns.scheduler.tasks) == [LAST]


@pytest.mark.parametrize("again", [True, False])
def test_a_task_may_end_while_a_value_that_it_took_is_lost(again: bool) -> None:
    """Then its recipe needs the task that makes that value, or has failed to."""
    turns = with_value(7, 8, value_retries=int(again))
    turns.submit(TAKER, inputs=(VALUE,), value_retries=1)
    turns.client(Missed(VALUE, file(VALUE)))
    turns.worker(7, Done(TAKER, 1, US, file(TAKER)))
    assert turns.scheduler.tasks[TAKER].dependencies == (VALUE,)
    told = turns.client(Missed(TAKER, file(TAKER)))
    if again:
        assert turns.held_by(8) == [VALUE, TAKER] or turns.state(TAKER) is State.WAITING
        made(turns, 8, VALUE)
    else:
        assert told.notices() == [InputFailed(TAKER, VALUE, VALUE)]
    turns.client(Release(VALUE))
    assert turns.state(VALUE) is (State.SUCCEEDED if again else None)
    assert turns.state(TAKER) is (State.ASSIGNED if again else State.FAILED)


# --- what a worker still has ------------------------------------------------------------------------------------------


def sent_ahead_of_a_second_run(turns: Turns) -> None:
    turns.submit(TAKER, inputs=(VALUE,), keep=True)
    gone(turns, 7, TAKER, file(VALUE))
    assert (turns.held_by(7), turns.scheduler.tasks[TAKER].missing) == ([VALUE, TAKER], 1)


def test_a_worker_that_still_has_the_lost_value_may_start_what_was_sent_ahead() -> None:
    turns = with_value()
    sent_ahead_of_a_second_run(turns)
    told = turns.worker(7, Lacks(((VALUE, 2),)), Started(TAKER, 2))
    assert (told.faulty_workers, told.notices()) == ({}, [TaskRunning(TAKER)])
    assert turns.scheduler.tasks[TAKER].missing == 0
    assert turns.done(7, TAKER).notices() == [TaskSucceeded(TAKER, b"r", US)]


def test_a_worker_that_still_has_the_lost_value_may_end_what_was_sent_ahead() -> None:
    turns = with_value()
    sent_ahead_of_a_second_run(turns)
    turns.scheduler.tasks[TAKER].value_retries = 1
    turns.worker(7, Lacks(((VALUE, 2),)), Done(TAKER, 2, US, file(TAKER, 2)))
    assert turns.state(TAKER) is State.SUCCEEDED
    turns.worker(7, Failed(VALUE, turns.attempt(VALUE), US, b"e"))
    assert turns.states(VALUE, TAKER) == [State.FAILED, State.SUCCEEDED]


def test_a_worker_that_starts_what_misses_more_than_a_lost_value_is_faulty() -> None:
    turns = with_value()
    turns.submit(OTHER)
    turns.submit(TAKER, inputs=(VALUE, OTHER))
    gone(turns, 7, TAKER, file(VALUE))
    assert turns.held_by(7) == [OTHER, VALUE, TAKER]
    told = turns.worker(7, Started(TAKER, 2))
    assert list(told.faulty_workers) == [7]
    assert turns.state(TAKER) is State.ASSIGNED


class Owning(bytes):
    """A payload that owns its file."""


def test_a_value_that_is_made_again_for_others_only_is_owned_until_they_have_taken_it() -> None:
    turns = given(7)
    turns.submit(1, value_retries=2)
    turns.worker(7, Done(1, 1, US, file(1)))
    turns.submit(2, inputs=(1,), value_retries=2)
    made(turns, 7, 2)
    turns.client(Release(1))
    assert turns.scheduler.tasks[1].bound == 1
    turns.client(Missed(2, file(2)))
    gone(turns, 7, 2, file(1))
    turns.worker(7, Done(1, turns.attempt(1), US, Owning(file(1, 2))))
    assert type(turns.scheduler.tasks[1].result) is Owning, "nobody else has it"
    made(turns, 7, 2)
    assert type(turns.scheduler.tasks[1].result) is bytes


def test_a_value_that_is_made_again_for_its_client_is_not_owned_although_recipes_name_it() -> None:
    turns = given(7)
    turns.submit(1, value_retries=2)
    turns.worker(7, Done(1, 1, US, file(1)))
    turns.submit(2, inputs=(1,), value_retries=2)
    made(turns, 7, 2)
    turns.client(Missed(1, file(1)))
    turns.worker(7, Done(1, 2, US, Owning(file(1, 2))))
    assert type(turns.scheduler.tasks[1].result) is bytes
    assert turns.scheduler.tasks[1].bound == 1
