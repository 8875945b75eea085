"""`submit`: calls go out as they are at that moment, and come back as a result or as an exception, each alone."""

import functools
import threading
import traceback
import weakref

import pytest

import calls
from slipstream import Executor, PayloadError, RemoteError, SlipstreamError


def test_call_and_result(executor):
    assert executor.submit(calls.add, 2, b=3).result() == 5


def test_all_keywords_belong_to_the_task(executor):
    future = executor.submit(calls.everything, 1, self=2, fn=3, timeout=4, priority=5)
    assert future.result() == ((1,), {"self": 2, "fn": 3, "timeout": 4, "priority": 5})
    with pytest.raises(TypeError, match="fn"):
        executor.submit(fn=calls.add)


@pytest.mark.parametrize("wrong", [None, 3, "calls.add", []])
def test_only_callables_can_be_submitted(executor, wrong):
    with pytest.raises(TypeError, match="only a callable can be submitted"):
        executor.submit(wrong)


def test_all_kinds_of_callables(executor):
    class Counter:
        def __init__(self, start):
            self.start = start

        def __call__(self, x):
            return self.start + x

        def more(self, x):
            return self(x) + 1

        @classmethod
        def make(cls, x):
            return cls(x).start

    def closure(x):
        return x + offset

    offset = 10
    calls_and_results = [
        (len, ([1, 2],), 2),
        (str.upper, ("a",), "A"),
        ("a-b".split, ("-",), ["a", "b"]),
        (lambda x: x * 2, (4,), 8),
        (closure, (1,), 11),
        (functools.partial(calls.add, 1), (2,), 3),
        (functools.partial(lambda x, y: x - y, y=1), (2,), 1),
        (Counter(5), (1,), 6),
        (Counter(5).more, (1,), 7),
        (Counter.make, (9,), 9),
        (int, ("7",), 7),
        (functools.lru_cache(calls.square), (3,), 9),
    ]
    futures = [executor.submit(call, *args) for call, args, _ in calls_and_results]
    assert [future.result() for future in futures] == [result for *_, result in calls_and_results]


def test_arguments_are_taken_as_they_are_at_that_moment(single, tmp_path):
    go = tmp_path / "go"
    single.submit(calls.wait_for, str(go))
    values = [1]
    future = single.submit(calls.echo, values)
    values.append(2)
    go.touch()
    assert future.result() == [1]


def test_result_of_a_class_defined_here_is_an_instance_of_that_class(executor):
    class Point:
        def __init__(self, x):
            self.x = x

    result = executor.submit(Point, 3).result()
    assert type(result) is Point
    assert result.x == 3


@pytest.mark.parametrize("size", [0, 1, 65_527, 65_528, 65_529, 1_000_000, 60_000_000])
def test_bytes_of_any_size_go_and_come(single, size):
    data = bytes(size)
    assert single.submit(calls.echo, data).result() == data


def test_many_large_results_and_arguments_cross_without_blocking_each_other(executor):
    values = [bytes([i]) * 3_000_000 for i in range(16)]
    futures = [executor.submit(calls.echo, value) for value in values]
    assert [future.result()[:1] for future in futures] == [bytes([i]) for i in range(16)]


# --- what cannot be sent ----------------------------------------------------------------------------------------------


def test_an_argument_that_cannot_be_sent_fails_its_own_future_only(executor):
    before = executor.submit(calls.add, 1, 1)
    bad = executor.submit(calls.echo, threading.Lock())
    after = executor.submit(calls.add, 2, 2)
    with pytest.raises(PayloadError, match=r"echo.*lock"):
        bad.result()
    assert bad.done()
    assert not bad.running()
    assert not bad.cancel()
    assert (before.result(), after.result()) == (2, 4)


def test_a_callable_that_cannot_be_sent_fails_its_own_future_only(executor):
    lock = threading.Lock()
    bad = executor.submit(lambda: lock.locked())
    assert isinstance(bad.exception(), PayloadError)
    assert executor.submit(calls.add, 1, 1).result() == 2


def test_a_result_that_cannot_be_sent_fails_its_own_future_only(executor):
    bad = executor.submit(threading.Lock)
    good = executor.submit(calls.add, 1, 1)
    with pytest.raises(PayloadError, match="the result of task"):
        bad.result()
    assert good.result() == 2
    assert executor.stats().workers_lost == 0


def test_what_cannot_be_loaded_in_the_worker_fails_its_own_future_only(executor):
    class Unloadable:
        def __reduce__(self):
            return calls.raise_, (ValueError("no way back"),)

    bad = executor.submit(calls.echo, Unloadable())
    with pytest.raises(PayloadError, match="no way back"):
        bad.result()
    assert executor.submit(calls.add, 1, 1).result() == 2


def test_a_result_that_cannot_be_loaded_here_fails_its_own_future_only(executor):
    class Unloadable:
        def __reduce__(self):
            return calls.raise_, (ValueError("no way back"),)

    bad = executor.submit(Unloadable)
    with pytest.raises(PayloadError, match="no way back"):
        bad.result()
    assert executor.submit(calls.add, 1, 1).result() == 2


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), RuntimeError("boo"), MemoryError()])
def test_reducers_that_raise_anything_cost_one_future(executor, error):
    class Bad:
        def __reduce__(self):
            raise error

    if isinstance(error, Exception):
        assert isinstance(executor.submit(calls.echo, Bad()).exception(), PayloadError)
    else:
        with pytest.raises(type(error)):  # leaves `submit`: it is not for the engine to swallow
            executor.submit(calls.echo, Bad())
    failure = executor.submit(Bad).exception()
    assert isinstance(failure, (PayloadError, type(error), RemoteError))
    assert executor.submit(calls.add, 1, 1).result() == 2


def test_an_executor_in_a_payload_is_refused_and_does_not_hang(executor):
    for culprit in (executor, [executor], {"a": [executor]}):
        with pytest.raises(PayloadError, match="cannot be"):
            executor.submit(calls.echo, culprit).result()
    with pytest.raises(PayloadError):
        executor.submit(executor.submit, calls.add, 1, 1).result()


# --- what tasks raise -------------------------------------------------------------------------------------------------


def fail_deeply():
    try:
        {}["missing"]
    except KeyError as error:
        failure = ValueError("three", 3)
        failure.add_note("noted on the way")
        failure.detail = [1, 2]
        raise failure from error


def test_exceptions_arrive_as_raised_with_cause_notes_and_the_remote_traceback(executor):
    with pytest.raises(ValueError, match="three") as caught:
        executor.submit(fail_deeply).result()
    error = caught.value
    assert error.args == ("three", 3)
    assert error.detail == [1, 2]
    assert error.__notes__ == ["noted on the way"]
    assert isinstance(error.__cause__, KeyError)
    text = "".join(traceback.format_exception(error))
    assert "in fail_deeply" in text
    assert '{}["missing"]' in text
    assert "slipstream/worker" not in text, "frames of the engine say nothing to the user"


def test_the_remote_traceback_is_the_cause(executor):
    error = executor.submit(calls.raise_, ValueError("a")).exception()
    assert "raise error" in str(error.__cause__)
    assert type(error.__cause__).__name__ == "RemoteTraceback"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt("k"), GeneratorExit(), StopIteration(4)])
def test_exceptions_that_end_programs_are_data(executor, error):
    worker = executor.submit(calls.pid)
    future = executor.submit(calls.raise_, error)
    assert type(future.exception()) is type(error)
    assert future.exception().args == error.args
    with pytest.raises(type(error)):
        future.result()
    assert worker.result() != 0
    assert executor.stats().workers_lost == 0


def test_recursion_without_end_is_data(executor):
    def deeper():
        return deeper()

    assert isinstance(executor.submit(deeper).exception(), RecursionError)
    assert executor.submit(calls.add, 1, 1).result() == 2


def test_an_exception_that_does_not_travel_arrives_as_text(executor):
    def fail():
        raise LookupError("twelve", threading.Lock())

    error = executor.submit(fail).exception()
    assert isinstance(error, RemoteError)
    assert error.type_name == "LookupError"
    assert "twelve" in str(error)
    assert "in fail" in error.remote_traceback


def test_result_raises_the_same_exception_each_time_and_keeps_nothing_of_the_caller(executor):
    future = executor.submit(calls.raise_, ValueError("again"))
    caught = []
    for _ in range(2):
        with pytest.raises(ValueError, match="again") as info:
            future.result()
        caught.append(info.value)
    assert caught[0] is caught[1] is future.exception()


