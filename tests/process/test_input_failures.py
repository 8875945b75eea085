"""Inputs that failed, were cancelled or lost: what their dependents say, and how far it goes."""

import concurrent.futures
import copy
import functools
import pickle
import threading

import pytest

import calls
from slipstream import DependencyError, Executor, Future, PayloadError

LIMIT_S = 30
LINKS = 100_000


def fail_when(path):
    calls.wait_for(path)
    raise KeyError("the root")


def missed(future):
    error = future.exception(LIMIT_S)
    assert type(error) is DependencyError, error
    return error


@pytest.fixture
def gate(tmp_path):
    path = tmp_path / "gate"
    yield path
    path.touch()


@pytest.mark.parametrize("before", [True, False])
def test_all_dependents_name_the_root_and_share_its_exception(executor, gate, before):
    """Whether they were submitted before it failed or after."""
    root = executor.submit(fail_when, str(gate))
    if not before:
        gate.touch()
        root.exception()
    first = executor.submit(calls.add, root, 1)
    second = executor.submit(calls.everything, [root], {"a": first})
    third = executor.submit(calls.square, second)
    gate.touch()
    for future, label, path in ((first, "add", ("fail_when",)), (third, "square", None)):
        error = missed(future)
        assert error.__cause__ is root.exception()
        assert f"task {label!r} did not run" in str(error)
        assert "'fail_when'" in str(error)
        assert "KeyError: 'the root'" in str(error)
        if path is not None:
            assert error.path == path
    assert missed(third).path in (("fail_when", "everything"), ("fail_when", "add", "everything"))
    assert missed(second).__cause__ is root.exception()
    with pytest.raises(DependencyError):
        first.result()
    assert executor.submit(calls.add, 1, 1).result() == 2


def test_items_of_what_failed_are_futures_that_fail(executor):
    root = executor.submit(calls.raise_, ValueError("root"))
    root.exception()
    unsent = executor.submit(calls.echo, threading.Lock())
    for failed in (root, executor.submit(calls.echo, root)):
        for part in (failed[0], failed.attr("x"), failed[0][1]):
            assert missed(part).__cause__ is root.exception()
    assert missed(unsent[0]).__cause__ is unsent.exception()
    assert type(unsent.exception()) is PayloadError


def test_several_failed_inputs_name_one_of_them(executor):
    roots = [executor.submit(calls.raise_, ValueError(i)) for i in range(3)]
    future = executor.submit(calls.everything, roots)
    assert missed(future).__cause__ in [root.exception() for root in roots]


def test_an_error_travels_and_is_copied_with_its_path(executor):
    error = missed(executor.submit(calls.echo, executor.submit(calls.raise_, ValueError())))
    for again in (copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert (str(again), again.path) == (str(error), error.path)


def test_a_cancelled_input(executor):
    outside = concurrent.futures.Future()
    waiting = executor.submit(calls.echo, outside)
    before = [executor.submit(calls.add, waiting, i) for i in range(3)]
    assert waiting.cancel()
    after = [executor.submit(calls.add, waiting, i) for i in range(3)]
    later = executor.submit(calls.square, after[0])
    for future in (*before, *after, later):
        error = missed(future)
        assert isinstance(error.__cause__, concurrent.futures.CancelledError)
        assert "'echo', on which it depends, was cancelled" in str(error)
        assert error.__cause__ is missed(before[0]).__cause__
    assert not later.cancelled()
    assert missed(later).path == ("echo", "add")


def test_a_task_that_waits_for_an_input_can_be_cancelled_and_does_not_run(single, gate, tmp_path):
    first = single.submit(calls.note_and_wait, str(tmp_path / "first"), str(gate))
    second = single.submit(calls.everything, first)
    third = single.submit(calls.note, str(tmp_path / "third"), second)
    other = single.submit(calls.add, first, 0)
    calls.wait_for(tmp_path / "first")
    assert second.cancel()
    assert second.cancelled()
    assert isinstance(missed(third).__cause__, concurrent.futures.CancelledError)
    assert not first.done()
    gate.touch()
    assert other.result(LIMIT_S) == first.result()
    assert not (tmp_path / "third").exists()


def test_strangers_that_fail_or_are_cancelled(executor):
    for early in (True, False):
        failed, cancelled, made = concurrent.futures.Future(), concurrent.futures.Future(), Future()
        ends = (
            functools.partial(failed.set_exception, ValueError("x")),
            cancelled.cancel,
            functools.partial(made.set_exception, KeyError("y")),
        )
        for end in ends if early else ():
            end()
        futures = [executor.submit(calls.everything, [root]) for root in (failed, cancelled, made)]
        for end in () if early else ends:
            end()
        causes = [missed(future).__cause__ for future in futures]
        assert causes[0] is failed.exception()
        assert type(causes[1]) is concurrent.futures.CancelledError
        assert causes[2] is made.exception()
        assert missed(executor.submit(calls.square, futures[0])).__cause__ is failed.exception()


def test_the_way_goes_on_through_another_executor(executor):
    with Executor(max_workers=1) as other:
        root = other.submit(calls.raise_, ValueError("far"))
        middle = executor.submit(calls.echo, root)
        last = other.submit(calls.square, middle)
        assert missed(last).__cause__ is root.exception()
        assert missed(last).path == ("raise_", "echo")


def test_a_result_that_does_not_load_fails_its_dependents_alone(executor):
    class Unloadable:
        def __init__(self):
            self.x = 1

        def __setstate__(self, state):
            raise ValueError("will not load")

    future = executor.submit(Unloadable)
    dependent = executor.submit(calls.echo, future)
    assert "will not load" in str(dependent.exception(LIMIT_S))
    assert executor.submit(calls.add, 1, 1).result() == 2


# --- far --------------------------------------------------------------------------------------------------------------


def test_a_failure_goes_down_a_very_long_chain_before_and_after(single):
    root = concurrent.futures.Future()
    future = first = single.submit(calls.echo, root)
    for _ in range(LINKS):
        future = single.submit(calls.echo, future)
    root.set_exception(ValueError("root"))
    for _ in range(2):
        error = missed(future)
        assert error.__cause__ is root.exception() is missed(first).__cause__
        assert len(str(error)) < 1000
        assert len(error.path) < 20
        for _ in range(LINKS // 10):
            future = single.submit(calls.echo, future)
    assert error.path[0] == "a future of another executor"
    assert "more" in error.path[-2]


def test_a_failure_goes_to_and_fro_between_two_executors(gate):
    with Executor(max_workers=1) as a, Executor(max_workers=1) as b:
        future = root = a.submit(fail_when, str(gate))
        for i in range(1000):
            future = (b, a)[i % 2].submit(calls.echo, future)
        gate.touch()
        assert missed(future).__cause__ is root.exception()
        assert a.submit(calls.add, 1, 1).result(LIMIT_S) == b.submit(calls.add, 1, 1).result(LIMIT_S) == 2
