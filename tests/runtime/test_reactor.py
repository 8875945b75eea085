"""Who reads: threads that wait, one of them at a time, and the I/O thread where nobody waits. And who calls back."""

import concurrent.futures
import contextlib
import logging
import os
import random
import signal
import threading
import time

import pytest
from fake_pool import LIMIT_S, FakePool, InThread, eventually, executor_over, workers_up

from slipstream import InternalError, WorkerLost

IO = "slipstream-io"
REASON = "the fake pool had enough"


def held(executor, count):
    """Futures of tasks that wait in the fake workers."""
    return [executor.submit(abs, -number) for number in range(count)]


def leads(executor, waiter):
    """Wait until this thread reads."""
    eventually(lambda: executor._engine._reactor._leader == waiter.ident)


def follows(executor, *waiters):
    """Wait until so many threads sleep while another one reads."""
    eventually(lambda: len(executor._engine._reactor._followers) == len(waiters))


def io_thread_reads(executor):
    """Wait until the I/O thread is the one that would read."""
    eventually(lambda: executor._engine._reactor._armed)


@contextlib.contextmanager
def pool_with_futures(count, workers=1):
    pool = FakePool(held=True)
    with executor_over(pool, workers) as executor:
        workers_up(executor, pool)
        futures = held(executor, count)
        io_thread_reads(executor)  # who waits from now on can lead
        yield pool, executor, futures


# --- leader and followers ---------------------------------------------------------------------------------------------


def test_a_waiting_thread_reads_its_own_result():
    with pool_with_futures(1) as (pool, executor, (future,)):
        waiter = InThread(future.result)
        leads(executor, waiter)
        del pool.readers[:]
        pool.run(future)
        assert waiter.end() == 0
        assert pool.readers == ["waiter"]


def test_many_threads_wait_and_each_gets_its_own_result():
    with pool_with_futures(24, workers=3) as (pool, executor, futures):
        waiters = [InThread(future.result) for future in futures]
        eventually(lambda: len(executor._engine._reactor._followers) == 23)
        order = list(futures)
        random.Random(5).shuffle(order)
        for future in order:
            pool.run(future)
        assert [waiter.end() for waiter in waiters] == list(range(24))


def test_many_threads_wait_for_the_same_future():
    with pool_with_futures(1) as (pool, _, (future,)):
        waiters = [InThread(future.result) for _ in range(16)]
        eventually(lambda: len(future._sleepers or ()) == 16)
        pool.run(future)
        assert [waiter.end() for waiter in waiters] == [0] * 16


def test_many_threads_each_with_many_results_in_a_row():
    pool = FakePool()
    with executor_over(pool, 2) as executor:

        def chain(start):
            return [executor.submit(abs, -number).result() for number in range(start, start + 100)]

        threads = [InThread(chain, 1000 * n) for n in range(8)]
        assert [thread.end() for thread in threads] == [list(range(1000 * n, 1000 * n + 100)) for n in range(8)]


@pytest.mark.parametrize("wait", ["result", "exception"])
def test_a_timeout_ends_the_wait_of_a_follower_and_not_the_task(wait):
    with pool_with_futures(2) as (pool, executor, (first, second)):
        leader = InThread(first.result)
        leads(executor, leader)
        follower = InThread(getattr(second, wait), 0.02)
        assert isinstance(follower.end(), TimeoutError)
        assert not second.done()
        pool.run(second)
        assert second.result(LIMIT_S) == 1
        pool.run(first)
        assert leader.end() == 0


def test_a_timeout_ends_the_wait_of_a_leader_and_the_next_one_leads():
    with pool_with_futures(2) as (pool, executor, (first, second)):
        leader = InThread(first.result, 1.0)
        leads(executor, leader)
        follower = InThread(second.result)
        follows(executor, follower)
        assert isinstance(leader.end(), TimeoutError)
        leads(executor, follower)
        pool.run(second)
        assert follower.end() == 1
        assert not first.done()


@pytest.mark.parametrize("timeout", [0, -1, 0.0])
def test_no_time_at_all_is_a_timeout_for_whoever_would_lead(timeout):
    with pool_with_futures(1) as (pool, executor, (future,)):
        with pytest.raises(TimeoutError):
            future.result(timeout)
        assert not executor._engine._reactor._followers
        pool.run(future)
        assert future.result(LIMIT_S) == 0


@pytest.mark.parametrize("timeout", [1e9, 1e300, float("inf")])
def test_a_timeout_may_be_longer_than_any_clock_counts(timeout):
    with pool_with_futures(2) as (pool, executor, (first, second)):
        leader = InThread(first.result, timeout)
        leads(executor, leader)
        follower = InThread(second.result, timeout)
        follows(executor, follower)
        pool.run(second, first)
        assert (leader.end(), follower.end()) == (0, 1)


def test_who_leaves_promotes_the_first_follower_that_still_waits():
    with pool_with_futures(4) as (pool, executor, futures):
        waiters = []
        for future in futures:
            waiters.append(InThread(future.result))
            eventually(lambda: executor._engine._reactor._leader == waiters[0].ident)
            follows(executor, *waiters[1:])
        pool.run(futures[1])  # the first follower is served while the leader stays
        assert waiters[1].end() == 1
        assert executor._engine._reactor._leader == waiters[0].ident
        pool.run(futures[0])
        assert waiters[0].end() == 0
        leads(executor, waiters[2])
        pool.run(futures[2])
        assert waiters[2].end() == 2
        leads(executor, waiters[3])
        pool.run(futures[3])
        assert waiters[3].end() == 3


def test_the_leader_wakes_when_its_future_is_cancelled_by_another_thread():
    with pool_with_futures(1) as (pool, executor, _):
        queued = executor.submit(os.getpid)  # never measured, so it waits for a worker that has nothing to do
        waiter = InThread(queued.result)
        leads(executor, waiter)
        assert queued._task not in pool.runs
        eventually(lambda: queued._sleepers[0].pool is not None)  # it blocks
        assert queued.cancel()
        assert isinstance(waiter.end(), concurrent.futures.CancelledError)


def test_a_follower_wakes_when_its_future_is_cancelled():
    with pool_with_futures(1) as (pool, executor, (first,)):
        queued = executor.submit(os.getpid)
        leader = InThread(first.result)
        leads(executor, leader)
        follower = InThread(queued.exception)
        follows(executor, follower)
        assert queued.cancel()
        assert isinstance(follower.end(), concurrent.futures.CancelledError)
        pool.run(first)
        assert leader.end() == 0


def test_all_who_wait_wake_when_the_pool_breaks():
    with pool_with_futures(3) as (pool, executor, futures):
        waiters = [InThread(future.result) for future in futures]
        eventually(lambda: len(executor._engine._reactor._followers) == 2)
        pool.break_(REASON)
        for waiter in waiters:
            error = waiter.end()
            assert isinstance(error, WorkerLost)
            assert REASON in str(error)
        with pytest.raises(WorkerLost, match=REASON):
            executor.submit(abs, 1)


def test_the_leader_wakes_when_another_thread_breaks_the_engine():
    with pool_with_futures(2) as (_, executor, (first, second)):
        leader = InThread(first.result)
        leads(executor, leader)
        follower = InThread(second.result)
        follows(executor, follower)

        def broken(events, now):
            raise ZeroDivisionError("the scheduler cannot go on")

        executor._engine._scheduler.handle = broken
        with pytest.raises(InternalError, match="ZeroDivisionError"):
            executor.submit(abs, 1).result(LIMIT_S)
        for waiter in (leader, follower):
            error = waiter.end()
            assert isinstance(error, InternalError)
            assert isinstance(error.__cause__, ZeroDivisionError)


def test_a_lost_worker_with_a_leader_waiting():
    with pool_with_futures(1, workers=2) as (pool, executor, (future,)):
        waiter = InThread(future.result)
        leads(executor, waiter)
        slot = next(slot for slot, worker in pool.workers.items() if worker.queue)
        pool.lose(slot)
        pool.run(future)  # it comes to the other worker
        assert waiter.end() == 0
        assert executor.stats().workers_lost == 1


def test_shutdown_while_threads_wait_gives_them_their_results():
    with pool_with_futures(4) as (pool, executor, futures):
        waiters = [InThread(future.result) for future in futures]
        eventually(lambda: len(executor._engine._reactor._followers) == 3)
        ending = InThread(executor.shutdown)
        eventually(lambda: executor._engine._closing)
        pool.run(*futures)
        assert [waiter.end() for waiter in waiters] == [0, 1, 2, 3]
        assert ending.end() is None
        assert pool.closed


def test_the_end_of_the_engine_finds_a_thread_that_still_leads():
    """Its future is cancelled and all is over, but the thread has not looked yet."""
    for _ in range(20):
        with pool_with_futures(2) as (pool, executor, (first, second)):
            waiters = [InThread(first.result), InThread(second.result)]
            executor.shutdown(wait=False)
            pool.run(first, second)
            assert [waiter.end() for waiter in waiters] == [0, 1]
            executor.shutdown()
            assert pool.closed


# --- the I/O thread ---------------------------------------------------------------------------------------------------


