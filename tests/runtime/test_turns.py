"""Turns and frames: at most one frame for a worker in a turn, in the order of turns, and few of them."""

import sys
import threading
import time

import pytest
from fake_pool import LIMIT_S, FakePool, InThread, eventually, executor_over, workers_up

from slipstream.protocol.ids import SlotId, TaskId
from slipstream.protocol.messages import Cancel, Done, Environment, Run, Storage
from slipstream.runtime import engine as engine_module
from slipstream.runtime.outbox import Outbox
from slipstream.serde.callables import identify
from slipstream.serde.values import encode_value
from wire import commands_of

US = 1_000
MS = 1_000_000
GATHER = 64


class TurnLog:
    """What each turn of an executor wanted sent, in the order of turns."""

    def __init__(self, executor) -> None:
        self.turns = []
        self._handle = executor._engine._scheduler.handle
        executor._engine._scheduler.handle = self._logged

    def _logged(self, events, now):
        effects = self._handle(events, now)
        self.turns.append({worker: list(commands) for worker, commands in effects.workers.items()})
        return effects

    def sent_to(self, worker):
        """Commands for one worker, those of one turn together."""
        return [turn[worker] for turn in self.turns if worker in turn]


def check_frames_against_turns(pool, log):
    """Frames keep the order of turns, and no turn is spread over two frames for the same worker."""
    for slot in {frame.slot for frame in pool.frames}:
        turns = log.sent_to(slot)
        frames = [
            [command for command in frame.commands if type(command) not in (Environment, Storage)]
            for frame in pool.frames
            if frame.slot == slot
        ]
        assert [command for frame in frames for command in frame] == [command for turn in turns for command in turn]
        ends_of_turns = set(ends(turns))
        assert ends_of_turns.issuperset(ends(frames))
        assert len(frames) <= len(turns)


def ends(groups):
    """After how many commands each group ends."""
    count, found = 0, []
    for group in groups:
        count += len(group)
        found.append(count)
    return found


