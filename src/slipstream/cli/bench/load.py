"""What every timed loop shares: how much it runs, its form, and the check that all of that did run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slipstream.cli.bench.systems import System


@dataclass(frozen=True, slots=True)
class Load:
    """How much of a pattern one repetition runs, and with which chunk or array where the pattern has one."""

    tasks: int
    chunksize: int | None = None
    #: Numbers of 8 bytes in the array.
    elements: int | None = None


#: Runs a load on an open system; gives the seconds that the clock showed.
Loop = Callable[["System", Load], float]


def expect(total: float, expected: float, tasks: int) -> None:
    """Raise unless the results of all tasks sum up to what they must."""
    if total != expected:
        raise ArithmeticError(
            f"{tasks} tasks gave results that sum up to {total}, not {expected}: some did not run, or ran wrongly"
        )