def test_after_leaders_have_gone_the_io_thread_reads():
    with pool_with_futures(3) as (pool, executor, futures):
        waiter = InThread(futures[0].result)
        leads(executor, waiter)
        pool.run(futures[0])
        assert waiter.end() == 0
        del pool.readers[:]
        pool.run(*futures[1:])
        done, pending = concurrent.futures.wait(futures, LIMIT_S)
        assert (len(done), pending) == (3, set())
        assert set(pool.readers) == {IO}


def test_a_leader_that_times_out_leaves_the_reading_to_the_io_thread():
    with pool_with_futures(3) as (pool, _, futures):
        with pytest.raises(TimeoutError):
            futures[0].result(0.02)
        pool.run(*futures)
        completed = list(concurrent.futures.as_completed(futures, LIMIT_S))
        assert set(completed) == set(futures)


def test_leaders_and_standard_waiters_side_by_side():
    with pool_with_futures(30, workers=2) as (pool, executor, futures):
        waiter = InThread(futures[-1].result)
        leads(executor, waiter)
        collected = InThread(lambda: [f.result() for f in concurrent.futures.as_completed(futures, LIMIT_S)])
        eventually(lambda: all(future._own_condition is not None and future._waiters for future in futures))
        pool.run(*futures)
        assert sorted(collected.end()) == list(range(30))
        assert waiter.end() == 29


def test_while_one_leader_stays_the_io_thread_sleeps():
    with pool_with_futures(1) as (pool, executor, (future,)):
        waiter = InThread(future.result)
        leads(executor, waiter)
        eventually(lambda: executor._engine._reactor._parked)
        before = executor._engine.wakeups()
        time.sleep(0.5)
        assert executor._engine.wakeups() == before
        pool.run(future)
        assert waiter.end() == 0


def test_a_parked_io_thread_reads_again_when_the_leader_has_left():
    with pool_with_futures(2) as (pool, executor, (first, second)):
        waiter = InThread(first.result)
        leads(executor, waiter)
        eventually(lambda: executor._engine._reactor._parked)
        pool.run(first)
        assert waiter.end() == 0
        io_thread_reads(executor)
        del pool.readers[:]
        pool.run(second)
        eventually(second.done)
        assert set(pool.readers) == {IO}


def test_a_chain_of_waits_keeps_the_io_thread_from_reading():
    pool = FakePool()
    with executor_over(pool) as executor:
        executor.submit(abs, 0).result()
        del pool.readers[:]
        for number in range(300):
            assert executor.submit(abs, -number).result(LIMIT_S) == number
        by_leader = sum(name == threading.current_thread().name for name in pool.readers)
        assert by_leader >= 150  # where the machine is busy the I/O thread may think that no more leaders come


# --- signals that come while the thread leads -------------------------------------------------------------------------


@pytest.fixture
def on_signal():
    """Set what the first SIGUSR1 does in the main thread; tells when it came."""
    before = signal.getsignal(signal.SIGUSR1)
    handled = threading.Event()

    def set_handler(action):
        def handler(number, frame):
            if not handled.is_set():
                handled.set()
                action()

        signal.signal(signal.SIGUSR1, handler)
        return handled

    yield set_handler
    signal.signal(signal.SIGUSR1, before)


def interrupt_when(ready, handled):
    """Send the main thread signals until one is handled: one that comes just before a wait does not interrupt it."""
    eventually(ready)

    def is_handled():
        if not handled.is_set():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
            handled.wait(0.2)
        return handled.is_set()

    eventually(is_handled)


def main_leads(executor):
    return lambda: executor._engine._reactor._leader == threading.main_thread().ident


@pytest.mark.parametrize("order", ["inner first", "outer first", "both at once"])
def test_a_signal_handler_waits_for_another_result_while_its_thread_leads(on_signal, order):
    with pool_with_futures(2) as (pool, executor, (outer, inner)):
        got, returned = [], threading.Event()
        handled = on_signal(lambda: got.append(inner.result(LIMIT_S)))

        def other_side():
            interrupt_when(main_leads(executor), handled)
            if order == "inner first":
                pool.run(inner)
                eventually(lambda: got)
                pool.run(outer)
            elif order == "outer first":
                pool.run(outer)
                eventually(outer.done)
                pool.run(inner)
            else:
                with pool.unread():
                    pool.run(outer, inner)
            assert returned.wait(LIMIT_S / 3)  # before the wait of the outer one is over for lack of time

        side = InThread(other_side)
        assert outer.result(LIMIT_S) == 0
        returned.set()
        assert side.end() is None
        assert got == [1]
        io_thread_reads(executor)


