"""Which worker is sent what, and when. Each test is the policy: events in, all effects out.

Durations are taught beforehand, so that a test does not depend on how the scheduler learns.
"""

import pytest
from turns import MS, US, Told, Turns, given, run, submit

from slipstream.core.events import ClientWaits
from slipstream.core.placement import GATHER, GATHER_NS, MAX_PREFETCH, REFILL_BELOW, STREAM_GAP_NS
from slipstream.core.states import State
from slipstream.protocol.messages import Cancel, Done, Gave, Kept, Lacks, Retract, Started, TaskRunning, TaskSucceeded

# --- few turns that send ----------------------------------------------------------------------------------------------


def test_a_task_without_a_worker_waits_and_asks_for_no_timer() -> None:
    assert given().submit(1) == Told()


def test_an_idle_worker_gets_a_task_at_once() -> None:
    assert given(7).submit(1) == Told(workers={7: [run(1)]})


def test_a_worker_that_joins_gets_what_waits() -> None:
    turns = given(ready=range(3))
    assert turns.join(7) == Told(workers={7: [run(0), run(1), run(2)]})


def test_tasks_are_shared_among_workers_that_join_together() -> None:
    turns = given(ready=range(5))
    assert turns.join(7, 8) == Told(workers={7: [run(0), run(1), run(2)], 8: [run(3), run(4)]})


def test_a_submit_turn_sends_to_workers_with_at_most_one_task_only() -> None:
    turns = given(7, 8)
    assert [turns.submit(n).workers for n in range(4)] == [
        {7: [run(0)]},
        {8: [run(1)]},
        {7: [run(2)]},
        {8: [run(3)]},
    ]
    assert turns.submit(4) == Told(wake_at=turns.now + GATHER_NS)


def test_gathered_tasks_are_sent_when_there_are_64() -> None:
    turns = given(7)
    turns.submit(0, 1)
    left_at = turns.now + turns.pace_ns
    assert turns.submit(*range(2, 1 + GATHER)) == Told(wake_at=left_at + GATHER_NS)
    assert turns.submit(65) == Told(workers={7: [run(n) for n in range(2, 66)]})


def test_gathered_tasks_are_sent_a_millisecond_after_the_first() -> None:
    turns = given(7)
    turns.submit(0, 1)
    assert turns.submit(2) == Told(wake_at=turns.now + GATHER_NS)
    due_at = turns.now + GATHER_NS
    turns.pace_ns = GATHER_NS - 1
    assert turns.submit(3) == Told(wake_at=due_at)
    turns.now = due_at
    assert turns.turn() == Told(workers={7: [run(2), run(3)]})


def test_gathered_tasks_are_sent_with_any_report() -> None:
    turns = given(7, 8)
    turns.submit(*range(4))
    turns.submit(4, 5)
    assert turns.done(7, 0) == Told(workers={7: [run(4)], 8: [run(5)]}, clients={0: [TaskSucceeded(0, b"r", US)]})


def test_the_timer_is_dropped_when_nothing_is_left_to_send() -> None:
    turns = given(7)
    turns.submit(0, 1)
    assert turns.submit(2).wake_at == turns.now + GATHER_NS
    assert turns.client(Cancel(2)).wake_at is None


def test_nothing_is_timed_while_no_worker_has_room() -> None:
    turns = given(7, duration_ns=8 * MS)
    turns.submit(0)
    assert turns.submit(1) == Told()


# --- a stream of submissions ------------------------------------------------------------------------------------------


def in_a_stream(*workers: int, duration_ns: int | None = US) -> Turns:
    """A client that talks every 10 µs has done so for a while."""
    turns = given(*workers, duration_ns=duration_ns)
    turns.pace_ns = 10 * US
    for _ in range(40):
        turns.client()
    return turns


def test_a_stream_of_short_tasks_is_held_back_even_from_idle_workers_until_there_are_64() -> None:
    turns = in_a_stream(7)
    assert turns.submit(0) == Told(workers={7: [run(0)]})  # not more tasks than workers
    turns.done(7, 0)
    turns.submit(0)
    due_at = turns.now + turns.pace_ns + GATHER_NS
    for n in range(1, GATHER):
        assert turns.submit(n) == Told(wake_at=due_at)
    assert turns.submit(GATHER) == Told(workers={7: [run(n) for n in range(1, GATHER + 1)]})


def test_a_stream_is_held_back_until_300_us_of_work_have_come_together() -> None:
    turns = in_a_stream(7, 8, duration_ns=100 * US)
    assert [turns.submit(n).workers for n in range(5)] == [
        {7: [run(0)]},
        {8: [run(1)]},
        {},
        {},
        {7: [run(2), run(3)], 8: [run(4)]},
    ]


