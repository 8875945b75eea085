"""The input side of `map`, against a submit that only writes down: windows, chunks and what they are measured by."""

from concurrent.futures._base import FINISHED
from itertools import count, product

import pytest

from slipstream import PayloadError, WorkerLost
from slipstream.future import Future
from slipstream.mapping import CHUNK_NS, MAX_CHUNK_ITEMS, WINDOW_CHUNKS_PER_WORKER, Feed

US = 1_000
MS = 1_000_000


class Chunks:
    """Takes chunks. They end at once with the duration that is set, or when they are told to."""

    def __init__(self, item_ns=None) -> None:
        #: What each item takes; None leaves chunks pending.
        self.item_ns = item_ns
        self.chunks = []
        self.futures = []
        self.spread = set()
        self.refuses = ()

    def __call__(self, fn, items, *, spread):
        if any(item in self.refuses for item in items):
            raise PayloadError("it cannot be sent")
        future = Future()
        self.chunks.append(list(items))
        self.futures.append(future)
        self.spread.add(spread)
        if self.item_ns is not None:
            self.end(len(self.chunks) - 1)
        return future

    @property
    def sizes(self):
        return [len(items) for items in self.chunks]

    def end(self, index, item_ns=None):
        """End a chunk: each result is the item itself."""
        future = self.futures[index]
        future._result = list(self.chunks[index])
        future.duration_ns = (self.item_ns or item_ns) * len(future._result)
        future.failures = ()
        future._end(FINISHED)

    def fail(self, index, error):
        self.futures[index]._fail(error)
        self.futures[index]._end(FINISHED)


def feed_of(chunks, *iterables, workers=2, chunksize=None, buffersize=None):
    return Feed(chunks, abs, iterables, workers=workers, chunksize=chunksize, buffersize=buffersize)


