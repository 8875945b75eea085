"""Large values through an executor: files in shared memory that nobody copies, and that go with what refers to them."""

import gc
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

import calls
import scripts
from slipstream import Executor, PayloadError
from slipstream.store.directory import RunDirectory

LARGE = 200_000  # numbers: 1.6 MB, which are mapped
SMALL = 20_000  # 160 kB, which are read


def files(executor):
    run = executor._values._run
    return [] if run is None else sorted(os.listdir(run.path))


def ones(count):
    return numpy.ones(count)


def doubled(array):
    array *= 2
    return array


def fork_and_return(count):
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return numpy.ones(count)


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_a_result_is_one_file_that_goes_with_its_future(single, count):
    future = single.submit(ones, count)
    array = future.result()
    assert len(files(single)) == 1
    assert future.payload().result >= 8 * count
    assert single.stats().bytes_received < 2_000
    array += 1
    assert future.result() is array
    assert single.submit(float, single.submit(numpy.sum, future)).result() == count  # what the task returned
    del future
    gc.collect()
    assert files(single) == []
    assert array.sum() == 2 * count  # what is mapped stays


def test_dependents_have_copies_of_their_own(executor):
    first = executor.submit(ones, LARGE)
    twice = [executor.submit(doubled, first) for _ in range(4)]
    sums = [executor.submit(numpy.sum, future) for future in (first, *twice)]
    assert [future.result() for future in sums] == [LARGE, *[2 * LARGE] * 4]


def test_an_array_is_sent_once_as_long_as_it_is_the_same(single):
    array = numpy.ones(LARGE)
    waiting = [single.submit(calls.nap, 0.2), *[single.submit(numpy.sum, array) for _ in range(5)]]
    assert len(files(single)) == 1
    array[-1] = 2
    waiting += [single.submit(numpy.sum, array) for _ in range(5)]
    assert [future.result() for future in waiting[1:]] == [LARGE] * 5 + [LARGE + 1] * 5
    assert single.stats().bytes_sent < 10_000
    assert files(single) == []


def test_what_was_put_is_there_for_many_tasks(executor):
    table = executor.put({"a": numpy.ones(LARGE), "b": [1, 2]})
    assert table.result()["b"] == [1, 2]
    assert [executor.submit(len, table).result() for _ in range(5)] == [2] * 5
    assert len(files(executor)) == 1
    assert executor.submit(calls.echo, [table, executor.put(3)]).result()[1] == 3
    with pytest.raises(PayloadError, match="lock"):
        executor.put([__import__("threading").Lock()])


def nothing(size):
    """A value that takes so many bytes when pickled, but for some dozens."""
    return [None] * size


@pytest.mark.parametrize("inline_bytes", [5_000, 65_536, 300_000])
@pytest.mark.parametrize("make", [bytes, bytearray, nothing, lambda size: numpy.zeros(size, "u1")])
def test_what_is_larger_than_inline_bytes_is_a_file(inline_bytes, make):
    with Executor(max_workers=1, inline_bytes=inline_bytes) as executor:
        for size, count in ((inline_bytes - 3_000, 0), (inline_bytes + 3_000, 2)):
            futures = [executor.submit(make, size), executor.put(make(size))]
            assert [len(future.result()) for future in futures] == [size] * 2
            assert len(files(executor)) == count


def test_with_no_inline_bytes_only_scalars_travel_in_messages():
    with Executor(max_workers=1, inline_bytes=0) as executor:
        scalars = [executor.submit(bytes, 1_000), executor.put(3.5), executor.put(None)]
        assert [future.result() for future in scalars] == [bytes(1_000), 3.5, None]
        assert files(executor) == []
        futures = [executor.submit(list, "abc"), executor.put((1, 2))]
        assert [future.result() for future in futures] == [["a", "b", "c"], (1, 2)]
        assert len(files(executor)) == 2


def test_arrays_in_a_value_that_is_not_large_travel_with_it():
    """One of them would lie apart if it were; and those of a large value do, unless they are small beside the limit."""
    with Executor(max_workers=1, inline_bytes=1_000_000) as executor:
        assert executor.submit(ones, 100_000).result().sum() == 100_000
        assert files(executor) == []
        future = executor.submit(lambda: [numpy.ones(100_000), numpy.ones(100_000)])
        assert [array.sum() for array in future.result()] == [100_000] * 2
        assert len(files(executor)) == 1


def test_a_large_result_whose_class_can_only_go_by_name_is_a_file(single):
    class Thing:
        pass

    def make():
        Thing.lock = threading.Lock()
        return Thing(), bytes(200_000)

    future = single.submit(make)
    thing, data = future.result()
    assert (type(thing), len(data), len(files(single))) == (Thing, 200_000, 1)


def test_store_bytes_limit_the_shared_memory(monkeypatch):
    free = SimpleNamespace(f_bavail=1_000_000, f_frsize=4_096, f_blocks=2_000_000)  # else others take and free some
    monkeypatch.setattr(os, "statvfs", lambda path: free)
    monkeypatch.setattr(os, "fstatvfs", lambda descriptor: free)
    with Executor(max_workers=1, store_bytes=4_000_000) as executor:
        first = executor.put(numpy.ones(LARGE))
        assert len(files(executor)) == 1
        with pytest.warns(RuntimeWarning, match="its budget is used up"):
            second = executor.put(numpy.ones(3 * LARGE))
        assert [future.result().sum() for future in (first, second)] == [LARGE, 3 * LARGE]
        assert len(files(executor)) == 1
        assert len(os.listdir(executor._values._run.spill)) == 1


def test_without_store_bytes_everything_goes_to_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Executor(max_workers=1, store_bytes=0) as executor:
        futures = [executor.submit(ones, LARGE), executor.put(numpy.ones(LARGE))]
        assert [future.result().sum() for future in futures] == [LARGE] * 2
        assert executor._values._run.path.startswith(str(tmp_path))
        assert len(files(executor)) == 2
        del futures
        gc.collect()
        assert files(executor) == []
    assert list(tmp_path.iterdir()) == []


def test_values_that_go_to_disk_are_told_of_once(single):
    single._values.run()
    single._values._place.floor = 1 << 62  # as if the budget were used up
    with pytest.warns(RuntimeWarning, match="values go to disk") as caught:
        futures = [single.put(numpy.full(LARGE, n)) for n in range(3)]
    assert len(caught) == 1
    assert [single.submit(numpy.sum, future).result() for future in futures] == [0, LARGE, 2 * LARGE]
    assert files(single) == []


MANY = """
    import gc, os, resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    import numpy
    from slipstream import Executor

    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    def make(number):
        return {make}

    with Executor(max_workers=2) as executor:
        executor.submit(make, 0).result()
        before = descriptors()
        futures = [executor.submit(make, number) for number in range(2_000)]
        values = [future.result() for future in futures]
        print(all(len(value) == 100_000 and value[0] == value[-1] == n % 251 for n, value in enumerate(values)))
        print(len(os.listdir(executor._values._run.path)), descriptors() - before < 100)
        del futures, values
        gc.collect()
        print(len(os.listdir(executor._values._run.path)), descriptors() - before)
"""


@pytest.mark.parametrize("make", ["numpy.full(100_000, number % 251, 'u1')", "bytes([number % 251]) * 100_000"])
def test_thousands_of_results_are_kept_in_few_descriptors(make):
    lines = scripts.run(MANY.format(make=make)).lines()
    assert lines == ["True", "2000 True", "0 0"]


def test_a_result_can_be_taken_after_the_end_of_the_executor():
    with Executor(max_workers=1) as executor:
        future = executor.submit(ones, LARGE)
    assert future.result().sum() == LARGE
    path = Path(executor._values._run.path)
    del future
    gc.collect()
    assert list(path.iterdir()) == []
    executor._values._run.remove()


def test_executors_whose_results_outlive_them_leave_neither_descriptors_nor_directories():
    """The last results go with their futures, long after the executors."""
    before = len(os.listdir("/proc/self/fd"))
    futures, paths = [], []
    for _ in range(3):
        with Executor(max_workers=1) as executor:
            futures.append(executor.submit(ones, LARGE))
        paths.append(executor._values._run.path)
        del executor
    assert [future.result().sum() for future in futures] == [LARGE] * 3
    with Executor(max_workers=1) as other:  # an input of another executor is there as long as that needs it
        waiting = other.submit(calls.nap, 0.2), other.submit(numpy.sum, futures.pop())
        del futures
        gc.collect()
        assert waiting[1].result() == LARGE
    del waiting
    gc.collect()
    RunDirectory.make().remove()  # the next one clears up what had to stay
    assert [path for path in paths if os.path.exists(path)] == []
    assert len(os.listdir("/proc/self/fd")) <= before


def test_a_forked_child_that_comes_back_leaves_no_file(single):
    for _ in range(3):
        assert single.submit(fork_and_return, LARGE).result().sum() == LARGE
        gc.collect()
        assert files(single) == []


def test_without_a_place_for_files_results_travel_as_ever(monkeypatch):
    def refuse(budget=None):
        raise OSError("no room at all")

    monkeypatch.setattr(RunDirectory, "make", refuse)
    with Executor(max_workers=1) as executor:
        assert executor.submit(ones, LARGE).result().sum() == LARGE
        error = executor.submit(numpy.sum, numpy.ones(LARGE)).exception()
    assert isinstance(error, PayloadError)
    assert "no room at all" in str(error)


def test_nothing_is_left_when_the_client_is_killed():
    script = """
        import numpy, os, slipstream, time
        executor = slipstream.Executor(max_workers=1)
        kept = [executor.submit(numpy.ones, 200_000) for _ in range(3)]
        path = executor._values.run().path
        print(kept[-1].result().sum(), path, len(os.listdir(path)), flush=True)
        time.sleep(60)
    """
    with scripts.started(script) as process:
        total, path, count = process.stdout.readline().split()
        assert (total, count) == ("200000.0", "3")
        process.send_signal(signal.SIGKILL)
        process.wait()
    deadline = time.monotonic() + 20
    while os.path.exists(path):
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.01)
