"""`map`: results in the order of the input, input drawn only as results are taken, each item on its own."""

import gc
import itertools
import threading
import time
import weakref
from concurrent.futures import CancelledError

import pytest

import calls
from slipstream import Executor, PayloadError


def drawn(source, count):
    """An iterator that counts what has been taken from it."""
    for item in source:
        count.append(item)
        yield item


# --- results ----------------------------------------------------------------------------------------------------------


def test_every_chunksize_and_buffersize_gives_what_the_builtin_gives(executor):
    expected = list(map(calls.add, range(1000), range(1, 2000)))
    for sizes in itertools.product([None, 1, 3, 100, 5000], [None, 1, 7, 5000]):
        chunksize, buffersize = sizes
        results = executor.map(calls.add, range(1000), range(1, 2000), chunksize=chunksize, buffersize=buffersize)
        assert list(results) == expected, sizes


def test_one_iterable_gives_one_argument_even_if_items_are_tuples(executor):
    assert list(executor.map(calls.echo, [(1, 2), (3,)])) == [(1, 2), (3,)]


def test_empty_input(executor):
    assert list(executor.map(calls.square, [])) == []
    assert list(executor.map(calls.add, [], itertools.count())) == []
    assert list(executor.map(calls.square, iter(()))) == []
    assert list(executor.map(calls.everything)) == []


def test_chunksize_is_measured_so_that_many_small_calls_share_few_tasks(executor):
    results = executor.map(calls.square, range(100_000))
    assert sum(results) == sum(i * i for i in range(100_000))
    stats = executor.stats()
    assert stats.tasks == stats.succeeded == 100_000
    assert stats.frames_sent < 2_000


def test_long_calls_are_not_put_together(executor):
    """With four calls of 50 ms, each worker has two: they were not one chunk."""
    pids = list(executor.map(calls.nap_and_tell, [0.05] * 8))
    assert len(set(pids)) == 2


def test_by_value_functions(executor):
    factor = 3
    assert list(executor.map(lambda x: x * factor, range(100))) == [3 * x for x in range(100)]


@pytest.mark.parametrize("wrong", [0, -1])
def test_sizes_must_be_positive(executor, wrong):
    with pytest.raises(ValueError, match="chunksize must be"):
        executor.map(calls.square, [1], chunksize=wrong)
    with pytest.raises(ValueError, match="buffersize must be"):
        executor.map(calls.square, [1], buffersize=wrong)


# --- laziness ---------------------------------------------------------------------------------------------------------


def test_endless_input_is_drawn_as_results_are_taken(executor):
    count = []
    results = executor.map(calls.square, drawn(itertools.count(), count))
    assert len(count) <= 8, "nothing is measured yet: 4 chunks of one item for each of two workers"
    assert list(itertools.islice(results, 50)) == [i * i for i in range(50)]
    results.close()


@pytest.mark.parametrize("buffersize", [1, 2, 5])
def test_no_more_than_buffersize_items_are_drawn_and_not_taken(executor, buffersize):
    count = []
    results = executor.map(calls.square, drawn(itertools.count(), count), buffersize=buffersize)
    assert len(count) <= buffersize
    for taken, result in enumerate(itertools.islice(results, 40), start=1):
        assert result == (taken - 1) ** 2
        assert len(count) - taken <= buffersize
    results.close()


def test_several_endless_maps_side_by_side(executor):
    one = executor.map(calls.square, itertools.count(), buffersize=4)
    other = executor.map(calls.add, itertools.count(), itertools.count(), buffersize=4)
    pairs = list(itertools.islice(zip(one, other, strict=False), 30))
    assert pairs == [(i * i, 2 * i) for i in range(30)]
    one.close()
    other.close()


def test_results_are_released_as_they_are_handed_out(executor):
    class Big:
        def __init__(self, x):
            self.x = x

    seen = []
    for result in executor.map(Big, range(30), chunksize=5):
        gone = weakref.ref(result)
        seen.append(result.x)
        del result
        assert gone() is None
    assert seen == list(range(30))


def test_what_was_not_taken_is_cancelled_when_the_iterator_is_dropped(executor, tmp_path):
    runs = tmp_path / "runs"
    gate = tmp_path / "gate"
    results = executor.map(calls.note_and_wait_as, [str(runs)] * 8, ["0", *[str(gate)] * 7], chunksize=1)
    assert next(results) == "0"
    del results
    gc.collect()
    gate.touch()
    executor.shutdown()
    assert len(runs.read_text()) < 8
    assert executor.stats().cancelled > 0


def test_input_with_a_length_is_run_to_its_end_when_leaving_with(tmp_path):
    runs = tmp_path / "runs"
    with Executor(max_workers=2) as executor:
        executor.map(calls.note, [str(runs)] * 500)
    assert len(runs.read_text()) == 500


def test_input_with_a_length_is_run_to_its_end_although_only_the_first_results_were_taken(tmp_path):
    runs = tmp_path / "runs"
    with Executor(max_workers=2) as executor:
        results = executor.map(calls.note, [str(runs)] * 500, chunksize=1)
        next(results)
    assert len(runs.read_text()) == 500
    assert list(results) == [None] * 499


def test_input_without_a_length_is_not_drawn_any_further_when_leaving_with(tmp_path):
    count = []
    with Executor(max_workers=1) as executor:
        results = executor.map(calls.square, drawn(itertools.count(), count))
        next(results)
        before = len(count)
    assert len(count) == before


