"""Tasks that take results of others: when they run, with what, and how they end if they cannot.

Where a test is about tasks that wait, their callable was never measured: others are sent ahead of their inputs, and
that is what `test_sent_ahead` is about.
"""

import pytest
from turns import MS, US, Told, given, run, submit

from slipstream.core.states import State
from slipstream.protocol.messages import (
    Cancel,
    Done,
    Failed,
    InputFailed,
    Release,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskSucceeded,
)

# --- running ----------------------------------------------------------------------------------------------------------


def test_a_task_is_sent_with_its_inputs_in_the_turn_in_which_the_last_one_succeeds() -> None:
    turns = given(7, 8)
    turns.submit(1, 2)
    assert turns.submit(3, inputs=(2, 1)) == Told()
    assert turns.worker(7, Done(1, 1, US, b"one")).workers == {}
    assert turns.worker(8, Done(2, 1, US, b"two")) == Told(
        workers={8: [run(3, inputs=(b"two", b"one"))]}, clients={0: [TaskSucceeded(2, b"two", US)]}
    )


def test_inputs_stay_where_the_call_counts_them_however_often_one_is_named() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(2, inputs=(b"there", 1, b"", 1))
    assert turns.scheduler.tasks[2].dependencies == (1,)
    assert turns.done(7, 1).workers == {7: [run(2, inputs=(b"there", b"r", b"", b"r"))]}
    turns.done(7, 2)
    assert turns.scheduler.tasks == {}


def test_inputs_that_are_results_already_are_passed_on_and_waited_for_by_nobody() -> None:
    turns = given(7)
    assert turns.submit(1, inputs=(b"one", b"two")) == Told(workers={7: [run(1, inputs=(b"one", b"two"))]})


def test_the_inputs_of_what_has_ended_are_not_kept() -> None:
    turns = given(7)
    turns.submit(1, inputs=(b"large",), keep=True)
    turns.done(7, 1)
    assert turns.scheduler.tasks[1].inputs == ()


def test_inputs_that_have_succeeded_before_need_no_waiting() -> None:
    turns = given(7)
    turns.submit(1, keep=True)
    turns.done(7, 1)
    assert turns.submit(2, inputs=(1,)) == Told(workers={7: [run(2, inputs=(b"r",))]})


def test_an_empty_result_is_an_input_too() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(2, inputs=(1,))
    assert turns.worker(7, Done(1, 1, US, b"")).workers == {7: [run(2, inputs=(b"",))]}


def test_dependents_that_become_ready_together_keep_the_order_of_their_submission() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(*range(2, 6), inputs=(1,))
    turns.learn(b"f", US)
    assert turns.done(7, 1).sent_to(7) == [2, 3, 4, 5]


def test_a_dependent_that_is_sent_again_takes_its_inputs_with_it() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(2, inputs=(1,))
    turns.done(7, 1)
    turns.lose(7)
    assert turns.join(8).workers == {8: [run(2, 2, inputs=(b"r",))]}


# --- keeping and forgetting -------------------------------------------------------------------------------------------


def test_an_input_that_nobody_keeps_is_forgotten_with_its_last_dependent() -> None:
    turns = given(7)
    turns.submit(1)
    turns.submit(2, 3, inputs=(1,))
    turns.done(7, 1)
    assert list(turns.scheduler.tasks) == [1, 2, 3]
    turns.done(7, 2)
    assert list(turns.scheduler.tasks) == [1, 3]
    turns.done(7, 3)
    assert list(turns.scheduler.tasks) == []


def test_a_kept_result_stays_until_it_is_released() -> None:
    turns = given(7)
    turns.submit(1, keep=True)
    turns.done(7, 1)
    assert turns.scheduler.tasks[1].result == b"r"
    assert turns.client(Release(1)) == Told()
    assert list(turns.scheduler.tasks) == []


def test_an_input_released_early_lives_as_long_as_a_dependent_needs_it() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1, keep=True)
    turns.submit(2, inputs=(1,))
    turns.client(Release(1))
    assert turns.done(7, 1).workers == {7: [run(2, inputs=(b"r",))]}
    turns.done(7, 2)
    assert list(turns.scheduler.tasks) == []


