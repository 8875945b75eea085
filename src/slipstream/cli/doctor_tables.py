"""The tables of `slipstream doctor`. Whatever comes from a file or a foreign object is text here, never markup."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from slipstream.serde.explain.pickle_file import COMPUTED, Outline
from slipstream.serde.explain.printable import printable
from slipstream.serde.explain.report import Report, costs, seconds, size

#: Columns in a file or a pipe.
PLAIN_WIDTH = 100
#: Captures that are shown; the rest is in the JSON.
SHOWN_CAPTURES = 8
SHOWN_GLOBALS = 20
#: A shorter import is of a module that came with another.
SHOWN_IMPORT_S = 0.0005
_STYLES = {"state": "yellow", "constant": "", "by reference": "dim"}


def show_report(report: Report) -> None:
    """Show what a call costs."""
    console = _console()
    _heading(console, report.label, "can be sent", report.problem)
    if report.task_bytes is not None:
        console.print(Text(costs(report), "dim"))
    _section(
        console,
        "",
        ("", "bytes", "how", "why"),
        [(piece.path, size(piece.bytes), piece.how, piece.why) for piece in (report.callable, *report.arguments)],
    )
    other = report.other_way
    if other is not None:
        text = f"by value, with what it uses of {other.module}: {size(other.bytes_by_value)}"
        if other.bytes_by_value is None:
            text = f"{other.module} could not go by value: {other.culprits[0].path} cannot be pickled"
        console.print(Text(f"  {text}", "dim"))
    _show_captures(console, report)
    rows = [
        (found.module, seconds(found.seconds), found.error)
        for found in report.imports
        if found.error or found.seconds is None or found.seconds >= SHOWN_IMPORT_S
    ]
    _section(console, "a worker imports", ("", "fresh", ""), rows, note="time in a fresh interpreter, beyond the above")
    rows = [(found.path, found.type, found.reason) for found in report.culprits]
    _section(console, "cannot be pickled", ("", "type", "reason"), rows, style="red")
    _advice(console, report.advice)


def _show_captures(console: Console, report: Report) -> None:
    rows = [
        (found.path, size(found.bytes), Text(found.kind, _STYLES[found.kind]), found.type)
        for found in report.captures[:SHOWN_CAPTURES]
    ]
    more = len(report.captures) - len(rows)
    note = f"{more} smaller ones: --json" if more else "state goes with each task, a constant once to each worker"
    _section(console, "it captures", ("", "bytes", "kind", "type"), rows, note=note)


def show_outline(found: Outline, path: str) -> None:
    """Show what a pickle file would do."""
    console = _console()
    _heading(console, printable(path), "a complete pickle, not loaded", found.problem, calm=not found.globals)
    counted = ", ".join(f"{count:,} {name}" for name, count in found.counts.items())
    facts = f"{size(found.bytes)}, protocol {found.protocol}, {found.opcodes:,} opcodes"
    console.print(Text(f"{facts}, {counted or 'all of them make plain data'}", "dim"))
    if found.trailing_bytes:
        console.print(Text(f"{size(found.trailing_bytes)} follow the end of the pickle", "yellow"))
    names = [*found.globals, *(name for name in found.calls if name not in found.globals)]
    rows = [(name, f"{found.calls[name]:,}" if name in found.calls else "") for name in names]
    more = f"{len(rows) - SHOWN_GLOBALS} more: --json" if len(rows) > SHOWN_GLOBALS else ""
    _section(console, "loading it imports", ("", "calls"), rows[:SHOWN_GLOBALS], note=more)
    extra = [(module, "") for module in found.modules if not any(n.startswith(f"{module}.") for n in found.globals)]
    _section(console, "and, as modules", ("", ""), extra)
    constants = [(c.type, size(c.bytes), f"at byte {c.position:,}") for c in found.constants]
    _section(console, "largest constants", ("", "bytes", ""), constants)
    _advice(console, _on_outline(found))


def _on_outline(found: Outline) -> Iterable[str]:
    if found.globals or found.calls:
        yield "Load it only if you trust whoever wrote it: loading imports and calls what is listed above."
    if any(COMPUTED in name.split(".") for name in found.globals):
        yield f"{COMPUTED} is a name that is made while it is loaded: nobody can say beforehand what it imports."
    if found.counts.keys() & {"PERSID", "BINPERSID"}:
        yield "It refers to objects outside of it: only the program that wrote it can load it."
    if "NEXT_BUFFER" in found.counts:
        yield "It needs buffers that are kept outside of it."


# --- the look that all share ------------------------------------------------------------------------------------------


def _console() -> Console:
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def _heading(console: Console, name: str, well: str, problem: str, *, calm: bool = True) -> None:
    verdict = (f"\n✗ {problem}", "red") if problem else (f"  ✓ {well}", "green" if calm else "yellow")
    console.print(Text.assemble((name, "bold"), verdict))


def _section(
    console: Console,
    title: str,
    headers: tuple[str, ...],
    rows: Sequence[tuple[str | Text, ...]],
    *,
    note: str = "",
    style: str = "cyan",
) -> None:
    """A table under a title; nothing where there are no rows."""
    if not rows:
        return
    console.print()
    if title:
        console.print(Text.assemble((title, "bold"), (f"  {note}" if note else "", "dim")))
    table = Table(header_style="dim", box=None, padding=(0, 2, 0, 0), show_header=any(headers))
    for index, header in enumerate(headers):
        figures = header in ("bytes", "fresh", "calls")
        table.add_column(
            header,
            style=style if index == 0 else "",
            justify="right" if figures else "left",
            no_wrap=figures,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
    console.print(table)


def _advice(console: Console, lines: Iterable[str]) -> None:
    table = Table.grid(padding=(0, 1, 0, 0))
    for line in lines:
        table.add_row(Text("→", "yellow"), Text(line))
    if table.row_count:
        console.print()
        console.print(table)
