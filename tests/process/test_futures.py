"""Futures: states and their races, callbacks, and the standard functions that take futures."""

import asyncio
import concurrent.futures
import copy
import gc
import pickle
import threading
import weakref
from typing import ClassVar

import pytest

import calls
from racing import race
from slipstream import Executor, Future


@pytest.fixture
def gate(tmp_path):
    """A path that tasks wait for, and what opens it."""
    return tmp_path / "gate"


def until(condition):
    """Wait for something that must come. The test's own limit ends the wait for what does not."""
    moment = threading.Event()
    while not condition():
        moment.wait(0.002)


# --- states -----------------------------------------------------------------------------------------------------------


def test_a_future_is_a_standard_future(single):
    future = single.submit(calls.add, 1, 1)
    assert isinstance(future, concurrent.futures.Future)
    assert isinstance(future, Future)
    assert future.result() == 2


def test_states_of_a_task_that_runs(single, gate):
    future = single.submit(calls.wait_for, str(gate))
    until(future.running)
    assert not future.done()
    assert not future.cancelled()
    assert not future.cancel()
    gate.touch()
    assert future.result() is None
    assert future.done()
    assert not future.running()
    assert not future.cancel()
    assert not future.cancelled()


def test_a_task_behind_a_long_one_can_be_cancelled_and_does_not_run(single, gate, tmp_path):
    runs = tmp_path / "runs"
    first = single.submit(calls.wait_for, str(gate))
    until(first.running)
    second = single.submit(calls.note, str(runs), "second")
    third = single.submit(calls.note, str(runs), "third")
    assert not second.running()
    assert second.cancel()
    assert second.cancelled()
    assert second.done()
    assert second.cancel(), "once cancelled, it stays so"
    for ask in (second.result, second.exception):
        with pytest.raises(concurrent.futures.CancelledError):
            ask()
    gate.touch()
    third.result()
    assert runs.read_text() == "third"


def test_before_any_worker_is_up_everything_can_be_cancelled(gate):
    with Executor(max_workers=1) as executor:
        futures = [executor.submit(calls.wait_for, str(gate)) for _ in range(10)]
        assert all(future.cancel() for future in futures)
        assert executor.submit(calls.add, 1, 1).result() == 2
        assert executor.stats().cancelled == 10


def test_a_timeout_ends_the_wait_and_not_the_task(single, gate):
    future = single.submit(calls.wait_for, str(gate))
    for ask in (future.result, future.exception):
        for timeout in (0, 0.01, -1):
            with pytest.raises(TimeoutError):
                ask(timeout=timeout)
    gate.touch()
    assert future.result(timeout=threading.TIMEOUT_MAX * 2) is None
    assert future.result(timeout=0) is None


