"""Futures are light, decode once, and are standard futures for whoever waits with the standard functions."""

import asyncio
import concurrent.futures
import gc
import sys
import threading
import tracemalloc
import weakref

import pytest
from fake_pool import LIMIT_S, FakePool, InThread, eventually, executor_over, workers_up

from slipstream import PayloadError
from slipstream.future import Future
from slipstream.protocol.ids import TaskId

COUNT = 10_000
#: A standard future takes 1,600.
BYTES_PER_FUTURE = 400


class Counted:
    """Counts how often it is loaded."""

    loaded = 0

    def __init__(self, value=0):
        self.value = value

    def __getstate__(self):
        return self.value

    def __setstate__(self, value):
        type(self).loaded += 1
        self.value = value


class Unloadable:
    """Can be sent, and cannot be loaded."""

    def __reduce__(self):
        return (_cannot_load, ())


def _cannot_load():
    raise LookupError("there is no such thing here")


def make_counted(value):
    return Counted(value)


def make_unloadable():
    return Unloadable()


def make_list(value):
    return [value]


@pytest.fixture
def held():
    pool = FakePool(held=True)
    with executor_over(pool) as executor:
        workers_up(executor, pool)
        yield pool, executor


# --- light ------------------------------------------------------------------------------------------------------------


def test_a_pending_future_takes_little_memory(held):
    _, executor = held
    futures = [None] * COUNT
    gc.collect()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(COUNT):
            futures[number] = Future(executor._client, TaskId(number + 10_000), "label")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / COUNT < BYTES_PER_FUTURE
    assert not any(future.done() for future in futures)


def test_a_pending_task_is_one_object_for_the_collector(held):
    """It runs the more often the more of them there are."""
    _, executor = held
    gc.collect()
    gc.disable()  # it would let go of tuples of numbers
    try:
        before = len(gc.get_objects())
        futures = [executor.submit(abs, -1) for _ in range(COUNT)]
        objects = len(gc.get_objects()) - before
    finally:
        gc.enable()
    assert objects < 1.5 * len(futures)


def test_a_future_keeps_no_more_than_its_result_when_it_has_ended(held):
    pool, executor = held
    futures = [executor.submit(abs, -1) for _ in range(500)]
    pool.release()
    assert [future.result(LIMIT_S) for future in futures] == [1] * 500
    for future in futures:
        assert (future._payload, future._sleepers, future._own_condition) == (None, None, None)
    assert sys.getsizeof(futures[0]) < BYTES_PER_FUTURE
    assert not executor._client.futures


def test_there_is_no_condition_until_somebody_asks(held):
    pool, executor = held
    future = executor.submit(abs, -3)
    waiter = InThread(future.result)
    eventually(lambda: future._sleepers)
    with pytest.raises(TimeoutError):
        future.exception(0.001)
    future.add_done_callback(lambda _: None)
    assert future._own_condition is None
    pool.run(future)
    assert waiter.end() == 3
    assert future._own_condition is None
    assert future._condition is future._condition
    assert isinstance(future._own_condition, threading.Condition)
    assert future.result() == 3


# --- the standard functions -------------------------------------------------------------------------------------------


def before_during_after(executor, pool):
    """Futures that have ended, that end while somebody waits, and that end much later."""
    futures = [executor.submit(abs, -number) for number in range(9)]
    pool.run(*futures[:3])
    eventually(lambda: all(future.done() for future in futures[:3]))
    return futures


def has_waiter(future):
    return future._own_condition is not None and bool(future._waiters)


def test_wait_for_all_with_futures_that_end_before_and_during(held):
    pool, executor = held
    futures = before_during_after(executor, pool)
    waiting = InThread(concurrent.futures.wait, futures, LIMIT_S)
    eventually(lambda: has_waiter(futures[-1]))
    pool.run(*futures[3:])
    done, pending = waiting.end()
    assert (done, pending) == (set(futures), set())
    assert not any(future._waiters for future in futures)


def test_wait_for_the_first_and_for_the_rest(held):
    pool, executor = held
    futures = before_during_after(executor, pool)[3:]
    first = InThread(lambda: concurrent.futures.wait(futures, LIMIT_S, concurrent.futures.FIRST_COMPLETED))
    eventually(lambda: has_waiter(futures[-1]))
    pool.run(futures[2])
    done, pending = first.end()
    assert done == {futures[2]}
    assert len(pending) == 5
    pool.run(*pending)
    assert concurrent.futures.wait(futures, LIMIT_S).done == set(futures)


