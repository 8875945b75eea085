"""What reaches a client from its terminal or its parent: signals to its whole group, and what stays as it was."""

import os
import signal
import time
from pathlib import Path

import psutil
import pytest
from processes import all_gone, keepers, until, workers

import calls
import scripts
from slipstream import Executor


def test_ctrl_c_in_the_terminal_does_not_reach_workers_or_the_keeper():
    """The whole foreground group gets the signal; the client alone decides what it means."""
    script = """
        import calls, slipstream
        executor = slipstream.Executor(max_workers=1)
        executor.submit(calls.add, 1, 1).result()
        future = executor.submit(calls.nap, 1.0, "slept")
        print("ready", flush=True)
        try:
            future.result()
        except KeyboardInterrupt:
            print("interrupted", future.result(), executor.stats().workers_lost)
    """
    with scripts.started(script) as client:
        assert client.stdout.readline() == "ready\n"
        time.sleep(0.2)
        os.killpg(client.pid, signal.SIGINT)
        assert scripts.end_of(client).lines() == ["interrupted slept 0"]


@pytest.mark.parametrize(
    "blocked_in",
    [
        "future.result()",
        "future.result(timeout=50)",
        "next(executor.map(calls.nap, [40]))",
        "executor.shutdown()",
        "concurrent.futures.wait([future])",
    ],
)
def test_ctrl_c_ends_a_blocking_call_and_the_engine_works_on(blocked_in):
    script = f"""
        import calls, concurrent.futures, os, signal
        from slipstream import Executor
        executor = Executor(max_workers=3)
        future = executor.submit(calls.nap, 40)
        while not future.running():
            pass
        print("blocked", flush=True)
        try:
            {blocked_in}
            print("not interrupted")
        except KeyboardInterrupt:
            print("interrupted", future.running())
        try:
            print(executor.submit(calls.add, 1, 1).result())
        except RuntimeError:
            print("2")  # after shutdown
        print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
        os._exit(0)
    """
    with scripts.started(script) as client:
        assert client.stdout.readline() == "blocked\n"
        time.sleep(0.3)  # so that it is blocked, most likely; a signal that comes before ends it as well
        client.send_signal(signal.SIGINT)
        assert scripts.end_of(client).lines() == ["interrupted True", "2", "True"]


def ignored_by(pid):
    """The signals that a process ignores."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigIgn:"))
    mask = int(line.split()[1], 16)
    return {number for number in signal.valid_signals() if mask & 1 << number - 1}


def test_the_keeper_survives_what_a_terminal_sends():
    with Executor(max_workers=1) as executor:
        executor.submit(calls.add, 1, 1).result()
        (keeper,) = until(keepers)
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        until(lambda: set(numbers) <= ignored_by(keeper.pid))
        for number in numbers:
            keeper.send_signal(number)
        assert executor.submit(calls.add, 1, 1).result() == 2
        assert keepers() == [keeper]
        assert os.getsid(keeper.pid) == keeper.pid


def test_stopped_workers_of_a_killed_client_go_too():
    script = """
        import calls, slipstream, time
        executor = slipstream.Executor(max_workers=2)
        executor.submit(calls.add, 1, 1).result()
        print("ready", flush=True)
        time.sleep(600)
    """
    with scripts.started(script) as client:
        assert client.stdout.readline() == "ready\n"
        until(lambda: len(workers(client.pid)) == 2)
        until(lambda: len(keepers(client.pid)) == 1)
        started = psutil.Process(client.pid).children(recursive=True)
        for worker in workers(client.pid):
            worker.suspend()
        client.kill()
        client.wait()
        until(lambda: all_gone(started))


def test_handlers_mask_and_wakeup_descriptor_of_the_client_are_as_they_were():
    script = """
        import calls, os, signal
        from slipstream import Executor
        signal.signal(signal.SIGUSR1, print)
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, exit)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.set_wakeup_fd(writing)
        def look():
            return [signal.getsignal(n) for n in signal.valid_signals()], signal.pthread_sigmask(signal.SIG_BLOCK, ())
        before = look()
        with Executor(max_workers=2) as executor:
            future = executor.submit(calls.add, 1, 1)
            print(look() == before)
            future.add_done_callback(id)
            future.result(), future.exception(), future.cancel()
            print(look() == before)
            list(executor.map(calls.square, range(10)))
            print(look() == before)
        print(look() == before, signal.set_wakeup_fd(-1) == writing)
    """
    assert scripts.run(script).lines() == ["True", "True", "True", "True True"]