@pytest.mark.parametrize("ending", ["succeeded", "failed", "cancelled"])
def test_nothing_is_left_of_a_task_that_nobody_keeps(ending: str) -> None:
    turns = given() if ending == "cancelled" else given(7)
    turns.submit(1)
    message = {"succeeded": Done(1, 1, US, b"r"), "failed": Failed(1, 1, US, b"e"), "cancelled": Cancel(1)}[ending]
    if ending == "cancelled":
        turns.client(message)
    else:
        turns.worker(7, message)
    assert turns.scheduler.tasks == {}
    assert len(turns.scheduler.ready) == turns.scheduler.live == 0


# --- failing ----------------------------------------------------------------------------------------------------------


def test_what_depends_on_a_failed_task_fails_in_the_same_turn_and_names_the_root() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(2, inputs=(1,))
    turns.submit(3, inputs=(2,))
    assert turns.worker(7, Failed(1, 1, US, b"e")) == Told(
        clients={0: [TaskFailed(1, b"e"), InputFailed(2, 1, 1), InputFailed(3, 1, 2)]}
    )
    assert turns.scheduler.tasks == {}
    assert turns.scheduler.counters.failed == 3


def test_what_depends_on_a_lost_task_fails_with_it() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(2, inputs=(1,))
    assert turns.lose(7, running=(1, 1)) == Told(
        clients={0: [TaskLost(1, 1, "lost", None, None, b"", -1), InputFailed(2, 1, 1)]}
    )


def test_what_depends_on_a_cancelled_task_fails_with_it() -> None:
    turns = given()
    turns.submit(1)
    turns.submit(2, inputs=(1,))
    assert turns.client(Cancel(1)) == Told(clients={0: [TaskCancelled(1), InputFailed(2, 1, 1)]})


def test_a_task_submitted_after_its_input_failed_fails_at_once_with_the_root_of_the_failure() -> None:
    turns = given(7)
    turns.submit(1)
    turns.submit(2, inputs=(1,), keep=True)
    turns.worker(7, Failed(1, 1, US, b"e"))
    turns.submit(4)
    assert turns.submit(3, inputs=(4, 2)) == Told(clients={0: [InputFailed(3, 1, 2)]})
    assert list(turns.scheduler.tasks) == [2, 4]


def test_of_two_failed_inputs_the_first_is_the_root() -> None:
    turns = given()
    turns.submit(1, 2, keep=True)
    turns.client(Cancel(2), Cancel(1))
    assert turns.submit(3, inputs=(1, 2)).notices() == [InputFailed(3, 1, 1)]


def test_every_task_of_a_failing_diamond_is_told_once() -> None:
    """3 and 2 are both inputs of 4: when 4 is through, 2 has no dependent left, and is not through itself."""
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(2, 3, inputs=(1,))
    turns.submit(4, inputs=(2, 3))
    told = turns.worker(7, Failed(1, 1, US, b"e"))
    assert told.notices() == [TaskFailed(1, b"e"), InputFailed(2, 1, 1), InputFailed(3, 1, 1), InputFailed(4, 1, 3)]
    assert turns.scheduler.tasks == {}


def test_a_task_that_takes_a_failed_input_directly_and_through_another_is_told_once() -> None:
    turns = given(7, duration_ns=None)
    turns.submit(1)
    turns.submit(2, inputs=(1,))
    turns.submit(3, inputs=(1, 2))
    told = turns.worker(7, Failed(1, 1, US, b"e"))
    assert told.notices() == [TaskFailed(1, b"e"), InputFailed(2, 1, 1), InputFailed(3, 1, 1)]
    assert turns.scheduler.tasks == {}


def test_a_failing_input_leaves_other_inputs_alone() -> None:
    turns = given(7, 8)
    turns.submit(1, 2)
    turns.submit(3, inputs=(1, 2))
    turns.worker(7, Failed(1, 1, US, b"e"))
    assert turns.states(1, 2, 3) == [None, State.ASSIGNED, None]
    assert turns.done(8, 2).notices() == [TaskSucceeded(2, b"r", US)]
    assert turns.scheduler.tasks == {}


def test_a_chain_of_100_000_fails_without_recursion() -> None:
    turns = given(7, duration_ns=None)
    length = 100_000
    chain = [submit(n, inputs=(n - 1,) if n else (), keep=n % 2 == 0) for n in range(length)]
    turns.checked = False  # walks over all tasks
    turns.client(*chain)
    told = turns.worker(7, Failed(0, 1, MS, b"e"))
    assert told.notices() == [TaskFailed(0, b"e"), *[InputFailed(n, 0, n - 1) for n in range(1, length)]]
    assert list(turns.scheduler.tasks) == list(range(0, length, 2))
    assert turns.scheduler.live == 0
