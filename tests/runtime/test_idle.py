"""Nothing to do means no wake-up at all: not in the client's I/O thread, not in a worker, and not in its sentry."""

import os
import threading
import time
from pathlib import Path

import psutil
from fake_pool import eventually

import calls
from slipstream import Executor

STILL_S = 3.0
WORKERS = 2


def voluntary_switches(pid):
    """How often each thread of a process went to sleep by itself, so also how often it had woken up."""
    counts = {}
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        for line in status.read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                counts[status.parent.name] = int(line.split()[1])
    return counts


def io_thread():
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "slipstream-io")
    return str(thread.native_id)


def counts(executor, pids):
    workers = {pid: voluntary_switches(pid) for pid in pids}
    return executor._engine.wakeups(), voluntary_switches(os.getpid())[io_thread()], workers


def settled(executor, pids):
    """Counts that have not changed for a while."""
    last = [counts(executor, pids)]

    def same_again():
        time.sleep(0.2)
        last.append(counts(executor, pids))
        return last[-1] == last[-2]

    eventually(same_again)
    return last[-1]


def worker_processes():
    """Our children, without the keeper, which runs no Python threads of tasks but must be idle all the same."""
    return sorted(child.pid for child in psutil.Process().children())


def check_still(executor):
    pids = worker_processes()
    assert len(pids) >= WORKERS
    before = settled(executor, pids)
    assert all(len(threads) >= 1 for threads in before[2].values())
    time.sleep(STILL_S)
    assert counts(executor, pids) == before


def test_an_idle_engine_and_its_workers_do_not_wake_up():
    with Executor(max_workers=WORKERS) as executor:
        futures = [executor.submit(abs, -number) for number in range(3_000)]
        assert sum(future.result() for future in futures) == sum(range(3_000))
        # Two long tasks: both sentries have spoken, and have to park again.
        assert len({future.result() for future in [executor.submit(calls.nap_and_tell, 0.05) for _ in range(2)]}) >= 1
        assert any(len(voluntary_switches(pid)) == 2 for pid in worker_processes())  # main thread and sentry
        check_still(executor)
        # It was idle, and not dead.
        before = executor._engine.wakeups()
        assert executor.submit(abs, -1).result() == 1
        eventually(lambda: executor._engine.wakeups() > before)


def test_while_a_long_task_runs_nobody_wakes_up_but_the_task(tmp_path):
    """After it has been told that the task is long, the client waits in silence."""
    go = tmp_path / "go"
    with Executor(max_workers=1) as executor:
        executor.submit(abs, 1).result()
        future = executor.submit(calls.wait_for, str(go))
        eventually(future.running)

        def wakeups():
            return executor._engine.wakeups()

        last = [wakeups()]

        def same_again():
            time.sleep(0.2)
            last.append(wakeups())
            return last[-1] == last[-2]

        eventually(same_again)
        time.sleep(1.0)
        assert wakeups() == last[-1]
        go.touch()
        future.result()


def test_an_executor_that_was_never_used_has_no_thread_and_no_wake_up():
    executor = Executor(max_workers=2)
    assert executor._engine.wakeups() == 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("slipstream")]
    executor.shutdown()
