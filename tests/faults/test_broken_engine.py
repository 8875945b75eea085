"""The engine itself cannot go on: every future ends at once and says why, nothing is left, and a new executor works."""

import concurrent.futures
import contextlib
import os
import resource
import sys
import threading
from concurrent.futures import BrokenExecutor

import fatal
import pytest
from processes import LIMIT_S, keepers, until, workers

import calls
from slipstream import Executor, InternalError, WorkerLost
from slipstream.core.scheduler import Scheduler
from slipstream.pools.keeper import Keeper
from slipstream.pools.local import LocalPool
from slipstream.runtime.engine import Engine

#: More than are started for a reason: two at first, and those in whose place others came before it was given up.
TOO_MANY_STARTS = 10


def a_new_one_works():
    with Executor(max_workers=2) as executor:
        assert list(executor.map(calls.square, range(50))) == [n * n for n in range(50)]


def errors_of(futures, kind):
    """What they ended with. A limit, since the point is that none hangs."""
    errors = [future.exception(LIMIT_S) for future in futures]
    assert all(isinstance(error, kind) for error in errors), errors
    return errors


# --- workers that cannot start ------------------------------------------------------------------------------------

INITIALIZERS = {
    "raises": (calls.raise_, (ValueError("no such model"),), "ValueError: no such model"),
    "leaves": (sys.exit, ("no such model",), "SystemExit: no such model"),
    "is interrupted": (calls.raise_, (KeyboardInterrupt(),), "KeyboardInterrupt"),
    "exits": (fatal.leave_after, ("no such model", 3), "exit status 3.*no such model"),
    "exits well": (fatal.leave_after, ("no such model", 0), "exit status 0.*no such model"),
    "is killed": (fatal.kill_after, ("no such model", 9), "SIGKILL.*no such model"),
    "crashes": (fatal.crash_after, ("no such model",), "SIGSEGV.*no such model"),
    "closes the connection": (fatal.close_descriptors, (0,), "Bad file descriptor"),
    "writes into the connection": (fatal.write_to_sockets_and_stay, (b"\xff" * 64,), "sent what it must not"),
}


@pytest.mark.parametrize(("function", "args", "told"), INITIALIZERS.values(), ids=INITIALIZERS.keys())
def test_an_initializer_that(function, args, told, tmp_path):
    count = tmp_path / "count"
    with Executor(max_workers=2, initializer=fatal.count_then, initargs=(str(count), function, *args)) as executor:
        futures = [executor.submit(calls.square, n) for n in range(30)]
        for error in errors_of(futures, WorkerLost):
            assert isinstance(error, BrokenExecutor)
        with pytest.raises(WorkerLost, match=f"(?s){told}"):
            futures[-1].result()
        with pytest.raises(BrokenExecutor, match=f"(?s){told}"):
            executor.submit(calls.square, 1)
        with pytest.raises(BrokenExecutor, match=f"(?s){told}"):
            executor.map(calls.square, [1])
        until(lambda: not workers())
    assert 0 < count.stat().st_size < TOO_MANY_STARTS
    a_new_one_works()


def test_a_bad_interpreter(monkeypatch, tmp_path):
    missing = str(tmp_path / "python")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", missing)
        with Executor(max_workers=2) as executor:
            futures = [executor.submit(calls.square, n) for n in range(30)]
            for error in errors_of(futures, WorkerLost):
                assert f"a worker process cannot be started with {missing!r}" in str(error)
                assert "No such file" in str(error)
            with pytest.raises(BrokenExecutor, match="cannot be started"):
                executor.submit(calls.square, 1)
    a_new_one_works()


def test_an_interpreter_that_is_none(monkeypatch):
    """It starts, and is no Python."""
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/bin/false")
        with Executor(max_workers=2) as executor:
            errors = errors_of([executor.submit(calls.square, n) for n in range(30)], WorkerLost)
            assert len(errors) == 30
            for error in errors:
                assert "3 workers in a row died at their start: the worker process ended with exit status 1" in str(
                    error
                )
    a_new_one_works()


