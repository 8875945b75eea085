"""The tables of the bench. No figure is computed here beyond its unit."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from slipstream.cli.bench.floors import FLOORS
from slipstream.cli.bench.patterns import PATTERNS, ArrayUse, Pattern
from slipstream.cli.bench.results import PatternResult, Results, Series, Spread
from slipstream.cli.bench.systems import CANDIDATES, OURSELVES

#: Columns in a file or a pipe.
PLAIN_WIDTH = 100


class Screen:
    """A line that says what runs now, if this is a terminal, and above it the tables of what is complete."""

    def __init__(self, results: Results, *, stderr: bool) -> None:
        self._results = results
        self._console = Console(stderr=stderr)
        if not self._console.is_terminal:
            self._console.width = PLAIN_WIDTH
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        # Never refreshed by a thread: that would take time from what is measured.
        self._line = Progress(
            *columns,
            console=self._console,
            auto_refresh=False,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task = self._line.add_task("", total=1.0)

    def __enter__(self) -> Self:
        show_heading(self._console, self._results)
        self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._line.stop()
        if error is None:
            show_floors(self._console, self._results)

    def running(self, pattern: str, system: str, done: float) -> None:
        """Show what runs now."""
        self._line.update(self._task, description=f"{pattern}: {system}", completed=done, refresh=True)

    def finished(self, result: PatternResult) -> None:
        """Show the table of a pattern."""
        show_pattern(self._console, result)


def show_heading(console: Console, results: Results) -> None:
    """What is measured, and on what."""
    facts = results.machine
    basis = f"{results.workers} workers, {facts['cpus_usable']} CPUs at load {facts['load']:.1f}, {facts['python']}"
    versions = ", ".join(f"{name} {CANDIDATES[name].version}" for name in results.systems)
    console.print(f"[bold]slipstream bench[/]  {basis}")
    console.print(f"[dim]{versions}[/]", highlight=False)
    console.print("[dim]times ours: a peer's time per task over ours, by medians, and its range by rounds[/]")
    if results.skipped:
        console.print(f"[yellow]not installed, so skipped: {', '.join(results.skipped)}[/]", highlight=False)
    for module in sorted(set(results.skipped_patterns.values())):
        names = ", ".join(name for name, needed in results.skipped_patterns.items() if needed == module)
        console.print(f"[yellow]{module} is not installed, so skipped: {names}[/]", highlight=False)


def show_pattern(console: Console, result: PatternResult) -> None:
    """A pattern's table, with notes below it."""
    pattern = PATTERNS[result.pattern]
    rounds = max((len(series.walls_s) for series in result.series.values()), default=0)
    console.print(f"\n[bold]{pattern.name}[/]: {pattern.title}  [dim]({rounds} rounds)[/]", highlight=False)
    console.print(_costs(pattern, result) if pattern.array is None else _rates(result, pattern.array.moves))
    for line in _notes(result):
        console.print(f"  [dim]{line}[/]", highlight=False)
    for name, reason in result.failed.items():
        console.print(f"  [red]{name} failed:[/] {reason}", highlight=False, markup=True)


def _costs(pattern: Pattern, result: PatternResult) -> Table:
    """What a task costs each system."""
    unit = f"{pattern.unit}/task" if pattern.loop else pattern.unit
    table = _table("tasks", unit, "min .. max", "tasks/s", "times ours", "by rounds")
    for series in result.series.values():
        cost, ratio = Spread.of(series.costs_s), result.ratio(series.system)
        rate = f"{1 / cost.median:,.0f}" if pattern.loop else ""
        row = (*_spread(cost, pattern.scale), rate, *_ratio(ratio))
        table.add_row(series.system, f"{series.load.tasks:,}", *row)
    return table


def _rates(result: PatternResult, moves: int) -> Table:
    """How fast each system hands an array on, and how much memory that takes."""
    table = _table("MB", "GB/s", "min .. max", "copies", "times ours", "by rounds")
    for series in result.series.values():
        megabytes = f"{(series.load.elements or 0) * 8 / 1e6:,.0f}"
        copies = "" if series.copies is None else f"{series.copies:.1f}"
        row = (*_spread(Spread.of(series.rates(moves)), 1.0), copies, *_ratio(result.ratio(series.system)))
        table.add_row(series.system, megabytes, *row)
    return table


