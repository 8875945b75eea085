"""Frames: how a stream of bytes is cut into bodies, on both sides.

A frame is an 8-byte little-endian length and a body. `FrameReader` does no I/O: its owner receives into `target()` and
reports how many bytes came (the idea is h11's).

Never here: sockets, and what a body says (see `codec` and `worker_codec`).
"""

from __future__ import annotations

from struct import Struct

#: Bytes of the length that precedes each body.
HEADER_BYTES = 8
#: recv_into a buffer of this size costs 2.5 µs; of 128 KiB or more 16 µs, since the allocator maps it anew each time.
READ_BYTES = 65_536
#: A longer frame is taken for a corrupt length: no machine of ours sends 1 TiB at once.
MAX_FRAME_BYTES = 1 << 40

_SIZE = Struct("<Q")
_unpack_size = _SIZE.unpack_from


class ProtocolError(Exception):
    """An endpoint sent what it must not. It costs that endpoint its connection, and nobody else anything."""


#: What goes on a stream before a body of so many bytes.
frame_header = _SIZE.pack


class FrameReader:
    """Turns a stream of bytes into frame bodies.

    Example:
        >>> reader = FrameReader()
        >>> sent = frame_header(3) + b"abc"
        >>> reader.target()[: len(sent)] = sent
        >>> reader.received(len(sent))
        [b'abc']
    """

    def __init__(self) -> None:
        self._chunk = memoryview(bytearray(READ_BYTES))
        #: Bytes of an unfinished frame, at the start of `_chunk`; only while `_large` is None.
        self._held = 0
        #: A body that does not fit into `_chunk` is received where it stays.
        self._large: bytearray | None = None
        self._filled = 0

    @property
    def midway(self) -> bool:
        """Whether part of a frame has come, and part has not."""
        return self._large is not None or self._held > 0

    def target(self) -> memoryview:
        """Where to receive into. Never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        return self._chunk[self._held :]

    def received(self, count: int) -> list[bytes]:
        """Take note of `count` bytes received into `target()`; the bodies that are now complete.

        Raises:
            ProtocolError: If a length cannot be true.
        """
        if self._large is not None:
            self._filled += count
            if self._filled < len(self._large):
                return []
            body, self._large = self._large, None
            return [body]  # pyright: ignore[reportReturnType]  # a bytearray that nobody else holds serves as bytes
        return self._split(self._held + count)

    def _split(self, end: int) -> list[bytes]:
        bodies: list[bytes] = []
        chunk, start = self._chunk, 0
        while end - start >= HEADER_BYTES:
            (size,) = _unpack_size(chunk, start)
            body_start = start + HEADER_BYTES
            if body_start + size > end:
                if size > MAX_FRAME_BYTES:
                    raise ProtocolError(f"a frame claims {size} bytes")
                if HEADER_BYTES + size > READ_BYTES:
                    self._begin_large(size, chunk[body_start:end])
                    return bodies
                break
            start = body_start + size
            bodies.append(bytes(chunk[body_start:start]))
        self._held = end - start
        if start and self._held:
            chunk[: self._held] = bytes(chunk[start:end])
        return bodies

    def _begin_large(self, size: int, beginning: memoryview) -> None:
        try:
            self._large = bytearray(size)
        except MemoryError:
            raise ProtocolError(f"a frame claims {size} bytes, for which there is no memory") from None
        self._filled = len(beginning)
        self._large[: self._filled] = beginning
        self._held = 0
