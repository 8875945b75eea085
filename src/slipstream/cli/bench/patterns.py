"""The timed loops: what a user's program does with an executor, with no-op tasks and a clock around it.

Each checks, outside the clock, that every task did run; those with futures as arguments are in `flows`, those with an
array in `arrays`. Who runs which loop how often is `measure`'s concern.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from time import perf_counter
from typing import Any

from slipstream.cli.bench.flows import fan_in, futures_chain, reduce
from slipstream.cli.bench.load import Load, Loop, expect
from slipstream.cli.bench.systems import OURSELVES, Opener, System
from slipstream.cli.bench.tasks import increment

#: Tasks before the clock starts: then all workers are up, and have imported the function.
WARM_UP_TASKS = 40
#: Where a map has chunks: of such a size that each worker gets some.
WARM_UP_CHUNKSIZE = 5


def chain(system: System, load: Load) -> float:
    """Submit, wait for the result, submit the next."""
    submit, result, total = system.submit, system.result, 0
    began = perf_counter()
    for value in range(load.tasks):
        total += result(submit(increment, value))
    wall_s = perf_counter() - began
    _expect(total, load.tasks)
    return wall_s


def bag(system: System, load: Load) -> float:
    """Submit everything, then gather."""
    submit, result, total = system.submit, system.result, 0
    began = perf_counter()
    waiting = [submit(increment, value) for value in range(load.tasks)]
    for pending in waiting:
        total += result(pending)
    wall_s = perf_counter() - began
    _expect(total, load.tasks)
    return wall_s


def mapped(system: System, load: Load) -> float:
    """One `map` over a range, its results added up."""
    values = range(load.tasks)
    began = perf_counter()
    total = sum(system.map(increment, values, load.chunksize))
    wall_s = perf_counter() - began
    _expect(total, load.tasks)
    return wall_s


#: A task as a script has it: in `__main__`, and decorated, so that it goes by value.
_SCRIPT = """
import functools

def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

def increment(value):
    return value + 1