class Drawn:
    """An endless input that knows how far it was drawn."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.count += 1
        return self.count - 1


# --- windows ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workers", "chunksize"), [(1, None), (1, 7), (2, 1), (5, None), (5, 7)])
def test_the_window_is_four_chunks_a_worker(workers, chunksize):
    chunks, source = Chunks(), Drawn()
    feed = feed_of(chunks, source, workers=workers, chunksize=chunksize)
    feed.refill()
    assert chunks.sizes == [chunksize or 1] * (WINDOW_CHUNKS_PER_WORKER * workers)
    assert source.count == sum(chunks.sizes)
    feed.refill()
    assert source.count == sum(chunks.sizes) == (chunksize or 1) * WINDOW_CHUNKS_PER_WORKER * workers


def test_each_chunk_that_is_taken_makes_room_for_the_next():
    chunks = Chunks()
    feed = feed_of(chunks, Drawn(), chunksize=3)
    feed.refill()
    results = feed.results(None)
    for number in range(5):
        chunks.end(number, US)
        assert [next(results) for _ in range(3)] == [3 * number, 3 * number + 1, 3 * number + 2]
        assert len(chunks.chunks) == 8 + number  # the last of its results was taken, and nobody asked for the next
    results.close()


def test_results_come_in_order_whatever_the_order_of_the_ends():
    chunks = Chunks()
    feed = feed_of(chunks, range(8), chunksize=2)
    feed.refill()
    for index in (3, 1, 0, 2):
        chunks.end(index, US)
    assert list(feed.results(None)) == list(range(8))


def test_a_feed_that_is_dropped_cancels_and_draws_no_more():
    chunks, source = Chunks(), Drawn()
    feed = feed_of(chunks, source)
    feed.refill()
    drawn = source.count
    chunks.end(0, US)
    results = feed.results(None)
    assert next(results) == 0
    results.close()
    assert feed.exhausted
    assert all(future.cancelled() for future in chunks.futures[1:])
    feed.refill()
    assert source.count == drawn


# --- buffersize -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("buffersize", [1, 2, 7, 64, 1000])
def test_never_more_than_buffersize_items_are_drawn_and_not_taken(buffersize):
    for item_ns, chunksize in product([1, 10 * US, 50 * MS], [None, 1, 5, 1000]):
        chunks, source = Chunks(item_ns), Drawn()
        feed = feed_of(chunks, source, chunksize=chunksize, buffersize=buffersize)
        feed.refill()
        assert source.count <= buffersize
        results = feed.results(None)
        most = 0
        for taken in range(3 * buffersize + 10):
            assert next(results) == taken
            # The one that `next` has just returned counts as taken when the next is asked for.
            assert source.count - taken <= buffersize
            most = max(most, source.count - taken)
        assert most > buffersize // 2  # and it is used
        results.close()


def test_a_small_buffer_gives_every_worker_something():
    chunks = Chunks(1)
    feed = feed_of(chunks, Drawn(), workers=4, buffersize=64)
    results = feed.results(None)
    feed.refill()
    for _ in range(640):
        next(results)
    assert max(chunks.sizes) == 64 // (WINDOW_CHUNKS_PER_WORKER * 4)
    results.close()


# --- sizes of chunks --------------------------------------------------------------------------------------------------


def run_all(chunks, feed):
    feed.refill()
    return list(feed.results(None))


@pytest.mark.parametrize("item_ns", [1 * US, 20 * US, 400 * US, 3 * MS])
def test_chunks_grow_to_five_milliseconds_by_what_was_measured(item_ns):
    chunks = Chunks(item_ns)
    feed = feed_of(chunks, Drawn())
    feed.refill()
    expected = min(CHUNK_NS // item_ns, MAX_CHUNK_ITEMS)
    assert chunks.sizes == [1] + [expected] * 7
    assert expected * item_ns <= CHUNK_NS


def test_chunks_follow_durations_that_change():
    chunks = Chunks(1 * US)
    feed = feed_of(chunks, Drawn(), workers=1)
    feed.refill()
    results = feed.results(None)
    assert chunks.sizes[-1] == 5_000
    chunks.item_ns = 1 * MS
    while chunks.sizes[-1] == 5_000:
        next(results)
    while len(set(chunks.sizes[-3:])) != 1 or chunks.sizes[-1] == 5_000:
        next(results)
    assert chunks.sizes[-1] == 5
    chunks.item_ns = 100 * US
    while chunks.sizes[-1] == 5:
        next(results)
    assert chunks.sizes[-1] == 50
    results.close()


def test_nothing_is_put_together_before_something_was_measured():
    chunks = Chunks()
    feed = feed_of(chunks, Drawn())
    feed.refill()
    assert set(chunks.sizes) == {1}
    chunks.end(0, 10 * US)
    results = feed.results(None)
    next(results)
    chunks.end(1, 10 * US)
    next(results)
    assert chunks.sizes[8] == 500
    results.close()


def test_items_that_take_no_time_have_a_largest_chunk():
    chunks = Chunks(1)
    chunks.end, end = lambda index, item_ns=None: (end(index, item_ns), zero(chunks.futures[index])), chunks.end

    def zero(future):
        future.duration_ns = 0

    feed = feed_of(chunks, Drawn(), workers=1)
    feed.refill()
    assert chunks.sizes == [1, *[MAX_CHUNK_ITEMS] * 3]


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_input_with_a_length_ends_in_small_chunks(workers):
    for items in (0, 1, 2, 10, 1_000, 20_000):
        chunks = Chunks(1 * US)
        feed = feed_of(chunks, range(items), workers=workers)
        assert feed.sized
        assert run_all(chunks, feed) == list(range(items))
        assert sum(chunks.sizes) == items
        left = items
        for size in chunks.sizes:
            assert size <= max(1, -(-left // (2 * workers)))  # what is left is shared by all, twice
            left -= size
        assert chunks.sizes[-1:] in ([], [1])
        falling = chunks.sizes[1:]
        assert falling == sorted(falling, reverse=True)


def test_input_without_a_length_does_not_shrink():
    chunks = Chunks(1 * US)
    feed = feed_of(chunks, iter(range(20_001)), workers=2)
    assert not feed.sized
    assert run_all(chunks, feed) == list(range(20_001))
    assert chunks.sizes == [1, 5_000, 5_000, 5_000, 5_000]


@pytest.mark.parametrize("chunksize", [1, 3, 10, 100])
def test_a_given_chunksize_is_kept_but_for_the_last(chunksize):
    chunks = Chunks(1 * US)
    assert run_all(chunks, feed_of(chunks, range(50), chunksize=chunksize)) == list(range(50))
    assert set(chunks.sizes[:-1]) <= {chunksize}
    assert sum(chunks.sizes) == 50


# --- several iterables, the rest, and items that fail -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("iterables", "sized", "items"),
    [
        (([1, 2, 3],), True, [1, 2, 3]),
        (([1, 2, 3], "ab"), True, [(1, "a"), (2, "b")]),
        (([1, 2], count()), False, [(1, 0), (2, 1)]),
        ((), True, []),
    ],
)
def test_the_shortest_iterable_ends_the_input(iterables, sized, items):
    chunks = Chunks(1 * US)
    feed = feed_of(chunks, *iterables)
    assert feed.sized == sized
    assert run_all(chunks, feed) == items
    assert chunks.spread <= {len(iterables) != 1}


def test_the_rest_is_submitted_whatever_the_window():
    chunks = Chunks()
    feed = feed_of(chunks, range(100), workers=1, buffersize=4)
    feed.refill()
    assert sum(chunks.sizes) == 4
    feed.submit_rest()
    assert [item for items in chunks.chunks for item in items] == list(range(100))
    assert feed.exhausted


def test_of_a_chunk_that_was_lost_the_others_run_singly_and_in_place():
    chunks = Chunks()
    feed = feed_of(chunks, range(6), chunksize=3)
    feed.refill()
    lost = WorkerLost("lost", reason="lost", signal=9, exit_status=None, last_output="", item=1)
    chunks.fail(0, lost)
    chunks.end(1, US)
    results = feed.results(None)
    chunks.item_ns = US  # what runs again ends at once
    assert next(results) == 0
    assert chunks.chunks[2:] == [[0], [2]]
    with pytest.raises(WorkerLost):
        next(results)


def test_an_item_that_cannot_be_sent_fails_in_its_place():
    chunks = Chunks(1 * US)
    chunks.refuses = {4}
    feed = feed_of(chunks, range(9), chunksize=3)
    feed.refill()
    results = feed.results(None)
    assert [next(results) for _ in range(4)] == [0, 1, 2, 3]
    with pytest.raises(PayloadError):
        next(results)
    assert [5] in chunks.chunks
