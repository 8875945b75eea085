"""`Executor.map`: items in, results out in order, through tasks of many items each.

A chunk is one task with n items. Its size follows what the workers measure, so that a chunk takes a few milliseconds:
small enough to spread, large enough that the cost of a task is shared. Input is drawn only as results are taken: the
window is 4 chunks a worker, or `buffersize` items.

Never here: how a chunk is run (worker.runner), or any state of tasks.
"""

import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sized
from itertools import islice
from typing import Any, NamedTuple, Protocol

from slipstream.errors import DependencyError, PayloadError, WorkerLost
from slipstream.future import Future
from slipstream.serde.callables import callable_label
from slipstream.serde.exceptions import decode_exception
from slipstream.serde.values import encode_call

#: A chunk is meant to take this long. A worker is filled to 15 ms of work, so it has the next chunk when one ends.
CHUNK_NS = 5_000_000
MAX_CHUNK_ITEMS = 32_768
WINDOW_CHUNKS_PER_WORKER = 4


#: What makes a chunk fail as a whole: its worker was lost, it could not be loaded, or a future among its items failed.
_WHOLE = (WorkerLost, PayloadError, DependencyError)


class SubmitChunk(Protocol):
    """Submits one chunk; raises PayloadError if it cannot be encoded."""

    def __call__(self, fn: Callable[..., Any], items: list[Any], *, spread: bool) -> Future[list[Any]]:
        """Each item is the one argument, or if `spread` the tuple of arguments."""
        ...


class _Chunk(NamedTuple):
    items: list[Any]
    future: Future[list[Any]]


def _common_length(iterables: tuple[Iterable[Any], ...]) -> int | None:
    lengths = [len(iterable) for iterable in iterables if isinstance(iterable, Sized)]
    return min(lengths, default=0) if len(lengths) == len(iterables) else None


