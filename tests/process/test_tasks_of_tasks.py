"""Tasks that submit tasks to the executor that runs them, and wait for these."""

import asyncio
import concurrent.futures
import os
import signal
import threading
import time

import numpy
import pytest

import calls
from slipstream import DependencyError, Executor, InfeasibleTask, current_executor, gather

LIMIT_S = 120
LARGE = 200_000


def depth(n):
    return 0 if n == 0 else 1 + current_executor().submit(depth, n - 1).result()


def fan_out(count):
    executor = current_executor()
    futures = [executor.submit(pow, i, 2) for i in range(count)]
    return [future.result() for future in futures]


def chain(length):
    executor = current_executor()
    future = executor.submit(calls.add, 0, 0)
    for _ in range(length):
        future = executor.submit(calls.add, future, 1)
    return future.result()


def fibonacci(n):
    if n < 2:
        return n
    executor = current_executor()
    return sum(gather([executor.submit(fibonacci, n - 1), executor.submit(fibonacci, n - 2)]))


def wait_by_standard(count):
    executor = current_executor()
    futures = [executor.submit(pid_of, i) for i in range(count)]
    done, pending = concurrent.futures.wait(futures)
    assert not pending
    return sorted(future.result()[0] for future in concurrent.futures.as_completed(done))


def pid_of(number):
    return number, os.getpid()


def wait_by_asyncio(count):
    async def main():
        executor = current_executor()
        futures = [executor.submit(calls.add, i, 1) for i in range(count)]
        return [await futures[0], *await asyncio.gather(*map(asyncio.wrap_future, futures[1:]))]

    return asyncio.run(main())


def wait_by_callback(value):
    ended = threading.Event()
    seen = []

    def called(future):
        seen.append(future.result())
        ended.set()

    current_executor().submit(calls.add, value, 1).add_done_callback(called)
    assert ended.wait(LIMIT_S)
    return seen


def wait_by_callback_that_waits(value):
    """A callback has a thread of its own in a worker, so it may wait."""
    ended = threading.Event()
    seen = []

    def called(future):
        seen.append(current_executor().submit(calls.add, future, 1).result())
        ended.set()

    current_executor().submit(calls.add, value, 1).add_done_callback(called)
    assert ended.wait(LIMIT_S)
    return seen


def wait_in_threads(count):
    with concurrent.futures.ThreadPoolExecutor(count) as threads:
        executor = current_executor()
        return list(threads.map(lambda i: executor.submit(calls.add, i, 1).result(), range(count)))


def map_nested(count):
    return list(current_executor().map(calls.square, range(count)))


def map_of_maps(count):
    return list(current_executor().map(map_nested, range(count)))


def large_values(count):
    executor = current_executor()
    made = executor.submit(numpy.ones, count)
    table = executor.put(numpy.full(count, 2.0))
    both = executor.submit(numpy.add, made, table)
    given = executor.submit(numpy.sum, numpy.full(count, 4.0))
    return float(both.result().sum()), float(given.result()), float(table.result().sum())


def lose_and_ask_again(count, directory):
    """A result of a task of its own is lost, and computed again."""
    future = current_executor().submit(numpy.ones, count)
    future._wait(LIMIT_S)
    for name in os.listdir(directory):
        os.unlink(f"{directory}/{name}")
    return float(future.result().sum()), float(current_executor().submit(numpy.sum, future).result())


def raise_in_child():
    return current_executor().submit(calls.raise_, ValueError("of the child")).result()


def depend_on_failure():
    failed = current_executor().submit(calls.raise_, ValueError("of the child"))
    return current_executor().submit(calls.add, failed, 1).result()


def cancel_behind(path):
    """A child that cannot have started, since another one has the only other worker."""
    executor = current_executor()
    first = executor.submit(calls.wait_for, path)
    others = [executor.submit(calls.add, i, 1) for i in range(3)]
    cancelled = [other.cancel() for other in others]
    with open(path, "w"):
        pass
    first.result()
    return cancelled, [other.cancelled() for other in others], first.cancel()