def test_an_interpreter_that_goes_missing_while_the_executor_works(monkeypatch, tmp_path):
    gate = tmp_path / "gate"
    with Executor(max_workers=2) as executor:
        until(lambda: executor.submit(calls.add, 1, 1).result() and executor.stats().workers == 2)
        until(keepers)
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        waiting = executor.submit(calls.wait_for, str(gate))
        fatal_one = executor.submit(calls.leave, 3)
        errors_of([waiting, fatal_one], WorkerLost)
        assert "cannot be started" in str(waiting.exception())
        monkeypatch.undo()
    a_new_one_works()


def test_a_keeper_that_cannot_be_started(monkeypatch, caplog):
    """It is a precaution: that it is missing is said, and tasks run all the same."""

    def start(self):
        raise OSError("no more processes")

    monkeypatch.setattr(Keeper, "start", start)
    with Executor(max_workers=2) as executor:
        assert [executor.submit(calls.square, n).result(LIMIT_S) for n in range(20)] == [n * n for n in range(20)]
        until(lambda: "keeper" in caplog.text)
        assert list(executor.map(calls.square, range(50))) == [n * n for n in range(50)]
        assert executor.stats().workers_lost == 0


# --- the engine's own faults --------------------------------------------------------------------------------------


class Fault(Exception):
    """Not one that anybody expects."""


def fail_once(monkeypatch, owner, name, when=lambda: True):
    """Let this method raise, the first time that it is called under this condition; return what tells that it has."""
    original = getattr(owner, name)
    failed = threading.Event()

    def failing(self, *args, **kwargs):
        if when() and not failed.is_set():
            failed.set()
            raise Fault("of the engine")
        return original(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, failing)
    return failed


def in_main_thread():
    return threading.current_thread() is threading.main_thread()


def not_in_main_thread():
    return not in_main_thread()


def assert_broken(executor, futures):
    """Every one of these has ended with the fault, no more is taken, and nothing is left."""
    for error in errors_of(futures, InternalError):
        assert "Fault: of the engine" in str(error)
        assert isinstance(error.__cause__, Fault)
    with pytest.raises(InternalError, match="of the engine"):
        executor.submit(calls.square, 1)
    with pytest.raises(InternalError, match="of the engine"):
        executor.map(calls.square, [1])
    executor.shutdown()
    assert not workers()
    a_new_one_works()


def busy_executor(gate):
    """An executor that has both of its workers busy, and more to do."""
    executor = Executor(max_workers=2)
    until(lambda: executor.submit(calls.add, 1, 1).result() == 2 and executor.stats().workers == 2)
    futures = [executor.submit(calls.wait_for, str(gate)) for _ in range(2)]
    futures += [executor.submit(calls.square, n) for n in range(30)]
    return executor, futures


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Engine, "_step"), (LocalPool, "read_ready"), (LocalPool, "tend"), (Scheduler, "handle"), (Engine, "_turn")],
)
def test_the_io_thread_dies_while_nobody_waits_in_result(monkeypatch, tmp_path, owner, name):
    """The standard `wait` leaves the reading to it."""
    armed = threading.Event()
    failed = fail_once(monkeypatch, owner, name, lambda: armed.is_set() and not_in_main_thread())
    gate = tmp_path / "gate"
    executor, futures = busy_executor(gate)
    concurrent.futures.wait(futures, timeout=0.05)
    armed.set()
    gate.touch()
    done, not_done = concurrent.futures.wait(futures, timeout=LIMIT_S)
    if name == "tend" and not failed.is_set():  # it is called when there is something to start
        pytest.fail("`tend` was not called")
    assert failed.is_set()
    assert not not_done
    ended_well = [future for future in done if future.exception() is None]  # those whose result had come before
    assert len(ended_well) < len(futures)
    assert_broken(executor, [future for future in futures if future not in ended_well])


@pytest.mark.parametrize(("owner", "name"), [(LocalPool, "read_ready"), (Scheduler, "handle")])
def test_a_fault_in_a_thread_that_waits_in_result(monkeypatch, tmp_path, owner, name):
    armed = threading.Event()
    failed = fail_once(monkeypatch, owner, name, lambda: armed.is_set() and in_main_thread())
    gate = tmp_path / "gate"
    executor, futures = busy_executor(gate)
    until(lambda: all(future.running() for future in futures[:2]))
    opener = threading.Timer(0.1, gate.touch)
    opener.start()
    armed.set()
    error = futures[0].exception(LIMIT_S)
    opener.join()
    if error is None:  # another thread read it
        assert not failed.is_set()
    else:
        assert_broken(executor, futures)
    executor.shutdown()


