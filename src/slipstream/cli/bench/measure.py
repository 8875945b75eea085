"""Who runs what when: loads are settled first, then each round runs every system once, the order turning by one.

So a machine that slows down for a while slows all systems, and no system always runs after the same other one. The
clock itself is in `patterns` and `floors`.
"""

import compileall
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import slipstream
from slipstream.cli.bench.floors import FLOORS
from slipstream.cli.bench.load import Load
from slipstream.cli.bench.patterns import PATTERNS, ArrayUse, Pattern
from slipstream.cli.bench.results import PatternResult, Results, Series
from slipstream.cli.bench.session import ClientFailed, Session
from slipstream.cli.bench.systems import CANDIDATES, OURSELVES

#: What one repetition of a peer may take, seconds by estimate.
CAP_S = 1.5
QUICK_CAP_S = 0.7
#: Of an array, millions of bytes.
ARRAY_MB = 1_000
QUICK_ARRAY_MB = 64


class Observer(Protocol):
    """Whoever wants to know how far the run is."""

    def running(self, pattern: str, system: str, done: float) -> None:
        """This runs now; `done` is the part of the pattern's rounds that is over."""
        ...

    def finished(self, result: PatternResult) -> None:
        """All rounds of a pattern are over."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What the options asked for."""

    workers: int
    quick: bool = False
    #: Repetitions of every pattern; None: each pattern's own.
    rounds: int | None = None
    #: Tasks of every pattern but `start` and those with an array; None: each pattern's own.
    tasks: int | None = None
    #: Seconds that one repetition of a peer may take; a peer that needs more runs fewer tasks.
    cap_s: float = CAP_S
    #: Millions of bytes of an array; None: the bench's own.
    array_mb: int | None = None

    def rounds_of(self, pattern: Pattern) -> int:
        """Repetitions of a pattern."""
        return self.rounds or (pattern.quick_rounds if self.quick else pattern.rounds)

    def tasks_of(self, pattern: Pattern) -> int:
        """Tasks in a repetition of a pattern, for a system that is not capped."""
        if pattern.loop is None or pattern.array is not None:
            return pattern.tasks
        return pattern.whole(self.tasks or (pattern.quick_tasks if self.quick else pattern.tasks))

    def elements(self) -> int:
        """Numbers of 8 bytes in an array."""
        return (self.array_mb or (QUICK_ARRAY_MB if self.quick else ARRAY_MB)) * 1_000_000 // 8


def run(results: Results, patterns: list[str], settings: Settings, observer: Observer) -> None:
    """Measure the patterns one after the other into `results`."""
    _compile_ourselves()
    with ExitStack() as stack:
        sessions = {name: stack.enter_context(Session(name, settings.workers)) for name in results.systems}
        for name in patterns:
            _run_pattern(results, PATTERNS[name], sessions, settings, observer)


def _compile_ourselves() -> None:
    """Installing compiles a package, but not one that is installed to be edited: its workers would do so at each start.

    (20 ms more until the first result, where PYTHONDONTWRITEBYTECODE is set.)
    """
    compileall.compile_dir(Path(slipstream.__file__).parent, quiet=2)


def _run_pattern(
    results: Results, pattern: Pattern, sessions: dict[str, Session], settings: Settings, observer: Observer
) -> None:
    """All rounds of one pattern. A system that fails is out for this pattern; the others go on."""
    result = results.patterns[pattern.name] = PatternResult(pattern.name)
    result.left_out = _left_out(pattern, results.systems)
    rounds = settings.rounds_of(pattern)
    for name in _systems_of(pattern, results.systems):
        observer.running(pattern.name, f"{name}, warming up", 0.0)
        try:
            result.series[name] = _settle(pattern, name, sessions[name], settings)
        except ClientFailed as failure:
            result.failed[name] = str(failure)
    for turn in range(rounds):
        _measure_floors(results)
        for place, name in enumerate(_turned(list(result.series), turn)):
            observer.running(pattern.name, name, (turn + place / len(result.series)) / rounds)
            try:
                _repeat(pattern, result.series[name], sessions[name], settings)
            except ClientFailed as failure:
                result.failed[name] = str(failure)
                del result.series[name]
    observer.finished(result)


