"""Pickles with holes: what stands in them travels apart, and comes back in its place when the pickle is loaded.

Never here: what goes into a hole.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any

from slipstream.serde.classes import is_sent, reduce_class, reduce_class_to_name
from slipstream.serde.pickler import Pickler


class _WithHoles(Pickler):
    def __init__(self, file: io.BytesIO, state: Sequence[Any], *, whole: bool) -> None:
        super().__init__(file)
        self._whole = whole
        self.classes: dict[type, None] = {}
        self._numbers = {id(value): number for number, value in enumerate(state)}

    def reduce_class(self, cls: type) -> Any:
        if self._whole:
            return reduce_class(cls)
        if is_sent(cls):
            self.classes[cls] = None
        return reduce_class_to_name(cls)

    def persistent_id(self, obj: object) -> int | None:
        return self._numbers.get(id(obj))


class _WithState(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, state: Sequence[Any]) -> None:
        super().__init__(file)
        self._state = state

    def persistent_load(self, pid: Any) -> Any:
        return self._state[pid]


class _Reader:
    """Reads from memory without a copy of it, which BytesIO would make."""

    def __init__(self, data: memoryview) -> None:
        self._rest = data

    def read(self, size: int, /) -> bytes:
        taken, self._rest = self._rest[:size], self._rest[size:]
        return bytes(taken)

    def readinto(self, buffer: memoryview, /) -> int:
        size = min(len(buffer), len(self._rest))
        buffer[:size], self._rest = self._rest[:size], self._rest[size:]
        return size

    def readline(self) -> bytes:  # of protocol 0; the unpickler asks that it be there
        raise NotImplementedError


def dump_with_holes(value: object, state: Sequence[Any], *, whole: bool = False) -> tuple[bytes, tuple[type, ...]]:
    """Pickle a value, with holes in place of these objects.

    Args:
        value: Anything.
        state: What is to be left out.
        whole: Whether to put classes by value in, and not only their identifiers.

    Returns:
        The bytes, and the classes of which it has the identifiers.

    Example:
        >>> inner = [1]
        >>> load_with_state(dump_with_holes({"a": inner}, [inner])[0], [2])
        {'a': 2}
    """
    file = io.BytesIO()
    pickler = _WithHoles(file, state, whole=whole)
    pickler.dump(value)
    return file.getvalue(), tuple(pickler.classes)


def load_with_state(data: bytes, state: Sequence[Any]) -> Any:
    """Load what `dump_with_holes` made, with these objects in the holes."""
    return _WithState(io.BytesIO(data), state).load()


def load_pair(data: bytes | memoryview, buffers: Sequence[Any] = ()) -> tuple[Any, Any]:
    """Load two values that were pickled one after the other, and may share objects.

    Example:
        >>> from slipstream.serde.parts import dump_parts
        >>> shared = [1]
        >>> first, second = load_pair(dump_parts([shared], [shared], inputs={}).payload.join())
        >>> first[0] is second[0]
        True
    """
    file = io.BytesIO(data) if isinstance(data, bytes) else _Reader(data)
    unpickler = pickle.Unpickler(file, buffers=buffers)
    return unpickler.load(), unpickler.load()
