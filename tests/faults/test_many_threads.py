"""Many threads use one engine: one of them reads for all, whoever that is, and whatever becomes of it."""

import concurrent.futures
import os
import threading
import time
from concurrent.futures import CancelledError

import pytest
from processes import LIMIT_S, assert_goes_on, gate_in, until

import calls
import scripts
from slipstream import Executor, WorkerLost


@pytest.fixture
def gate(tmp_path):
    with gate_in(tmp_path) as gate:
        yield gate


class Waiter(threading.Thread):
    """Calls something in a thread, and keeps what came of it."""

    def __init__(self, call, *args):
        super().__init__(daemon=True)
        self.call, self.args = call, args
        self.outcome = None
        self.start()

    def run(self):
        try:
            self.outcome = self.call(*self.args)
        except BaseException as error:
            self.outcome = error

    def end(self):
        self.join(LIMIT_S)
        assert not self.is_alive()
        return self.outcome


def leader_of(executor, future):
    """A thread that waits for this future and reads for all others."""

    def try_to_lead():
        # A thread that finds the engine's own thread reading just then leaves it to that one: then the next may lead.
        waiter = Waiter(future.result)
        end = time.monotonic() + 0.2
        while time.monotonic() < end:
            if executor._engine._reactor._leader == waiter.ident:
                return waiter
            time.sleep(0.002)
        return None

    return until(try_to_lead)


def test_many_threads_submit_and_wait(executor):
    def use(thread):
        return [executor.submit(calls.add, thread, n).result() for n in range(20)]

    waiters = [Waiter(use, thread) for thread in range(200)]
    assert [waiter.end() for waiter in waiters] == [[thread + n for n in range(20)] for thread in range(200)]
    assert executor.stats().succeeded == 200 * 20


def test_many_threads_wait_in_different_ways(executor):
    def use(thread):
        futures = [executor.submit(calls.echo, [thread, n]) for n in range(8)]
        called = []
        futures[0].add_done_callback(lambda future: called.append(future.result()))
        done = concurrent.futures.wait(futures[:2]).done
        until(lambda: called)
        return [
            called,
            sorted(future.result() for future in done),
            sorted(future.result() for future in concurrent.futures.as_completed(futures[2:4])),
            [future.result(LIMIT_S) for future in futures[4:]],
            list(executor.map(calls.add, range(5), [thread] * 5)),
        ]

    def expected(t):
        return [[[t, 0]], [[t, 0], [t, 1]], [[t, 2], [t, 3]], [[t, n] for n in range(4, 8)], [t + n for n in range(5)]]

    waiters = [Waiter(use, thread) for thread in range(40)]
    assert [waiter.end() for waiter in waiters] == [expected(thread) for thread in range(40)]


def test_many_threads_wait_for_one_future(executor, gate):
    future = executor.submit(calls.note_and_wait, str(gate) + ".runs", str(gate))
    waiters = [Waiter(future.result) for _ in range(30)]
    until(lambda: len(future._sleepers or ()) == 30)
    gate.touch()
    (pid,) = {waiter.end() for waiter in waiters}
    assert pid == future.result()


def test_a_result_of_many_is_decoded_once(executor, gate):
    """All of them get the same object."""
    future = executor.submit(lambda path: (calls.wait_for(path), [1, 2])[1], str(gate))
    waiters = [Waiter(future.result) for _ in range(10)]
    gate.touch()
    results = [waiter.end() for waiter in waiters]
    assert results[0] == [1, 2]
    assert all(result is results[0] for result in results)


def test_a_time_limit_holds_while_another_thread_reads(executor, gate):
    long = executor.submit(calls.wait_for, str(gate))
    leader = leader_of(executor, long)
    with pytest.raises(TimeoutError):
        long.result(0.02)
    with pytest.raises(TimeoutError):
        executor.submit(calls.nap, 0.5).exception(0.02)
    with pytest.raises(TimeoutError):
        long.result(0)
    assert leader.is_alive()
    assert executor._engine._reactor._leader == leader.ident
    gate.touch()
    assert leader.end() is None


def test_the_leader_reads_for_others(executor, gate):
    leader = leader_of(executor, executor.submit(calls.wait_for, str(gate)))
    assert [executor.submit(calls.square, n).result() for n in range(100)] == [n * n for n in range(100)]
    assert leader.is_alive()
    gate.touch()
    assert leader.end() is None


def test_those_who_wait_go_on_when_the_leader_has_left(executor, gate, tmp_path):
    second = tmp_path / "second"
    leader = leader_of(executor, executor.submit(calls.wait_for, str(gate)))
    others = [Waiter(executor.submit(calls.wait_for, str(second)).result)]
    others += [Waiter(executor.submit(calls.square, n).result) for n in range(10)]
    gate.touch()
    assert leader.end() is None
    second.touch()
    assert [other.end() for other in others] == [None] + [n * n for n in range(10)]


