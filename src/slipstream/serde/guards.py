"""What must be so for a function to be the same still as when it was captured (see `captures`).

A guard is a place and the object that was found there; that nothing else is there now is checked in flat loops, at 38
ns a guard, or 12 once that has been compiled. Identity is enough: what is constant cannot change in place, and what is
not is sent with each task.

Never here: what is looked at, and what follows from a change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from keyword import iskeyword
from types import CellType, CodeType, FunctionType
from typing import Any

from slipstream.protocol.ids import CallableDigest
from slipstream.serde import imports

#: Stands for a global that is not there, and for what an empty cell holds.
ABSENT: Any = object()


#: Proofs after which the guards of so many globals or more are compiled.
PROOFS_TO_COMPILE = 500
COMPILED_FROM = 10


class Capture:
    """One function at one moment, and what must be so for it to be the same still."""

    __slots__ = (
        "attributes",
        "cells",
        "classes",
        "code",
        "compiled",
        "contents",
        "decisions",
        "defaults",
        "definition",
        "digest",
        "fresh",
        "functions",
        "globals",
        "guards",
        "inside",
        "kwdefaults",
        "label",
        "name",
        "paths",
        "proofs_to_compile",
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
    #: Functions and caches that are in the definition, by identity.
    inside: dict[int, Any]
    #: Classes that go by value, and that the definition knows by their identifiers.
    classes: tuple[type, ...]

    def __init__(self, fn: Any, function: FunctionType) -> None:
        #: The callable itself, where it is no plain function: a wrapper is recognised by its identity.
        self.wrapper: Any = None if fn is function else fn
        self.code = function.__code__
        self.name, self.qualname = function.__name__, function.__qualname__
        self.globals = function.__globals__
        self.defaults = function.__defaults__
        self.kwdefaults: dict[str, Any] | None = function.__kwdefaults__ and {**function.__kwdefaults__}
        self.attributes = dict(function.__dict__)
        self.contents = tuple([content_of(cell) for cell in function.__closure__ or ()])
        #: By identity of a dict: the dict, (name, object) of what is there, and names of what is not. Of the function
        #: and of those that it captures.
        self.guards: dict[int, tuple[Mapping[str, Any], list[tuple[str, Any]], list[str]]] = {}
        #: Of the captured functions: (cell, content), and (function, code, defaults, those of keywords, attributes).
        self.cells: list[tuple[CellType, Any]] = []
        self.functions: list[tuple[FunctionType, CodeType, Any, Any, int]] = []
        #: Dicts, and how many things are in them.
        self.sizes: list[tuple[Any, int]] = []
        #: By reference or by value was decided under this import path.
        self.decisions = imports.decisions()
        self.proofs_to_compile = PROOFS_TO_COMPILE
        self.compiled: Callable[[], bool] | None = None

    def guard(self, names: Mapping[str, Any], name: str) -> Any:
        """Guard what is under a name, or that nothing is; and return that, or `ABSENT`."""
        _, there, not_there = self.guards.setdefault(id(names), (names, [], []))
        value = names.get(name, ABSENT)
        if value is ABSENT:
            not_there.append(name)
        else:
            there.append((name, value))
        return value

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
        if self.contents:
            for cell, content in zip(function.__closure__ or (), self.contents):  # noqa: B905  # the code says how many
                if content_of(cell) is not content:
                    return False
        keywords = function.__kwdefaults__
        if (keywords or self.kwdefaults) and not same_items(keywords or {}, self.kwdefaults or {}):
            return False
        if (function.__dict__ or self.attributes) and not same_items(function.__dict__, self.attributes):
            return False
        try:
            for names, there, not_there in self.guards.values():
                for name, value in there:
                    if names[name] is not value:
                        return False
                for name in not_there:
                    if name in names:
                        return False
            if self.compiled is not None and not self.compiled():
                return False
        except (KeyError, NameError):
            return False
        if self.proofs_to_compile:
            self._count_down()
        return not (self.cells or self.sizes or self.functions) or self._functions_hold()

    def _count_down(self) -> None:
        """Compile the guards of the function's own globals when it has been submitted so often that this pays.

        The interpreter's own look-up of a global takes 12 ns, and the loop's 38; compiling takes 10 µs for each.
        """
        self.proofs_to_compile -= 1
        names, there, not_there = self.guards.get(id(self.globals), (self.globals, [], []))
        if self.proofs_to_compile == 0 and len(there) >= COMPILED_FROM:
            plain = [guard for guard in there if _is_plain(guard[0])]
            self.compiled = _compiled(self.globals, plain) if plain else None
            self.guards[id(names)] = names, [guard for guard in there if not _is_plain(guard[0])], not_there

    def _functions_hold(self) -> bool:
        """Whether the captured functions are the same."""
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


def _is_plain(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not iskeyword(name) and not name.startswith("_guard_")


def _compiled(names: dict[str, Any], there: list[tuple[str, Any]]) -> Callable[[], bool]:
    """A function with these globals that says whether all are there still, or raises NameError."""
    parameters = ", ".join([f"_guard_{number}" for number in range(len(there))])
    body = " and ".join([f"{name} is _guard_{number}" for number, (name, _) in enumerate(there)])
    module = compile(f"def holds({parameters}): return {body}", "<guards>", "exec")
    (code,) = [constant for constant in module.co_consts if type(constant) is CodeType]
    return FunctionType(code, names, None, tuple([value for _, value in there]))


def same_items(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether both have the same objects under the same names."""
    return len(now) == len(before) and all(before.get(name, ABSENT) is value for name, value in now.items())


def content_of(cell: CellType) -> Any:
    """What a cell holds, if anything."""
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT
