"""A worker dies in a chunk of a map: the item that it ran is lost, and no other."""

import signal

import fatal
import pytest
from processes import assert_goes_on

import calls
from slipstream import Executor, PayloadError, WorkerLost


def outcomes(executor, function, items, **options):
    """What each item gives. An iterator ends with its first error: the items behind it are asked for anew."""
    found = []
    while len(found) < len(items):
        results = executor.map(function, items[len(found) :], **options)
        try:
            found.extend(results)
        except (PayloadError, WorkerLost, ZeroDivisionError) as error:
            found.append(error)
    return found


def taken_until(results, error):
    """The results before the first error, and that error."""
    taken = []
    with pytest.raises(error) as caught:
        taken.extend(results)
    return taken, caught.value


@pytest.mark.parametrize("fatal_item", [0, 57, 99])
@pytest.mark.parametrize("chunksize", [1, 10, None])
def test_the_items_before_the_lost_one_are_right(executor, fatal_item, chunksize):
    results = executor.map(fatal.square_unless, range(100), [fatal_item] * 100, chunksize=chunksize)
    taken, error = taken_until(results, WorkerLost)
    assert taken == [n * n for n in range(fatal_item)]
    assert (error.exit_status, error.signal) == (3, None)
    assert error.item == fatal_item % chunksize if chunksize else error.item is not None
    assert_goes_on(executor, 2, lost=1)


def test_the_items_behind_the_lost_one_are_run(tmp_path):
    """Also those of the same chunk: each once, in a worker that takes the place of the dead one."""
    path = tmp_path / "ran"
    with Executor(max_workers=1) as executor:
        results = executor.map(calls.die_or_note, range(20), [7] * 20, [str(path)] * 20, chunksize=10)
        taken, _ = taken_until(results, WorkerLost)
        assert taken == [None] * 7
    # What was assigned when the error came ran, the rest was cancelled.
    assert path.read_text().startswith("0123456")
    assert "7" not in path.read_text()[7:8]


def test_every_item_of_a_map_gives_its_own_outcome(executor):
    fatal_ones = (3, 4, 29, 59)
    found = outcomes(
        executor, lambda n: fatal.square_unless(n, n if n in fatal_ones else None), list(range(60)), chunksize=15
    )
    assert tuple(n for n in range(60) if type(found[n]) is WorkerLost) == fatal_ones
    assert [found[n] for n in range(60) if n not in fatal_ones] == [n * n for n in range(60) if n not in fatal_ones]
    assert_goes_on(executor, 2)  # chunks that were assigned when an error came have run twice


def test_two_fatal_items_in_one_chunk_cost_one_worker_each(single):
    results = single.map(fatal.square_unless, range(10), [2] * 10, chunksize=10)
    taken, first = taken_until(results, WorkerLost)
    assert (taken, first.item) == ([0, 1], 2)
    assert_goes_on(single, 1, lost=1)


def test_the_last_output_of_a_lost_item(single):
    def speak(n):
        print(f"item {n}")
        if n == 4:
            calls.die(signal.SIGSEGV)

    taken, error = taken_until(single.map(speak, range(8), chunksize=8), WorkerLost)
    assert taken == [None] * 4
    assert error.signal == signal.SIGSEGV
    assert error.last_output.splitlines()[-1] == "item 4"


def test_an_item_that_raises_and_one_that_kills_in_one_chunk(executor):
    def divide_or_die(n):
        if n == 5:
            calls.die()
        return 10 / (n - 3)

    found = outcomes(executor, divide_or_die, list(range(8)), chunksize=8)
    kinds = [type(outcome).__name__ for outcome in found]
    assert kinds == ["float", "float", "float", "ZeroDivisionError", "float", "WorkerLost", "float", "float"]


@pytest.mark.parametrize("chunksize", [1, 5, 20, None])
def test_an_item_that_cannot_be_loaded_fails_alone(executor, chunksize):
    """The whole chunk cannot be loaded then; its other items still can."""
    items = [*range(12), fatal.LoadsNot(), *range(13, 20)]
    results = executor.map(calls.echo, items, chunksize=chunksize)
    taken, error = taken_until(results, PayloadError)
    assert taken == items[:12]
    assert "it does not load here" in str(error)
    found = outcomes(executor, calls.echo, items, chunksize=chunksize)
    assert [type(outcome) is PayloadError for outcome in found] == [n == 12 for n in range(20)]
    assert [*found[:12], *found[13:]] == [*items[:12], *items[13:]]
    assert_goes_on(executor, 2, lost=0)


def test_items_whose_loading_ends_the_worker(executor):
    """Nothing was begun then, so which item it is shows only when they run singly."""

    class Fatal:
        def __reduce__(self):
            return calls.die, ()

    items = [*range(6), Fatal(), *range(7, 10)]
    taken, error = taken_until(executor.map(calls.echo, items, chunksize=10), WorkerLost)
    assert taken == items[:6]
    assert error.signal == signal.SIGKILL
    assert_goes_on(executor, 2)


def test_a_result_of_a_chunk_that_cannot_be_sent_fails_alone(executor):
    taken, error = taken_until(executor.map(calls.lock_at, range(10), [6] * 10, chunksize=10), PayloadError)
    assert taken == list(range(6))
    assert "lock" in str(error)
