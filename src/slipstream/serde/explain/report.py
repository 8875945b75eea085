"""What `doctor` found about a call: data for a table, for JSON, and as text.

Never here: how any of it is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from slipstream.serde.explain.culprits import Culprit
from slipstream.serde.explain.import_times import ImportTime
from slipstream.serde.explain.reasons import How


class Piece(msgspec.Struct, frozen=True):
    """The callable, or one argument of the call."""

    #: "the callable", "args[0]" or "argument 'name'".
    path: str
    type: str
    how: How
    #: Why so, for people.
    why: str
    #: By itself; what it shares with other pieces is sent once. None if it cannot be pickled.
    bytes: int | None


class Captured(msgspec.Struct, frozen=True):
    """Something that a function by value takes along."""

    path: str
    type: str
    #: A constant goes once to each worker, state with each task.
    kind: Literal["constant", "state", "by reference"]
    #: None if it cannot be pickled.
    bytes: int | None


class OtherWay(msgspec.Struct, frozen=True):
    """What the callable would take by value, together with what else its module defines and it uses."""

    module: str
    bytes_by_reference: int
    #: None if it could not be sent so.
    bytes_by_value: int | None
    culprits: tuple[Culprit, ...] = ()


class Report(msgspec.Struct, frozen=True):
    """What a call costs to send, and what of it cannot be sent. `msgspec.json.encode` takes it; `str` is for people."""

    label: str
    callable: Piece
    arguments: tuple[Piece, ...]
    #: Sent once to each worker; 0 if the callable goes by reference or is no function.
    definition_bytes: int
    #: The same for the classes by value that the call needs.
    classes_bytes: int
    #: Sent with each task, `state_bytes` of it for captured state. None if the call cannot be sent.
    task_bytes: int | None
    state_bytes: int
    captures: tuple[Captured, ...]
    #: Modules that a worker imports for the call, and how long each takes in a fresh interpreter.
    imports: tuple[ImportTime, ...]
    culprits: tuple[Culprit, ...]
    other_way: OtherWay | None
    #: What is wrong with the call; empty if it can be sent, and loaded.
    problem: str
    advice: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether the call can be sent, and a worker can import what it names."""
        return not self.problem

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def size(count: int | None) -> str:
    """Bytes for people.

    Example:
        >>> size(17), size(20_500), size(8 << 20), size(None)
        ('17 B', '20.5 kB', '8.4 MB', '-')
    """
    if count is None:
        return "-"
    if count < 10_000:
        return f"{count:,} B"
    return f"{count / 1e3:,.1f} kB" if count < 1e6 else f"{count / 1e6:,.1f} MB"


def seconds(value: float | None) -> str:
    """Seconds for people.

    Example:
        >>> seconds(0.0004), seconds(0.25), seconds(2.5), seconds(None)
        ('0.4 ms', '250 ms', '2.50 s', '-')
    """
    if value is None:
        return "-"
    if value >= 1:
        return f"{value:.2f} s"
    return f"{value * 1e3:.1f} ms" if value < 0.01 else f"{value * 1e3:.0f} ms"


def costs(report: Report) -> str:
    """What travels when, in one sentence."""
    if report.task_bytes is None:
        return "It cannot be sent."
    classes = f" ({size(report.classes_bytes)} of it classes)" if report.classes_bytes else ""
    once = report.definition_bytes + report.classes_bytes
    before = f"{size(once)} once to each worker{classes}, " if once else ""
    state = f", {size(report.state_bytes)} of it captured state" if report.state_bytes else ""
    return f"{before}{size(report.task_bytes)} with each task{state}"


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.label}: {report.problem or 'can be sent'}"
    yield f"  {costs(report)}"
    for piece in (report.callable, *report.arguments):
        yield f"  {piece.path}: {size(piece.bytes)} {piece.how}, {piece.why}"
    for capture in report.captures:
        yield f"  captures {capture.path}: {size(capture.bytes)}, {capture.kind}"
    for found in report.imports:
        yield f"  imports {found.module}: {found.error or seconds(found.seconds)}"
    for culprit in report.culprits:
        yield f"  {culprit.path} cannot be pickled: {culprit.reason}"
    for advice in report.advice:
        yield f"  advice: {advice}"
