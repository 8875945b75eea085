"""Definitions of callables as workers keep them: written by the client, found by digest, loaded when first needed.

A definition is one byte that says whether each task needs a copy of its own, and a pickle with holes where the
function captures state. A worker keeps definitions up to a number of bytes, the one that was used last for the longest.

Never here: what is captured, and whether it has changed (see `captures`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import OrderedDict
    from collections.abc import Callable, Sequence
    from typing import Any
else:
    from _collections import OrderedDict

#: What a worker keeps, in bytes of definitions; at least one, however large.
KEPT_BYTES = 16 << 20
#: What an object costs beside the bytes that it is made from.
OBJECT_BYTES = 2048
_KEPT, _FRESH = b"\0", b"\1"
#: The first byte of the digest of a callable that workers know by its definition.
DEFINED = b"d"


def write_definition(fn: object, state: Sequence[Any], *, fresh: bool) -> tuple[bytes, tuple[type, ...]]:
    """The definition of a callable that captures this state, and the classes by value that it refers to.

    Args:
        fn: The callable; it is pickled by value.
        state: Objects in whose place the definition has a hole.
        fresh: Whether each task needs a copy of its own, even without state.
    """
    from slipstream.serde.holes import dump_with_holes

    data, classes = dump_with_holes(fn, state)
    return (_FRESH if fresh or state else _KEPT) + data, classes


class Definition:
    """One definition of a callable, or state of a class, as a worker keeps it."""

    __slots__ = ("data", "loaded")

    def __init__(self, data: bytes) -> None:
        self.data = data
        #: The callable, or the class, if it has been loaded and may be used again.
        self.loaded: Any = None

    def load(self, state: Sequence[Any]) -> Callable[..., Any]:
        """The callable, with this in its holes."""
        if self.loaded is not None:
            return self.loaded
        from slipstream.serde.holes import load_with_state

        loaded = load_with_state(self.data[1:], state)
        if self.data[:1] == _KEPT:
            self.loaded = loaded
        return loaded


class Definitions:
    """What one worker keeps."""

    def __init__(self) -> None:
        #: The one that was used longest ago first.
        self._kept: OrderedDict[bytes, Definition] = OrderedDict()
        self._bytes = 0

    def add(self, digest: bytes, data: bytes) -> None:
        """Keep a definition."""
        known = self._kept.pop(digest, None)
        self._bytes += 0 if known is not None else len(data) + OBJECT_BYTES
        self._kept[digest] = Definition(data) if known is None else known

    def drop_old(self) -> None:
        """Let go of the oldest, if these are too many. Between tasks only: one may need two that came with it."""
        while self._bytes > KEPT_BYTES and len(self._kept) > 1:
            self._bytes -= len(self._kept.popitem(last=False)[1].data) + OBJECT_BYTES

    def get(self, digest: bytes) -> Definition | None:
        """The definition with this digest, which is now the last to go."""
        found = self._kept.get(digest)
        if found is not None:
            self._kept.move_to_end(digest)
        return found