def test_our_own_errors_are_slipstream_errors(executor):
    assert isinstance(executor.submit(calls.echo, threading.Lock()).exception(), SlipstreamError)


# --- from callbacks and threads ---------------------------------------------------------------------------------------


def test_submit_from_a_callback(executor):
    results, ended = [], threading.Event()

    def again(future):
        results.append(future.result())
        if len(results) < 5:
            executor.submit(calls.add, future.result(), 1).add_done_callback(again)
        else:
            ended.set()

    executor.submit(calls.add, 0, 1).add_done_callback(again)
    assert ended.wait(30)
    assert results == [1, 2, 3, 4, 5]


def test_a_callback_may_ask_for_an_ended_future_but_not_wait_for_another(single, tmp_path):
    go = tmp_path / "go"
    first = single.submit(calls.wait_for, str(go))
    later = single.submit(calls.wait_for, str(tmp_path / "later"))
    seen, ended = [], threading.Event()

    def look(future):
        seen.append(future.result())
        try:
            later.result(timeout=30)
        except BaseException as error:
            seen.append(error)
        ended.set()

    first.add_done_callback(look)
    go.touch()
    assert ended.wait(30)
    (tmp_path / "later").touch()
    assert seen[0] is None
    assert isinstance(seen[1], RuntimeError)
    assert "callback" in str(seen[1])
    assert later.result() is None


def test_submit_and_result_from_many_threads(executor):
    results = {}

    def use(number):
        futures = [executor.submit(calls.add, number, i) for i in range(200)]
        results[number] = [future.result() for future in futures]

    threads = [threading.Thread(target=use, args=(1000 * n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [n + i for i in range(200)] for n in range(0, 8000, 1000)}
    stats = executor.stats()
    assert (stats.tasks, stats.succeeded) == (1600, 1600)


def test_many_threads_wait_for_the_same_future(single, tmp_path):
    go = tmp_path / "go"
    future = single.submit(calls.note_and_wait, str(tmp_path / "runs"), str(go))
    results = []
    threads = [threading.Thread(target=lambda: results.append(future.result())) for _ in range(10)]
    for thread in threads:
        thread.start()
    go.touch()
    for thread in threads:
        thread.join()
    assert len(results) == 10
    assert len(set(results)) == 1


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_nothing_of_a_call_is_kept_once_it_is_submitted(single, tmp_path):
    class Big:
        def method(self):
            return 1

    go = tmp_path / "go"
    single.submit(calls.wait_for, str(go))
    big = Big()
    gone = weakref.ref(big)
    future = single.submit(big.method)
    del big
    assert gone() is None
    go.touch()
    assert future.result() == 1


def test_a_result_is_kept_by_its_future_only(executor):
    class Big:
        pass

    future = executor.submit(Big)
    gone = weakref.ref(future.result())
    assert gone() is not None
    del future
    assert gone() is None


def test_dropped_futures_run_all_the_same(tmp_path):
    runs = tmp_path / "runs"
    with Executor(max_workers=1) as executor:
        for _ in range(20):
            executor.submit(calls.note, str(runs))
    assert runs.read_text() == "x" * 20


def test_stats_count_what_happened(single, tmp_path):
    go = tmp_path / "go"
    futures = [single.submit(calls.wait_for, str(go)), single.submit(calls.raise_, ValueError()), single.submit(abs, 1)]
    running = single.submit(calls.pid)
    cancelled = running.cancel()
    go.touch()
    for future in futures:
        future.exception()
    stats = single.stats()
    assert cancelled
    assert (stats.tasks, stats.succeeded, stats.failed, stats.cancelled) == (4, 2, 1, 1)
    assert (stats.workers, stats.workers_lost) == (1, 0)
    assert 0 < stats.frames_sent <= stats.turns
    assert stats.frames_received > 0
    assert stats.bytes_sent > 0
    assert stats.bytes_received > 0
    assert stats.encode_s > 0
    assert stats.run_ns > 0


def test_repr_tells_workers_and_tasks(single, tmp_path):
    go = tmp_path / "go"
    future = single.submit(calls.wait_for, str(go))
    assert repr(single) == "<Executor: 1 workers on this machine, 1 tasks not ended>"
    go.touch()
    future.result()
    assert repr(single) == "<Executor: 1 workers on this machine, 0 tasks not ended>"
