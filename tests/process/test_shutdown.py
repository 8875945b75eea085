"""How an executor ends within a program: `with`, `shutdown` in all its forms, and by being dropped."""

import gc
import threading
import weakref

import pytest

import calls
from slipstream import Executor


def until(condition):
    moment = threading.Event()
    while not condition():
        moment.wait(0.002)


def test_an_executor_that_was_not_used_starts_nothing(nothing_left_behind):
    before = threading.active_count()
    executor = Executor(max_workers=2)
    assert threading.active_count() == before
    assert executor.stats().workers == 0
    executor.shutdown()
    executor.shutdown()


def test_leaving_with_waits_for_all_tasks_and_their_callbacks(tmp_path):
    runs, called = tmp_path / "runs", []
    with Executor(max_workers=2) as executor:
        futures = [executor.submit(calls.note, str(runs)) for _ in range(50)]
        for future in futures:
            future.add_done_callback(called.append)
    assert all(future.done() for future in futures)
    assert runs.read_text() == "x" * 50
    assert len(called) == 50


def test_leaving_with_by_an_exception_waits_too():
    with pytest.raises(ZeroDivisionError), Executor(max_workers=1) as executor:  # noqa: PT012
        future = executor.submit(calls.nap, 0.1, "done")
        raise ZeroDivisionError
    assert future.result(timeout=0) == "done"


def test_no_task_is_taken_after_shutdown(executor):
    assert executor.submit(calls.add, 1, 1).result() == 2
    executor.shutdown()
    with pytest.raises(RuntimeError, match="cannot submit a task after shutdown"):
        executor.submit(calls.add, 1, 1)
    with pytest.raises(RuntimeError, match="cannot submit a task after shutdown"):
        executor.submit(calls.echo, threading.Lock())
    executor.shutdown()
    executor.shutdown(wait=False, cancel_futures=True)


def test_shutdown_without_waiting_returns_while_tasks_run(tmp_path):
    gate = tmp_path / "gate"
    executor = Executor(max_workers=1)
    running = executor.submit(calls.wait_for, str(gate))
    waiting = executor.submit(calls.add, 1, 1)
    executor.shutdown(wait=False)
    assert not running.done()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(calls.add, 1, 1)
    gate.touch()
    assert waiting.result() == 2
    executor.shutdown(wait=True)
    assert executor.stats().workers == 0


def test_shutdown_cancels_what_has_not_been_assigned(tmp_path):
    gate, runs = tmp_path / "gate", tmp_path / "runs"
    executor = Executor(max_workers=1)
    running = executor.submit(calls.wait_for, str(gate))
    until(running.running)
    waiting = [executor.submit(calls.note, str(runs)) for _ in range(500)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in waiting)
    assert not running.done()
    gate.touch()
    executor.shutdown()
    assert running.result(timeout=0) is None
    assert not runs.exists()


def test_shutdown_from_a_callback(tmp_path):
    gate = tmp_path / "gate"
    executor = Executor(max_workers=1)
    future = executor.submit(calls.wait_for, str(gate))
    ended = threading.Event()

    def end(_):
        executor.shutdown(wait=True)
        ended.set()

    future.add_done_callback(end)
    gate.touch()
    assert ended.wait(30)
    executor.shutdown()
    assert executor.stats().workers == 0


def test_shutdown_from_many_threads_at_once(tmp_path):
    gate = tmp_path / "gate"
    executor = Executor(max_workers=1)
    future = executor.submit(calls.wait_for, str(gate))
    threads = [threading.Thread(target=executor.shutdown) for _ in range(6)]
    for thread in threads:
        thread.start()
    gate.touch()
    for thread in threads:
        thread.join()
    assert future.result(timeout=0) is None


def test_submits_race_with_shutdown_and_each_either_ends_or_is_refused():
    for _ in range(3):
        executor = Executor(max_workers=1)
        executor.submit(calls.add, 0, 0).result()
        accepted = []

        def submit(executor=executor, accepted=accepted):
            try:
                while True:
                    accepted.append(executor.submit(calls.add, 1, 1))
            except RuntimeError as error:
                accepted.append(error)

        threads = [threading.Thread(target=submit) for _ in range(3)]
        for thread in threads:
            thread.start()
        until(lambda accepted=accepted: len(accepted) > 100)
        executor.shutdown()
        for thread in threads:
            thread.join()
        futures = [future for future in accepted if not isinstance(future, RuntimeError)]
        assert len(accepted) - len(futures) == 3
        assert [future.result(timeout=0) for future in futures] == [2] * len(futures)


def test_a_dropped_executor_ends_when_its_tasks_have(tmp_path):
    gate = tmp_path / "gate"
    executor = Executor(max_workers=1)
    future = executor.submit(calls.wait_for, str(gate))
    last = executor.submit(calls.add, 1, 1)
    gone = weakref.ref(executor)
    del executor
    assert gone() is None, "something of ours keeps it alive"
    gate.touch()
    assert (future.result(), last.result()) == (None, 2)
    # That nothing is left is what every test of this folder shows.


def test_an_executor_in_a_cycle_is_collected_too():
    executor = Executor(max_workers=1)
    executor.me = executor
    assert executor.submit(calls.add, 1, 1).result() == 2
    gone = weakref.ref(executor)
    del executor
    gc.collect()
    assert gone() is None


def test_a_dropped_executor_whose_map_is_still_read_goes_on():
    results = Executor(max_workers=2).map(calls.square, range(200), chunksize=1)
    gc.collect()
    assert list(results) == [i * i for i in range(200)]


def test_many_executors_one_after_the_other_and_side_by_side():
    with Executor(max_workers=1) as one, Executor(max_workers=1) as other:
        assert one.submit(calls.pid).result() != other.submit(calls.pid).result()
    for _ in range(3):
        with Executor(max_workers=1) as executor:
            assert executor.submit(calls.add, 1, 1).result() == 2


def test_a_task_that_leaves_a_thread_behind_does_not_keep_the_executor(monkeypatch):
    monkeypatch.setattr("slipstream.pools.local.STOP_GRACE_S", 0.2)

    def start():
        threading.Thread(target=threading.Event().wait).start()
        return 1

    with Executor(max_workers=1) as executor:
        assert executor.submit(start).result() == 1
    assert executor.stats().workers == 0


def test_what_a_task_started_in_its_group_ends_with_its_worker(tmp_path):
    """The proof is the teardown of every test here: nothing that carries its mark is left."""

    def start():
        import subprocess

        return subprocess.Popen(["sleep", "600"]).pid

    with Executor(max_workers=1) as executor:
        assert executor.submit(start).result() > 0