def test_a_stream_is_held_back_for_a_millisecond_at_most() -> None:
    turns = in_a_stream(7)
    turns.submit(0)
    turns.pace_ns = 150 * US
    due_at = turns.now + turns.pace_ns + GATHER_NS
    for n in range(1, 8):
        assert turns.submit(n) == Told(wake_at=due_at)
    assert turns.submit(8) == Told(workers={7: [run(n) for n in range(1, 9)]})


def test_what_is_held_back_is_sent_when_a_client_waits() -> None:
    turns = in_a_stream(7)
    turns.submit(0, 1)
    assert turns.turn(ClientWaits(0)) == Told(workers={7: [run(0), run(1)]})
    assert turns.turn(ClientWaits(0)) == Told()


def test_a_report_does_not_break_a_stream_up_until_the_client_pauses() -> None:
    turns = in_a_stream(7)
    for task in range(4):
        turns.submit(task)
    assert turns.done(7, 0).workers == {}
    turns.now += STREAM_GAP_NS - 1
    assert turns.worker(7).workers == {}
    turns.now += 1
    assert turns.worker(7).workers == {7: [run(1), run(2), run(3)]}


def test_a_client_that_submits_at_leisure_is_no_stream() -> None:
    turns = in_a_stream(7)
    turns.pace_ns = 2 * STREAM_GAP_NS
    for _ in range(60):
        turns.client()
    assert turns.submit(0, 1).sent_to(7) == [0, 1]


def test_a_stream_of_unknown_tasks_is_sent_like_any_other() -> None:
    turns = in_a_stream(7, 8, duration_ns=None)
    assert [turns.submit(n).workers for n in range(3)] == [{7: [run(0)]}, {8: [run(1)]}, {}]


@pytest.mark.parametrize(
    ("duration_ns", "frames", "held"),
    [(None, 2, 2), (0, 10, 258), (2 * US, 10, 258), (100 * US, 10, 197), (3 * MS, 6, 10), (8 * MS, 2, 2)],
)
def test_frames_in_a_bag_that_is_submitted_one_by_one(duration_ns: int | None, frames: int, held: int) -> None:
    turns = in_a_stream(7, 8, duration_ns=duration_ns)
    turns.checked = False  # walks over all tasks
    told = [turns.submit(n) for n in range(1000)]
    assert sum(len(turn.workers) for turn in told) == frames
    assert len(turns.held_by(7)) + len(turns.held_by(8)) == held


# --- prefetch by measured time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration_ns", "prefetched"),
    [(0, 256), (US, 256), (58 * US, 256), (100 * US, 150), (MS, 15), (4 * MS, 3), (7 * MS, 2), (8 * MS, 1), (MS**2, 1)],
)
def test_a_worker_is_filled_to_15_ms_of_work_and_256_tasks(duration_ns: int, prefetched: int) -> None:
    turns = given(duration_ns=duration_ns, ready=range(1000))
    assert turns.join(7) == Told(workers={7: [run(n) for n in range(prefetched)]})


def test_a_worker_is_refilled_below_7_ms_of_work() -> None:
    turns = given(7, duration_ns=MS)
    turns.submit(*range(100))
    refills = {n: turns.done(7, n, duration_ns=MS).sent_to(7) for n in range(9)}
    assert refills == {n: [] for n in range(8)} | {8: list(range(15, 24))}


def test_a_worker_is_refilled_when_half_of_256_tasks_are_done() -> None:
    turns = given(7)
    turns.submit(*range(1000))
    assert turns.done(7, *range(MAX_PREFETCH - REFILL_BELOW)).sent_to(7) == []
    assert turns.done(7, REFILL_BELOW).sent_to(7) == list(range(MAX_PREFETCH, MAX_PREFETCH + REFILL_BELOW + 1))


def test_a_callable_that_was_never_measured_is_sent_one_at_a_time() -> None:
    turns = given(7, 8, duration_ns=None)
    assert turns.submit(*range(6)) == Told(workers={7: [run(0)], 8: [run(1)]})
    told = turns.done(7, 0, duration_ns=5 * MS)
    assert told.workers == {7: [run(2), run(3), run(4)]}


def test_an_unknown_callable_is_not_put_behind_other_work_and_holds_back_what_comes_later() -> None:
    turns = given(7)
    turns.submit(0)
    assert turns.client(submit(1, b"unknown"), submit(2)) == Told(wake_at=turns.now + GATHER_NS)
    assert turns.done(7, 0).workers == {7: [run(1, digest=b"unknown")]}
    assert turns.waiting_room() == [2]