def test_cancel_races_with_the_start_of_a_task_end_one_way_or_the_other(executor, tmp_path):
    """Whatever `cancel` answers is true: what it says is cancelled never runs, the rest runs once."""
    runs = tmp_path / "runs"
    executor.submit(calls.add, 1, 1).result()
    futures = [executor.submit(calls.note, str(runs), f"{i} ") for i in range(400)]
    cancelled = {}

    def cancel(part):
        for i in part:
            cancelled[i] = futures[i].cancel()

    threads = [threading.Thread(target=cancel, args=(range(399 - k, -1, -4),)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    concurrent.futures.wait(futures)
    ran = sorted(int(number) for number in runs.read_text().split())
    assert ran == [i for i in range(400) if not cancelled[i]]
    assert [future.cancelled() for future in futures] == [cancelled[i] for i in range(400)]


def test_two_threads_cancel_the_same_future(single, gate):
    first = single.submit(calls.wait_for, str(gate))
    until(first.running)
    futures = [single.submit(calls.add, 1, 1) for _ in range(200)]
    answers, calls_back = [], []
    for future in futures:
        future.add_done_callback(calls_back.append)

    def cancel():
        answers.append([future.cancel() for future in futures])

    race([cancel] * 3)
    gate.touch()
    assert answers == [[True] * 200] * 3
    assert len(calls_back) == 200


# --- callbacks --------------------------------------------------------------------------------------------------------


def test_callbacks_run_in_the_order_in_which_they_were_added_each_once(single, gate):
    future = single.submit(calls.wait_for, str(gate))
    seen, last = [], threading.Event()
    for i in range(5):
        future.add_done_callback(lambda f, i=i: seen.append((i, f is future, f.done())))
    future.add_done_callback(lambda _: last.set())
    gate.touch()
    assert last.wait(30)
    assert seen == [(i, True, True) for i in range(5)]


def test_a_callback_of_an_ended_future_runs_at_once_in_the_same_thread(single):
    future = single.submit(calls.add, 1, 1)
    future.result()
    until(future.done)
    seen = []
    future.add_done_callback(lambda f: seen.append((f.result(), threading.current_thread())))
    assert seen == [(2, threading.current_thread())]


@pytest.mark.parametrize("error", [ValueError("in a callback"), SystemExit(1), KeyboardInterrupt()])
def test_a_callback_that_raises_is_logged_and_disturbs_nothing(single, gate, caplog, error):
    future = single.submit(calls.wait_for, str(gate))
    last = threading.Event()
    future.add_done_callback(lambda _: calls.raise_(error))
    future.add_done_callback(lambda _: last.set())
    gate.touch()
    assert last.wait(30)
    assert single.submit(calls.add, 1, 1).result() == 2
    assert [record.exc_info[1] for record in caplog.records] == [error]


def test_callbacks_of_a_cancelled_future_run(single, gate):
    first = single.submit(calls.wait_for, str(gate))
    until(first.running)
    second = single.submit(calls.add, 1, 1)
    seen = []
    second.add_done_callback(lambda future: seen.append(future.cancelled()))
    assert second.cancel()
    assert seen == [True]
    gate.touch()


def test_callbacks_of_a_payload_error_run_at_once(single):
    future = single.submit(calls.echo, threading.Lock())
    seen = []
    future.add_done_callback(seen.append)
    assert seen == [future]


def test_a_callback_added_while_the_future_ends_is_never_lost(executor):
    executor.submit(calls.add, 1, 1).result()
    done = []
    for _ in range(500):
        executor.submit(calls.add, 1, 1).add_done_callback(done.append)
    until(lambda: len(done) == 500)
    assert len(set(map(id, done))) == 500


# --- futures that the user makes --------------------------------------------------------------------------------------


def test_a_future_that_the_user_makes_and_sets_wakes_who_waits():
    future = Future()
    results = []
    waiting = threading.Thread(target=lambda: results.append(future.result(timeout=20)))
    waiting.start()
    waiting.join(0.1)  # so that it sleeps by then, most likely
    future.set_result(3)
    waiting.join(10)
    slept_on = waiting.is_alive()
    waiting.join()
    assert not slept_on, "result() waited for its timeout although the result had been set"
    assert results == [3]


def test_a_future_can_be_set_only_once():
    future = Future()
    future.set_result(1)
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_result(2)
    with pytest.raises(concurrent.futures.InvalidStateError):
        future.set_exception(ValueError())
    assert future.result() == 1


def test_a_future_is_not_copied_or_pickled(single):
    future = single.submit(calls.add, 1, 1)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be pickled"):
            attempt(future)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(single)
    assert future.result() == 2


def test_repr_names_the_callable_and_the_state(single, gate):
    future = single.submit(calls.wait_for, str(gate))
    assert repr(future).startswith("<Future of task ")
    assert repr(future).endswith("'wait_for': pending>")
    until(future.running)
    assert repr(future).endswith("'wait_for': running>")
    gate.touch()
    future.result()
    assert repr(future).endswith("'wait_for': finished>")


def test_a_result_that_is_an_object_is_decoded_once_whoever_asks(executor):
    class Counted:
        decoded: ClassVar[list[object]] = []

        def __init__(self, x):
            self.x = x

        def __setstate__(self, state):
            Counted.decoded.append(state)
            self.__dict__ |= state

    future = executor.submit(Counted, 5)
    results = []
    threads = [threading.Thread(target=lambda: results.append(future.result())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {id(result) for result in results} == {id(future.result())}
    assert future.result().x == 5
    assert Counted.decoded == [{"x": 5}]


def test_a_raised_exception_does_not_tie_the_future_into_a_cycle(single):
    future = single.submit(calls.raise_, ValueError("a"))
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(ValueError, match="a") as caught:
            future.result()
        gone = weakref.ref(future)
        del caught, future
        assert gone() is None
    finally:
        gc.enable()


# --- the standard functions -------------------------------------------------------------------------------------------


def test_wait_and_as_completed_over_mixed_futures(executor, gate):
    slow = executor.submit(calls.wait_for, str(gate))
    quick = [executor.submit(calls.square, i) for i in range(20)]
    bad = executor.submit(calls.echo, threading.Lock())
    done, pending = concurrent.futures.wait([slow, bad], return_when="FIRST_EXCEPTION")
    assert (done, pending) == ({bad}, {slow})
    assert {f.result() for f in concurrent.futures.as_completed(quick)} == {i * i for i in range(20)}
    done, pending = concurrent.futures.wait([slow, *quick], timeout=0)
    assert (done, pending) == (set(quick), {slow})
    with pytest.raises(TimeoutError, match=r"1 .of 1. futures unfinished"):
        list(concurrent.futures.as_completed([slow], timeout=0.01))
    gate.touch()
    assert concurrent.futures.wait([slow, *quick]).not_done == set()


def test_as_completed_wakes_for_cancelled_futures(single, gate):
    first = single.submit(calls.wait_for, str(gate))
    until(first.running)
    second = single.submit(calls.add, 1, 1)
    ended = []
    waiting = threading.Thread(target=lambda: ended.extend(concurrent.futures.as_completed([second])))
    waiting.start()
    until(lambda: second._own_condition is not None and second._waiters)
    assert second.cancel()
    waiting.join()
    assert ended == [second]
    gate.touch()


def test_wait_from_many_threads_while_results_come(executor):
    executor.submit(calls.add, 1, 1).result()
    for _ in range(20):
        futures = [executor.submit(calls.square, i) for i in range(50)]
        outcomes = []

        def wait(futures=futures, outcomes=outcomes):
            outcomes.append(concurrent.futures.wait(futures).not_done)

        race([wait] * 3)
        assert outcomes == [set()] * 3


def test_asyncio_awaits_and_cancels(single, gate):
    async def use():
        value = await asyncio.wrap_future(single.submit(calls.add, 1, 1))
        with pytest.raises(ZeroDivisionError):
            await asyncio.wrap_future(single.submit(divmod, 1, 0))
        loop = asyncio.get_running_loop()
        also = await loop.run_in_executor(single, calls.add, 2, 2)
        running = single.submit(calls.wait_for, str(gate))
        while not running.running():
            await asyncio.sleep(0.002)
        waiting = single.submit(calls.add, 3, 3)
        wrapped = asyncio.wrap_future(waiting)
        wrapped.cancel()
        await asyncio.sleep(0)  # only then does asyncio cancel the other
        with pytest.raises(asyncio.CancelledError):
            await wrapped
        gate.touch()
        await asyncio.wrap_future(running)
        return value, also, waiting.cancelled()

    assert asyncio.run(use()) == (2, 4, True)


def test_asyncio_gathers_many(executor):
    async def use():
        return await asyncio.gather(*[asyncio.wrap_future(executor.submit(calls.square, i)) for i in range(200)])

    assert asyncio.run(use()) == [i * i for i in range(200)]