class Feed:
    """The input side of one map: draws items, submits chunks, keeps them in order until their results are taken.

    Args:
        submit: submits one chunk.
        fn: called with one item of each iterable.
        iterables: the input; the shortest ends it.
        workers: how many workers there are.
        chunksize: items in each chunk; None measures.
        buffersize: how many items may be drawn and not taken; None for 4 chunks a worker.
    """

    def __init__(
        self,
        submit: SubmitChunk,
        fn: Callable[..., Any],
        iterables: tuple[Iterable[Any], ...],
        *,
        workers: int,
        chunksize: int | None,
        buffersize: int | None,
    ) -> None:
        self._submit = submit
        self._fn = fn
        self._spread = len(iterables) != 1
        self._source: Iterator[Any] = zip(*iterables, strict=False) if self._spread else iter(iterables[0])
        self._workers = workers
        self._chunksize = chunksize
        self._buffersize = buffersize
        #: Items left, where every iterable has a length.
        self._left = _common_length(iterables)
        self._chunks: deque[_Chunk] = deque()
        #: Items drawn whose results have not all been taken.
        self._outstanding = 0
        self._item_ns: int | None = None
        #: A thread is drawing: at a shutdown another one leaves the rest to it.
        self._drawing = False
        self.exhausted = False

    @property
    def sized(self) -> bool:
        """Whether the input's length is known, so that it has an end."""
        return self._left is not None

    def refill(self) -> None:
        """Draw and submit until the window is full."""
        self._drawing = True
        try:
            self._fill_window()
        finally:
            self._drawing = False

    def _fill_window(self) -> None:
        while not self.exhausted:
            size = self._chunk_items()
            if self._buffersize is not None:
                room = self._buffersize - self._outstanding
                if room <= 0 or (room < size and self._chunks):
                    return
                size = min(size, room)
            elif len(self._chunks) >= WINDOW_CHUNKS_PER_WORKER * self._workers:
                return
            self._draw(size)

    def submit_rest(self) -> None:
        """Draw and submit all that is left, whatever the window: the executor takes no more tasks after this."""
        while not (self.exhausted or self._drawing):
            self._draw(self._chunk_items())

    def cancel(self) -> None:
        """Draw no more, and cancel what has not been assigned."""
        self.exhausted = True
        while self._chunks:
            self._chunks.pop().future.cancel()

    def results(self, timeout: float | None) -> Generator[Any, None, None]:
        """Results in order.

        Args:
            timeout: seconds from now for all of them; None for no limit.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        return self._results(deadline)

    def _results(self, deadline: float | None) -> Generator[Any, None, None]:
        try:
            while self._chunks:
                values, failures = self._take(deadline)
                count = len(values)
                values.reverse()  # each is dropped from here when it is handed out
                for index, payload in failures:
                    while len(values) > count - index:
                        yield values.pop()
                    raise decode_exception(payload)
                while values:
                    yield values.pop()
                self._outstanding -= count
                self.refill()
        finally:
            self.cancel()

    def _take(self, deadline: float | None) -> tuple[list[Any], tuple[tuple[int, bytes], ...]]:
        """Wait for the first chunk, and take its results from its future."""
        while True:
            items, future = self._chunks[0]
            try:
                values = future.result(None if deadline is None else deadline - time.monotonic())
            except _WHOLE as error:
                if len(items) == 1 or future.succeeded:  # it has run, and cannot be loaded here
                    raise
                self._chunks.extendleft(reversed(self._singles(self._chunks.popleft(), error)))
            else:
                self._chunks.popleft()
                self._item_ns = future.duration_ns // len(items)
                return values, future.failures

    def _singles(self, chunk: _Chunk, error: BaseException) -> list[_Chunk]:
        """The items of a chunk that failed as a whole, submitted anew, but for the one that its lost worker ran."""
        culprit = error.item if isinstance(error, WorkerLost) else None
        label = callable_label(self._fn)
        return [
            _Chunk([item], Future.of_failed(label, error) if index == culprit else self._submit_one(item))
            for index, item in enumerate(chunk.items)
        ]

    def _submit_one(self, item: Any) -> Future[list[Any]]:
        try:
            return self._submit(self._fn, [item], spread=self._spread)
        except PayloadError as error:
            return Future.of_failed(callable_label(self._fn), self._explain(item, error))
        except RuntimeError as error:  # the executor takes no more tasks
            return Future.of_failed(callable_label(self._fn), error)

    def _explain(self, item: Any, error: PayloadError) -> PayloadError:
        """The error in the words of the user's call, who knows of no chunks."""
        try:
            encode_call(self._fn, tuple(item) if self._spread else (item,), {})
        except PayloadError as explained:
            return explained
        return error

    def _draw(self, size: int) -> None:
        items = list(islice(self._source, size))
        if not items:
            self.exhausted = True
            return
        if self._left is not None:
            self._left = max(self._left - len(items), 0)
        self._outstanding += len(items)
        try:
            self._chunks.append(_Chunk(items, self._submit(self._fn, items, spread=self._spread)))
        except PayloadError:  # of one of the items, most likely: it alone is to fail
            self._chunks.extend(_Chunk([item], self._submit_one(item)) for item in items)

    def _chunk_items(self) -> int:
        """How many items the next chunk gets. One, until something has been measured."""
        if self._chunksize is not None:
            return min(self._chunksize, sys.maxsize)
        if self._item_ns is None and not self._measure():
            return 1
        size = min(CHUNK_NS // max(self._item_ns or 0, 1), MAX_CHUNK_ITEMS)
        if self._buffersize is not None:
            size = min(size, self._buffersize // (WINDOW_CHUNKS_PER_WORKER * self._workers))
        if self._left:  # a list may have grown in the meantime
            size = min(size, -(-self._left // (2 * self._workers)))
        return max(size, 1)

    def _measure(self) -> bool:
        """Learn from the first chunk, which may have ended before its result is asked for."""
        if self._chunks:
            items, future = self._chunks[0]
            if future.done() and future.succeeded:
                self._item_ns = future.duration_ns // len(items)
        return self._item_ns is not None