def test_a_skewed_callable_counts_by_its_longest_call() -> None:
    turns = given(7, duration_ns=MS)
    turns.learn(b"f", 80 * MS)  # mean 10.9 ms, longest 80 ms: not over ten times the mean
    assert turns.scheduler.durations.estimate(b"f") == MS + 79 * MS // 8
    longest = 80 * MS
    for _ in range(20):
        turns.learn(b"f", US)
        longest -= longest // 64
    assert turns.scheduler.durations.estimate(b"f") == longest
    assert turns.submit(*range(10)) == Told(workers={7: [run(0)]})


def test_a_single_outlier_is_forgotten_after_some_hundred_calls() -> None:
    turns = given()
    turns.learn(b"f", 3 * MS)
    for _ in range(600):
        turns.learn(b"f", 2 * US)
    assert turns.scheduler.durations.estimate(b"f") == 2 * US


def test_no_more_than_4096_callables_are_remembered() -> None:
    turns = given(duration_ns=None)
    for n in range(4097):
        turns.learn(b"%d" % n, 5)
    assert len(turns.scheduler.durations) == 4096
    assert turns.scheduler.durations.estimate(b"0") is None
    assert turns.scheduler.durations.estimate(b"1") == 5


def test_a_chunk_counts_for_all_its_items_and_is_measured_per_item() -> None:
    turns = given(7, duration_ns=MS)
    turns.submit(*range(3), items=6)
    assert turns.held_by(7) == [0, 1]
    turns.worker(7, Done(0, 1, 60 * MS, b"r"))
    assert turns.scheduler.durations.estimate(b"f") == MS + 9 * MS // 8


# --- priorities -------------------------------------------------------------------------------------------------------


def test_urgent_tasks_come_first_and_equal_ones_in_order_of_submission() -> None:
    turns = given()
    for n, priority in enumerate((0, 5, -1, 5, 0)):
        turns.submit(n, priority=priority)
    assert turns.join(7).sent_to(7) == [1, 3, 0, 4, 2]


def test_a_long_urgent_task_that_does_not_fit_goes_back_to_its_priority() -> None:
    turns = given(7)
    turns.submit(0, 1)
    turns.client(submit(2, b"unknown", priority=1), submit(3))
    assert turns.done(7, 0).workers == {}
    assert turns.waiting_room() == [2, 3]
    assert turns.done(7, 1).sent_to(7) == [2]


def test_a_task_that_came_back_is_first_among_its_equals_only() -> None:
    turns = given(7, duration_ns=4 * MS)
    turns.submit(0, 1, 2, 3)
    turns.submit(4, priority=1)
    turns.worker(7, Gave(((1, 1), (2, 1))))
    assert turns.waiting_room() == [4, 1, 2, 3]


# --- giving back ------------------------------------------------------------------------------------------------------


def test_a_worker_in_a_long_task_gets_nothing_and_what_it_gave_back_goes_elsewhere() -> None:
    turns = given(7, duration_ns=3 * MS)
    turns.submit(0, 1, 2)
    assert turns.worker(7, Started(0, 1), Gave(((1, 1), (2, 1)))) == Told(clients={0: [TaskRunning(0)]})
    assert turns.submit(3) == Told()
    assert turns.join(8) == Told(workers={8: [run(1, 2), run(2, 2), run(3)]})
    assert turns.states(0, 1) == [State.RUNNING, State.ASSIGNED]


def test_a_long_worker_takes_tasks_again_when_its_task_ends() -> None:
    turns = given(7, duration_ns=3 * MS)
    turns.submit(0, 1, 2)
    turns.worker(7, Started(0, 1), Gave(((1, 1), (2, 1))))
    assert turns.done(7, 0, duration_ns=3 * MS) == Told(
        workers={7: [run(1, 2), run(2, 2)]}, clients={0: [TaskSucceeded(0, b"r", 3 * MS)]}
    )


def test_a_worker_that_gave_back_takes_nothing_until_it_completes_something() -> None:
    """It waits inside a task: it has not said that it started, since the tick has not come."""
    turns = given(7, duration_ns=MS)
    turns.submit(0, 1, 2)
    assert turns.worker(7, Gave(((1, 1), (2, 1)))) == Told()
    assert turns.submit(3) == Told()
    assert turns.done(7, 0).workers == {7: [run(1, 2), run(2, 2), run(3)]}


def test_a_worker_that_gave_back_all_it_had_is_not_held() -> None:
    """Its last task had ended while it gave back the rest: no completion will ever come."""
    turns = given(7, duration_ns=MS)
    turns.submit(0, 1)
    assert turns.worker(7, Done(0, 1, MS, b"r"), Gave(((1, 1),))).workers == {7: [run(1, 2)]}


# --- balancing --------------------------------------------------------------------------------------------------------


def loaded(duration_ns: int = 2 * MS, tasks: int = 5) -> Turns:
    """Worker 7 has all tasks, and worker 8 has just joined."""
    turns = given(7, duration_ns=duration_ns)
    turns.submit(*range(tasks))
    assert len(turns.held_by(7)) == tasks
    return turns


