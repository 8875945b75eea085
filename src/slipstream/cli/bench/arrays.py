"""The timed loops that hand one large array of numpy from process to process, and what their tasks run.

Imported only where numpy is installed: by clients that measure these patterns, and by their workers.
"""

from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.cli.bench.load import Load, Loop, expect
from slipstream.cli.bench.systems import System

Array = npt.NDArray[np.float64]
#: Dependents between the task that makes the array and the one that adds it up.
DEPENDENTS = 3
#: Elements in a page: one of them is read to see that the page is there.
PAGE = 512
WARM_UP_TASKS = 40
#: Of a size that goes the way of large ones: 1 MB.
WARM_UP_ELEMENTS = 125_000


def make(elements: int) -> Array:
    """An array all of whose pages are there."""
    return np.ones(elements)


def double(array: Array) -> Array:
    """A second array of that size."""
    return array * 2


def total(array: Array) -> float:
    """Reads every element, and allocates nothing."""
    return float(array.sum())


def as_argument(system: System, load: Load) -> float:
    """The client has the array; a task adds it up."""
    elements = _elements(load)
    array = make(elements)
    began = perf_counter()
    value = system.result(system.submit(total, system.large(array)))
    wall_s = perf_counter() - began
    expect(value, elements, load.tasks)
    return wall_s


def as_result(system: System, load: Load) -> float:
    """A task makes the array; the client reads an element of each page."""
    elements = _elements(load)
    began = perf_counter()
    array = system.result(system.submit(make, elements))
    value = total(array[::PAGE])
    wall_s = perf_counter() - began
    expect(value, len(range(0, elements, PAGE)), load.tasks)
    return wall_s


def through_dependents(system: System, load: Load) -> float:
    """A task makes the array, each of three doubles what the one before it gave, the last adds it up."""
    elements = _elements(load)
    began = perf_counter()
    pending = system.submit(make, elements)
    for _ in range(DEPENDENTS):
        pending = system.submit(double, _argument(system, pending))
    value = system.result(system.submit(total, _argument(system, pending)))
    wall_s = perf_counter() - began
    expect(value, elements * 2**DEPENDENTS, load.tasks)
    return wall_s


def _argument(system: System, pending: Any) -> Any:
    """A future as it is, or its value by the hands of the client where futures cannot be arguments."""
    return pending if system.takes_futures else system.result(pending)


def _elements(load: Load) -> int:
    assert load.elements is not None, "a load of these loops says how large its array is"
    return load.elements


def warm_up(loop: Loop, system: System) -> None:
    """All workers have imported this module, and have seen an array."""
    for pending in [system.submit(total, np.ones(WARM_UP_ELEMENTS)) for _ in range(WARM_UP_TASKS)]:
        system.result(pending)
    loop(system, Load(1, elements=WARM_UP_ELEMENTS))
