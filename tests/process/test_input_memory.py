"""What tasks take of the client's memory while they wait; nothing of it stays once their futures are dropped."""

import concurrent.futures
import gc
import tracemalloc
import weakref

import pytest

import calls
from slipstream import Executor, Future, WorkerLost

LIMIT_S = 20
TASKS = 3000
#: Tasks that wait at the same time, and the bytes of the client that each may take.
WAITING = 20_000
BYTES_PER_TASK = 1_500
#: What may stay of them: some lists and tables are larger once than another time.
LEFT_BYTES = 64 << 10


def warm(executor):
    for _ in range(20):
        executor.submit(calls.echo, executor.submit(list, "abc")).result()


def alive(kind):
    gc.collect()
    return sum(isinstance(value, kind) for value in gc.get_objects())


def run_chains(executor, tasks):
    ends = []
    for _ in range(tasks // 30):
        future = executor.submit(list, "abc")
        for _ in range(26):
            future = executor.submit(calls.echo, future)
        outside = concurrent.futures.Future()
        failed = executor.submit(calls.everything, [outside], executor.submit(calls.raise_, ValueError()))
        ends += [executor.submit(calls.everything, [future, outside]), failed]
        outside.set_result([1])
    concurrent.futures.wait(ends)
    for future in ends:
        future.exception()


def plain(executor):
    return [executor.submit(calls.add, number, 1) for number in range(WAITING)]


def with_an_input_each(executor):
    firsts = [executor.submit(calls.add, number, 1) for number in range(WAITING // 2)]
    return firsts + [executor.submit(calls.add, first, 1) for first in firsts]


def bytes_while_they_wait(executor, submit, gate):
    """Traced bytes, with that many tasks behind one that blocks; all of them end in here."""
    blocker = executor.submit(calls.wait_for, str(gate))
    try:
        futures = submit(executor)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        gate.touch()
        concurrent.futures.wait([blocker, *futures])


@pytest.mark.parametrize("submit", [plain, pytest.param(with_an_input_each, marks=pytest.mark.long)])
def test_tasks_that_wait_take_little_and_leave_nothing(single, submit, tmp_path):
    warm(single)
    tracemalloc.start()
    try:
        # Tables of dicts stay as large as they have been, 50 bytes a task: so there are as many before.
        bytes_while_they_wait(single, submit, tmp_path / "first")
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        waiting = bytes_while_they_wait(single, submit, tmp_path / "second")
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert waiting - before < BYTES_PER_TASK * WAITING
    assert after - before < LEFT_BYTES


def test_futures_that_are_dropped_leave_nothing(executor):
    warm(executor)
    run_chains(executor, 300)
    before = alive(concurrent.futures.Future)
    tracemalloc.start()
    try:
        run_chains(executor, 300)
        gc.collect()
        first, _ = tracemalloc.get_traced_memory()
        run_chains(executor, TASKS)
        gc.collect()
        second, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert alive(concurrent.futures.Future) <= before  # those of other tests may go meanwhile
    assert second - first < 200 * TASKS, "a future with its result takes 500 bytes and more"
    assert not executor._client.futures
    assert not executor._client.expected
    assert not executor._engine._scheduler.tasks


def test_a_result_that_is_passed_on_goes_with_its_future(single):
    warm(single)
    future = single.submit(bytes, 200_000)
    dependent = single.submit(len, future)
    assert dependent.result() == 200_000
    gone = weakref.ref(future)
    tracemalloc.start()
    try:
        held, _ = tracemalloc.get_traced_memory()
        encoded = single.submit(bytes, 200_000)
        assert single.submit(len, encoded).result() == 200_000
        del encoded
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - held < 100_000
    del future
    gc.collect()
    assert gone() is None, "the task that takes its result keeps the future"
    assert dependent.done()


def test_a_pending_task_keeps_its_input_and_a_cancelled_one_lets_go(executor):
    outside = concurrent.futures.Future()
    future = executor.submit(calls.echo, outside)
    gone = weakref.ref(outside)
    future.cancel()
    del outside
    gc.collect()
    assert gone() is None
    assert future.cancelled()
    outside = concurrent.futures.Future()
    inner = executor.submit(calls.add, outside, 1)
    last = executor.submit(calls.add, inner, 1)
    del inner
    gc.collect()
    outside.set_result(1)
    assert last.result(LIMIT_S) == 3


def test_of_a_chain_that_a_broken_engine_ended_only_what_is_held_stays():
    with Executor(max_workers=1, initializer=calls.raise_, initargs=(ValueError("initial"),)) as executor:
        outside = concurrent.futures.Future()
        first = future = executor.submit(calls.echo, outside)
        for _ in range(20):
            future = executor.submit(calls.echo, future)
        with pytest.raises(WorkerLost):
            future.result(LIMIT_S)
        gone = weakref.ref(first)
        del first
        gc.collect()
        assert gone() is None
        assert isinstance(future, Future)
