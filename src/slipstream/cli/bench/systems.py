"""What the bench measures: Slipstream and its peers, each behind the same three calls.

Only adapters live here, as thin as they can be, for what an adapter costs is counted as the peer's; those of dask and
ray are in `clusters`. No loops, no clock.
"""

import platform
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from importlib.util import find_spec
from operator import methodcaller
from time import perf_counter
from typing import Any, Protocol

from slipstream.cli.bench.clusters import DaskSystem, RaySystem, prepare_for_ray

OURSELVES = "slipstream"


class System(Protocol):
    """A pool of warm workers, open."""

    @property
    def takes_futures(self) -> bool:
        """Whether what is pending can be an argument, and its value gets there without the client."""
        ...

    @property
    def submit(self) -> Callable[..., Any]:
        """(function, values) → something pending."""
        ...

    @property
    def result(self) -> Callable[[Any], Any]:
        """Something pending → its value, when it is there."""
        ...

    def fan_in(self, function: Callable[[list[Any]], Any], waiting: list[Any]) -> Any:
        """Submit the function with a list of what is pending as its only argument."""
        ...

    def large(self, value: Any) -> Any:
        """What a user would submit for a large value."""
        ...

    def map(self, function: Callable[[int], int], values: Sequence[int], chunksize: int | None) -> Iterable[int]:
        """The function over all values, in order; None: the system's default chunk."""
        ...

    def account(self) -> dict[str, float]:
        """The system's own counters; empty where it has none."""
        ...

    def close(self) -> None:
        """Ends the workers."""
        ...


class _Plain:
    """What most systems have in common: futures are no arguments, and large values go as small ones do."""

    submit: Callable[..., Any]
    takes_futures = False

    def fan_in(self, function: Callable[[list[Any]], Any], waiting: list[Any]) -> Any:
        """Like any other task."""
        return self.submit(function, waiting)

    def large(self, value: Any) -> Any:
        """As it is."""
        return value


class FuturesSystem(_Plain):
    """Any `concurrent.futures.Executor`."""

    def __init__(self, executor: Any, *, takes_futures: bool = False) -> None:
        self._executor = executor
        self.takes_futures = takes_futures
        self.submit = executor.submit
        self.result: Callable[[Any], int] = methodcaller("result")

    def map(self, function: Callable[[int], int], values: Sequence[int], chunksize: int | None) -> Iterable[int]:
        """Executor.map, with `chunksize` only where one is given."""
        chunks = {} if chunksize is None else {"chunksize": chunksize}
        return self._executor.map(function, values, **chunks)

    def account(self) -> dict[str, float]:
        """The integers and seconds of `stats()`, where the executor has it."""
        if not hasattr(self._executor, "stats"):
            return {}
        stats = self._executor.stats()
        names = ("tasks", "frames_sent", "frames_received", "bytes_sent", "bytes_received", "encode_s", "run_ns")
        return {name: getattr(stats, name) for name in names}

    def close(self) -> None:
        """Waits for the workers' end."""
        self._executor.shutdown(wait=True)


class PoolSystem(_Plain):
    """`multiprocessing.Pool` and what has its interface."""

    def __init__(self, pool: Any, end: str) -> None:
        self._pool = pool
        self._end = end
        self.result: Callable[[Any], int] = methodcaller("get")

    def submit(self, function: Callable[[int], int], value: int) -> Any:
        """Pool.apply_async, which takes the arguments as a tuple."""
        return self._pool.apply_async(function, (value,))

    def map(self, function: Callable[[int], int], values: Sequence[int], chunksize: int | None) -> Iterable[int]:
        """Pool.map, whose default chunk depends on the number of values."""
        return self._pool.map(function, values) if chunksize is None else self._pool.map(function, values, chunksize)

    def account(self) -> dict[str, float]:
        """Pools count nothing."""
        return {}

    def close(self) -> None:
        """By the call that this pool has for its end, then waits for the workers."""
        getattr(self._pool, self._end)()
        if hasattr(self._pool, "join"):
            self._pool.join()


class ParslPayloads(_Plain):
    """What Parsl does to a call before it sends it, and nothing else: the call runs here."""

    def __init__(self, pack: Callable[..., bytes]) -> None:
        self._pack = pack
        self._account = {"tasks": 0.0, "encode_s": 0.0, "bytes_sent": 0.0}

    def submit(self, function: Callable[[int], int], value: int) -> int:
        """Encode the call, then run it."""
        began = perf_counter()
        payload = self._pack(function, (value,), {})
        self._account["encode_s"] += perf_counter() - began
        self._account["bytes_sent"] += len(payload)
        self._account["tasks"] += 1
        return function(value)

    def result(self, pending: int) -> int:
        """It is there."""
        return pending

    def map(self, function: Callable[[int], int], values: Sequence[int], chunksize: int | None) -> Iterable[int]:
        """Not of interest."""
        raise NotImplementedError

    def account(self) -> dict[str, float]:
        """What was encoded so far."""
        return dict(self._account)

    def close(self) -> None:
        """Nothing was opened."""