def _systems_of(pattern: Pattern, names: list[str]) -> list[str]:
    """Those that can run the pattern."""
    if pattern.systems is not None:
        return [name for name in names if name in pattern.systems]
    return [name for name in names if not CANDIDATES[name].encodes_only]


def _left_out(pattern: Pattern, names: list[str]) -> list[str]:
    """Those that cannot run the pattern for want of something that the table names."""
    return [name for name in names if pattern.lacking and name not in _systems_of(pattern, names)]


def _turned(names: list[str], turn: int) -> list[str]:
    """The same names, beginning further on by one in each turn."""
    start = turn % len(names) if names else 0
    return names[start:] + names[:start]


def _repeat(pattern: Pattern, series: Series, session: Session, settings: Settings) -> None:
    """One repetition, put down in the series."""
    if pattern.loop is None:
        # What an executor leaves loaded would make its next start faster than a user's first.
        with Session(series.system, settings.workers) as fresh:
            answer = _ask(fresh, pattern, series.load)
    else:
        answer = _ask(session, pattern, series.load)
    series.walls_s.append(answer[0])
    if answer[1]:
        series.accounts.append(answer[1])


def _ask(session: Session, pattern: Pattern, load: Load) -> tuple[float, dict[str, float]]:
    """Seconds of one repetition, and what the system counted."""
    answer = session.ask(_request(pattern, load))
    return answer["wall_s"], answer["account"]


def _request(pattern: Pattern, load: Load) -> dict[str, Any]:
    """What a client is to run."""
    return {"pattern": pattern.name, "tasks": load.tasks, "chunksize": load.chunksize, "elements": load.elements}


def _settle(pattern: Pattern, name: str, session: Session, settings: Settings) -> Series:
    """How much a system runs of a pattern: as much as Slipstream, unless it would take too long."""
    tasks = settings.tasks_of(pattern)
    candidate = CANDIDATES[name]
    if pattern.loop is None:
        return Series(name, Load(1))
    if pattern.array is not None:
        return _array_series(pattern, pattern.array, name, session, settings)
    if pattern.name == "map" and candidate.chunksizes:
        return _best_chunk(pattern, name, session, tasks)
    probe = Load(min(pattern.whole(pattern.probe_tasks), tasks))
    affordable = int(settings.cap_s / (_ask(session, pattern, probe)[0] / probe.tasks))
    if name == OURSELVES or candidate.reference or affordable >= tasks:
        return Series(name, Load(tasks))
    capped = max(probe.tasks, pattern.whole(_rounded(affordable)))
    return Series(name, Load(capped), note=f"fewer tasks, since these take {settings.cap_s:g} s")


def _array_series(pattern: Pattern, array: ArrayUse, name: str, session: Session, settings: Settings) -> Series:
    """The same array for all, and the memory that the first repetition took; none of the rounds looks at memory."""
    load = Load(pattern.tasks, elements=settings.elements())
    peak_bytes = session.ask({**_request(pattern, load), "memory": True})["peak_bytes"]
    return Series(name, load, copies=peak_bytes / (settings.elements() * 8) - array.held)


def _best_chunk(pattern: Pattern, name: str, session: Session, tasks: int) -> Series:
    """The chunk, of a few, with which a system whose default is one item at a time is fastest."""
    chunksizes = [size for size in CANDIDATES[name].chunksizes if size <= tasks] or [tasks]
    walls_s = {size: _ask(session, pattern, Load(tasks, size))[0] for size in chunksizes}
    best = min(walls_s, key=walls_s.__getitem__)
    tried = ", ".join(f"{size:,}" for size in chunksizes)
    return Series(name, Load(tasks, best), note=f"chunksize={best:,}, the best of {tried}")


def _rounded(number: int) -> int:
    """Down to two digits, for the eye."""
    step = 10 ** max(0, len(str(number)) - 2)
    return number // step * step


def _measure_floors(results: Results) -> None:
    """One figure more for every floor."""
    for floor in FLOORS.values():
        results.floors.setdefault(floor.name, []).append(floor.measure(floor.loops))