def test_a_signal_handler_submits_cancels_and_waits_while_its_thread_leads(on_signal):
    with pool_with_futures(1) as (pool, executor, (outer,)):
        got = []

        def act():
            pool.release()
            first = executor.submit(abs, -7)
            second = executor.submit(abs, -8)
            second.cancel()
            got.append(first.result(LIMIT_S))

        side = InThread(interrupt_when, main_leads(executor), on_signal(act))
        assert outer.result(LIMIT_S) == 0
        assert side.end() is None
        assert got == [7]


def test_a_signal_handler_waits_while_its_thread_follows(on_signal):
    with pool_with_futures(3) as (pool, executor, (of_leader, outer, inner)):
        followers = executor._engine._reactor._followers
        leader = InThread(of_leader.result)
        leads(executor, leader)
        got = []
        handled = on_signal(lambda: got.append(inner.result(LIMIT_S)))

        def other_side():
            interrupt_when(lambda: len(followers) == 1, handled)
            eventually(lambda: len(followers) == 2)
            pool.run(of_leader)  # it promotes the wait that is interrupted
            pool.run(inner)
            eventually(lambda: got)
            pool.run(outer)

        side = InThread(other_side)
        assert outer.result(LIMIT_S) == 1
        assert (side.end(), leader.end()) == (None, 0)
        assert got == [2]


class Interruption(Exception):
    pass


def interrupt():
    raise Interruption


def test_a_signal_handler_that_raises_ends_the_lead_and_harms_nothing(on_signal):
    with pool_with_futures(2) as (pool, executor, (first, second)):
        side = InThread(interrupt_when, main_leads(executor), on_signal(interrupt))
        with pytest.raises(Interruption):
            first.result(LIMIT_S)
        assert side.end() is None
        assert executor._engine._reactor._leader == 0
        eventually(lambda: not executor._engine._reactor.reading.locked())
        pool.run(first, second)
        assert (first.result(LIMIT_S), second.result(LIMIT_S)) == (0, 1)
        assert not first._sleepers


def test_a_signal_handler_that_raises_hands_the_lead_to_a_follower(on_signal):
    with pool_with_futures(2) as (pool, executor, (first, second)):
        handled = on_signal(interrupt)
        followers = []

        def other_side():
            eventually(main_leads(executor))
            followers.append(InThread(second.result))
            follows(executor, *followers)
            interrupt_when(lambda: True, handled)

        side = InThread(other_side)
        with pytest.raises(Interruption):
            first.result(LIMIT_S)
        assert side.end() is None
        leads(executor, followers[0])
        pool.run(second)
        assert followers[0].end() == 1


# --- callbacks --------------------------------------------------------------------------------------------------------


def thread_name(_future=None):
    return threading.current_thread().name


def test_callbacks_never_run_inside_the_result_of_another_thread():
    with pool_with_futures(6) as (pool, executor, futures):
        called = []
        for number, future in enumerate(futures[:-1]):
            future.add_done_callback(lambda _, number=number: called.append((number, thread_name())))
        waiter = InThread(futures[-1].result)
        leads(executor, waiter)
        pool.run(*futures[:-1])
        eventually(lambda: len(called) == 5)
        assert called == [(number, IO) for number in range(5)]
        assert waiter.thread.is_alive()
        pool.run(futures[-1])
        assert waiter.end() == 5


def test_a_callback_of_the_very_future_that_is_waited_for_runs_in_the_io_thread():
    with pool_with_futures(1) as (pool, executor, (future,)):
        called = []
        future.add_done_callback(lambda _: called.append(thread_name()))
        waiter = InThread(future.result)
        leads(executor, waiter)
        pool.run(future)
        assert waiter.end() == 0
        eventually(lambda: called)
        assert called == [IO]


@pytest.mark.parametrize("with_leader", [False, True])
def test_callbacks_of_one_future_keep_their_order_whoever_reads(with_leader):
    with pool_with_futures(2) as (pool, executor, (future, other)):
        called = []
        for number in range(20):
            future.add_done_callback(lambda _, number=number: called.append(number))
        if with_leader:
            waiter = InThread(other.result)
            leads(executor, waiter)
        pool.run(future)
        eventually(lambda: len(called) == 20)
        assert called == list(range(20))
        pool.run(other)


def test_a_callback_of_an_ended_future_runs_in_the_caller_at_once():
    with pool_with_futures(1) as (pool, _, (future,)):
        pool.run(future)
        assert future.result(LIMIT_S) == 0
        called = []
        future.add_done_callback(lambda _: called.append(thread_name()))
        assert called == [thread_name()]
        caller = InThread(future.add_done_callback, lambda _: called.append(thread_name()))
        assert caller.end() is None
        assert called[1:] == ["waiter"]