#: Number of workers → an open system. Making one must import nothing that a user would import before.
Opener = Callable[[int], System]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A system that may be installed: how it is called, where it comes from, how to load and then open it."""

    name: str
    title: str
    module: str
    load: Callable[[Any], Opener]
    #: None: part of Python.
    distribution: str | None = None
    #: Chunks to choose the best from, where the default of `map` is one item at a time.
    chunksizes: tuple[int, ...] = ()
    #: The measure of the others: always runs as many tasks as Slipstream.
    reference: bool = False
    #: Takes seconds to start, to stop or for a task, and so most of a quick run: that goes without it unless asked.
    slow: bool = False
    #: Runs no tasks: there for the patterns that name it only.
    encodes_only: bool = False
    #: Called before the system is imported.
    prepare: Callable[[], None] | None = None

    @property
    def installed(self) -> bool:
        """Whether its module can be found; nothing is imported to see."""
        return find_spec(self.module) is not None

    @property
    def version(self) -> str:
        """Of the distribution, or of Python for what comes with it."""
        return metadata.version(self.distribution) if self.distribution else f"python {platform.python_version()}"

    def opener(self) -> Opener:
        """Import the system, so that opening it later does not pay for that."""
        if self.prepare is not None:
            self.prepare()
        return self.load(import_module(self.module))


def _load_slipstream(module: Any) -> Opener:
    executor = module.Executor
    return lambda workers: FuturesSystem(executor(max_workers=workers), takes_futures=True)


def _load_process_pool(module: Any) -> Opener:
    executor = module.ProcessPoolExecutor
    return lambda workers: FuturesSystem(executor(max_workers=workers))


def _load_pool(module: Any) -> Opener:
    # Imported already by pool's users: `multiprocessing.Pool` itself imports it only when called.
    import_module("multiprocessing.pool")
    return lambda workers: PoolSystem(module.Pool(workers), end="close")


def _load_mpire(module: Any) -> Opener:
    pool = module.WorkerPool
    return lambda workers: PoolSystem(pool(n_jobs=workers, keep_alive=True), end="terminate")


def _load_executorlib(module: Any) -> Opener:
    # Its default starts a process for each task; block allocation is its mode with warm workers.
    executor = module.SingleNodeExecutor
    return lambda workers: FuturesSystem(executor(max_workers=workers, block_allocation=True))


def _load_parsl(module: Any) -> Opener:
    pack = import_module("parsl.serialize").pack_apply_message
    return lambda workers: ParslPayloads(pack)


def _load_dask(module: Any) -> Opener:
    return lambda workers: DaskSystem(module, workers)


def _load_ray(module: Any) -> Opener:
    return lambda workers: RaySystem(module, workers)


_CHUNKSIZES = (1_000, 10_000, 50_000)

#: Every system that the bench knows, by name.
CANDIDATES: dict[str, Candidate] = {
    candidate.name: candidate
    for candidate in (
        Candidate(OURSELVES, "slipstream.Executor", "slipstream", _load_slipstream, "slipstream"),
        Candidate(
            "ppe",
            "concurrent.futures.ProcessPoolExecutor",
            "concurrent.futures",
            _load_process_pool,
            chunksizes=_CHUNKSIZES,
            reference=True,
        ),
        Candidate("pool", "multiprocessing.Pool", "multiprocessing", _load_pool),
        Candidate("loky", "loky.ProcessPoolExecutor", "loky", _load_process_pool, "loky", chunksizes=_CHUNKSIZES),
        Candidate("mpire", "mpire.WorkerPool", "mpire", _load_mpire, "mpire"),
        Candidate(
            "executorlib",
            "executorlib.SingleNodeExecutor",
            "executorlib",
            _load_executorlib,
            "executorlib",
            slow=True,
        ),
        Candidate("dask", "distributed.Client", "distributed", _load_dask, "distributed", slow=True),
        Candidate("ray", "ray.remote", "ray", _load_ray, "ray", slow=True, prepare=prepare_for_ray),
        Candidate("parsl", "Parsl's pack_apply_message", "parsl", _load_parsl, "parsl", encodes_only=True),
    )
}
PEERS = tuple(name for name in CANDIDATES if name != OURSELVES)
QUICK_PEERS = tuple(name for name in PEERS if not CANDIDATES[name].slow)
