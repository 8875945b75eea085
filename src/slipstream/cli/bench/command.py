"""`slipstream bench`: its options. What they set in motion is in `measure`; the tables are in `show`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import FrameType, MappingProxyType
from typing import IO, TYPE_CHECKING

import click

from slipstream.cli.bench.patterns import PATTERN_GROUPS, PATTERNS
from slipstream.cli.bench.systems import CANDIDATES, OURSELVES, PEERS, QUICK_PEERS

if TYPE_CHECKING:
    from slipstream.cli.bench.measure import Settings
    from slipstream.cli.bench.results import Results


def names_of(
    known: tuple[str, ...], groups: Mapping[str, tuple[str, ...]] = MappingProxyType({})
) -> Callable[[click.Context, click.Parameter, str | None], list[str] | None]:
    """A callback that takes names with commas between them, and gives them in the order of `known`."""

    def parse(_context: click.Context, _option: click.Parameter, value: str | None) -> list[str] | None:
        if value is None:
            return None
        said = {name.strip() for name in value.split(",") if name.strip()}
        asked = said.difference(groups).union(*(groups[name] for name in said.intersection(groups)))
        if unknown := sorted(asked.difference(known)):
            raise click.BadParameter(f"{', '.join(unknown)} is none of {', '.join(known)}")
        return [name for name in known if name in asked]

    return parse


ALL_PATTERNS = ",".join(PATTERNS)


@click.command(short_help="Measure Slipstream beside its installed peers.")
@click.option("--patterns", callback=names_of(tuple(PATTERNS), PATTERN_GROUPS), default=ALL_PATTERNS, show_default=True)
@click.option("--peers", callback=names_of(PEERS), help=f"Whom to compare; default: {', '.join(PEERS)}.")
@click.option("--workers", type=click.IntRange(min=1), default=2, show_default=True, help="Workers of each system.")
@click.option("--rounds", type=click.IntRange(min=1), help="Repetitions; default: 3 to 5, by pattern.")
@click.option("--tasks", type=click.IntRange(min=1), help="Tasks of a repetition; default: by pattern.")
@click.option("--array-mb", type=click.IntRange(min=1), help="MB of an array; default: 1,000, or 64 if quick.")
@click.option("--cap", "cap_s", type=click.FloatRange(min=0.1), help="Seconds that a slow peer may take; default: 1.5.")
@click.option("--quick", is_flag=True, help=f"An impression within 40 seconds, of {', '.join(QUICK_PEERS)}.")
@click.option("--json", "file", type=click.File("w"), help="Write all raw figures here.")
def command(
    patterns: list[str],
    peers: list[str] | None,
    workers: int,
    rounds: int | None,
    tasks: int | None,
    array_mb: int | None,
    cap_s: float | None,
    quick: bool,
    file: IO[str] | None,
) -> None:
    """Measure Slipstream beside its installed peers, with tasks that do nothing.

    \b
    chain          submit, wait for the result, submit the next
    bag            submit all, then gather
    map            one map over small calls
    payload        encode calls of a decorated function of a script; payload-each: decorated anew for each
    start          a new executor until its first result
    futures-chain  each task takes the future of the one before
    reduce         a tree: leaves, and sums of two futures above them
    fan-in         a list of futures in one task
    array          one large numpy array: array-argument, array-result, array-dependents
    """  # the \b is the character that keeps click from filling the lines
    from slipstream.cli.bench.measure import CAP_S, QUICK_CAP_S, Settings
    from slipstream.cli.bench.results import Results

    if peers is None:
        peers = list(QUICK_PEERS if quick else PEERS)
    installed = [name for name in (OURSELVES, *peers) if CANDIDATES[name].installed]
    results = Results(workers, installed, skipped=[name for name in peers if name not in installed])
    results.skipped_patterns = {name: module for name in patterns if (module := PATTERNS[name].missing)}
    patterns = [name for name in patterns if name not in results.skipped_patterns]
    settings = Settings(workers, quick, rounds, tasks, cap_s or (QUICK_CAP_S if quick else CAP_S), array_mb)
    with _terminated_as_interrupted():
        _run_and_show(results, patterns, settings, stderr=file is not None and file.name == "<stdout>")
    if file is not None:
        json.dump(results.as_json(), file, indent=2)
        file.write("\n")
    if results.failures:
        raise click.ClickException("; ".join(results.failures))


def _run_and_show(results: Results, patterns: list[str], settings: Settings, *, stderr: bool) -> None:
    """Measure, each pattern's table as soon as it is complete."""
    from slipstream.cli.bench.measure import run
    from slipstream.cli.bench.show import Screen

    with Screen(results, stderr=stderr) as screen:
        run(results, patterns, settings, screen)


@contextmanager
def _terminated_as_interrupted() -> Generator[None]:
    """Let SIGTERM and SIGHUP end the run as Ctrl-C does, which ends the client processes too."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
