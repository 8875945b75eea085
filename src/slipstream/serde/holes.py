"""Pickles with holes: what stands in them travels apart, and comes back in its place when the pickle is loaded.

Never here: what goes into a hole.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from slipstream.serde.constants import facts_of
from slipstream.serde.imports import is_by_reference
from slipstream.serde.pickler import Pickler


class _WithHoles(Pickler):
    def __init__(self, file: io.BytesIO, state: Sequence[Any]) -> None:
        super().__init__(file)
        self._numbers = {id(value): number for number, value in enumerate(state)}

    def persistent_id(self, obj: object) -> int | None:
        return self._numbers.get(id(obj))


class _WithState(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, state: Sequence[Any]) -> None:
        super().__init__(file)
        self._state = state

    def persistent_load(self, pid: Any) -> Any:
        return self._state[pid]


def dump_with_holes(value: object, state: Sequence[Any]) -> bytes:
    """Pickle a value, with holes in place of these objects.

    Example:
        >>> inner = [1]
        >>> load_with_state(dump_with_holes({"a": inner}, [inner]), [2])
        {'a': 2}
    """
    file = io.BytesIO()
    _WithHoles(file, state).dump(value)
    return file.getvalue()


def load_with_state(data: bytes, state: Sequence[Any]) -> Any:
    """Load what `dump_with_holes` made, with these objects in the holes."""
    return _WithState(io.BytesIO(data), state).load()


class _EntangledError(Exception):
    """A function was met that shares globals with the task's callable, and one of them writes there."""


class _Beside(Pickler):
    """Pickles what goes beside a definition."""

    def __init__(self, file: io.BytesIO, spaces: frozenset[int], *, fresh: bool) -> None:
        super().__init__(file)
        self._spaces = spaces
        self._fresh = fresh

    def reducer_override(self, obj: object, /) -> Any:
        if (
            type(obj) is FunctionType
            and id(obj.__globals__) in self._spaces
            and (self._fresh or facts_of(obj.__code__).stores)
            and not is_by_reference(obj)
        ):
            raise _EntangledError
        return super().reducer_override(obj)


def dump_pair(first: object, second: object, spaces: frozenset[int], *, fresh: bool) -> tuple[bytes, int] | None:
    """Pickle two values that may share objects, to go beside a definition.

    Args:
        first: the one.
        second: the other.
        spaces: identities of the globals of what is in the definition.
        fresh: whether that writes to them.

    Returns:
        The bytes, and where the second begins. None if a function is among the values that would have to share globals
        with those of the definition: then all must go in one pickle.
    """
    file = io.BytesIO()
    pickler = _Beside(file, spaces, fresh=fresh)
    try:
        pickler.dump(first)
        middle = file.tell()
        pickler.dump(second)
    except _EntangledError:
        return None
    return file.getvalue(), middle


def load_pair(data: bytes) -> tuple[Any, Any]:
    """Load both.

    Example:
        >>> shared = [1]
        >>> first, second = load_pair(dump_pair([shared], [shared], frozenset(), fresh=False)[0])
        >>> first[0] is second[0]
        True
    """
    unpickler = pickle.Unpickler(io.BytesIO(data))
    return unpickler.load(), unpickler.load()
