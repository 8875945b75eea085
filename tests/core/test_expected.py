"""Values that come from outside of the engine, and that tasks depend on: promised, provided, dropped."""

import pytest
from turns import MS, US, Told, given, run, submit

from slipstream.core.states import State
from slipstream.protocol.messages import (
    Cancel,
    Done,
    Expect,
    Failed,
    InputFailed,
    Provide,
    Release,
    TaskCancelled,
    TaskFailed,
    TaskSucceeded,
)

VALUE, TASK, OTHER = 1, 2, 3


def test_a_task_waits_for_the_value_and_is_sent_with_it() -> None:
    turns = given(7)
    assert turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE, b"there", VALUE))) == Told()
    assert turns.states(VALUE, TASK) == [State.EXPECTED, State.WAITING]
    assert turns.client(Provide(VALUE, b"v")) == Told(workers={7: [run(TASK, inputs=(b"v", b"there", b"v"))]})
    assert turns.done(7, TASK) == Told(clients={0: [TaskSucceeded(TASK, b"r", US)]})
    assert turns.scheduler.tasks == {}
    assert turns.scheduler.live == 0


def test_the_value_is_no_task_and_is_not_counted() -> None:
    turns = given()
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)), Provide(VALUE, None))
    counters = turns.scheduler.counters
    assert (counters.submitted, counters.succeeded, counters.failed, counters.cancelled) == (1, 0, 1, 0)


def test_a_task_waits_for_a_value_and_a_task() -> None:
    turns = given(7)
    turns.client(Expect(VALUE), submit(OTHER))
    turns.submit(TASK, inputs=(OTHER, VALUE))
    assert turns.done(7, OTHER).workers == {}
    assert turns.client(Provide(VALUE, b"v")).workers == {7: [run(TASK, inputs=(b"r", b"v"))]}


def test_a_value_may_come_before_the_other_input() -> None:
    turns = given(7)
    turns.client(Expect(VALUE), submit(OTHER))
    turns.submit(TASK, inputs=(OTHER, VALUE))
    turns.client(Provide(VALUE, b"v"))
    assert turns.scheduler.tasks[TASK].missing == 1
    turns.done(7, OTHER)
    assert turns.done(7, TASK).notices() == [TaskSucceeded(TASK, b"r", US)]


def test_a_value_that_was_provided_lives_as_long_as_a_dependent_needs_it() -> None:
    turns = given(7)
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)), Provide(VALUE, b"v"))
    assert turns.submit(OTHER, inputs=(VALUE,)).workers == {7: [run(OTHER, inputs=(b"v",))]}
    turns.done(7, TASK)
    assert turns.state(VALUE) is State.SUCCEEDED
    turns.done(7, OTHER)
    assert turns.scheduler.tasks == {}


def test_a_value_that_nobody_takes_is_forgotten_when_it_comes() -> None:
    turns = given(7)
    turns.client(Expect(VALUE))
    assert turns.client(Provide(VALUE, b"v")) == Told()
    assert turns.scheduler.tasks == {}
    assert turns.scheduler.live == 0


def test_none_fails_what_depends_on_it_and_names_it_as_the_root() -> None:
    turns = given(7)
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)), submit(OTHER, inputs=(TASK,)))
    assert turns.client(Provide(VALUE, None)) == Told(
        clients={0: [InputFailed(TASK, VALUE, VALUE), InputFailed(OTHER, VALUE, TASK)]}
    )
    assert turns.scheduler.tasks == {}
    assert turns.scheduler.live == 0


def test_none_that_nobody_waits_for_is_forgotten() -> None:
    turns = given()
    assert turns.client(Expect(VALUE), Provide(VALUE, None)) == Told()
    assert turns.scheduler.tasks == {}


def test_none_fails_a_task_that_takes_another_failed_value_once() -> None:
    turns = given()
    turns.client(Expect(VALUE), Expect(OTHER), submit(TASK, inputs=(VALUE, OTHER)))
    assert turns.client(Provide(OTHER, None), Provide(VALUE, None)).notices() == [InputFailed(TASK, OTHER, OTHER)]
    assert turns.scheduler.tasks == {}
    assert turns.scheduler.counters.ignored == 1  # the first is dropped with its last dependent


# --- dropped ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["cancelled", "failed by another input"])
def test_a_value_is_dropped_silently_with_its_last_dependent(ending: str) -> None:
    turns = given(7)
    turns.submit(9)
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE, 9)), submit(OTHER, inputs=(VALUE,)))
    turns.client(Cancel(OTHER))
    assert turns.state(VALUE) is State.EXPECTED
    if ending == "cancelled":
        assert turns.client(Cancel(TASK)) == Told(clients={0: [TaskCancelled(TASK)]})
    else:
        told = turns.worker(7, Failed(9, 1, US, b"e"))
        assert told == Told(clients={0: [TaskFailed(9, b"e"), InputFailed(TASK, 9, 9)]})
    assert turns.state(VALUE) is None
    assert turns.client(Provide(VALUE, b"late")) == Told()
    assert turns.scheduler.counters.ignored == 1


