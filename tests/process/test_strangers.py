"""Inputs that are not of the same executor, and everything that happens while inputs are waited for."""

import concurrent.futures
import contextlib
import functools
import os
import threading

import pytest

import calls
import scripts
from racing import race
from slipstream import DependencyError, Executor, PayloadError, WorkerLost

LIMIT_S = 20


class Raises:
    """Cannot be pickled, in a way of its own."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        raise self.error


# --- where futures come from ------------------------------------------------------------------------------------------


def test_futures_of_other_executors(patient):
    with Executor(max_workers=1) as other, concurrent.futures.ThreadPoolExecutor(2) as threads:
        sources = [other.submit(calls.nap, 0.01, 1), threads.submit(calls.nap, 0.01, 2)]
        sources.append(patient.submit(calls.add, 1, 2))
        early = [patient.submit(calls.everything, sources, source) for source in sources]
        assert [f.result(LIMIT_S)[0] for f in early] == [([1, 2, 3], 1), ([1, 2, 3], 2), ([1, 2, 3], 3)]
        assert other.submit(sum, [patient.submit(sum, sources), 10]).result(LIMIT_S) == 16


@pytest.mark.parametrize("error", [ZeroDivisionError("no"), KeyboardInterrupt("no"), SystemExit("no")])
def test_a_value_that_cannot_be_pickled_fails_its_dependents(patient, error):
    """What is no Exception may come out where the value is set, but nobody waits for ever."""
    outside = concurrent.futures.Future()
    futures = [patient.submit(calls.echo, outside), patient.submit(calls.everything, [outside])]
    with contextlib.suppress(KeyboardInterrupt, SystemExit):
        outside.set_result(Raises(error))
    for future in futures:
        failure = future.exception(LIMIT_S)
        assert type(failure) is DependencyError, failure
        assert "no" in str(failure)
    assert patient.submit(calls.add, 1, 1).result(LIMIT_S) == 2


def test_a_value_that_cannot_be_pickled_and_is_there_already(patient):
    outside = concurrent.futures.Future()
    outside.set_result(Raises(ZeroDivisionError("no")))
    failure = patient.submit(calls.echo, outside).exception(LIMIT_S)
    assert isinstance(failure, DependencyError | PayloadError)
    assert "ZeroDivisionError: no" in str(failure)


def test_a_value_that_another_thread_decodes_at_that_moment_is_not_lost():
    """The I/O thread must not ask for it then."""
    ended = scripts.run("""
        import os, threading, calls
        from slipstream import Executor

        decoding, go, client = threading.Event(), threading.Event(), os.getpid()

        class Slow(Exception):
            def __reduce__(self):
                return load, ()

        def load():
            if os.getpid() == client:
                import __main__
                __main__.decoding.set()
                __main__.go.wait(10)
            return Slow()

        def fail():
            raise Slow()

        def ask(root):
            thread.start()  # it decodes while the I/O thread, which calls back, provides
            decoding.wait(5)

        with Executor(max_workers=1) as a, Executor(max_workers=1) as b:
            running = a.submit(calls.nap, 0.3)
            root = a.submit(fail)
            thread = threading.Thread(target=root.exception)
            root.add_done_callback(ask)
            dependent = b.submit(calls.echo, root)
            threading.Timer(1.0, go.set).start()
            try:
                print(type(dependent.exception(5)).__name__)
            except TimeoutError:
                print("hangs", flush=True)
                os._exit(0)
            thread.join()
        """)
    assert ended.out.split() == ["DependencyError"], ended
    assert "callback" not in ended.err


# --- the moment between -----------------------------------------------------------------------------------------------


def test_tasks_that_depend_on_what_ends_at_that_moment(patient):
    """The scheduler has forgotten it and the future is not told yet: what it refuses is submitted again."""
    refused = []
    resubmit = patient._client.resubmit
    patient._client.resubmit = lambda message: (refused.append(message.task), resubmit(message))
    wrong = []

    def hammer(k):
        for i in range(250):
            first = patient.submit(calls.add, i, k)
            second = [patient.submit(calls.add, first, 1) for _ in range(3)]
            both = patient.submit(calls.everything, *second, first)
            bad = patient.submit(calls.raise_, ValueError(i))
            missing = [patient.submit(calls.echo, bad) for _ in range(3)]
            if both.result(LIMIT_S) != ((i + k + 1,) * 3 + (i + k,), {}):
                wrong.append(both)
            for future in missing:
                error = future.exception(LIMIT_S)
                if type(error) is not DependencyError or error.__cause__ is not bad.exception():
                    wrong.append(error)

    def run(k):
        try:
            hammer(k)
        except BaseException as error:
            wrong.append(error)

    race([functools.partial(run, k) for k in range(4)], 1e-5)
    assert wrong == []
    assert refused, "nothing was refused: this shows nothing"
    assert not patient._client.expected
    assert not patient._client.futures
    assert patient.submit(calls.add, 1, 1).result(LIMIT_S) == 2


def test_what_is_refused_is_submitted_again_whatever_else_it_takes(patient, monkeypatch):
    """Made certain: the client is told late of what ended, and another task is submitted before."""
    client = patient._client
    deliver, held = client.deliver, []
    patient.submit(calls.add, 1, 1).result()
    for fails in (False, True):
        monkeypatch.setattr(client, "deliver", held.append)
        first = patient.submit(calls.raise_ if fails else calls.echo, ValueError("x"))
        live = patient._engine.live_tasks
        moment = threading.Event()
        while live():
            moment.wait(0.002)
        outside = concurrent.futures.Future()
        future = patient.submit(calls.everything, first, [outside])
        monkeypatch.setattr(client, "deliver", deliver)
        assert not future.done()
        while held:
            deliver(held.pop(0))
        outside.set_result(5)
        if fails:
            assert future.exception(LIMIT_S).__cause__ is first.exception()
        else:
            assert future.result(LIMIT_S)[0][1] == [5]
        assert not client.expected


def test_values_that_are_provided_in_callbacks_of_what_fails(patient):
    """There they are told one after the other; one of them cannot be sent."""
    first, good, bad = (concurrent.futures.Future() for _ in range(3))
    takers = [patient.submit(calls.echo, value) for value in (good, bad)]
    failing = patient.submit(calls.echo, first)
    failing.add_done_callback(lambda _: bad.set_result(threading.Lock()))
    failing.add_done_callback(lambda _: good.set_result(1))
    first.set_exception(ValueError("first"))
    assert takers[0].result(LIMIT_S) == 1
    assert type(takers[1].exception(LIMIT_S)) is DependencyError
    assert failing.exception(LIMIT_S).__cause__ is first.exception()


def test_callbacks_submit_tasks_with_the_future_that_calls(patient):
    made, last = [], threading.Event()

    def more(future):
        if len(made) == 50:
            last.set()
            return
        made.append(patient.submit(calls.add, future, 1))
        made[-1].add_done_callback(more)

    patient.submit(calls.add, 0, 0).add_done_callback(more)
    assert last.wait(LIMIT_S)
    assert [future.result(LIMIT_S) for future in made] == list(range(1, 51))


# --- the end ----------------------------------------------------------------------------------------------------------


def test_shutdown_waits_for_what_waits_for_strangers():
    executor = Executor(max_workers=1)
    outside = concurrent.futures.Future()
    first = executor.submit(calls.add, outside, 1)
    second = executor.submit(calls.add, first, executor.submit(calls.nap, 0.01, 1))
    threading.Timer(0.05, outside.set_result, (5,)).start()
    executor.shutdown()
    assert second.result(0) == 7
    with pytest.raises(RuntimeError, match="shutdown"):
        executor.submit(calls.echo, first)


@pytest.mark.parametrize("end", ["fails", "cancelled"])
def test_shutdown_ends_when_what_is_last_ends_in_another_thread(end):
    executor = Executor(max_workers=1)
    executor.submit(calls.add, 1, 1).result()
    outside = concurrent.futures.Future()
    future = executor.submit(calls.echo, outside)
    waiting = threading.Thread(target=executor.shutdown)
    waiting.start()
    waiting.join(0.1)  # so that the I/O thread sleeps by then, most likely
    if end == "fails":
        outside.set_exception(ValueError("late"))
    else:
        future.cancel()
    waiting.join(LIMIT_S / 4)
    slept_on = waiting.is_alive()
    executor._engine.hand_over()  # ends a failing test
    waiting.join()
    assert not slept_on
    assert future.done()


def test_shutdown_that_cancels_does_not_wait_for_strangers():
    executor = Executor(max_workers=1)
    outside = concurrent.futures.Future()
    futures = [executor.submit(calls.add, outside, 1)]
    futures += [executor.submit(calls.add, futures[-1], 1) for _ in range(3)]
    executor.shutdown(cancel_futures=True)
    assert all(future.done() for future in futures)
    assert futures[0].cancelled()
    outside.set_result(1)  # disturbs nothing


def test_a_stranger_that_never_ends_is_let_go_by_cancel(patient):
    outside = concurrent.futures.Future()
    future = patient.submit(calls.echo, outside)
    with pytest.raises(TimeoutError):
        future.result(0.01)
    assert future.cancel()
    patient.shutdown()
    assert not outside.done()


@pytest.mark.parametrize(
    "late", [lambda f: f.set_result(1), lambda f: f.set_exception(ValueError()), lambda f: f.cancel()]
)
def test_a_broken_executor_ends_all_and_bears_what_comes_late(caplog, late):
    with Executor(max_workers=1, initializer=calls.raise_, initargs=(ValueError("initial"),)) as executor:
        outside = concurrent.futures.Future()
        futures = [executor.submit(calls.echo, outside)]
        futures += [executor.submit(calls.echo, futures[0]) for _ in range(2)]
        for future in futures:
            assert type(future.exception(LIMIT_S)) is WorkerLost
            assert future._inputs == ()
    late(outside)
    assert [record for record in caplog.records if "callback" in record.message] == []


def test_in_a_forked_child_strangers_may_end():
    executor = Executor(max_workers=1)
    with executor:
        outside = concurrent.futures.Future()
        future = executor.submit(calls.echo, executor.submit(calls.echo, outside))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                outside.set_result("in the child")
                status = 0 if isinstance(future.exception(0), RuntimeError) else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        outside.set_result("in the parent")
        assert future.result(LIMIT_S) == "in the parent"


def test_the_end_of_the_program_waits_for_strangers(tmp_path):
    lines = scripts.run(f"""
        import concurrent.futures, calls
        from slipstream import Executor
        threads, executor = concurrent.futures.ThreadPoolExecutor(1), Executor(max_workers=1)
        outside = threads.submit(calls.nap, 0.2, "x")
        executor.submit(calls.note, {str(tmp_path / "note")!r}, executor.submit(calls.echo, outside))
        """).lines()
    assert lines == []
    assert (tmp_path / "note").read_text() == "x"