def test_wait_for_the_first_exception(held):
    pool, executor = held
    fine, bad, later = executor.submit(abs, 1), executor.submit(abs, "x"), executor.submit(abs, 2)
    waiting = InThread(lambda: concurrent.futures.wait([fine, bad, later], LIMIT_S, concurrent.futures.FIRST_EXCEPTION))
    eventually(lambda: has_waiter(later))
    pool.run(fine)
    eventually(fine.done)
    assert waiting.thread.is_alive()
    pool.run(bad)
    assert waiting.end().done == {fine, bad}
    assert isinstance(bad.exception(), TypeError)


def test_as_completed_gives_each_once_in_the_order_in_which_they_end(held):
    pool, executor = held
    futures = before_during_after(executor, pool)
    seen = []

    collecting = InThread(lambda: seen.extend(concurrent.futures.as_completed(futures, LIMIT_S)))
    eventually(lambda: len(seen) == 3)
    assert set(seen) == set(futures[:3])
    for future in (futures[7], futures[4]):
        pool.run(future)
        eventually(lambda future=future: seen[-1] is future)
    rest = [future for future in futures if future not in seen]
    pool.run(*rest)
    assert collecting.end() is None
    assert seen[3:] == [futures[7], futures[4], *rest]


def test_a_cancelled_future_wakes_the_standard_functions(held):
    pool, executor = held
    first = executor.submit(abs, -1)
    queued = executor.submit(make_list, 1)  # not measured yet: it waits for an idle worker
    waiting = InThread(concurrent.futures.wait, [queued], LIMIT_S)
    completing = InThread(lambda: list(concurrent.futures.as_completed([queued], LIMIT_S)))
    eventually(lambda: has_waiter(queued) and len(queued._waiters) == 2)
    assert queued.cancel()
    assert waiting.end().done == {queued}
    assert completing.end() == [queued]
    pool.run(first)


def test_a_wait_that_times_out_leaves_nothing_behind(held):
    pool, executor = held
    futures = before_during_after(executor, pool)
    assert len(concurrent.futures.wait(futures, 0.01).not_done) == 6
    with pytest.raises(TimeoutError):
        list(concurrent.futures.as_completed(futures, 0.01))
    with pytest.raises(TimeoutError):
        futures[-1].result(0.01)
    assert not any(future._waiters for future in futures if future._own_condition)
    assert not any(future._sleepers for future in futures)
    pool.run(*futures[3:])
    assert [future.result(LIMIT_S) for future in futures] == list(range(9))


def test_asyncio_wraps_futures_that_end_before_during_and_after(held):
    pool, executor = held
    futures = before_during_after(executor, pool)

    async def gather():
        wrapped = [asyncio.wrap_future(future) for future in futures]
        first = await asyncio.wait_for(asyncio.gather(*wrapped[:3]), LIMIT_S)
        pool.run(*futures[3:6])
        second = await asyncio.wait_for(asyncio.gather(*wrapped[3:6]), LIMIT_S)
        pool.run(*futures[6:])
        return [*first, *second, *await asyncio.wait_for(asyncio.gather(*wrapped[6:]), LIMIT_S)]

    assert asyncio.run(gather()) == list(range(9))


def test_cancelling_in_asyncio_cancels_the_task(held):
    pool, executor = held
    first = executor.submit(abs, -1)
    queued = executor.submit(make_list, 1)

    async def cancel():
        wrapped = asyncio.wrap_future(queued)
        wrapped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wrapped

    asyncio.run(cancel())
    assert queued.cancelled()
    pool.run(first)
    assert queued._task not in pool.runs


def test_a_condition_that_is_asked_for_while_the_future_ends_is_told():
    """Whatever the moment, wait() returns."""
    pool = FakePool()
    with executor_over(pool) as executor:
        for _ in range(300):
            future = executor.submit(abs, -1)
            assert concurrent.futures.wait([future], LIMIT_S).done == {future}


# --- decoding ---------------------------------------------------------------------------------------------------------


