"""`Executor`: what users call. Checks arguments, encodes, and hands to the engine.

Never here: threads, sockets, states of tasks.
"""

import itertools
import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor as StandardExecutor
from concurrent.futures import Future as StandardFuture
from functools import cache
from types import ModuleType
from typing import Any, ParamSpec, TypeVar, cast

from msgspec import Struct

from slipstream.client import FutureClient
from slipstream.dataflow import Dataflow, MissingInputError
from slipstream.errors import PayloadError, PayloadWarning
from slipstream.future import Future
from slipstream.mapping import Feed
from slipstream.protocol.ids import TaskId
from slipstream.protocol.messages import Submit
from slipstream.runtime import signals
from slipstream.runtime.sides import ClientEngine
from slipstream.serde.buffers import release
from slipstream.serde.callables import callable_label
from slipstream.serde.imports import register_by_value
from slipstream.serde.tasks import LARGE_CALL_BYTES, Encoded, encode_chunk, encode_task
from slipstream.serde.values import INLINE_BYTES, encode_call, encode_value
from slipstream.store.values import Values, Writer

P = ParamSpec("P")
T = TypeVar("T")

#: What a task captures and sends with each call is worth a warning from this size on.
LARGE_STATE_BYTES = 1_000_000
#: Number of worker processes at most.
MAX_PROCESSES = 128
#: Number of workers, where `max_workers` is not given.
WORKERS_VARIABLE = "SLIPSTREAM_WORKERS"


class Stats(Struct, frozen=True):
    """What an executor has done so far. Items of a `map` count as tasks."""

    #: Tasks submitted; and of these, those that returned, raised or were lost, and were cancelled.
    tasks: int
    succeeded: int
    failed: int
    cancelled: int
    #: Frames to and from workers, and the bytes in them.
    frames_sent: int
    frames_received: int
    bytes_sent: int
    bytes_received: int
    #: Definitions of functions that went to workers: one for each function and worker, unless a worker had to drop it.
    callables_sent: int
    #: Turns of the scheduler: at most one frame goes to each worker in each.
    turns: int
    #: Seconds spent encoding calls in `submit` and `map`.
    encode_s: float
    #: Sum of the times that workers measured for finished tasks, decoding and encoding included, in ns.
    run_ns: int
    #: Workers that are up, and that were lost.
    workers: int
    workers_lost: int


