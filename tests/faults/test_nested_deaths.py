"""Workers and clients die while tasks wait for tasks that they have submitted: nothing hangs, nothing is left."""

import os
import signal

import psutil
import pytest
from processes import all_gone, gate_in, until

import calls
import scripts
from slipstream import Executor, WorkerLost, current_executor

LIMIT_S = 60

#: A client whose task waits for a task that waits for a task.
NESTED = """
    import os, slipstream, time
    def wait_below(n, folder):
        open(os.path.join(folder, str(os.getpid())), "w").close()
        if n:
            return slipstream.current_executor().submit(wait_below, n - 1, folder).result()
        time.sleep(600)
    executor = slipstream.Executor(max_workers=1)
    executor.submit(wait_below, 2, {folder!r})
    print("ready", flush=True)
    time.sleep(600)
"""


def wait_for_child(note, gate):
    """Waits for a child that waits for the gate."""
    calls.note(note, f"{os.getpid()}\n")
    return current_executor().submit(wait_for_gate, note, gate).result()


def wait_for_gate(note, gate):
    calls.note(note, f"{os.getpid()}\n")
    calls.wait_for(gate)
    return "done"


def wait_for_many(note, gate):
    executor = current_executor()
    futures = [executor.submit(wait_for_gate, note, gate) for _ in range(20)]
    return [future.result() for future in futures]


def child_that_dies():
    return current_executor().submit(calls.die).result()


def note_of(path, lines):
    return [
        int(pid)
        for pid in until(lambda: path.exists() and len(path.read_text().split()) >= lines and path.read_text().split())
    ]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_waits_is_killed(tmp_path, workers):
    note = tmp_path / "note"
    with gate_in(tmp_path) as gate, Executor(max_workers=workers) as executor:
        future = executor.submit(wait_for_child, str(note), str(gate))
        parent, child = note_of(note, 2)
        os.kill(parent, signal.SIGKILL)
        assert isinstance(future.exception(LIMIT_S), WorkerLost)
        assert psutil.pid_exists(child), "its child goes on"
        gate.touch()
        again = executor.submit(wait_for_child, str(note), str(gate))
        assert again.result(LIMIT_S) == "done"
        until(lambda: executor._engine._scheduler.live == 0)
        assert executor._engine._scheduler.slots.blocked == 0


def test_what_a_lost_task_has_submitted_and_has_not_started_is_cancelled(tmp_path):
    note = tmp_path / "note"
    with gate_in(tmp_path) as gate, Executor(max_workers=1) as executor:
        future = executor.submit(wait_for_many, str(note), str(gate))
        until(lambda: executor._engine._scheduler.slots.blocked)
        note_of(note, 1)
        blocked = [w for w in executor._engine._scheduler.placement.workers.values() if w.blocked]
        pid = next(iter(executor._engine._pool._workers[w.worker].pid for w in blocked))
        os.kill(pid, signal.SIGKILL)
        assert isinstance(future.exception(LIMIT_S), WorkerLost)
        gate.touch()
        until(lambda: executor._engine._scheduler.live == 0)
        assert executor.stats().cancelled >= 10
        assert_goes_on_soon(executor)


def assert_goes_on_soon(executor):
    assert executor.submit(calls.add, 1, 1).result(LIMIT_S) == 2


def test_a_task_learns_that_its_child_s_worker_died(executor):
    error = executor.submit(child_that_dies).exception(LIMIT_S)
    assert isinstance(error, WorkerLost)
    assert error.signal == signal.SIGKILL
    assert "'die'" in str(error)
    assert_goes_on_soon(executor)


def test_the_executor_ends_when_what_its_tasks_wait_for_has(tmp_path):
    note = tmp_path / "note"
    with gate_in(tmp_path) as gate:
        executor = Executor(max_workers=1)
        future = executor.submit(wait_for_child, str(note), str(gate))
        note_of(note, 2)
        executor.shutdown(wait=False)
        gate.touch()
        assert future.result(LIMIT_S) == "done"
        executor.shutdown()


def test_nothing_is_left_of_a_client_that_is_killed_while_its_tasks_wait(tmp_path):
    with scripts.started(NESTED.format(folder=str(tmp_path))) as process:
        assert process.stdout.readline() == "ready\n"
        pids = until(lambda: [int(p.name) for p in tmp_path.iterdir()] if len(list(tmp_path.iterdir())) == 3 else [])
        started = [psutil.Process(pid) for pid in pids]
        process.kill()
        process.wait()
        until(lambda: all_gone(started))