def test_twenty_threads_decode_a_result_once(held):
    pool, executor = held
    before = Counted.loaded
    for _ in range(10):
        future = executor.submit(make_counted, 7)
        start = threading.Barrier(20)

        def ask(future=future, start=start):
            start.wait(LIMIT_S)
            return future.result(LIMIT_S)

        threads = [InThread(ask) for _ in range(20)]
        pool.run(future)
        results = [thread.end() for thread in threads]
        assert results[0].value == 7
        assert all(result is results[0] for result in results)
    assert Counted.loaded - before == 10


def test_threads_that_come_while_another_decodes_wait_for_it(held, monkeypatch):
    pool, executor = held
    entered, go_on = threading.Event(), threading.Event()
    load = Counted.__setstate__

    def slow(self, value):
        entered.set()
        assert go_on.wait(LIMIT_S)
        load(self, value)

    monkeypatch.setattr(Counted, "__setstate__", slow)
    before = Counted.loaded
    future = executor.submit(make_counted, 5)
    pool.run(future)
    eventually(future.done)
    first = InThread(future.result)
    assert entered.wait(LIMIT_S)
    others = [InThread(future.result) for _ in range(5)]
    eventually(lambda: len(future._sleepers or ()) == 5)
    go_on.set()
    assert {id(thread.end()) for thread in others} == {id(first.end())}
    assert Counted.loaded - before == 1


def test_nothing_is_decoded_until_somebody_asks(held):
    pool, executor = held
    before = Counted.loaded
    futures = [executor.submit(make_counted, number) for number in range(5)]
    pool.run(*futures)
    concurrent.futures.wait(futures, LIMIT_S)
    assert Counted.loaded == before
    assert futures[2].result().value == 2
    assert Counted.loaded == before + 1
    assert futures[2].exception() is None
    assert Counted.loaded == before + 1


def test_a_result_that_cannot_be_loaded_fails_its_own_future_and_always_the_same_way(held):
    pool, executor = held
    before, bad, after = executor.submit(abs, -1), executor.submit(make_unloadable), executor.submit(make_list, 2)
    pool.run(before, bad, after)
    concurrent.futures.wait([before, bad, after], LIMIT_S)
    errors = [bad.exception()]
    for _ in range(3):
        with pytest.raises(PayloadError, match="there is no such thing here") as caught:
            bad.result()
        errors.append(caught.value)
    errors.append(InThread(bad.exception).end())
    assert all(error is errors[0] for error in errors)
    assert isinstance(errors[0].__cause__, LookupError)
    assert (before.result(), after.result()) == (1, [2])
    assert executor.submit(abs, -4) is not None


def test_twenty_threads_see_the_same_failure_to_load(held):
    pool, executor = held
    future = executor.submit(make_unloadable)
    threads = [InThread(future.exception) for _ in range(20)]
    pool.run(future)
    errors = {id(thread.end()) for thread in threads}
    assert len(errors) == 1
    assert isinstance(future.exception(), PayloadError)


def test_an_interrupted_load_can_be_tried_again(held, monkeypatch):
    pool, executor = held
    load = Counted.__setstate__

    def interrupted(self, value):
        monkeypatch.setattr(Counted, "__setstate__", load)
        raise KeyboardInterrupt

    monkeypatch.setattr(Counted, "__setstate__", interrupted)
    future = executor.submit(make_counted, 6)
    pool.run(future)
    eventually(future.done)
    with pytest.raises(KeyboardInterrupt):
        future.result()
    assert future.result(LIMIT_S).value == 6


def test_a_result_is_released_with_its_future(held):
    pool, executor = held
    future = executor.submit(make_counted, 1)
    pool.run(future)
    result = weakref.ref(future.result(LIMIT_S))
    assert result() is not None
    of_future = weakref.ref(future)
    del future
    assert (of_future(), result()) == (None, None)  # at once: nothing of it is in a cycle


def test_a_future_that_nobody_keeps_still_runs_and_is_released(held):
    pool, executor = held
    future = executor.submit(make_counted, 1)
    called = []
    future.add_done_callback(lambda ended: called.append(ended.result().value))
    of_future = weakref.ref(future)
    pool_task = future._task
    del future
    pool.run(pool_task)
    eventually(lambda: called)
    assert called == [1]
    eventually(lambda: of_future() is None)
