"""The timed loops in which tasks take other tasks' futures as arguments, with no-op tasks and a clock around them.

Each checks, outside the clock, that every task did run. Loops whose tasks stand alone are in `patterns`.
"""

from time import perf_counter

from slipstream.cli.bench.load import Load, expect
from slipstream.cli.bench.systems import System
from slipstream.cli.bench.tasks import add, increment, total_of


def futures_chain(system: System, load: Load) -> float:
    """Each task increments the result of the one before it; the client waits for the last alone."""
    submit = system.submit
    began = perf_counter()
    pending = submit(increment, 0)
    for _ in range(load.tasks - 1):
        pending = submit(increment, pending)
    total = system.result(pending)
    wall_s = perf_counter() - began
    expect(total, load.tasks, load.tasks)
    return wall_s


def reduce(system: System, load: Load) -> float:
    """Leaves, then sums of two at a time until one is left: n leaves make 2n - 1 tasks."""
    submit, leaves = system.submit, (load.tasks + 1) // 2
    began = perf_counter()
    level = [submit(increment, value) for value in range(leaves)]
    while len(level) > 1:
        odd = level[-1:] if len(level) % 2 else []
        level = [submit(add, left, right) for left, right in zip(level[::2], level[1::2], strict=False)] + odd
    total = system.result(level[0])
    wall_s = perf_counter() - began
    expect(total, leaves * (leaves + 1) // 2, load.tasks)
    return wall_s


def fan_in(system: System, load: Load) -> float:
    """One task that takes the list of all the others' results."""
    submit, leaves = system.submit, load.tasks - 1
    began = perf_counter()
    waiting = [submit(increment, value) for value in range(leaves)]
    total = system.result(system.fan_in(total_of, waiting))
    wall_s = perf_counter() - began
    expect(total, leaves * (leaves + 1) // 2, load.tasks)
    return wall_s