def test_what_depends_on_a_value_that_was_dropped_is_refused() -> None:
    turns = given()
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)), Cancel(TASK))
    refused = submit(OTHER, inputs=(VALUE,))
    assert turns.client(refused) == Told(refused=[(0, refused)])


def test_a_diamond_over_a_value_drops_it_once() -> None:
    turns = given(7)
    turns.submit(9)
    turns.client(Expect(VALUE))
    turns.submit(TASK, OTHER, inputs=(9, VALUE))
    turns.submit(4, inputs=(TASK, OTHER, VALUE))
    told = turns.worker(7, Failed(9, 1, US, b"e"))
    assert told.notices() == [TaskFailed(9, b"e"), *[InputFailed(n, 9, i) for n, i in ((2, 9), (3, 9), (4, 3))]]
    assert turns.scheduler.tasks == {}
    assert turns.scheduler.live == 0


def test_a_value_that_is_cancelled_fails_what_depends_on_it_and_is_not_told_of() -> None:
    turns = given()
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)))
    assert turns.client(Cancel(VALUE)) == Told(clients={0: [InputFailed(TASK, VALUE, VALUE)]})
    assert turns.scheduler.tasks == {}
    assert turns.scheduler.counters.cancelled == 0


def test_a_value_that_is_released_is_still_waited_for() -> None:
    turns = given(7)
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)), Release(VALUE))
    assert turns.client(Provide(VALUE, b"v")).sent_to(7) == [TASK]


@pytest.mark.parametrize("waited_for", [True, False])
def test_the_values_of_a_client_that_left_are_dropped(waited_for: bool) -> None:
    turns = given()
    turns.client(Expect(VALUE), client=3)
    if waited_for:
        turns.submit(TASK, inputs=(VALUE,), client=3)
        turns.submit(OTHER, inputs=(VALUE,), client=4)
    told = turns.client_left(3)
    assert told == (Told(clients={4: [InputFailed(OTHER, VALUE, VALUE)]}) if waited_for else Told())
    assert turns.scheduler.tasks == {}
    assert turns.scheduler.live == 0


def test_a_value_outlives_the_loss_of_a_worker() -> None:
    turns = given(7)
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)), Provide(VALUE, b"v"))
    turns.lose(7)
    assert turns.join(8).workers == {8: [run(TASK, 2, inputs=(b"v",))]}


def test_a_value_for_10_000_tasks_is_dropped_or_sent_with_no_recursion() -> None:
    turns = given(7)
    turns.checked = False
    turns.client(*map(Expect, range(10_000)), submit(20_000, inputs=tuple(range(10_000))))
    turns.client(*[submit(n, inputs=(5,)) for n in range(30_000, 40_000)])
    turns.client(Cancel(20_000))
    assert list(turns.scheduler.tasks) == [5, *range(30_000, 40_000)]
    assert len(turns.client(Provide(5, None)).notices()) == 10_000
    assert turns.scheduler.tasks == {}


# --- clients that break the protocol ----------------------------------------------------------------------------------


def test_a_number_that_is_taken_cannot_be_expected() -> None:
    turns = given()
    turns.submit(TASK, client=3)
    assert turns.client(Expect(TASK), client=4) == Told(faulty_clients={4: f"task {TASK} was submitted twice"})
    turns.client(Expect(VALUE), client=3)
    assert turns.client(Expect(VALUE), client=4) == Told(faulty_clients={4: f"task {VALUE} was submitted twice"})
    assert turns.submit(VALUE, client=4) == Told(faulty_clients={4: f"task {VALUE} was submitted twice"})
    assert turns.states(VALUE, TASK) == [State.EXPECTED, State.READY]


def test_a_value_for_what_is_not_waiting_for_one_is_a_fault() -> None:
    turns = given(7)
    turns.submit(TASK)
    fault = Told(faulty_clients={0: f"task {TASK} was not waiting for a value"})
    assert turns.client(Provide(TASK, b"v")) == fault
    assert turns.done(7, TASK, duration_ns=MS).notices() == [TaskSucceeded(TASK, b"r", MS)]


def test_a_value_that_was_provided_is_not_provided_again() -> None:
    turns = given(7)
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)), Provide(VALUE, b"v"))
    assert list(turns.client(Provide(VALUE, b"w")).faulty_clients) == [0]
    turns.lose(7)
    assert turns.join(8).workers == {8: [run(TASK, 2, inputs=(b"v",))]}


def test_a_value_of_another_client_is_not_to_be_provided() -> None:
    turns = given()
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)), client=3)
    told = turns.client(Provide(VALUE, b"v"), client=4)
    assert told == Told(faulty_clients={4: f"task {VALUE} is another client's"})
    assert turns.states(VALUE, TASK) == [State.EXPECTED, State.WAITING]


def test_a_value_for_what_never_was_is_counted() -> None:
    turns = given()
    assert turns.client(Provide(VALUE, b"v")) == Told()
    assert turns.scheduler.counters.ignored == 1


def test_a_worker_that_reports_a_value_is_late() -> None:
    turns = given(7)
    turns.client(Expect(VALUE), submit(TASK, inputs=(VALUE,)))
    assert turns.worker(7, Done(VALUE, 0, US, b"r")) == Told()
    assert turns.scheduler.counters.stale == 1