class Executor(StandardExecutor):
    """Runs calls as tasks on warm worker processes of this machine.

    Workers are started with the first task, are fresh interpreters (no fork, no `__main__` guard needed), and stay
    until `shutdown`, the end of the `with` block, or the end of the program.

    Args:
        where: None, which is this machine.
        max_workers: number of tasks that run at a time, each in a worker process; default is the variable
            SLIPSTREAM_WORKERS, else the number of CPUs that this process may use.
        max_processes: number of worker processes at most, with those whose tasks wait for tasks that they have
            submitted themselves (see `current_executor`). One more that would wait fails. The default is 128, or
            max_workers if that is more.
        initializer: called in each worker before its first task. If it raises, the executor is broken and every
            future ends with `WorkerLost`.
        initargs: its arguments.
        worker_retries: how often a task runs again whose large result was lost: its file was removed, say. 0 means
            never; the default is 2.
        by_value: modules, or their names, whose functions and classes go by value, as those of a script do: a package
            under edit, or one that workers cannot import. For all executors of the process.
        inline_bytes: a result, or a value that is `put`, travels in messages up to this size (as pickled); a larger one
            is written to a file, from which nobody copies it. Default is 65,536. Numbers, None, and strings of up to
            1,024 characters always travel in messages.
        store_bytes: how many bytes of the shared memory the files of this executor and its workers may take; beyond it
            they go to disk, and a warning says so. Default is half of what is free when the first worker starts; 0 has
            all go to disk. It is kept as the bytes that must stay free, so what others take counts too.

    Raises:
        ValueError: If max_workers is not positive, max_processes is less, or another number is negative; or if `where`
            is anything but None.
        TypeError: If the initializer is not callable, or a number is no integer.
        PayloadError: If the initializer or its arguments cannot be sent.

    Example:
        >>> with Executor(max_workers=2) as executor:
        ...     executor.submit(pow, 2, 5).result()
        ...     list(executor.map(abs, [-1, 2, -3]))
        32
        [1, 2, 3]
    """

    def __init__(
        self,
        where: None = None,
        *,
        max_workers: int | None = None,
        max_processes: int | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        worker_retries: int = 2,
        by_value: Iterable[ModuleType | str] = (),
        inline_bytes: int = INLINE_BYTES,
        store_bytes: int | None = None,
    ) -> None:
        if where is not None:
            raise ValueError(f"where={where!r}: tasks run on this machine only; for workers say max_workers={where!r}")
        workers = _number_of_workers(max_workers)
        most = max(MAX_PROCESSES, workers) if max_processes is None else _number("max_processes", max_processes, 1)
        if most < workers:
            raise ValueError(f"max_processes={most} leaves no room for max_workers={workers}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable, not {initializer!r}")
        _number("inline_bytes", inline_bytes, 0, "bytes")
        if store_bytes is not None:
            _number("store_bytes", store_bytes, 0, "bytes")
        for module in [by_value] if isinstance(by_value, str) else by_value:
            register_by_value(module)
        self._worker_retries = _number("worker_retries", worker_retries, 0)
        setup = b"" if initializer is None else encode_call(initializer, tuple(initargs), {})
        # Here, since a worker whose tasks submit tasks needs neither: 70 of the 170 ms that it took to import.
        from slipstream.pools.local import LocalPool
        from slipstream.runtime.engine import Engine

        _watch_exit()
        client, values = FutureClient(), Values(inline_bytes, store_bytes)
        settings = workers, self._worker_retries
        engine = Engine(lambda: LocalPool(setup, settings), workers, client, values, most)
        task_ids = cast("Iterator[TaskId]", itertools.count(1))  # to call `TaskId` for each takes 0.1 µs
        self._begin(client, engine, values, workers, task_ids)
        # An executor that is dropped ends when its tasks have; the program's end is the engine's own business.
        weakref.finalize(self, _close, engine).atexit = False

    def _begin(
        self, client: FutureClient, engine: ClientEngine, values: Writer, workers: int, task_ids: Iterator[TaskId]
    ) -> None:
        """Take parts that exist: those of this process, or of a worker."""
        self._client, self._engine, self._values, self._workers = client, engine, values, workers
        client.attach(engine, weakref.WeakMethod(self.submit))
        self._task_ids = task_ids
        self._dataflow = Dataflow(self._client, self._engine, self._task_ids)
        self._encode_ns = 0
        #: A task with much captured state has been submitted.
        self._sent_large = False
        #: Maps that nobody has begun to iterate over, and those that somebody has.
        self._waiting_feeds: set[Feed] = set()
        self._begun_feeds: weakref.WeakSet[Feed] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<Executor: {self._workers} workers on this machine, {self._engine.live_tasks()} tasks not ended>"

    def __reduce__(self) -> Any:
        raise TypeError("an Executor cannot be pickled: do not refer to it from what a task takes along")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run `fn(*args, **kwargs)` as a task. All keywords belong to the task.

        The arguments are encoded now: what happens to them later does not matter. If something cannot be sent, the
        future fails with `PayloadError`.

        Raises:
            RuntimeError: After `shutdown`, or in a process that was forked from the one that made the executor.
            WorkerLost: If the executor is broken, since workers cannot be started.
            TypeError: If `fn` is not callable.
        """
        if not callable(fn):
            raise TypeError(f"only a callable can be submitted, not {fn!r}")
        shielded = signals.enter()  # a handler that raises in the middle of encoding would look like a fault of it
        try:
            began = time.perf_counter_ns()
            try:
                encoded = encode_task(fn, args, kwargs, LARGE_CALL_BYTES)
            except PayloadError as error:
                self._engine.refuse_if_over()
                return Future.of_failed(callable_label(fn), error, self._client)
            self._encode_ns += time.perf_counter_ns() - began
            if encoded.state_bytes >= LARGE_STATE_BYTES:
                self._warn_of_state(fn, encoded.state_bytes)
            return self._submit(encoded, 0)
        finally:
            if shielded:
                signals.leave()

    def map(  # pyright: ignore[reportIncompatibleMethodOverride]  # the standard default chunksize is 1
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | None = None,
        chunksize: int | None = None,
        buffersize: int | None = None,
    ) -> Iterator[T]:
        """Call `fn` with one item of each iterable; results in the order of the input.

        Input is drawn as results are taken, so it may be endless. What has a length is run to its end even if nobody
        takes the results: its rest is submitted at `shutdown`, when the `with` block ends, or when the program does.

        Args:
            fn: the callable.
            iterables: the input; the shortest ends it.
            timeout: seconds from now for all results; None for no limit.
            chunksize: items that travel in one task; None follows measured durations.
            buffersize: how many items may be drawn and not yet taken; None for 4 chunks a worker.

        Raises:
            TimeoutError: From the iterator, if a result does not come in time; the items not yet assigned are
                cancelled.
            Exception: From the iterator, whatever the call for an item raised; the same holds.
            RuntimeError: As `submit`.
            ValueError: If chunksize or buffersize is not positive.

        Example:
            >>> from itertools import count
            >>> with Executor(max_workers=1) as executor:
            ...     squares = executor.map(pow, count(), [2, 2, 2], buffersize=4)
            ...     list(squares)
            [0, 1, 4]
        """
        _require_positive("chunksize", chunksize)
        _require_positive("buffersize", buffersize)
        self._engine.refuse_if_over()
        feed = Feed(
            self._submit_chunk, fn, iterables, workers=self._workers, chunksize=chunksize, buffersize=buffersize
        )
        feed.refill()
        if feed.sized and not feed.exhausted:
            self._waiting_feeds.add(feed)
            _waited_for.add(self)
        return self._iterate(feed, feed.results(timeout))

    def put(self, value: T) -> Future[T]:
        """Send a value once, for many tasks: its future is an argument like any other.

        Large values are written to shared memory, where the workers of this machine read them without a copy. The value
        is sent as it is now, and is freed when its future and all that takes it are gone.

        Args:
            value: Anything that can be an argument.

        Raises:
            PayloadError: It cannot be pickled, or there is no room for it.
            RuntimeError: As `submit`.

        Example:
            >>> with Executor(max_workers=1) as executor:
            ...     table = executor.put(list(range(100_000)))
            ...     [executor.submit(len, table).result(), executor.submit(sum, table).result()]
            [100000, 4999950000]
        """
        shielded = signals.enter()
        try:
            self._engine.refuse_if_over()
            try:
                payload = encode_value(value, self._values)
            except OSError as error:
                raise PayloadError(f"the value cannot be put: {error}") from error
            future: Future[T] = Future(self._client, next(self._task_ids), "put")
            self._client.end_with(future, payload)
            self._announce(future, payload)
            return future
        finally:
            if shielded:
                signals.leave()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more tasks, and end the workers when all have ended.

        Args:
            wait: return when all futures have ended, their callbacks have run, and nothing of the executor is left. A
                thread or an exit handler that a task left in a worker may delay that by 5 s; then the worker is killed.
            cancel_futures: cancel what has not been assigned to a worker.
        """
        try:
            if not (cancel_futures or self._engine.over):
                self._submit_rest()
        finally:  # the input of a map may raise
            self._end(wait=wait, cancel_futures=cancel_futures)

    def stats(self) -> Stats:
        """Counters so far.

        Example:
            >>> with Executor(max_workers=1) as executor:
            ...     executor.submit(abs, -1).result()
            ...     executor.stats().succeeded
            1
            1
        """
        return Stats(encode_s=self._encode_ns / 1e9, **self._engine.count())

    def _announce(self, future: Future[Any], payload: bytes) -> None:
        """Say that a value was put. Nothing to say where the engine is in this process, which owns the file then."""

    # --- inside -------------------------------------------------------------------------------------------------------

    def _submit(self, encoded: Encoded, items: int) -> Future[Any]:
        """Submit an encoded call; signals are held back."""
        client, task = self._client, next(self._task_ids)
        future: Future[Any] = Future(client, task, encoded.label)
        _note_sizes(future, encoded)
        payload = encoded.payload
        try:
            client.futures[task] = future
            inputs: Sequence[TaskId | bytes] = ()
            expected: dict[TaskId, StandardFuture[Any]] = {}
            if encoded.buffers or not isinstance(payload, bytes):
                payload, inputs = self._store(encoded)
            if encoded.inputs:
                numbered, expected = self._dataflow.inputs_of(future, encoded.inputs)
                inputs = (*numbered, *inputs)
            message = Submit(
                task,
                encoded.digest,
                payload,
                items,
                value_retries=self._worker_retries,
                inputs=tuple(inputs),
                definition=encoded.definition,
                classes_digest=encoded.classes_digest,
                classes=encoded.classes,
            )
            if expected:
                self._dataflow.submit(message, expected)
            else:
                self._engine.submit(message)
        except BaseException as error:
            client.futures.pop(task, None)
            if isinstance(error, MissingInputError):
                self._engine.refuse_if_over()
                return Future.of_missing_input(client, encoded.label, error.cause)
            if isinstance(error, PayloadError):
                return Future.of_failed(encoded.label, error, client)
            raise
        return future

    def _store(self, encoded: Encoded) -> tuple[bytes, list[bytes]]:
        """Write the call, if it is large, and the memory of arrays among its arguments to files: what travels."""
        write, payload = self._values.write_once, encoded.payload
        try:
            return (
                payload if isinstance(payload, bytes) else write(payload, []),
                [write((), [buffer]) for buffer in encoded.buffers],
            )
        except OSError as error:
            raise PayloadError(f"task {encoded.label!r} cannot be sent: {error}") from error
        finally:
            release(encoded.buffers)

    def _submit_chunk(self, fn: Callable[..., Any], items: list[Any], *, spread: bool) -> Future[list[Any]]:
        shielded = signals.enter()
        try:
            began = time.perf_counter_ns()
            encoded = encode_chunk(fn, items, spread=spread, large_bytes=LARGE_CALL_BYTES)
            self._encode_ns += time.perf_counter_ns() - began
            if encoded.state_bytes >= LARGE_STATE_BYTES:
                self._warn_of_state(fn, encoded.state_bytes)
            return self._submit(encoded, len(items))
        finally:
            if shielded:
                signals.leave()

    def _warn_of_state(self, fn: Callable[..., Any], state_bytes: int) -> None:
        """From the second time on that much is sent: a task that runs once may well take along what it likes."""
        if self._sent_large:
            from slipstream.serde.blame import state_warning

            text = state_warning(fn, state_bytes)
            if text is not None:
                warnings.warn(text, PayloadWarning, stacklevel=3)
        self._sent_large = True

    def _iterate(self, feed: Feed, results: Generator[Any, None, None]) -> Generator[Any, None, None]:
        self._waiting_feeds.discard(feed)
        if not self._waiting_feeds:
            _waited_for.discard(self)
        self._begun_feeds.add(feed)
        yield from results

    def _end(self, *, wait: bool, cancel_futures: bool) -> None:
        self._waiting_feeds.clear()
        _waited_for.discard(self)
        shielded = signals.enter()
        try:
            self._engine.close()
            if cancel_futures:
                self._engine.cancel_pending()
            if wait:
                self._engine.wait_ended()
        finally:
            if shielded:
                signals.leave()

    def _submit_rest(self) -> None:
        """Submit what is left of maps whose input has an end."""
        for feed in (*self._waiting_feeds, *self._begun_feeds):
            if feed.sized:
                feed.submit_rest()


