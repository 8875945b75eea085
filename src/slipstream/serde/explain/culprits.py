"""Where in a value the thing stands that cannot be pickled: `args[0].model._lock`.

A value that fails is taken apart as pickle would take it apart, and its pieces are tried one by one, until a piece
fails of which no piece fails. Depth and number of trials are bounded; where the bound is met, the path ends early.

Never here: anything that runs when all goes well, and advice.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any, cast

import msgspec

from slipstream.serde.error_text import error_text
from slipstream.serde.explain.captured import captured
from slipstream.serde.explain.printable import printable
from slipstream.serde.imports import is_by_reference
from slipstream.serde.pickler import Pickler
from slipstream.serde.reducers import REDUCERS

MAX_DEPTH = 30
MAX_TRIALS = 2000
#: Pieces of one object that are looked at.
MAX_PIECES = 100_000
#: More are not looked for.
MAX_CULPRITS = 5
_KEY_LENGTH = 40
#: What never fails, so that it needs no trial.
_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes))


class Culprit(msgspec.Struct, frozen=True):
    """Something that cannot be pickled: where it stands, its type, and what pickle says of it."""

    path: str
    type: str
    reason: str
    #: Whether no piece of it is at fault by itself; False where the search met its bound.
    exact: bool = True


class _Counter:
    """A file that keeps nothing but the number of bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.bytes += size
        return size


def pickled_bytes(value: object, pickler: Callable[[io.BytesIO], Pickler] = Pickler) -> int:
    """How many bytes a value takes, without keeping them.

    Args:
        value: Anything.
        pickler: What pickles it.

    Raises:
        Exception: Whatever pickling it raises.

    Example:
        >>> pickled_bytes(b"x" * 1000) - pickled_bytes(b"x" * 900)
        100
    """
    counter = _Counter()
    pickler(cast(io.BytesIO, counter)).dump(value)
    return counter.bytes


def culprits(value: object, path: str) -> tuple[Culprit, ...]:
    """What in a value cannot be pickled; empty if all of it can.

    Args:
        value: Anything.
        path: What the value is to the user, such as ``args[0]``.

    Example:
        >>> import threading
        >>> [found] = culprits({"jobs": [1, threading.Lock()]}, "args[0]")
        >>> found.path, found.reason
        ("args[0]['jobs'][1]", "TypeError: cannot pickle '_thread.lock' object")
    """
    search = _Search()
    search.look(value, path, 0)
    return tuple(search.found)


class _Search:
    def __init__(self) -> None:
        self.found: list[Culprit] = []
        self._trials = 0
        #: Objects that failed, by identity. They are held, so that no number comes back for another object.
        self._failed: dict[int, object] = {}

    def look(self, value: object, path: str, depth: int) -> bool:
        """Whether the value fails; where, is in `found` then."""
        if type(value) in _PLAIN:
            return False
        if id(value) in self._failed:
            return True  # around a circle, or the same object again: it is named where it was met first
        reason = self._try(value)
        if reason is None:
            return False
        self._failed[id(value)] = value
        bound = depth >= MAX_DEPTH
        if not bound:
            below = False
            for name, piece in _pieces(value, path):
                if len(self.found) >= MAX_CULPRITS:
                    return True
                if self._trials >= MAX_TRIALS:
                    bound = not below
                    break
                below = self.look(piece, name, depth + 1) or below
            if below:
                return True
        if len(self.found) < MAX_CULPRITS:
            kind = printable(type(value).__qualname__)
            self.found.append(Culprit(path, kind, reason, exact=not bound))
        return True

    def _try(self, value: object) -> str | None:
        """What pickling it raises, as text: the exception itself would be part of a circle, with all that is here."""
        self._trials += 1
        try:
            pickled_bytes(value)
        except Exception as error:  # noqa: BLE001 - the user's own reducers may raise anything
            return printable(error_text(error))
        return None


def _pieces(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What pickle would take the value apart into. Bounded: an iterator of the user's may have no end, or raise."""
    pieces = _all_pieces(value, path)
    for _ in range(MAX_PIECES):
        try:
            piece = next(pieces)
        except Exception:  # noqa: BLE001 - the end, or the user's own iterator
            return
        yield piece


def _all_pieces(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    kind = _type_of(value)
    if kind is dict:
        yield from _items(value.items(), path)
    elif kind in (list, tuple):
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(value))
    elif kind in (set, frozenset):
        yield from ((f"an item of {path}", item) for item in value)
    elif kind is FunctionType:
        if not is_by_reference(value):
            yield from captured(value, "" if path == "the callable" else path)
    elif kind is MethodType:
        yield f"{path}.__self__", value.__self__
        yield f"{path}.__func__", value.__func__
    elif kind is partial:
        bound = cast("partial[Any]", value)
        yield f"{path}.func", bound.func
        yield f"{path}.args", bound.args
        yield f"{path}.keywords", bound.keywords
    elif issubclass(kind, type):
        if not is_by_reference(value):
            defined = cast(type, value)
            yield from ((f"{path}.{name}", item) for name, item in list(vars(defined).items()) if _travels(name))
            yield from ((f"a base of {path}", base) for base in defined.__bases__)
    elif isinstance(value, (staticmethod, classmethod)):
        yield path, cast(Any, value).__func__
    elif kind is property:
        yield from ((path, part) for part in (value.fget, value.fset, value.fdel))
    else:
        yield from _reduced(value, path)


def _type_of(value: object) -> type[Any]:
    return type(value)


def _travels(name: str) -> bool:
    return name not in ("__dict__", "__weakref__", "__module__", "__qualname__", "__doc__")


def _items(items: Iterable[tuple[Any, Any]], path: str) -> Iterator[tuple[str, Any]]:
    for key, item in items:
        yield f"{path}[{_key(key)}]", item
        yield f"a key of {path}", key


def _key(key: object) -> str:
    if type(key) is str and len(key) <= _KEY_LENGTH:
        return printable(repr(key))
    return repr(key) if type(key) in (int, float, bool, type(None)) else "..."


def _reduced(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The pieces of any other object: its class, what it is made of, and its state."""
    try:
        reducer = REDUCERS.get(_type_of(value))
        reduced: Any = value.__reduce_ex__(5) if reducer is None else reducer(value)
    except Exception:  # noqa: BLE001 - the user's own reducer; then the object itself is at fault
        return
    if not isinstance(reduced, tuple):  # a name
        return
    maker, arguments, state, items, pairs, *_ = (*cast("tuple[Any, ...]", reduced), None, None, None)
    yield from _state(state, path)
    if items is not None:
        yield from ((f"{path}[{index}]", item) for index, item in enumerate(cast("Iterable[Any]", items)))
    if pairs is not None:
        yield from _items(pairs, path)
    for argument in arguments:
        yield f"the class of {path}" if argument is _type_of(value) else f"what {path} is made from", argument
    yield f"what makes {path}", maker


def _state(state: Any, path: str) -> Iterator[tuple[str, Any]]:
    pair = isinstance(state, tuple) and len(cast("tuple[Any, ...]", state)) == 2  # of __dict__ and of __slots__
    for part in cast("tuple[Any, ...]", state if pair else (state,)):
        if type(part) is dict:
            named = cast("dict[Any, Any]", part)
            yield from ((f"{path}.{printable(str(name))}", item) for name, item in named.items())
        elif part is not None:
            yield f"the state of {path}", part
