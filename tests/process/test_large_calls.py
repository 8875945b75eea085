"""Calls that are large without arrays: they lie in files as arrays do, and who sends them does not copy them."""

import gc
import os
import tracemalloc

import numpy
import pytest

import calls
from slipstream import Executor, PayloadError, WorkerLost
from slipstream.serde.tasks import LARGE_CALL_BYTES
from slipstream.store.directory import RunDirectory

MAKERS = [
    bytes,
    bytearray,
    "é".__mul__,
    lambda size: list(range(1_000_000, 1_000_000 + size // 5)),
    lambda size: {number: bytes(1_000) for number in range(size // 1_000)},
]


def files(executor):
    run = executor._values._run
    return [] if run is None else sorted(os.listdir(run.path))


def length(data, more=()):
    return len(data) + len(more)


@pytest.mark.parametrize("make", MAKERS)
def test_a_large_call_goes_to_a_file_and_that_goes_with_the_task(single, make):
    data = make(LARGE_CALL_BYTES)
    state = [1, 2, 3]
    for fn in (len, length, lambda data: len(data) + state[0] - 1):
        waiting = single.submit(calls.nap, 0.1)
        future = single.submit(fn, data)
        assert len(files(single)) == 1
        waiting.result()
        assert future.result() == len(data)
        assert future.payload().arguments >= LARGE_CALL_BYTES
        assert files(single) == []
    assert single.stats().bytes_sent < 10_000


def test_a_call_that_is_not_large_travels_in_a_message(single):
    assert single.submit(len, bytes(LARGE_CALL_BYTES - 1_000)).result() == LARGE_CALL_BYTES - 1_000
    assert single.stats().bytes_sent > LARGE_CALL_BYTES - 1_000


def test_keywords_futures_and_arrays_beside(single):
    data, array = bytes(LARGE_CALL_BYTES), numpy.ones(100_000)
    future = single.submit(list, "abc")
    found = single.submit(lambda *args: args, data, array, [future]).result()
    assert (found[0], found[1].sum(), found[2]) == (data, 100_000, [["a", "b", "c"]])
    assert single.submit(calls.everything, {"x": [future]}, [data]).result() == (({"x": [["a", "b", "c"]]}, [data]), {})
    assert single.submit(length, data, more=future).result() == len(data) + 3
    assert single.submit(length, future, more=data).result() == len(data) + 3
    assert single.submit(length, "x", more=data).result() == len(data) + 1


@pytest.mark.parametrize("make", MAKERS)
def test_the_same_call_is_written_once(single, make):
    data = make(LARGE_CALL_BYTES)
    waiting = [single.submit(calls.nap, 0.2), *[single.submit(len, data) for _ in range(5)]]
    assert len(files(single)) == 1
    waiting.append(single.submit(length, data))
    assert len(files(single)) == 2
    assert [future.result() for future in waiting[1:]] == [len(data)] * 6
    assert files(single) == []


def test_a_call_that_has_changed_in_one_place_is_another(single):
    data = bytearray(LARGE_CALL_BYTES)
    futures = [single.submit(calls.nap, 0.2)]
    for place in (0, LARGE_CALL_BYTES // 3, LARGE_CALL_BYTES - 1):
        futures.append(single.submit(sum, data))
        data[place] = 1
    futures.append(single.submit(sum, data))
    assert [future.result() for future in futures[1:]] == [0, 1, 2, 3]


def test_chunks_of_a_map(executor):
    items = [bytes(1_000_000 + n) for n in range(12)]
    assert list(executor.map(len, items, chunksize=4)) == [1_000_000 + n for n in range(12)]
    assert list(executor.map(length, items, ["ab"] * 12, chunksize=4)) == [1_000_002 + n for n in range(12)]
    assert executor.stats().bytes_sent < 10_000
    assert files(executor) == []


def test_a_file_that_is_gone_fails_its_task_and_no_other(single):
    waiting = single.submit(calls.nap, 0.2)
    lost, kept = single.submit(len, bytes(LARGE_CALL_BYTES)), single.submit(len, bytes(2 * LARGE_CALL_BYTES))
    path = single._values.run().path
    os.unlink(f"{path}/{files(single)[0]}")
    waiting.result()
    with pytest.raises(PayloadError, match=r"was removed or cut short\. Submit the task again") as caught:
        lost.result()
    assert path in str(caught.value)
    assert "This was task 'len'" in str(caught.value.__notes__)
    assert kept.result() == 2 * LARGE_CALL_BYTES
    assert single.submit(len, bytes(LARGE_CALL_BYTES)).result() == LARGE_CALL_BYTES


def test_so_does_the_memory_of_an_array(single):
    waiting = single.submit(calls.nap, 0.2)
    lost = single.submit(numpy.sum, numpy.ones(200_000))
    os.unlink(f"{single._values.run().path}/{files(single)[0]}")
    waiting.result()
    with pytest.raises(PayloadError, match=r"was removed or cut short\. Submit the task again"):
        lost.result()


def test_items_of_a_map_whose_file_is_gone_are_sent_again(single):
    waiting = single.submit(calls.nap, 0.2)
    results = single.map(len, [bytes(LARGE_CALL_BYTES)] * 4, chunksize=2)
    for name in files(single):
        os.unlink(f"{single._values.run().path}/{name}")
    waiting.result()
    assert list(results) == [LARGE_CALL_BYTES] * 4


def test_the_worker_that_replaces_another_loads_it(single):
    dying = single.submit(calls.die)
    future = single.submit(len, bytes(LARGE_CALL_BYTES))
    with pytest.raises(WorkerLost):
        dying.result()
    assert future.result() == LARGE_CALL_BYTES
    assert files(single) == []


def test_what_is_cancelled_leaves_no_file(single):
    single.submit(calls.nap, 0.01).result()
    waiting = [single.submit(calls.nap, 0.2), *[single.submit(calls.nap, 0) for _ in range(400)]]
    future = single.submit(len, bytes(LARGE_CALL_BYTES))
    assert len(files(single)) == 1
    assert future.cancel()
    assert files(single) == []
    assert waiting[0].result() is None


def test_where_there_is_no_room_the_task_says_so(monkeypatch):
    def refuse(budget=None):
        raise OSError("no room at all")

    monkeypatch.setattr(RunDirectory, "make", refuse)
    with Executor(max_workers=1) as executor:
        error = executor.submit(len, bytes(LARGE_CALL_BYTES)).exception()
        assert executor.submit(len, bytes(1_000_000)).result() == 1_000_000
    assert isinstance(error, PayloadError)
    assert str(error) == "task 'len' cannot be sent: no room at all"


@pytest.mark.parametrize("fn", [len, lambda data: len(data)])
def test_large_bytes_are_not_copied_to_be_sent(single, fn):
    assert single.submit(fn, bytes(LARGE_CALL_BYTES)).result() == LARGE_CALL_BYTES
    data = bytes(50_000_000)
    gc.collect()
    tracemalloc.start()
    try:
        assert single.submit(fn, data).result() == len(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2_000_000


def test_an_array_in_a_call_that_goes_in_one_pickle(single):
    """The function and the class share what may change, so nothing of the call lies apart."""
    shared = []

    class Thing:
        held = shared

        def __init__(self):
            self.array = numpy.ones((1_000, 1_000), order="F")
            self.array[0, 1] = 5

    def look(thing):
        shared.append(1)
        return thing.array[0, 1], thing.array.sum(), thing.held

    thing = Thing()
    thing.held = shared
    assert single.submit(look, thing).result() == (5, 1_000_004, [1])
    assert files(single) == []