@pytest.mark.parametrize("cancel_futures", [True, False])
def test_shutdown_may_be_called_again_while_a_map_is_half_taken(cancel_futures):
    with Executor(max_workers=1) as executor:
        results = executor.map(calls.square, range(1000), chunksize=1)
        next(results)
        executor.shutdown(wait=False, cancel_futures=cancel_futures)
    assert (executor.stats().tasks < 1000) == cancel_futures


def test_results_can_be_taken_after_a_shutdown_that_did_not_wait():
    executor = Executor(max_workers=1)
    results = executor.map(calls.square, range(1000), chunksize=1)
    executor.shutdown(wait=False)
    try:
        assert list(results) == [i * i for i in range(1000)]
    finally:
        executor.shutdown()


def test_a_generator_is_as_good_as_a_list(executor):
    assert list(executor.map(calls.square, (i for i in range(200)))) == [i * i for i in range(200)]


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunksize", [None, 1, 4])
def test_an_exception_comes_in_its_place_and_ends_the_iteration(executor, chunksize):
    results = executor.map(divmod, [9] * 10, [1, 2, 3, 0, 5, 6, 0, 8, 9, 10], chunksize=chunksize)
    assert [next(results) for _ in range(3)] == [(9, 0), (4, 1), (3, 0)]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(results) == []


def test_an_item_that_cannot_be_sent_fails_alone(executor):
    items = [1, 2, threading.Lock(), 4, 5]
    results = executor.map(calls.echo, items, chunksize=5)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(PayloadError, match="lock"):
        next(results)


def test_items_after_one_that_cannot_be_sent_run(executor, tmp_path):
    runs = tmp_path / "runs"
    results = executor.map(calls.note_item, [str(runs)] * 3, [1, threading.Lock(), 3], chunksize=3)
    assert next(results) is None
    executor.submit(calls.wait_for_text, str(runs), "13").result()
    with pytest.raises(PayloadError):
        next(results)


def test_an_item_whose_result_cannot_be_sent_fails_alone(executor):
    results = executor.map(calls.lock_at, range(6), [4] * 6, chunksize=6)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(PayloadError, match="cannot be sent"):
        next(results)


def test_a_function_that_cannot_be_sent_fails_every_item(executor):
    lock = threading.Lock()
    results = executor.map(lambda x: (x, lock), range(3))
    with pytest.raises(PayloadError):
        next(results)


def test_what_the_input_raises_reaches_the_caller(executor):
    def broken():
        yield from range(3)
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        list(executor.map(calls.square, broken()))
    assert executor.submit(calls.add, 1, 1).result() == 2


def test_what_the_input_raises_at_the_end_of_with_still_ends_the_executor():
    class Broken(list):
        def __iter__(self):
            yield from range(20)
            raise OSError("no more")

    executor = Executor(max_workers=1)
    executor.map(calls.square, Broken(range(1000)), chunksize=1)
    with pytest.raises(OSError, match="no more"):
        executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(calls.add, 1, 1)


def test_stop_iteration_in_a_call_does_not_look_like_the_end(executor):
    results = executor.map(calls.raise_, [StopIteration(1)])
    with pytest.raises(RuntimeError, match="StopIteration"):
        next(results)


def test_timeout_counts_from_the_call_and_cancels_the_rest(single, tmp_path):
    gate = tmp_path / "gate"
    runs = tmp_path / "runs"
    first = single.submit(calls.wait_for, str(gate))
    results = single.map(calls.note, [str(runs)] * 3, chunksize=1, timeout=0.05)
    with pytest.raises(TimeoutError):
        next(results)
    gate.touch()
    first.result()
    single.shutdown()
    assert not runs.exists()


def test_a_timeout_that_is_long_enough_changes_nothing(executor):
    assert list(executor.map(calls.square, range(100), timeout=60)) == [i * i for i in range(100)]


def test_a_cancelled_map_raises_cancelled(single, tmp_path):
    gate = tmp_path / "gate"
    first = single.submit(calls.wait_for, str(gate))
    while not first.running():
        time.sleep(0.002)
    results = single.map(calls.square, range(10))
    ended = threading.Thread(target=lambda: single.shutdown(cancel_futures=True))
    ended.start()
    with pytest.raises(CancelledError):
        next(results)
    gate.touch()
    ended.join()


def test_map_after_shutdown(executor):
    executor.shutdown()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.map(calls.square, [1])
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.map(calls.square, [])


# --- a worker's death -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fatal", [0, 3, 9])
def test_of_a_chunk_whose_worker_dies_only_the_item_that_ran_fails(executor, fatal):
    from slipstream import WorkerLost

    results = executor.map(calls.die_at, range(10), [fatal] * 10, chunksize=10)
    assert [next(results) for _ in range(fatal)] == [x * x for x in range(fatal)]
    with pytest.raises(WorkerLost, match="exit status 3"):
        next(results)


def test_items_after_the_one_that_killed_its_worker_still_run(tmp_path):
    runs = tmp_path / "runs"
    with Executor(max_workers=1) as executor:
        results = executor.map(calls.die_or_note, range(6), [2] * 6, [str(runs)] * 6, chunksize=6)
        assert [next(results), next(results)] == [None, None]
        executor.submit(calls.wait_for_text, str(runs), "5").result()
    ran = runs.read_text()
    assert set("01345") <= set(ran)
    assert "2" not in ran


def test_items_are_not_kept_once_their_results_are_taken(executor):
    class Item:
        pass

    items = [Item() for _ in range(10)]
    gone = [weakref.ref(item) for item in items]
    source = (items.pop() for _ in range(10))
    results = executor.map(id, source, chunksize=2)
    assert len(list(results)) == 10
    assert [ref() for ref in gone] == [None] * 10