@pytest.fixture
def fast_switching():
    """Let threads take turns so often that whatever can interleave does."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


class Clock:
    """The engine's clock, set by hand. So far ahead that no timer goes off by itself."""

    def __init__(self, monkeypatch) -> None:
        self.now = time.monotonic_ns() + 10**14
        monkeypatch.setattr(engine_module, "monotonic_ns", lambda: self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


def quick(executor):
    """Let the scheduler know that `abs` takes 1 µs."""
    executor._engine._scheduler.durations.learn(identify(abs)[0], US)


def submit(executor, clock, gap_ns, count=1):
    """Submit at the given distance from each other."""
    futures = []
    for number in range(count):
        clock.now += gap_ns
        futures.append(executor.submit(abs, -number))
    return futures


# --- one frame a turn, in the order of turns --------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_one_thread_makes_one_frame_a_turn_and_counts_them(workers):
    pool = FakePool()
    with executor_over(pool, workers) as executor:
        log = TurnLog(executor)
        futures = [executor.submit(abs, -number) for number in range(500)]
        assert [future.result(LIMIT_S) for future in futures] == list(range(500))
        executor.shutdown()
        check_frames_against_turns(pool, log)
        stats = executor.stats()
        assert stats.turns == len(log.turns)
        assert stats.frames_sent == len(pool.frames)
        assert sorted(pool.runs) == [future._task for future in futures]


def test_eight_submitting_threads_keep_the_order_of_turns(fast_switching):
    pool = FakePool()
    with executor_over(pool, 4) as executor:
        log = TurnLog(executor)
        workers_up(executor, pool)

        def submit_many(start):
            futures = [executor.submit(abs, -number) for number in range(start, start + 200)]
            return [future.result(LIMIT_S) for future in futures]

        threads = [InThread(submit_many, 1000 * n) for n in range(8)]
        assert [thread.end() for thread in threads] == [list(range(1000 * n, 1000 * n + 200)) for n in range(8)]
        executor.shutdown()
        check_frames_against_turns(pool, log)
        assert executor.stats().turns == len(log.turns)
        assert executor.stats().frames_sent == len(pool.frames)
        assert len(pool.runs) == len(set(pool.runs)) == 1601


def test_frames_name_a_turn_that_was_over_and_never_an_earlier_one():
    pool = FakePool()
    with executor_over(pool) as executor:
        for _ in range(20):
            executor.submit(abs, 1).result(LIMIT_S)
        turns = [frame.turn for frame in pool.frames]
    assert len(turns) == 20
    assert turns == sorted(set(turns))


def test_reports_of_several_workers_are_one_turn():
    pool = FakePool(held=True)
    with executor_over(pool, 3) as executor:
        workers_up(executor, pool)
        futures = [executor.submit(time.sleep, 0) for _ in range(3)]
        eventually(lambda: len(pool.queued()) == 3)
        eventually(lambda: executor._engine._wake_at is None)
        before = executor.stats().turns
        reports = []
        for slot, worker in pool.workers.items():
            run = worker.queue.popleft()
            reports.append((slot, Done(run.task, run.attempt, US, encode_value(slot))))
        with pool.unread():
            for slot, report in reports:
                pool.say(slot, report)
        eventually(lambda: all(future.done() for future in futures))
        assert executor.stats().turns == before + 1
        assert sorted(future.result() for future in futures) == [1, 2, 3]


def test_who_finds_the_outbox_taken_leaves_its_commands_to_who_has_it():
    sent = []

    class Pool:
        def send(self, slot, frame, body):
            sent.append((frame, commands_of(body)))
            if len(sent) == 1:
                outbox.commands += [second]
                other = InThread(outbox.send)
                assert other.end() is None  # it does not wait
                assert len(sent) == 1  # and sends nothing itself

    outbox = Outbox(Pool(), SlotId(1))
    first, second = (Run(TaskId(n), 1, b"f", b"p") for n in (1, 2))
    outbox.commands += [first]
    outbox.send()
    assert sent == [(1, [first]), (2, [second])]
    assert (outbox.frames_sent, outbox.commands) == (2, [])


def test_an_outbox_under_threads_sends_everything_once_in_order(fast_switching):
    turn, sent, order = threading.Lock(), [], []

    class Pool:
        def send(self, slot, frame, body):
            sent.extend(command.task for command in commands_of(body))

    def take_turns(start):
        for task in range(start, start + 300):
            with turn:
                order.append(task)
                outbox.commands += [Run(TaskId(task), 1, b"f", b"p")]
            outbox.send()

    outbox = Outbox(Pool(), SlotId(1))
    for thread in [InThread(take_turns, 1000 * n) for n in range(8)]:
        assert thread.end() is None
    assert sent == order
    assert len(order) == 2400


def test_a_changed_import_path_goes_before_the_next_task_and_in_its_frame(monkeypatch):
    pool = FakePool()
    with executor_over(pool) as executor:
        executor.submit(abs, 1).result(LIMIT_S)
        monkeypatch.syspath_prepend("/somewhere/else")
        future = executor.submit(abs, 2)
        future.result(LIMIT_S)
        executor.submit(abs, 3).result(LIMIT_S)
    kinds = [[type(command) for command in frame.commands] for frame in pool.frames]
    assert kinds == [[Environment, Storage, Run], [Environment, Run], [Run]]
    assert pool.frames[0].commands[0].sys_path[0] != "/somewhere/else"
    assert pool.frames[1].commands[0].sys_path[0] == "/somewhere/else"


# --- few turns that send ----------------------------------------------------------------------------------------------


def test_only_a_hungry_worker_is_sent_to_until_enough_has_gathered(clock):
    pool = FakePool(held=True, duration_ns=US)
    with executor_over(pool) as executor:
        quick(executor)
        workers_up(executor, pool)
        del pool.frames[:]
        submit(executor, clock, 500 * US, 2)
        assert [len(frame.tasks) for frame in pool.frames] == [1, 1]
        submit(executor, clock, 0, GATHER - 1)
        assert [len(frame.tasks) for frame in pool.frames] == [1, 1]
        submit(executor, clock, 0)
        assert [len(frame.tasks) for frame in pool.frames] == [1, 1, GATHER]


@pytest.mark.parametrize("how", ["result", "exception", "timeout"])
def test_a_waiting_client_flushes_what_is_held_back(clock, how):
    pool = FakePool(held=True, duration_ns=US)
    with executor_over(pool) as executor:
        quick(executor)
        workers_up(executor, pool)
        *_, last = submit(executor, clock, 500 * US, 3)
        assert last._task not in pool.runs
        if how == "timeout":
            with pytest.raises(TimeoutError):
                last.result(timeout=0)
        else:
            waiter = InThread(getattr(last, how))
            eventually(lambda: last._task in pool.runs)
            pool.release()
            assert waiter.end() == (2 if how == "result" else None)
        assert last._task in pool.runs


def test_what_is_held_back_is_sent_by_the_timer_when_nobody_waits():
    pool = FakePool(held=True, duration_ns=US)
    with executor_over(pool) as executor:
        quick(executor)
        workers_up(executor, pool)
        futures = [executor.submit(abs, 1) for _ in range(10)]
        eventually(lambda: pool.runs[1:] == [future._task for future in futures])
        assert pool.frames[-1].thread in ("slipstream-io", "MainThread")
        assert not any(future.done() for future in futures)


def test_a_stream_of_short_tasks_is_sent_in_full_frames(clock):
    """Although the worker has done the few it has before the next are submitted, and says so each time."""
    pool = FakePool(held=True, duration_ns=US)
    with executor_over(pool) as executor:
        quick(executor)
        workers_up(executor, pool)
        submitted = reported = 0
        for _ in range(250):
            submitted += len(submit(executor, clock, 10 * US, 4))
            done = pool.report()
            reported += done
            eventually(lambda: executor._engine.live_tasks() == submitted - reported)  # noqa: B023
        assert submitted == 1_000
        assert len(pool.frames) <= 3 * 1_000 / GATHER + 10  # 250 if each report sent


def test_a_stream_is_held_back_from_idle_workers_too_but_never_for_good(clock):
    pool = FakePool(held=True, duration_ns=US)
    with executor_over(pool, 2) as executor:
        quick(executor)
        workers_up(executor, pool)
        futures = submit(executor, clock, 10 * US, 50)
        pool.release()
        for future in futures:
            future.result(LIMIT_S)
        pool.held = True
        before = len(pool.runs)
        third = submit(executor, clock, 10 * US, 3)[-1]
        # Two tasks for two workers are no crowd; the third makes it one.
        assert third._task not in pool.runs[before:]
        waiter = InThread(third.result)
        eventually(lambda: third._task in pool.runs)
        pool.release()
        assert waiter.end() == 2


def test_one_at_a_time_is_one_frame_each(clock):
    pool = FakePool(duration_ns=US)
    with executor_over(pool) as executor:
        for number in range(30):
            clock.now += 30 * US
            assert executor.submit(abs, -number).result(LIMIT_S) == number
        assert [len(frame.tasks) for frame in pool.frames] == [1] * 30
        assert executor.stats().turns <= 2 * 30 + 2  # a submission and a report each; the start


def test_cancelling_many_is_one_turn(clock):
    pool = FakePool(held=True, duration_ns=US)
    with executor_over(pool) as executor:
        first = executor.submit(time.sleep, 0)
        eventually(lambda: first._task in pool.runs)
        futures = submit(executor, clock, 500 * US, 40)
        log = TurnLog(executor)
        executor.shutdown(wait=False, cancel_futures=True)
        assert sum(future.cancelled() for future in futures) == 40
        assert len(log.turns) == 1
        assert Cancel not in {type(command) for frame in pool.frames for command in frame.commands}
