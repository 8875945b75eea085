"""Draws the state diagram of `docs/design.md` from the table that the scheduler itself reads.

    python docs/diagrams.py            write the diagram between its two markers
    python docs/diagrams.py --check    exit with 1 if the diagram there is not the table's

Only what changes a state is drawn, and what ends the memory of a task.
"""

import argparse
import sys
from pathlib import Path

from slipstream.core.states import LIVE, TABLE, Input, State, Step

DESIGN = Path(__file__).with_name("design.md")
BEGIN = "<!-- states:begin -->"
END = "<!-- states:end -->"


def arrows() -> dict[tuple[str, str], list[str]]:
    """(from, to) -> names of the inputs that lead there; "[*]" is the time before and after a task."""
    found: dict[tuple[str, str], list[str]] = {
        ("[*]", State.WAITING.name): ["submitted, some input missing"],
        ("[*]", State.READY.name): ["submitted"],
    }
    for state, row in TABLE.items():
        for what, cell in row.items():
            if not isinstance(cell, Step):
                continue
            if state not in LIVE and what is Input.RELEASE:
                found.setdefault((state.name, "[*]"), []).append(what.name)
            for after in cell.to:
                if after is not state:
                    found.setdefault((state.name, after.name), []).append(what.name)
    return found


def diagram() -> str:
    """The state diagram as a mermaid block."""
    lines = [f"    {start} --> {end}: {', '.join(names)}" for (start, end), names in arrows().items()]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def with_diagram(page: str, path: Path) -> str:
    """The page with the present diagram between its markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{path} lacks the lines {BEGIN} and {END} that say where the diagram goes")
    return f"{before}{BEGIN}\n{diagram()}\n{END}{after}"


def main() -> None:
    """Write the diagram, or check it."""
    parser = argparse.ArgumentParser(description="Draw the state diagram from the scheduler's table.")
    parser.add_argument("page", type=Path, nargs="?", default=DESIGN)
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit with 1 if the diagram is out of date"
    )
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    drawn = with_diagram(page, options.page)
    if not options.check:
        options.page.write_text(drawn, encoding="utf-8")
    elif page != drawn:
        sys.exit(f"the state diagram in {options.page} is out of date: run python {Path(__file__).name}")


if __name__ == "__main__":
    main()
