"""The identifiers that the standard library uses most: each .py file is a task, and counts are merged as they arrive.

slipstream run examples/identifiers.py [--files N] [--workers N]
"""

import argparse
import keyword
import sysconfig
import tokenize
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import as_completed
from pathlib import Path
from statistics import median
from time import perf_counter

from rich.console import Console
from rich.progress import track
from rich.table import Table

from slipstream import Executor

console = Console()


def identifiers(path: Path) -> Counter[str] | None:
    """Count the names in one file; None if it is not Python: the library's tests hold such files on purpose."""
    try:
        with tokenize.open(path) as source:
            tokens = tokenize.generate_tokens(source.readline)
            names = (token.string for token in tokens if token.type == tokenize.NAME)
            return Counter(name for name in names if not keyword.iskeyword(name))
    except (SyntaxError, UnicodeDecodeError, tokenize.TokenError):
        return None


def standard_library(limit: int | None = None) -> list[Path]:
    """The library's .py files without what was installed beside it, or `limit` of them spread over the whole."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(path for path in root.rglob("*.py") if not {"site-packages", "dist-packages"} & set(path.parts))
    return paths[:: max(1, len(paths) // limit)][:limit] if limit else paths


def count(executor: Executor, paths: list[Path]) -> tuple[Counter[str], int]:
    """The names in all files and the number of files that are not Python: a task per file, merged as they complete."""
    names, skipped = Counter[str](), 0
    futures = [executor.submit(identifiers, path) for path in paths]
    for future in track(as_completed(futures), "on the workers  ", total=len(paths), console=console):
        found = future.result()
        names.update(found or {})
        skipped += found is None
    return names, skipped


def count_here(paths: list[Path]) -> Counter[str]:
    """The same in this process alone."""
    names = Counter[str]()
    for path in track(paths, "in one process  ", console=console):
        names.update(identifiers(path) or {})
    return names


def overheads_s(executor: Executor, paths: list[Path]) -> Iterator[float]:
    """What a task costs beyond its function: one at a time, from submit to result, less the time in the function."""
    for path in paths:
        inside_ns, began = executor.stats().run_ns, perf_counter()
        executor.submit(identifiers, path).result()
        turnaround_s = perf_counter() - began
        yield turnaround_s - (executor.stats().run_ns - inside_ns) / 1e9


def show(title: str, rows: list[tuple[str, str, str]]) -> None:
    """Print a table without lines: name, figure, remark."""
    console.print(f"\n[bold]{title}[/]")
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column()
    table.add_column(style="cyan", justify="right")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def main() -> None:
    """Count twice, show what was found and what it cost."""
    parser = argparse.ArgumentParser(description="Count the identifiers in the standard library.")
    parser.add_argument("--files", type=int, help="count in so many files only")
    paths = standard_library(parser.parse_args().files)

    with Executor() as executor:
        began = perf_counter()
        names, skipped = count(executor, paths)
        wall_s = perf_counter() - began
        stats = executor.stats()
        overhead_s = median(overheads_s(executor, paths[:: len(paths) // 100 + 1]))

    began = perf_counter()
    if count_here(paths) != names:
        raise SystemExit("The workers counted otherwise than one process does.")
    alone_s = perf_counter() - began

    most, busy = names.most_common(15), stats.run_ns / 1e9 / (wall_s * stats.workers)
    rows = [(name, f"{times:,}", "━" * (40 * times // most[0][1])) for name, times in most]
    show(f"Most used of {len(names):,} identifiers in {len(paths) - skipped:,} files", rows)
    account = [
        ("tasks", f"{stats.tasks:,}", f"one per file; {skipped} files are not Python"),
        ("time", f"{wall_s:.2f} s", f"{stats.workers} workers, their start included"),
        ("rate", f"{stats.tasks / wall_s:,.0f} tasks/s", f"{busy:.0%} of the workers' time in the function"),
        ("overhead", f"{overhead_s * 1e6:,.0f} µs", "per task, median; see below"),
        ("sent", f"{stats.bytes_sent / stats.tasks:,.0f} B", f"per task, in {stats.frames_sent:,} frames"),
        ("received", f"{stats.bytes_received / stats.tasks:,.0f} B", f"per task, in {stats.frames_received:,} frames"),
        ("one process", f"{alone_s:.2f} s", f"the same counts, {alone_s / wall_s:.2f} times as long"),
    ]
    show("What it cost", account)
    console.print("[dim]Overhead: from submit to result, less the function's own time, of tasks sent one at a time.[/]")


if __name__ == "__main__":
    main()
