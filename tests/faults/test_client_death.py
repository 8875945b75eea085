"""The client is killed: nothing that its engine started lives on, whatever it was doing."""

import os
import signal
import subprocess

import psutil
import pytest
from processes import all_gone, assert_goes_on, keepers, processes_of, until, workers

import calls
import scripts
from slipstream import Executor
from slipstream.pools import local

#: The client's part.
CLIENT = """
    import calls, os, slipstream, time
    sys.path.insert(0, {folder!r})
    import fatal
    executor = slipstream.Executor(max_workers=2)
    executor.submit(calls.add, 1, 1).result()
    {tasks}
    print("ready", flush=True)
    time.sleep(600)
"""

BUSY = {
    "idle": "fatal.note_then, {note!r}, time.sleep, 0",
    "in Python": "fatal.note_then, {note!r}, fatal.spin",
    "in C code that keeps the lock": "fatal.note_then, {note!r}, fatal.sum_for_ever",
    "in C code that sleeps": "fatal.note_then, {note!r}, time.sleep, 600",
}


def client(tasks):
    """A client that has submitted these tasks."""
    return scripts.started(CLIENT.format(folder=os.path.dirname(__file__), tasks=tasks), stdin=subprocess.PIPE)


def ready(process):
    assert process.stdout.readline() == "ready\n", process.communicate()


def pids_in(path):
    return [psutil.Process(int(pid)) for pid in until(lambda: path.exists() and path.read_text().split())]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("task", BUSY.values(), ids=BUSY.keys())
def test_no_worker_outlives_the_client(task, number, tmp_path):
    note = tmp_path / "pid"
    with client(f"executor.submit({task.format(note=str(note))})") as process:
        ready(process)
        busy = pids_in(note)
        started = processes_of(process)
        assert set(busy) <= set(started)
        process.send_signal(number)
        assert process.wait() == -number
        until(lambda: all_gone(started))


@pytest.mark.parametrize("function", ["time.sleep, 0", "fatal.spin", "fatal.sum_for_ever", "time.sleep, 600"])
def test_no_grandchild_outlives_the_client(function, tmp_path):
    note = tmp_path / "pids"
    with client(f"executor.submit(fatal.with_grandchild, {str(note)!r}, {function})") as process:
        ready(process)
        worker, grandchild = pids_in(note)
        assert grandchild.ppid() == worker.pid
        started = processes_of(process)
        assert grandchild in started
        process.kill()
        process.wait()
        until(lambda: all_gone(started))


def test_a_client_killed_while_its_workers_start(tmp_path):
    note = tmp_path / "pids"
    script = f"""
        import calls, slipstream, time
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import fatal
        executor = slipstream.Executor(
            max_workers=2, initializer=fatal.note_then, initargs=({str(note)!r}, time.sleep, 600)
        )
        executor.submit(calls.add, 1, 1)
        print("ready", flush=True)
        time.sleep(600)
    """
    with scripts.started(script) as process:
        ready(process)
        until(lambda: len(workers(process.pid)) == 2)
        initialized = pids_in(note)
        started = psutil.Process(process.pid).children(recursive=True)
        assert set(initialized) <= set(started)
        assert not all_gone(initialized)
        process.kill()
        process.wait()
        assert until(lambda: all_gone(started))


def test_a_client_that_leaves_without_a_word():
    with client("executor.submit(fatal.spin); sys.stdin.readline(); os._exit(7)") as process:
        started = processes_of(process)
        process.stdin.close()
        assert process.wait() == 7
        until(lambda: all_gone(started))


# --- the keeper ---------------------------------------------------------------------------------------------------


def test_there_is_one_keeper():
    """However often, and by whichever thread, it is found to be missing."""
    for _ in range(5):
        with Executor(max_workers=2) as executor:
            for n in range(20):
                executor.submit(calls.square, n).result()
            (keeper,) = until(keepers)
            list(executor.map(calls.square, range(100)))
            assert keepers() == [keeper]
        assert keepers() == []


def test_a_killed_keeper_is_replaced(monkeypatch):
    monkeypatch.setattr(local, "_KEEPER_TRIAL_S", 0.0)
    with Executor(max_workers=2) as executor:
        executor.submit(calls.add, 1, 1).result()
        until(lambda: executor.stats().workers == 2)
        seen = set()
        for _ in range(3):
            (keeper,) = until(lambda: [keeper for keeper in keepers() if keeper not in seen])
            seen.add(keeper)
            keeper.kill()
        until(lambda: [keeper for keeper in keepers() if keeper not in seen])
        assert_goes_on(executor, 2, lost=0)
    assert keepers() == []


def test_a_keeper_killed_while_a_thread_waits_for_a_result(monkeypatch, tmp_path):
    """Another thread than the one that starts keepers then learns of it."""
    monkeypatch.setattr(local, "_KEEPER_TRIAL_S", 0.0)
    gate = tmp_path / "gate"
    with Executor(max_workers=1) as executor:
        executor.submit(calls.add, 1, 1).result()
        (keeper,) = until(keepers)
        future = executor.submit(calls.wait_for, str(gate))
        until(future.running)
        keeper.kill()
        for _ in range(2):
            try:
                future.result(0.05)
            except TimeoutError:
                continue
        (replacement,) = until(lambda: [other for other in keepers() if other != keeper])
        gate.touch()
        future.result()
    assert all_gone([keeper, replacement])


def test_a_keeper_that_dies_at_once_is_told_and_not_replaced_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(local, "_KEEPER_TRIAL_S", 1e9)
    with Executor(max_workers=1) as executor:
        executor.submit(calls.add, 1, 1).result()
        (keeper,) = until(keepers)
        keeper.kill()
        until(lambda: "died at its start" in caplog.text)
        assert_goes_on(executor, 1, lost=0)
        assert keepers() == []


def test_a_new_keeper_knows_the_workers_that_were_there_before(tmp_path):
    note = tmp_path / "pids"
    tasks = f"""
    executor.submit(fatal.with_grandchild, {str(note)!r}, time.sleep, 600)
    from slipstream.pools import keeper, local
    local._KEEPER_TRIAL_S = 0.0
    start = keeper.Keeper.start
    def start_and_tell(self):
        start(self)
        print("replaced", flush=True)
    keeper.Keeper.start = start_and_tell
    """
    with client(tasks) as process:
        ready(process)
        _, grandchild = pids_in(note)
        (first,) = until(lambda: keepers(process.pid))
        first.kill()
        assert process.stdout.readline() == "replaced\n"
        started = [first, *processes_of(process)]
        assert grandchild in started
        process.kill()
        process.wait()
        until(lambda: all_gone(started))