def test_a_leader_whose_time_is_over(executor, gate):
    future = executor.submit(calls.wait_for, str(gate))
    until(future.running)
    leader = Waiter(future.result, 0.1)
    until(lambda: executor._engine._reactor._leader == leader.ident or not leader.is_alive())
    other = Waiter(future.result)
    assert isinstance(leader.end(), TimeoutError)
    gate.touch()
    assert other.end() is None


def test_cancel_wakes_whoever_waits(single, gate):
    blocking = single.submit(calls.wait_for, str(gate))
    until(blocking.running)
    cancelled = single.submit(calls.add, 1, 1)
    leader = leader_of(single, cancelled)
    followers = [Waiter(cancelled.exception) for _ in range(3)]
    standard = Waiter(concurrent.futures.wait, [cancelled])
    until(lambda: len(cancelled._sleepers or ()) >= 4)
    assert cancelled.cancel()
    assert isinstance(leader.end(), CancelledError)
    assert all(isinstance(follower.end(), CancelledError) for follower in followers)
    assert standard.end().done == {cancelled}
    assert not blocking.done()
    gate.touch()
    assert blocking.result() is None


def test_a_lost_worker_while_threads_wait(executor, gate):
    long = executor.submit(calls.wait_for, str(gate))
    leader = leader_of(executor, long)
    waiters = [Waiter(executor.submit(calls.die).result) for _ in range(3)]
    others = [Waiter(executor.submit(calls.square, n).result) for n in range(20)]
    assert all(isinstance(waiter.end(), WorkerLost) for waiter in waiters)
    assert [other.end() for other in others] == [n * n for n in range(20)]
    gate.touch()
    assert leader.end() is None
    assert_goes_on(executor, 2, lost=3)


def test_shutdown_while_threads_wait(gate):
    executor = Executor(max_workers=2)
    leader = leader_of(executor, executor.submit(calls.wait_for, str(gate)))
    waiters = [Waiter(executor.submit(calls.square, n).result) for n in range(20)]
    shutting_down = [Waiter(executor.shutdown) for _ in range(3)]
    gate.touch()
    assert leader.end() is None
    outcomes = [waiter.end() for waiter in waiters]
    assert outcomes == [n * n for n in range(20)]
    assert [thread.end() for thread in shutting_down] == [None] * 3


def test_threads_cancel_what_others_wait_for(executor):
    """Each future ends, with its result or as cancelled, and what `cancel` said holds."""
    futures = [executor.submit(calls.nap, 0.001, n) for n in range(200)]
    waiters = [Waiter(future.result) for future in futures[::2]]
    said = [future.cancel() for future in reversed(futures)][::-1]
    for waiter in waiters:
        waiter.end()
    for n, future in enumerate(futures):
        if said[n]:
            assert future.cancelled()
        else:
            assert future.result(LIMIT_S) == n


# --- the client forks while a thread reads for others -------------------------------------------------------------

FORK = """
    import calls, os, slipstream, sys, threading, time
    gate = {gate!r}
    executor = slipstream.Executor(max_workers=2)
    long = executor.submit(calls.wait_for, gate)
    leaders = []
    while executor._engine._reactor._leader not in [leader.ident for leader in leaders]:
        leaders.append(threading.Thread(target=long.result))
        leaders[-1].start()
        time.sleep(0.1)
    results = []
    def use():
        results.append([executor.submit(calls.square, n).result() for n in range(200)])
    users = [threading.Thread(target=use) for _ in range(4)]
    for user in users:
        user.start()
    statuses = []
    for _ in range(15):
        child = os.fork()
        if child == 0:
            {leave}
        statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    for user in users:
        user.join()
    assert results == [[n * n for n in range(200)]] * 4
    assert not long.done()
    open(gate, "w").close()
    for leader in leaders:
        leader.join()
    print(set(statuses), executor.stats().workers_lost, executor.submit(calls.add, 1, 1).result())
    executor.shutdown()
"""

WAYS_TO_LEAVE = {
    "os._exit": "os._exit(7)",
    "sys.exit": "sys.exit(7)",
    "after asking the executor": "executor.shutdown(); long.done(); sys.exit(7 if long.exception() else 1)",
}


@pytest.mark.parametrize("leave", WAYS_TO_LEAVE.values(), ids=WAYS_TO_LEAVE.keys())
def test_children_of_a_client_in_which_a_thread_reads_for_others(leave, gate):
    assert scripts.run(FORK.format(gate=str(gate), leave=leave)).lines() == ["{7} 0 2"]


def test_a_child_forked_by_a_thread_that_does_not_wait(executor, gate):
    """The reading thread is not there in the child; the parent does not notice anything."""
    leader = leader_of(executor, executor.submit(calls.wait_for, str(gate)))
    child = os.fork()
    if child == 0:
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert executor.submit(calls.add, 1, 1).result() == 2
    gate.touch()
    assert leader.end() is None