"""


def payload_once(system: System, load: Load) -> float:
    """Encode calls of a function that was decorated once; only the encoding counts."""
    script = _script()
    task = script["decorated"](script["increment"])
    return _encode(system, load, lambda: task)


def payload_each(system: System, load: Load) -> float:
    """The same, decorated anew for each call."""
    script = _script()
    return _encode(system, load, lambda: script["decorated"](script["increment"]))


def _script() -> dict[str, Any]:
    script: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(_SCRIPT, "<script>", "exec"), script)
    return script


def _encode(system: System, load: Load, task: Callable[[], Any]) -> float:
    """Seconds that the system itself counted for the encoding."""
    began = system.account()["encode_s"]
    total = sum(system.result(system.submit(task(), value)) for value in range(load.tasks))
    _expect(total, load.tasks)
    return system.account()["encode_s"] - began


def _expect(total: int, tasks: int) -> None:
    """Raise unless the sum of all results is that of 1 to the number of tasks."""
    expect(total, tasks * (tasks + 1) // 2, tasks)


def first_result(opener: Opener, workers: int) -> float:
    """From nothing to the first result; the end of the workers is not counted."""
    began = perf_counter()
    system = opener(workers)
    try:
        value = system.result(system.submit(increment, 1))
        wall_s = perf_counter() - began
    finally:
        system.close()
    _expect(value - 1, 1)
    return wall_s


def warm_up(pattern: "Pattern", system: System, load: Load) -> None:
    """A little of the same off the clock. Not of another pattern: mpire cannot map in a pool that did apply_async."""
    assert pattern.loop is not None
    if pattern.array is not None:
        import_module(_ARRAYS).warm_up(pattern.loop, system)
    else:
        pattern.loop(system, Load(pattern.whole(WARM_UP_TASKS), load.chunksize and WARM_UP_CHUNKSIZE))


@dataclass(frozen=True, slots=True)
class ArrayUse:
    """What becomes of the array of a pattern."""

    #: Times that it, or what was made of it, goes from one process to another.
    moves: int
    #: Copies that the functions of the user hold at once, whatever runs them.
    held: int


@dataclass(frozen=True, slots=True)
class Pattern:
    """A loop with the size of its full and its quick run."""

    name: str
    title: str
    #: None: `first_result`, which opens the system itself, in a fresh client process each time.
    loop: Loop | None
    tasks: int
    rounds: int
    quick_tasks: int
    quick_rounds: int
    #: Tasks of the run that only estimates what one task costs a peer.
    probe_tasks: int
    unit: str = "µs"
    #: It is for these systems only; None: it is for all of those that run tasks.
    systems: tuple[str, ...] | None = None
    #: What the systems that it is not for lack; empty: nothing worth saying.
    lacking: str = ""
    #: Its tasks are leaves and the pairs above them, and so odd in number.
    odd: bool = False
    #: It is measured in bytes of one large array, not in tasks.
    array: ArrayUse | None = None

    @property
    def missing(self) -> str | None:
        """The module that it needs and that cannot be found; nothing is imported to see."""
        return "numpy" if self.array is not None and find_spec("numpy") is None else None

    def whole(self, tasks: int) -> int:
        """The number of tasks that it can run which is next to this one, downwards."""
        return tasks - 1 + tasks % 2 if self.odd else tasks

    @property
    def scale(self) -> float:
        """Units in a second."""
        return {"µs": 1e6, "ns": 1e9, "ms": 1e3}[self.unit]


_ARRAYS = "slipstream.cli.bench.arrays"


def _array_loop(name: str) -> Loop:
    """A loop of `arrays`, which cannot be imported everywhere."""

    def loop(system: System, load: Load) -> float:
        return getattr(import_module(_ARRAYS), name)(system, load)

    return loop


def _array_pattern(name: str, title: str, loop: str, tasks: int, array: ArrayUse) -> Pattern:
    return Pattern(name, title, _array_loop(loop), tasks, 3, tasks, 2, tasks, systems=_ARRAY_SYSTEMS, array=array)


def _flow_pattern(name: str, title: str, loop: Loop, tasks: int, quick_tasks: int, *, odd: bool = False) -> Pattern:
    lacking = "futures as arguments"
    return Pattern(name, title, loop, tasks, 3, quick_tasks, 2, 201, systems=_FLOWS, lacking=lacking, odd=odd)


#: Systems that take futures as arguments.
_FLOWS = (OURSELVES, "dask", "ray")
_ARRAY_SYSTEMS = (OURSELVES, "ppe", "dask", "ray")
#: The executors: dask and ray have no map with an order and chunks, and take seconds to start.
_EXECUTORS = (OURSELVES, "ppe", "pool", "loky", "mpire", "executorlib")
_PAYLOAD = "encode calls of a decorated function of a script"
_ENCODERS = (OURSELVES, "parsl")
PATTERNS: dict[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        Pattern("chain", "submit, result, one task at a time", chain, 2_000, 5, 300, 3, 50),
        Pattern("bag", "submit all, then gather", bag, 100_000, 3, 10_000, 2, 1_000),
        Pattern("map", "one map over small calls", mapped, 1_000_000, 3, 100_000, 2, 5_000, "ns", systems=_EXECUTORS),
        Pattern("payload", _PAYLOAD, payload_once, 2_000, 5, 300, 3, 50, systems=_ENCODERS),
        Pattern("payload-each", f"{_PAYLOAD}, for each call", payload_each, 2_000, 5, 300, 3, 50, systems=_ENCODERS),
        Pattern("start", "a new executor until its first result", None, 1, 5, 1, 3, 1, "ms", systems=_EXECUTORS),
        _flow_pattern("futures-chain", "each task takes the future of the one before", futures_chain, 10_000, 1_000),
        _flow_pattern("reduce", "leaves, and sums of two futures above them", reduce, 32_767, 2_047, odd=True),
        _flow_pattern("fan-in", "a list of futures in one task", fan_in, 10_001, 1_001),
        _array_pattern("array-argument", "a task adds up the client's array", "as_argument", 1, ArrayUse(1, 1)),
        _array_pattern("array-result", "a task makes an array, the client reads it", "as_result", 1, ArrayUse(1, 1)),
        _array_pattern(
            "array-dependents", "made, doubled by three tasks, added up", "through_dependents", 5, ArrayUse(4, 2)
        ),
    )
}
#: What `--patterns` takes for several of them.
PATTERN_GROUPS = {"array": tuple(name for name, pattern in PATTERNS.items() if pattern.array is not None)}