def show_floors(console: Console, results: Results) -> None:
    """The floors, and how far above the lowest of them a task of the chain is."""
    rounds = max(map(len, results.floors.values()), default=0)
    console.print(f"\n[bold]floors[/]: what a task of any executor needs  [dim]({rounds} rounds)[/]", highlight=False)
    table = _table("µs", "min .. max")
    for name, samples in results.floors.items():
        table.add_row(FLOORS[name].title, *_spread(Spread.of(samples), 1e6))
    console.print(table)
    chain = results.patterns.get("chain")
    if chain and OURSELVES in chain.series:
        trips = Spread.of(chain.series[OURSELVES].costs_s).median / Spread.of(results.floors["round_trip"]).median
        console.print(
            f"  [dim]a task in {OURSELVES}'s chain takes as long as {trips:.1f} round trips[/]", highlight=False
        )


def _table(*headers: str) -> Table:
    """The look that all tables share: a name, then figures."""
    table = Table(header_style="dim", box=None, padding=(0, 1))
    table.add_column("", style="cyan", no_wrap=True)
    for header in headers:
        table.add_column(header, justify="right", no_wrap=True, style="bold" if header == "times ours" else "")
    return table


def _spread(spread: Spread, scale: float) -> tuple[str, str]:
    """Median, and least .. greatest, in the unit of which a second has `scale`."""
    middle, least, greatest = (_short(figure * scale) for figure in spread)
    return middle, f"{least} .. {greatest}"


def _ratio(ratio: Spread | None) -> tuple[str, str]:
    """A peer's time as a multiple of ours; nothing in our own line."""
    if ratio is None:
        return "", ""
    return f"{_short(ratio.median)}x", f"{_short(ratio.least)} .. {_short(ratio.greatest)}"


def _short(figure: float) -> str:
    """Three digits, or all those before the point."""
    if figure >= 100:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def _notes(result: PatternResult) -> list[str]:
    """What was counted, and whose load differs."""
    systems_by_note: dict[str, list[str]] = {}
    for series in result.series.values():
        if series.note:
            systems_by_note.setdefault(series.note, []).append(series.system)
    notes = [f"{', '.join(systems)}: {note}" for note, systems in systems_by_note.items()]
    ours = result.series.get(OURSELVES)
    if ours and ours.accounts and result.pattern == "bag":
        notes.insert(0, _account(ours))
    if result.pattern.startswith("payload"):
        sizes = [f"{series.system} {series.per_task('bytes_sent'):,.0f}" for series in result.series.values()]
        notes.insert(0, f"bytes per task: {', '.join(sizes)}; the time is that of encoding alone")
    if result.left_out:
        notes.append(f"left out, without {PATTERNS[result.pattern].lacking}: {', '.join(result.left_out)}")
    if array := PATTERNS[result.pattern].array:
        notes += _array_notes(array)
    if result.pattern == "start":
        notes.append("from the constructor's call to the first result, in a fresh process that had imported the system")
    return notes


def _array_notes(array: ArrayUse) -> list[str]:
    """What the two figures of an array are."""
    times = "once" if array.moves == 1 else f"{array.moves} times"
    return [
        f"GB/s: of an array that goes from process to process {times}, with the time of the user's functions",
        f"copies: peak memory (PSS) of all processes, in arrays, less the {array.held} that user code holds by itself",
    ]


def _account(series: Series) -> str:
    """Frames and bytes of a repetition, by Slipstream's own counters."""
    frames = max(account["frames_sent"] for account in series.accounts)
    sent, received = series.per_task("bytes_sent"), series.per_task("bytes_received")
    return f"{OURSELVES} sent {frames:,.0f} frames at most; {sent:.1f} bytes out and {received:.1f} back per task"