def let_go(path):
    """Does not wait for its child."""
    current_executor().submit(calls.note, path)


def time_out(path):
    future = current_executor().submit(calls.wait_for, path)
    with pytest.raises(TimeoutError):
        future.result(timeout=0.05)
    with open(path, "w"):
        pass
    return future.result(timeout=LIMIT_S)


def interrupted(path):
    """A signal handler that raises ends the wait; the child goes on, and can be waited for again."""

    def ring(number, frame):
        raise InterruptedError("rung")

    signal.signal(signal.SIGALRM, ring)
    future = current_executor().submit(calls.wait_for, path)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(InterruptedError, match="rung"):
        future.result()
    with open(path, "w"):
        pass
    return future.result()


def handler_that_waits(path):
    """A signal handler submits and waits while the task itself waits."""
    seen = []

    def ring(number, frame):
        seen.append(current_executor().submit(calls.add, 1, 1).result())
        with open(path, "w"):
            pass

    signal.signal(signal.SIGALRM, ring)
    future = current_executor().submit(calls.wait_for, path)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    future.result()
    return seen


def fork_and_try():
    """What a forked child of a task gets from the executor."""
    executor = current_executor()
    pending = executor.submit(calls.nap, 0.2)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        said = []
        for attempt in (lambda: executor.submit(abs, 1), pending.result, current_executor):
            try:
                said.append(repr(attempt()))
            except RuntimeError as error:
                said.append(str(error).split(":")[0])
        os.write(write, "|".join(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    pending.result()
    return os.read(read, 10_000).decode().split("|")


def describe():
    executor = current_executor()
    with executor as same:
        future = same.submit(calls.nap, 0.05, "napped")
    return same is current_executor(), future.done(), repr(executor), executor.submit(abs, -1).result()


def settled(executor, workers):
    """So many workers in the end."""
    deadline = time.monotonic() + 30
    while executor.stats().workers != workers and time.monotonic() < deadline:
        time.sleep(0.01)
    return executor.stats().workers == workers


@pytest.mark.parametrize("workers", [1, 2])
def test_tasks_wait_for_tasks_that_wait_for_tasks(workers):
    with Executor(max_workers=workers) as executor:
        assert executor.submit(depth, 5).result(LIMIT_S) == 5
        assert executor.submit(fibonacci, 5).result(LIMIT_S) == 5
        assert settled(executor, 2 * workers), "as many stay in reserve as there are slots"
        assert executor.submit(calls.add, 1, 1).result(LIMIT_S) == 2
        assert executor.stats().workers_lost == 0
        assert executor._engine._scheduler.slots.blocked == 0


def test_tasks_that_wait_do_not_pile_up_before_those_that_they_wait_for():
    """What they have submitted goes first, so that their number follows the depth and not what is queued."""
    with Executor(max_workers=2, max_processes=20) as executor:
        assert [f.result(LIMIT_S) for f in [executor.submit(depth, 1) for _ in range(200)]] == [1] * 200
        assert executor.submit(fibonacci, 9).result(LIMIT_S) == 34
        assert settled(executor, 4), "who was dismissed has left"


@pytest.mark.long
def test_nesting_to_a_depth_of_a_hundred():
    with Executor(max_workers=2) as executor:
        assert executor.submit(depth, 100).result(4 * LIMIT_S) == 100


def test_the_last_process_that_there_may_be_must_not_wait():
    with Executor(max_workers=1, max_processes=3) as executor:
        assert executor.submit(depth, 2).result(LIMIT_S) == 2
        with pytest.raises(
            InfeasibleTask, match=r"'depth' cannot be waited for here: .* 3 worker processes.*max_processes="
        ):
            executor.submit(depth, 3).result(LIMIT_S)
        assert executor.submit(depth, 2).result(LIMIT_S) == 2
        assert executor.stats().workers <= 3


@pytest.mark.parametrize(
    ("function", "argument", "expected"),
    [
        (fan_out, 50, [i * i for i in range(50)]),
        (chain, 100, 100),
        (wait_by_standard, 10, list(range(10))),
        (wait_by_asyncio, 5, [1, 2, 3, 4, 5]),
        (wait_by_callback, 5, [6]),
        (wait_by_callback_that_waits, 5, [7]),
        (wait_in_threads, 5, [1, 2, 3, 4, 5]),
        (map_nested, 100, [i * i for i in range(100)]),
        (map_of_maps, 4, [[i * i for i in range(n)] for n in range(4)]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("workers", [1, 2])
def test_whatever_way_a_task_waits_another_has_its_slot(workers, function, argument, expected):
    with Executor(max_workers=workers) as executor:
        assert executor.submit(function, argument).result(LIMIT_S) == expected


def test_large_values_of_tasks_of_tasks_are_files_that_go_with_their_futures(executor):
    assert executor.submit(large_values, LARGE).result(LIMIT_S) == (3.0 * LARGE, 4.0 * LARGE, 2.0 * LARGE)
    assert executor.submit(calls.add, 1, 1).result(LIMIT_S) == 2
    deadline = time.monotonic() + 20
    while (os.listdir(executor._values._run.path) or executor._engine._scheduler.tasks) and time.monotonic() < deadline:
        executor.submit(calls.add, 1, 1).result(LIMIT_S)
    assert os.listdir(executor._values._run.path) == []
    assert executor._engine._scheduler.tasks == {}


def test_lost_results_of_tasks_of_tasks_are_computed_again(executor):
    executor.submit(abs, 1).result(LIMIT_S)
    directory = executor._values._run.path
    assert executor.submit(lose_and_ask_again, LARGE, directory).result(LIMIT_S) == (LARGE, LARGE)


def test_failures_arrive_as_they_do_anywhere(executor):
    with pytest.raises(ValueError, match="of the child"):
        executor.submit(raise_in_child).result(LIMIT_S)
    with pytest.raises(DependencyError) as failure:
        executor.submit(depend_on_failure).result(LIMIT_S)
    assert isinstance(failure.value.__cause__, ValueError)


def test_a_task_cancels_what_it_has_submitted(single, tmp_path):
    cancelled, are_cancelled, late = single.submit(cancel_behind, str(tmp_path / "gate")).result(LIMIT_S)
    assert cancelled == are_cancelled
    assert True in cancelled
    assert not late


def test_a_child_runs_though_nobody_waits_for_it(tmp_path):
    with Executor(max_workers=1) as executor:
        executor.submit(let_go, str(tmp_path / "trace")).result(LIMIT_S)
    assert (tmp_path / "trace").read_text() == "x"


@pytest.mark.parametrize("function", [time_out, interrupted])
def test_a_wait_may_end_before_the_child(single, tmp_path, function):
    assert single.submit(function, str(tmp_path / "gate")).result(LIMIT_S) is None
    assert single.submit(depth, 1).result(LIMIT_S) == 1


def test_a_signal_handler_may_wait_too(executor, tmp_path):
    assert executor.submit(handler_that_waits, str(tmp_path / "gate")).result(LIMIT_S) == [2]


def test_a_forked_child_of_a_task_cannot_use_it(single):
    said = single.submit(fork_and_try).result(LIMIT_S)
    forked = "this executor belongs to the worker that this process was forked from, by a task"
    assert said == [forked, forked, "no task runs in this process"]


def test_its_end_ends_nothing(single):
    assert single.submit(describe).result(LIMIT_S)[:2] == (True, True)
    assert single.submit(describe).result(LIMIT_S)[2:] == (
        "<NestedExecutor: 0 tasks of this worker's tasks not ended>",
        1,
    )


def test_there_is_none_outside_of_a_task():
    with pytest.raises(RuntimeError, match="no task runs in this process"):
        current_executor()


@pytest.mark.parametrize(("processes", "error"), [(0, ValueError), (1, ValueError), ("3", TypeError)])
def test_how_many_processes_there_may_be(processes, error):
    with pytest.raises(error, match="max_processes"):
        Executor(max_workers=2, max_processes=processes)
