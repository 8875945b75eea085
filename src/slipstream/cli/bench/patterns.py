"""The timed loops: what a user's program does with an executor, with no-op tasks and a clock around it.

Each checks, outside the clock, that every task did run. Who runs which loop how often is `measure`'s concern.
"""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from slipstream.cli.bench.systems import OURSELVES, Opener, System
from slipstream.cli.bench.tasks import increment

#: Tasks before the clock starts: then all workers are up, and have imported the function.
WARM_UP_TASKS = 40
#: Where a map has chunks: of such a size that each worker gets some.
WARM_UP_CHUNKSIZE = 5


@dataclass(frozen=True, slots=True)
class Load:
    """How much of a pattern one repetition runs, and with which chunk where the pattern has chunks."""

    tasks: int
    chunksize: int | None = None


#: Runs a load on an open system; gives the seconds that the clock showed.
Loop = Callable[[System, Load], float]


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
    if total != tasks * (tasks + 1) // 2:
        raise ArithmeticError(f"{tasks} tasks gave results that sum up to {total}: some did not run, or ran wrongly")


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


def warm_up(loop: Loop, system: System, load: Load) -> None:
    """A little of the same off the clock. Not of another pattern: mpire cannot map in a pool that did apply_async."""
    loop(system, Load(WARM_UP_TASKS, load.chunksize and WARM_UP_CHUNKSIZE))


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
    #: It counts what only these systems count; None: it is for all of those that run tasks.
    systems: tuple[str, ...] | None = None

    @property
    def scale(self) -> float:
        """Units in a second."""
        return {"µs": 1e6, "ns": 1e9, "ms": 1e3}[self.unit]


_PAYLOAD = "encode calls of a decorated function of a script"
_ENCODERS = (OURSELVES, "parsl")
PATTERNS: dict[str, Pattern] = {
    pattern.name: pattern
    for pattern in (
        Pattern("chain", "submit, result, one task at a time", chain, 2_000, 5, 300, 3, 50),
        Pattern("bag", "submit all, then gather", bag, 100_000, 3, 10_000, 2, 1_000),
        Pattern("map", "one map over small calls", mapped, 1_000_000, 3, 100_000, 2, 5_000, "ns"),
        Pattern("payload", _PAYLOAD, payload_once, 2_000, 5, 300, 3, 50, systems=_ENCODERS),
        Pattern("payload-each", f"{_PAYLOAD}, for each call", payload_each, 2_000, 5, 300, 3, 50, systems=_ENCODERS),
        Pattern("start", "a new executor until its first result", None, 1, 5, 1, 3, 1, "ms"),
    )
}
