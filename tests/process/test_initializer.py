"""The initializer runs in each worker before its first task; when it fails, everybody is told."""

import logging
import os
import sys
import threading
from concurrent.futures import BrokenExecutor

import pytest

import calls
from slipstream import Executor, PayloadError, WorkerLost


def remember(value):
    calls.remembered = (value, os.getpid())


def recall():
    return calls.remembered


def test_it_runs_in_each_worker_before_any_task():
    with Executor(max_workers=2, initializer=remember, initargs=("set",)) as executor:
        answers = {executor.submit(recall).result() for _ in range(40)}
        answers |= set(executor.map(lambda _: recall(), [0] * 40, chunksize=1))
    assert {value for value, _ in answers} == {"set"}
    assert len(answers) <= 2


def test_it_runs_again_in_a_worker_that_replaces_another():
    with Executor(max_workers=1, initializer=remember, initargs=("set",)) as executor:
        before = executor.submit(recall).result()
        assert isinstance(executor.submit(calls.die).exception(), WorkerLost)
        after = executor.submit(recall).result()
    assert before[0] == after[0] == "set"
    assert before[1] != after[1]


def test_by_value_initializers_and_arguments_are_taken_when_the_executor_is_made():
    values = [1]
    with Executor(max_workers=1, initializer=lambda v: setattr(calls, "remembered", v), initargs=(values,)) as executor:
        values.append(2)
        assert executor.submit(recall).result() == [1]


@pytest.mark.parametrize("wrong", [3, "name", [1]])
def test_it_must_be_callable(wrong):
    with pytest.raises(TypeError, match="initializer must be a callable"):
        Executor(max_workers=1, initializer=wrong)


def test_what_cannot_be_sent_is_said_at_once():
    with pytest.raises(PayloadError, match="lock"):
        Executor(max_workers=1, initializer=remember, initargs=(threading.Lock(),))


@pytest.mark.parametrize("error", [ValueError("error in initializer"), SystemExit(3), KeyboardInterrupt("k")])
def test_its_failure_breaks_the_executor_and_every_future_tells_why(error):
    with Executor(max_workers=2, initializer=calls.raise_, initargs=(error,)) as executor:
        futures = [executor.submit(calls.add, 1, 1) for _ in range(20)]
        for future in futures:
            with pytest.raises(BrokenExecutor, match=f"(?s)initializer failed.*raise error.*{type(error).__name__}"):
                future.result()
            assert isinstance(future.exception(), WorkerLost)
        with pytest.raises(BrokenExecutor, match="initializer failed"):
            executor.submit(calls.add, 1, 1)
        with pytest.raises(BrokenExecutor, match="initializer failed"):
            executor.map(calls.square, [1])


def test_its_failure_in_a_worker_that_replaces_another_breaks_the_executor_too(tmp_path):
    mark = tmp_path / "mark"

    def once():
        with open(mark, "x"):
            pass

    with Executor(max_workers=1, initializer=once) as executor:
        assert executor.submit(calls.add, 1, 1).result() == 2
        assert isinstance(executor.submit(calls.die).exception(), WorkerLost)
        with pytest.raises(BrokenExecutor, match=r"(?s)initializer failed.*FileExistsError"):
            executor.submit(calls.add, 1, 1).result()


def test_maps_of_an_executor_that_broke_raise_and_leaving_with_does_not():
    with Executor(max_workers=1, initializer=calls.raise_, initargs=(ValueError("no"),)) as executor:
        results = executor.map(calls.square, range(1000), chunksize=1)
        executor.map(calls.square, range(1000), chunksize=1)  # to be run to its end, which cannot be
        with pytest.raises(BrokenExecutor, match="no"):
            list(results)


def test_an_initializer_that_takes_long_delays_tasks_only(tmp_path):
    gate = tmp_path / "gate"
    with Executor(max_workers=1, initializer=calls.wait_for, initargs=(str(gate),)) as executor:
        future = executor.submit(calls.add, 1, 1)
        cancelled = executor.submit(calls.add, 2, 2)
        assert cancelled.cancel()
        assert not future.done()
        gate.touch()
        assert future.result() == 2


def test_a_dropped_executor_whose_initializer_never_ends_still_ends(tmp_path):
    executor = Executor(max_workers=1, initializer=calls.wait_for, initargs=(str(tmp_path / "never"),))
    future = executor.submit(calls.add, 1, 1)
    executor.shutdown(wait=True, cancel_futures=True)
    assert future.cancelled()


def test_a_child_that_an_initializer_forks_does_not_become_a_second_worker():
    with Executor(max_workers=1, initializer=os.fork) as executor:
        assert len({future.result() for future in [executor.submit(os.getpid) for _ in range(100)]}) == 1


def test_an_initializer_may_leave_a_worker_unable_to_import():
    with Executor(max_workers=1, initializer=lambda: sys.meta_path.clear()) as executor:
        assert executor.submit(calls.add, 1, 1).exception() is not None  # `calls` cannot be found
        assert executor.submit(abs, -1).result() == 1


def test_a_long_text_of_its_failure_is_cut():
    def fail():
        raise ValueError("x" * 1_000_000 + "end")

    with Executor(max_workers=1, initializer=fail) as executor:
        error = executor.submit(abs, 1).exception()
    assert len(str(error)) < 30_000
    assert "xend" in str(error)


def test_what_an_initializer_prints_is_seen(capfd):
    with Executor(max_workers=1, initializer=calls.say, initargs=("hello from the initializer",)) as executor:
        executor.submit(calls.add, 1, 1).result()
    assert capfd.readouterr().out == "hello from the initializer\n"


def test_logging_set_up_by_an_initializer_stays(capfd):
    def set_up():
        logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")

    with Executor(max_workers=1, initializer=set_up) as executor:
        executor.submit(lambda: logging.getLogger("task").info("logged")).result()
    assert capfd.readouterr().err == "INFO logged\n"