def test_shutdown_returns_after_callbacks_that_were_handed_over():
    with pool_with_futures(2) as (pool, executor, (future, other)):
        called, go_on = [], threading.Event()

        def callback(_):
            assert go_on.wait(LIMIT_S)
            called.append(thread_name())

        future.add_done_callback(callback)
        waiter = InThread(other.result)
        leads(executor, waiter)
        pool.run(future, other)
        assert waiter.end() == 1
        ending = InThread(executor.shutdown)
        eventually(lambda: executor._engine._closing)
        assert ending.thread.is_alive()
        go_on.set()
        assert ending.end() is None
        assert called == [IO]


@pytest.mark.parametrize("with_leader", [False, True])
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_a_callback_raises_is_logged_and_dropped(caplog, error, with_leader):
    with pool_with_futures(3) as (pool, executor, (future, other, last)):
        called = []

        def callback(_):
            raise error("of the callback")

        future.add_done_callback(callback)
        future.add_done_callback(lambda _: called.append(future.result()))
        if with_leader:
            waiter = InThread(last.result)
            leads(executor, waiter)
        with caplog.at_level(logging.ERROR, "concurrent.futures"):
            pool.run(future)
            eventually(lambda: called)
        assert called == [0]
        assert [record.exc_info[0] for record in caplog.records] == [error]
        pool.run(other, last)
        assert (other.result(LIMIT_S), last.result(LIMIT_S)) == (1, 2)


def test_a_callback_submits_and_reads_other_ended_futures_but_cannot_wait():
    with pool_with_futures(2) as (pool, executor, (future, unended)):
        seen = []

        def callback(_):
            seen.append(future.result())
            with pytest.raises(RuntimeError, match="callback cannot wait"):
                unended.result()
            with pytest.raises(RuntimeError, match="callback cannot wait"):
                unended.exception(timeout=1)
            seen.append(executor.submit(abs, -9))

        future.add_done_callback(callback)
        pool.run(future)
        eventually(lambda: len(seen) == 2)
        pool.run(unended, seen[1])
        assert (seen[0], seen[1].result(LIMIT_S)) == (0, 9)


# --- an internal thread that dies -------------------------------------------------------------------------------------


class Defect(BaseException):
    """Not an Exception: nothing but a top-level loop may stop it."""


@pytest.mark.parametrize("error", [RuntimeError, Defect])
@pytest.mark.parametrize("where", ["read_ready", "tend", "start"])
def test_whatever_the_pool_raises_ends_every_pending_future_with_an_internal_error(where, error):
    pool = FakePool(held=True)

    def raises(*args):
        raise error("a defect of the pool")

    with executor_over(pool) as executor:
        if where == "start":
            pool.start = raises  # in the I/O thread, which is dead before the first submit returns
            futures = held(executor, 1)
        else:
            workers_up(executor, pool)
            futures = held(executor, 3)
            io_thread_reads(executor)
            setattr(pool, where, raises)
            pool.wake()
        concurrent.futures.wait(futures, LIMIT_S)
        for future in futures:
            found = future.exception(0)
            assert isinstance(found, InternalError)
            assert isinstance(found.__cause__, error)
            assert "a defect of the pool" in str(found)
        with pytest.raises(InternalError):
            executor.submit(abs, 1)
        executor.shutdown()
        assert pool.closed
        assert pool.killed


@pytest.mark.parametrize("error", [RuntimeError, Defect])
def test_what_the_pool_raises_where_a_thread_leads_ends_every_pending_future(error):
    with pool_with_futures(3) as (pool, executor, futures):
        leader = InThread(futures[0].result)
        leads(executor, leader)
        follower = InThread(futures[1].result)
        follows(executor, follower)

        def raises():
            raise error("a defect of the pool")

        pool.read_ready = raises
        pool.wake()
        concurrent.futures.wait(futures, LIMIT_S)
        assert [type(future.exception(0)) for future in futures] == [InternalError] * 3
        assert isinstance(leader.end(), InternalError | Defect)
        assert isinstance(follower.end(), InternalError | Defect)


def test_what_the_wait_of_a_pool_raises_reaches_who_waits_and_harms_nobody_else():
    with pool_with_futures(2) as (pool, executor, futures):
        io_thread_reads(executor)

        def raises(timeout_s):
            raise OSError("a defect of the pool")

        pool.wait = raises
        waiter = InThread(futures[0].result)
        assert isinstance(waiter.end(), OSError)
        pool.run(*futures)
        concurrent.futures.wait(futures, LIMIT_S)
        assert [future.result(0) for future in futures] == [0, 1]
