"""A worker dies, in every state and of every cause: what it ran fails with WorkerLost, and nothing else does."""

import signal
import time

import fatal
import pytest
from processes import LIMIT_S, assert_goes_on, until, workers

import calls
from slipstream import Executor, WorkerLost


def lost(future):
    error = future.exception()
    assert type(error) is WorkerLost, error
    return error


def noted(path):
    """Process ids in a file, once there is a whole line."""
    return until(lambda: path.exists() and path.read_text().endswith("\n") and path.read_text().split())


def kill(pid):
    """Kill one of our workers."""
    (worker,) = (worker for worker in workers() if worker.pid == int(pid))
    worker.kill()


# --- of what it dies ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 3, 255])
def test_a_task_that_exits(executor, status):
    others = [executor.submit(calls.square, n) for n in range(50)]
    fatal_one = executor.submit(fatal.leave_after, "said before", status)
    others += [executor.submit(calls.square, n) for n in range(50, 100)]
    error = lost(fatal_one)
    assert (error.exit_status, error.signal) == (status, None)
    assert error.reason == f"the worker process ended with exit status {status}"
    assert error.last_output == "said before"
    assert error.reason in str(error)
    assert "leave_after" in str(error)
    assert "said before" in str(error)
    assert [future.result() for future in others] == [n * n for n in range(100)]
    assert_goes_on(executor, 2, lost=1)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGABRT, signal.SIGRTMIN + 1])
def test_a_task_that_is_killed_by_a_signal(executor, number):
    others = [executor.submit(calls.square, n) for n in range(50)]
    fatal_one = executor.submit(fatal.kill_after, "said before", number)
    others += [executor.submit(calls.square, n) for n in range(50, 100)]
    error = lost(fatal_one)
    assert (error.exit_status, error.signal) == (None, number)
    assert error.last_output == "said before"
    if number <= signal.SIGSYS:
        assert signal.Signals(number).name in error.reason
    assert [future.result() for future in others] == [n * n for n in range(100)]
    assert_goes_on(executor, 2, lost=1)


def test_a_task_that_crashes(executor):
    error = lost(executor.submit(fatal.crash_after, "said before"))
    assert error.signal == signal.SIGSEGV
    assert "SIGSEGV" in error.reason
    assert error.last_output == "said before"
    assert_goes_on(executor, 2, lost=1)


def test_only_the_end_of_long_output_is_kept(single, capfd):
    error = lost(single.submit(fatal.leave_after, "a" * 100_000 + "the end", 3))
    assert error.last_output.endswith("the end")
    assert len(error.last_output) <= 4096
    assert capfd.readouterr().out == "a" * 100_000 + "the end\n"


def test_every_task_dies_and_each_is_told_apart(executor):
    futures = [executor.submit(fatal.leave_after, f"task {n}", 10 + n) for n in range(6)]
    errors = [lost(future) for future in futures]
    assert [error.exit_status for error in errors] == [10 + n for n in range(6)]
    assert [error.last_output for error in errors] == [f"task {n}" for n in range(6)]
    assert_goes_on(executor, 2, lost=6)


# --- in which state it is killed ----------------------------------------------------------------------------------


def test_killed_while_idle(executor):
    executor.submit(calls.add, 1, 1).result()
    until(lambda: executor.stats().workers == 2)
    kill(workers()[0].pid)
    until(lambda: executor.stats().workers_lost == 1)
    assert_goes_on(executor, 2, lost=1)


def test_all_killed_while_idle():
    """They had started well: this is no reason to give up."""
    with Executor(max_workers=4) as executor:
        executor.submit(calls.add, 1, 1).result()
        until(lambda: executor.stats().workers == 4)
        for worker in workers():
            worker.kill()
        until(lambda: executor.stats().workers_lost == 4)
        assert_goes_on(executor, 4, lost=4)


def test_killed_while_idle_again_and_again(single):
    """Each of them had started well, and none has run anything but the first."""
    single.submit(calls.add, 1, 1).result()
    for count in range(1, 6):
        until(lambda: single.stats().workers == 1)
        kill(workers()[0].pid)
        until(lambda count=count: single.stats().workers_lost == count)
    assert_goes_on(single, 1, lost=5)


def test_tasks_for_a_worker_that_has_just_been_killed(single):
    """They are sent into a socket that nobody reads any more, and so are not charged."""
    single.submit(calls.add, 1, 1).result()
    kill(workers()[0].pid)
    futures = [single.submit(calls.square, n) for n in range(50)]
    assert [future.result() for future in futures] == [n * n for n in range(50)]
    assert_goes_on(single, 1, lost=1)


@pytest.mark.parametrize(
    ("function", "args"),
    [(time.sleep, (600,)), (fatal.sum_for_ever, ()), (fatal.spin, ())],
    ids=["sleeping", "in C code", "in Python"],
)
def test_killed_while_running(executor, tmp_path, function, args):
    path = tmp_path / "pid"
    running = executor.submit(fatal.note_then, str(path), function, *args)
    others = [executor.submit(calls.square, n) for n in range(100)]
    kill(noted(path)[0])
    error = lost(running)
    assert (error.signal, error.exit_status) == (signal.SIGKILL, None)
    assert "SIGKILL" in error.reason
    assert [future.result() for future in others] == [n * n for n in range(100)]
    assert_goes_on(executor, 2, lost=1)