#: Executors with a map that nobody has begun to iterate over: they are not to be collected before it has run.
_waited_for: set[Executor] = set()


def _at_exit() -> None:
    for executor in list(_waited_for):
        executor.shutdown()


@cache
def _watch_exit() -> None:
    """Once, after the engine's own look at the exit has been registered, so called before it."""
    threading._register_atexit(_at_exit)  # pyright: ignore


def _close(engine: ClientEngine) -> None:
    shielded = signals.enter()
    try:
        engine.close()
    finally:
        if shielded:
            signals.leave()


def _note_sizes(future: Future[Any], encoded: Encoded) -> None:
    """Write what the task takes to send into its future."""
    payload = encoded.payload
    future._sent_bytes = len(payload) if isinstance(payload, bytes) else sum(map(len, payload))  # pyright: ignore
    if encoded.definition or encoded.classes:
        future._definition_bytes = len(encoded.definition) + len(encoded.classes)  # pyright: ignore
        future._state_bytes = encoded.state_bytes  # pyright: ignore
    if encoded.buffers:
        future._sent_bytes += sum([memoryview(buffer).nbytes for buffer in encoded.buffers])  # pyright: ignore


def _number_of_workers(asked: int | None) -> int:
    if asked is None:
        from_environment = os.environ.get(WORKERS_VARIABLE)
        if not from_environment:
            return len(os.sched_getaffinity(0))
        try:
            asked = int(from_environment)
        except ValueError:
            raise ValueError(f"{WORKERS_VARIABLE}={from_environment!r} is not a number of workers") from None
    _require_positive("max_workers", asked)
    return asked


def _require_positive(name: str, value: int | None) -> None:
    if value is not None:
        _number(name, value, 1)


def _number(name: str, value: int, least: int, unit: str = "") -> int:
    if not isinstance(value, int) or isinstance(value, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name} must be an integer{unit and f' number of {unit}'}, not {value!r}")
    if value < least:
        bound = f"greater than {least - 1}" if least else "0 or more"
        raise ValueError(f"{name} must be {bound}{unit and f' {unit}'}, not {value}")
    return value
