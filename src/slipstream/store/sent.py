"""Whether a large argument equals one that lies in a file already, so that it need not be written again.

Proven by comparing every byte with the file, at each submit: an array that is the same object may have changed, and one
that was loaded anew may be the same. The file is read a piece at a time into a buffer that stays in the processor's
cache (3 to 4 GB/s; a mapping compared by words 1.3, a digest 0.5), so nothing is mapped for it.

So are whole calls whose arguments are large and no arrays.

Never here: arguments that are given as futures, which are in a place already.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pickle import PickleBuffer

from slipstream.store.owned import Reference, Stored
from slipstream.store.payload import size_of, unpack

#: A smaller argument is sent again: that costs little more than to look.
LARGE_BYTES = 1 << 20
#: Keys that are remembered, and payloads of each: their files can only be equal, and mostly are.
MAX_KEYS = 256
MAX_PER_KEY = 4

_PIECE_BYTES = 256 << 10
#: What is taken of the start, the middle and the end of a buffer, so that hardly another one is read for comparison.
_SAMPLE_BYTES = 64

#: How many pieces the pickle and the buffers have, and of all of them or of some, the length and a sample.
_Key = tuple[int, tuple[tuple[int, bytes], ...]]
#: A pickle of 100 MB may have 1,600 pieces, and there may be 256 of them: of more, the largest and some others do.
_SAMPLED = 8


class Sent:
    """The large arguments that one client has sent, as long as it owns their files."""

    def __init__(self) -> None:
        self._references: OrderedDict[_Key, tuple[Reference, ...]] = OrderedDict()
        self._changing = threading.RLock()  # the collector may run a finalizer in there that submits

    def find(self, pickle: Sequence[bytes], buffers: Sequence[PickleBuffer]) -> Stored | None:
        """Find a payload of the same content.

        Args:
            pickle: The argument without its buffers, in pieces.
            buffers: Its buffers.

        Returns:
            A payload that owns its file together with the one that was remembered; None if there is none.
        """
        with _parts_of(pickle, buffers) as parts:
            if sum(part.nbytes for part in parts) < LARGE_BYTES:
                return None
            for reference in self._references.get(_key_of(parts), ()):
                stored = reference.get()
                if stored is not None and _holds(stored, parts, len(pickle)):
                    return stored
        return None

    def remember(self, stored: Stored, pickle: Sequence[bytes], buffers: Sequence[PickleBuffer]) -> None:
        """Remember what was sent, unless it is small.

        Args:
            stored: The payload.
            pickle: The argument without its buffers, in pieces.
            buffers: Its buffers.
        """
        if size_of(stored) < LARGE_BYTES:
            return
        with _parts_of(pickle, buffers) as parts:
            key = _key_of(parts)
        with self._changing:
            older = [reference for reference in self._references.pop(key, ()) if reference.get() is not None]
            self._references[key] = (Reference(stored), *older[: MAX_PER_KEY - 1])
            while len(self._references) > MAX_KEYS:
                self._references.popitem(last=False)


@contextmanager
def _parts_of(pickle: Sequence[bytes], buffers: Sequence[PickleBuffer]) -> Generator[list[memoryview]]:
    """The pickle's pieces and the buffers, released in the end (why: see `serde.reducers.reduce_view_apart`)."""
    parts = [memoryview(piece) for piece in pickle]
    try:
        parts.extend(buffer.raw() for buffer in buffers)
        yield parts
    finally:
        for part in parts:
            part.release()


def _key_of(parts: list[memoryview]) -> _Key:
    some = parts
    if len(parts) > _SAMPLED:
        some = [*parts[:: len(parts) // _SAMPLED], max(parts, key=lambda part: part.nbytes)]
    return len(parts), tuple((part.nbytes, _sample(part)) for part in some)


def _sample(part: memoryview) -> bytes:
    middle = part.nbytes // 2
    return b"".join((part[:_SAMPLE_BYTES], part[middle : middle + _SAMPLE_BYTES], part[-_SAMPLE_BYTES:]))


def _holds(stored: Stored, parts: list[memoryview], pieces: int) -> bool:
    """Whether a file holds exactly these, of which the first so many are its pickle."""
    path, _, pickle_size, extents = unpack(stored)
    ends = list(accumulate([part.nbytes for part in parts[:pieces]], initial=0))
    offsets = [*ends[:-1], *(offset for offset, _, _ in extents)]
    lengths = [length for _, length, _ in extents]
    if ends[-1] != pickle_size or lengths != [part.nbytes for part in parts[pieces:]]:
        return False
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return all(_is_at(descriptor, offset, part) for offset, part in zip(offsets, parts, strict=True))
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, offset: int, part: memoryview) -> bool:
    """Whether these bytes are in the file at this offset."""
    piece = bytearray(min(_PIECE_BYTES, part.nbytes))
    for start in range(0, part.nbytes, _PIECE_BYTES):
        with part[start : start + _PIECE_BYTES] as expected:
            if expected.nbytes < len(piece):
                piece = bytearray(expected.nbytes)
            if os.preadv(descriptor, [piece], offset + start) != len(piece):
                return False
            # A bytearray is compared with other memory in one go; two memoryviews are, item by item.
            if piece != expected:  # pyright: ignore[reportUnnecessaryComparison]
                return False
    return True
