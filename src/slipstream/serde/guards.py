"""What must be so for a function to be the same still as when it was captured (see `captures`).

A guard is a place and the object that was found there; that nothing else is there now is checked in flat loops, at 45
to 50 ns a guard. Identity is enough: what is constant cannot change in place, and what is not is sent with each task.

Never here: what is looked at, and what follows from a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

from slipstream.protocol.ids import CallableDigest
from slipstream.serde import imports

#: Stands for a global that is not there, and for what an empty cell holds.
ABSENT: Any = object()


class Capture:
    """One function at one moment, and what must be so for it to be the same still."""

    __slots__ = (
        "absent",
        "attributes",
        "cells",
        "code",
        "contents",
        "decisions",
        "defaults",
        "definition",
        "digest",
        "fresh",
        "functions",
        "globals",
        "guards",
        "kwdefaults",
        "label",
        "name",
        "paths",
        "qualname",
        "sizes",
        "spaces",
        "state",
        "wrapper",
    )

    digest: CallableDigest
    label: str
    #: The definition for the workers.
    definition: bytes
    #: Identities of the globals of the function and of those that it captures; whether one of these writes there.
    spaces: frozenset[int]
    fresh: bool
    #: Objects that travel with each task, and what each is to the user: "the global 'data'".
    state: tuple[Any, ...]
    paths: tuple[str, ...]

    def __init__(self, fn: Any, function: FunctionType) -> None:
        #: The callable itself, where it is no plain function: a wrapper is recognised by its identity.
        self.wrapper: Any = None if fn is function else fn
        self.code = function.__code__
        self.name, self.qualname = function.__name__, function.__qualname__
        self.globals = function.__globals__
        self.defaults = function.__defaults__
        self.kwdefaults: dict[str, Any] = {**(function.__kwdefaults__ or {})}
        self.attributes = dict(function.__dict__)
        self.contents = tuple([content_of(cell) for cell in function.__closure__ or ()])
        #: (dict, name, object) for each global of the function and of those that it captures.
        self.guards: list[tuple[Mapping[str, Any], str, Any]] = []
        #: (dict, name) for those that are not there.
        self.absent: list[tuple[Mapping[str, Any], str]] = []
        #: Of the captured functions: (cell, content), and (function, code, defaults, those of keywords, attributes).
        self.cells: list[tuple[CellType, Any]] = []
        self.functions: list[tuple[FunctionType, CodeType, Any, Any, int]] = []
        #: Dicts, and how many things are in them.
        self.sizes: list[tuple[Any, int]] = []
        #: By reference or by value was decided under this import path.
        self.decisions = imports.decisions()

    def holds_for(self, fn: Any, function: FunctionType) -> bool:
        """Whether this function would be captured in just the same way."""
        if (
            function.__code__ is not self.code
            or function.__name__ is not self.name
            or function.__qualname__ is not self.qualname
            or function.__globals__ is not self.globals
            or function.__defaults__ is not self.defaults
            or self.decisions is not imports.decisions()
            or (self.wrapper is not fn and (self.wrapper is not None or fn is not function))
        ):
            return False
        closure = function.__closure__
        if closure is not None:
            for cell, content in zip(closure, self.contents):  # noqa: B905  # the code says how many there are
                if content_of(cell) is not content:
                    return False
        if (function.__kwdefaults__ or self.kwdefaults) and not same_items(
            function.__kwdefaults__ or {}, self.kwdefaults
        ):
            return False
        if (function.__dict__ or self.attributes) and not same_items(function.__dict__, self.attributes):
            return False
        try:
            for names, name, value in self.guards:
                if names[name] is not value:
                    return False
        except KeyError:
            return False
        for names, name in self.absent:
            if name in names:
                return False
        for cell, content in self.cells:
            if content_of(cell) is not content:
                return False
        for attributes, count in self.sizes:
            if len(attributes) != count:
                return False
        for inner, code, defaults, keywords, attributes in self.functions:
            if (
                inner.__code__ is not code
                or inner.__defaults__ is not defaults
                or inner.__kwdefaults__ is not keywords
                or len(inner.__dict__) != attributes
            ):
                return False
        return True


def same_items(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether both have the same objects under the same names."""
    return len(now) == len(before) and all(before.get(name, ABSENT) is value for name, value in now.items())


def content_of(cell: CellType) -> Any:
    """What a cell holds, if anything."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT
