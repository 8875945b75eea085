"""Pickles with holes: what stands in them travels apart, and comes back in its place when the pickle is loaded.

Never here: what goes into a hole.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

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


def dump_pair(first: object, second: object) -> tuple[bytes, int]:
    """Pickle two values that may share objects; where the second begins."""
    file = io.BytesIO()
    pickler = Pickler(file)
    pickler.dump(first)
    middle = file.tell()
    pickler.dump(second)
    return file.getvalue(), middle


def load_pair(data: bytes) -> tuple[Any, Any]:
    """Load both.

    Example:
        >>> shared = [1]
        >>> first, second = load_pair(dump_pair([shared], [shared])[0])
        >>> first[0] is second[0]
        True
    """
    unpickler = pickle.Unpickler(io.BytesIO(data))
    return unpickler.load(), unpickler.load()