def test_an_idle_worker_makes_a_loaded_one_be_asked_for_the_later_half() -> None:
    turns = loaded()
    assert turns.join(8) == Told(workers={7: [Retract(((3, 1), (4, 1)))]})
    assert turns.states(3, 4) == [State.ASSIGNED, State.ASSIGNED]
    assert turns.held_by(7) == [0, 1, 2, 3, 4]


def test_tasks_given_back_on_request_go_to_the_idle_worker_and_do_not_hold_the_giver() -> None:
    turns = loaded()
    turns.join(8)
    told = turns.worker(7, Gave(((3, 1), (4, 1))))
    assert told == Told(workers={8: [run(3, 2), run(4, 2)]})
    assert not turns.scheduler.placement.workers[7].held


def test_kept_tasks_stay_where_they_are() -> None:
    turns = loaded(tasks=3)
    assert turns.join(8) == Told(workers={7: [Retract(((2, 1),))]})
    assert turns.worker(7, Done(0, 1, MS, b"r"), Done(1, 1, MS, b"r"), Kept(((2, 1),))).workers == {}
    assert turns.held_by(7) == [2]
    assert turns.done(7, 2).notices() == [TaskSucceeded(2, b"r", US)]


def test_a_worker_is_asked_once_and_again_only_after_its_answer() -> None:
    turns = loaded(duration_ns=3 * MS)
    assert turns.join(8).retracted_from(7) == [(3, 1), (4, 1)]
    assert turns.join(9) == Told()
    assert turns.done(7, 0, duration_ns=3 * MS).workers == {}
    assert turns.worker(7, Gave(((3, 1),)), Kept(((4, 1),))).workers == {
        9: [run(3, 2)],
        7: [Retract(((4, 1),))],
    }


def test_the_worker_that_became_idle_last_is_served_first() -> None:
    """Its caches are warm: one task at a time stays with one worker."""
    turns = given(7, 8, 9)
    for task in range(3):
        turns.submit(task)
    for worker, task in ((9, 2), (7, 0), (8, 1)):
        turns.done(worker, task)
    assert [list(turns.submit(task).workers) for task in range(3, 6)] == [[8], [7], [9]]


def test_a_task_whose_definition_a_worker_lacks_is_sent_again_and_the_worker_is_not_held() -> None:
    turns = given(7)
    turns.submit(1, definition=b"the definition")
    turns.submit(2)
    told = turns.worker(7, Lacks(((1, 1),)))
    assert told == Told(workers={7: [run(1, 2, definition=b"the definition")]}, lacking=[(7, b"f"), (7, b"")])
    assert turns.worker(7, Lacks(((1, 1),))).lacking == []  # that attempt is over
    assert turns.done(7, 1, 2).notices() == [TaskSucceeded(1, b"r", US), TaskSucceeded(2, b"r", US)]


def test_as_many_workers_are_asked_as_are_idle() -> None:
    turns = given(5, 6, 7, duration_ns=2 * MS)
    turns.submit(*range(12))
    assert list(turns.join(8, 9).workers) == [5, 6]


def test_a_task_that_is_done_before_the_answer_needs_none() -> None:
    turns = loaded(duration_ns=3 * MS, tasks=2)
    assert turns.join(8).retracted_from(7) == [(1, 1)]
    assert turns.done(7, 0, 1).workers == {}
    assert turns.scheduler.placement.asked == set()
    turns.worker(7, Kept(((1, 1),)))
    assert turns.scheduler.counters.stale == 1


def test_a_worker_that_is_lost_while_it_is_asked_gives_all_it_had() -> None:
    turns = loaded()
    turns.join(8)
    assert turns.lose(7).sent_to(8) == [0, 1, 2, 3, 4]
    assert turns.scheduler.placement.asked == set()


def test_little_work_is_not_worth_a_retraction() -> None:
    turns = loaded(duration_ns=MS, tasks=4)
    assert turns.join(8) == Told()


def test_a_task_that_has_started_is_not_asked_back() -> None:
    turns = loaded(duration_ns=3 * MS, tasks=2)
    turns.worker(7, Started(1, 1))
    assert turns.join(8).retracted_from(7) == [(0, 1)]


def test_a_worker_with_one_long_task_keeps_it() -> None:
    turns = loaded(duration_ns=20 * MS, tasks=1)
    assert turns.join(8) == Told()


def test_the_first_of_what_is_ready_is_one_that_was_not_cancelled() -> None:
    turns = given()
    turns.submit(1, 2, keep=True)
    turns.client(Cancel(1))
    assert turns.scheduler.ready.first().task == 2
    assert turns.waiting_room() == [2]