def test_killed_with_all_other_tasks_behind_it(single, tmp_path):
    path = tmp_path / "pid"
    running = single.submit(fatal.note_then, str(path), fatal.sum_for_ever)
    others = [single.submit(calls.square, n) for n in range(100)]
    kill(noted(path)[0])
    assert lost(running).signal == signal.SIGKILL
    assert [future.result() for future in others] == [n * n for n in range(100)]
    assert_goes_on(single, 1, lost=1)


def test_dead_in_the_middle_of_many_short_tasks(single):
    """The worker has a hundred of them at once: those before are done and perhaps not told, those behind not begun."""
    for n in range(100):
        single.submit(fatal.square_unless, n, None).result()  # they are known to be short
    futures = [single.submit(fatal.square_unless, n, 250) for n in range(500)]
    assert lost(futures.pop(250)).exit_status == 3
    assert [future.result() for future in futures] == [n * n for n in range(500) if n != 250]
    assert_goes_on(single, 1, lost=1)


def test_many_short_tasks_of_which_each_tenth_is_fatal(executor):
    futures = [executor.submit(fatal.square_unless, n, n if n % 20 == 10 else None) for n in range(100)]
    for n, future in enumerate(futures):
        if n % 20 == 10:
            assert lost(future).exit_status == 3
        else:
            assert future.result() == n * n
    assert_goes_on(executor, 2, lost=5)


def test_killed_while_starting():
    with Executor(max_workers=1) as executor:
        futures = [executor.submit(calls.square, n) for n in range(20)]
        (worker,) = until(workers)
        worker.kill()
        assert [future.result() for future in futures] == [n * n for n in range(20)]
        until(lambda: executor.stats().workers == 1)
        assert workers() != [worker]


def test_killed_in_its_initializer(tmp_path):
    gate, path = tmp_path / "gate", tmp_path / "pids"
    with Executor(
        max_workers=1, initializer=fatal.note_then, initargs=(str(path), calls.wait_for, str(gate))
    ) as executor:
        futures = [executor.submit(calls.square, n) for n in range(20)]
        kill(noted(path)[0])
        until(lambda: len(noted(path)) == 2)
        assert not any(future.done() for future in futures)
        gate.touch()
        assert [future.result() for future in futures] == [n * n for n in range(20)]


def test_killed_while_the_executor_shuts_down(tmp_path):
    """The others still run, in a worker that takes its place."""
    path = tmp_path / "pid"
    executor = Executor(max_workers=1)
    running = executor.submit(fatal.note_then, str(path), time.sleep, 600)
    others = [executor.submit(calls.square, n) for n in range(20)]
    pid = noted(path)[0]
    executor.shutdown(wait=False)
    kill(pid)
    executor.shutdown()
    assert lost(running).signal == signal.SIGKILL
    assert [future.result() for future in others] == [n * n for n in range(20)]


# --- it lives, but cannot be talked to ----------------------------------------------------------------------------


@pytest.mark.parametrize("then_s", [0, 0.1], ids=["and returns", "and goes on for a while"])
def test_a_task_that_closes_the_workers_descriptors(executor, then_s):
    """Its result has no way home: it is charged, and not run again and again."""
    executor.submit(calls.add, 1, 1).result()
    fatal_one = executor.submit(fatal.close_descriptors, then_s)
    others = [executor.submit(calls.square, n) for n in range(100)]
    assert type(fatal_one.exception(LIMIT_S)) is WorkerLost
    assert [future.result() for future in others] == [n * n for n in range(100)]
    assert_goes_on(executor, 2, lost=1)


def test_a_task_that_shuts_the_workers_connection_down(executor):
    fatal_one = executor.submit(fatal.shut_connection_down)
    others = [executor.submit(calls.square, n) for n in range(100)]
    assert "closed its connection" in lost(fatal_one).reason
    assert [future.result() for future in others] == [n * n for n in range(100)]
    assert_goes_on(executor, 2, lost=1)


GARBAGE = {
    "an impossible length": b"\xff" * 64,
    "no message": (8).to_bytes(8, "little") + b"\xc1" * 8,
    "messages of another direction": (3).to_bytes(8, "little") + b"\x91\x91\x17",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_task_that_writes_garbage_into_the_workers_socket(executor, garbage, caplog):
    executor.submit(calls.add, 1, 1).result()
    fatal_one = executor.submit(fatal.write_to_sockets_and_stay, garbage)
    others = [executor.submit(calls.square, n) for n in range(100)]
    lost(fatal_one)
    assert [future.result() for future in others] == [n * n for n in range(100)]
    assert_goes_on(executor, 2, lost=1)
    assert "is killed" in caplog.text


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_a_task_that_writes_garbage_and_returns(executor, garbage, caplog):
    """Its result may have come right behind the garbage. If not, it is charged, and not run again and again."""
    executor.submit(calls.add, 1, 1).result()
    fatal_one = executor.submit(fatal.write_to_sockets, garbage)
    others = [executor.submit(calls.square, n) for n in range(100)]
    assert type(fatal_one.exception(LIMIT_S)) in (WorkerLost, type(None))
    assert [future.result() for future in others] == [n * n for n in range(100)]
    until(lambda: executor.stats().workers_lost == 1)
    assert_goes_on(executor, 2, lost=1)
    assert "is killed" in caplog.text
