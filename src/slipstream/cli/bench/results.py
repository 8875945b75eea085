"""The figures of a run, and what follows from them: medians, spreads, ratios, and the form in which they are kept.

No measuring and no printing here.
"""

import os
import platform
from dataclasses import dataclass, field
from statistics import median
from typing import Any, NamedTuple

from slipstream.cli.bench.load import Load
from slipstream.cli.bench.patterns import PATTERNS
from slipstream.cli.bench.systems import CANDIDATES, OURSELVES


class Spread(NamedTuple):
    """Median of some figures, and the least and the greatest of them."""

    median: float
    least: float
    greatest: float

    @classmethod
    def of(cls, figures: list[float]) -> "Spread":
        """The spread of one or more figures."""
        return cls(median(figures), min(figures), max(figures))


@dataclass(slots=True)
class Series:
    """All repetitions of a pattern by one system."""

    system: str
    load: Load
    #: Seconds of each repetition, in the order of the rounds.
    walls_s: list[float] = field(default_factory=list[float])
    #: What the system counted in each repetition; empty where it does not count.
    accounts: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    #: Why its load is not what one would expect.
    note: str = ""
    #: Peak of the memory in copies of the array, beyond those that the user's functions hold; None: no array.
    copies: float | None = None

    @property
    def costs_s(self) -> list[float]:
        """Seconds per task of each repetition."""
        return [wall_s / self.load.tasks for wall_s in self.walls_s]

    def rates(self, moves: int) -> list[float]:
        """Billions of bytes per second in each repetition, for an array that is handed on so many times."""
        elements = self.load.elements or 0
        return [elements * 8 * moves / wall_s / 1e9 for wall_s in self.walls_s]

    def per_task(self, counter: str) -> float:
        """Median over the repetitions of a counter, divided by the tasks that the system counted."""
        return median(account[counter] / account["tasks"] for account in self.accounts)


@dataclass(slots=True)
class PatternResult:
    """What every system made of one pattern."""

    pattern: str
    series: dict[str, Series] = field(default_factory=dict[str, Series])
    #: System → what went wrong; such a system has no series here.
    failed: dict[str, str] = field(default_factory=dict[str, str])
    #: Systems of this run that lack what the pattern needs.
    left_out: list[str] = field(default_factory=list[str])

    def ratio(self, peer: str) -> Spread | None:
        """How many times as long as Slipstream a peer takes: ratio of the medians, range of the rounds' ratios."""
        if OURSELVES not in self.series or peer not in self.series or peer == OURSELVES:
            return None
        ours, theirs = self.series[OURSELVES].costs_s, self.series[peer].costs_s
        rounds = [their / our for our, their in zip(ours, theirs, strict=True)]
        return Spread(median(theirs) / median(ours), min(rounds), max(rounds))


@dataclass(slots=True)
class Results:
    """A whole run."""

    workers: int
    systems: list[str]
    #: Peers that were asked for and are not installed.
    skipped: list[str]
    #: Patterns that were asked for → the module that they need and that is not installed.
    skipped_patterns: dict[str, str] = field(default_factory=dict[str, str])
    patterns: dict[str, PatternResult] = field(default_factory=dict[str, PatternResult])
    #: Floor → seconds, one figure per round.
    floors: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    #: What the figures depend on, and how busy the machine was before the run.
    machine: dict[str, Any] = field(default_factory=lambda: machine())

    @property
    def failures(self) -> list[str]:
        """A line for each system that failed in a pattern."""
        return [
            f"{system} failed in {result.pattern}: {reason}"
            for result in self.patterns.values()
            for system, reason in result.failed.items()
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything that was measured, in seconds, for `json.dump`."""
        return {
            "machine": self.machine,
            "workers": self.workers,
            "systems": {name: CANDIDATES[name].version for name in self.systems},
            "skipped": self.skipped,
            "skipped_patterns": self.skipped_patterns,
            "floors": {name: _figures(samples) for name, samples in self.floors.items()},
            "patterns": {name: _pattern_as_json(result) for name, result in self.patterns.items()},
        }


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "cpus_usable": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def _pattern_as_json(result: PatternResult) -> dict[str, Any]:
    """One pattern; `ratio` is a peer's time over ours."""
    systems: dict[str, Any] = {}
    for name, series in result.series.items():
        ratio = result.ratio(name)
        systems[name] = {
            "tasks": series.load.tasks,
            "chunksize": series.load.chunksize,
            "walls_s": series.walls_s,
            "per_task_s": _figures(series.costs_s),
            "ratio": ratio and ratio._asdict(),
            "accounts": series.accounts,
            "note": series.note,
        }
        if array := PATTERNS[result.pattern].array:
            figures = {"gb_per_s": _figures(series.rates(array.moves)), "copies": series.copies}
            systems[name] |= {"elements": series.load.elements, **figures}
    return {
        "title": PATTERNS[result.pattern].title,
        "systems": systems,
        "left_out": result.left_out,
        "failed": result.failed,
    }


def _figures(samples: list[float]) -> dict[str, Any]:
    """The spread with all that it was made of."""
    return {**Spread.of(samples)._asdict(), "samples": samples}