def test_the_io_thread_dies_while_another_thread_waits_in_result(monkeypatch, tmp_path):
    armed = threading.Event()
    failed = fail_once(monkeypatch, LocalPool, "tend", armed.is_set)
    executor, futures = busy_executor(tmp_path / "gate")
    timer = threading.Timer(0.1, lambda: (armed.set(), executor._engine._reactor.kick()))
    timer.start()
    errors_of(futures, InternalError)
    timer.join()
    assert failed.is_set()
    assert_broken(executor, futures)


def test_the_scheduler_raises_in_submit(monkeypatch, tmp_path):
    armed = threading.Event()
    fail_once(monkeypatch, Scheduler, "handle", lambda: armed.is_set() and in_main_thread())
    executor, futures = busy_executor(tmp_path / "gate")
    armed.set()
    with contextlib.suppress(InternalError):  # either the future tells it or this call does
        futures.append(executor.submit(calls.square, 1))
    assert_broken(executor, futures)


def test_the_scheduler_raises_in_cancel(monkeypatch, tmp_path):
    armed = threading.Event()
    fail_once(monkeypatch, Scheduler, "handle", lambda: armed.is_set() and in_main_thread())
    executor, futures = busy_executor(tmp_path / "gate")
    armed.set()
    assert not futures[-1].cancel()
    assert_broken(executor, futures)


def test_the_engine_dies_at_its_start(monkeypatch):
    failed = fail_once(monkeypatch, LocalPool, "start")
    executor = Executor(max_workers=2)
    futures = []
    for n in range(5):
        with contextlib.suppress(InternalError):  # either the futures tell it or this call does
            futures.append(executor.submit(calls.square, n))
    errors_of(futures, InternalError)
    assert failed.is_set()
    assert_broken(executor, futures)


def test_a_fault_is_told_to_whoever_waits_in_whatever_way(monkeypatch, tmp_path):
    """In `result`, in the standard functions, by callback, and in the iterator of a map."""
    armed = threading.Event()
    fail_once(monkeypatch, LocalPool, "tend", armed.is_set)
    executor, futures = busy_executor(tmp_path / "gate")
    told = []
    futures[5].add_done_callback(lambda future: told.append(type(future.exception())))
    results = executor.map(calls.square, range(10))
    ways = [
        lambda: futures[0].exception(LIMIT_S),
        lambda: next(concurrent.futures.as_completed([futures[2]], timeout=LIMIT_S)).exception(),
        lambda: next(results),
    ]

    def wait_in(way):
        try:
            told.append(type(way()))
        except BaseException as error:
            told.append(type(error))

    threads = [threading.Thread(target=wait_in, args=(way,)) for way in ways]
    for thread in threads:
        thread.start()
    armed.set()
    executor._engine._reactor.kick()
    for thread in threads:
        thread.join()
    until(lambda: len(told) == 4)
    assert told == [InternalError] * 4
    assert_broken(executor, futures)


@pytest.mark.parametrize("room", range(0, 18, 2))
def test_descriptors_run_out(room):
    """Wherever that is in the start of a worker: it is said, and nothing is left of what had been begun."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    fill = [os.open("/dev/null", os.O_RDONLY)]
    while fill[-1] < highest:
        fill.append(os.dup(fill[0]))
    try:
        with Executor(max_workers=2) as executor:
            resource.setrlimit(resource.RLIMIT_NOFILE, (fill[-1] + 1 + room, limits[1]))
            try:
                error = executor.submit(calls.square, 2).exception(LIMIT_S)
            except OSError as refused:  # not even the engine could be started: this is for the caller
                error = refused
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    finally:
        for descriptor in fill:
            os.close(descriptor)
    assert isinstance(error, (WorkerLost, InternalError, OSError))
    assert "Too many open files" in str(error)
    a_new_one_works()
