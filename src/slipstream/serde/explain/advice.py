"""One line for each thing that is worth doing about a report.

Never here: anything that measures.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from slipstream.serde.explain.report import Report, seconds, size

#: From here on, in bytes and seconds, there is something worth saying.
LARGE_STATE = 64_000
LARGE_ARGUMENT = 1_000_000
LARGE_DEFINITION = 1_000_000
SLOW_IMPORT_S = 0.2
#: Pieces of one kind that are spoken of.
_SPOKEN_OF = 3


def advise(report: Report) -> Report:
    """The same report, with advice.

    Args:
        report: One without.
    """
    lines = (*_on_culprits(report), *_on_sizes(report), *_on_imports(report))
    return msgspec.structs.replace(report, advice=lines)


def _on_culprits(report: Report) -> Iterator[str]:
    for culprit in report.culprits[:_SPOKEN_OF]:
        yield f"Make {culprit.path} inside the task" + (
            ", or leave it out of what its object's __getstate__ returns." if "." in culprit.path else "."
        )


def _on_sizes(report: Report) -> Iterator[str]:
    state = [c for c in report.captures if c.kind == "state" and (c.bytes or 0) >= LARGE_STATE]
    for capture in state[:_SPOKEN_OF]:
        where = _first_upper(capture.path)
        yield (
            f"{where} takes {size(capture.bytes)} with each task: pass it as an argument, make it a tuple or bytes, "
            "or load it inside the task."
        )
    if report.definition_bytes >= LARGE_DEFINITION:
        yield (
            f"The function takes {size(report.definition_bytes)} with the constants that it captures: load them from a "
            "file inside the task."
        )
    large = [piece for piece in report.arguments if (piece.bytes or 0) >= LARGE_ARGUMENT]
    for piece in large[:_SPOKEN_OF]:
        yield (
            f"{_first_upper(piece.path)} takes {size(piece.bytes)}: if many tasks share it, pass a file's name, and "
            "load it inside the task."
        )


def _on_imports(report: Report) -> Iterator[str]:
    for found in report.imports:
        if found.failed:
            yield f"A fresh interpreter with this sys.path cannot import {found.module}: {found.error}."
    slow = [found for found in report.imports if (found.seconds or 0) >= SLOW_IMPORT_S]
    for found in slow[:_SPOKEN_OF]:
        yield (
            f"Importing {found.module} takes {seconds(found.seconds)} in each new worker: do it in the executor's "
            "initializer, before the first task."
        )


def _first_upper(text: str) -> str:
    return f"The{text[3:]}" if text.startswith("the ") else text
