"""A value into a file: its pickle, then its buffers, straight from where they are.

Never here: pickling (see `serde.pickler`), and where files go (see `place`).
"""

from __future__ import annotations

import os

from slipstream.store.payload import pack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pickle import PickleBuffer

    from slipstream.store.payload import Extent
    from slipstream.store.place import Place

#: Buffers begin at multiples of this: a cache line, and what the widest vector instructions ask for.
ALIGNMENT = 64
#: Pieces of one writev; the kernel takes 1,024.
_MAX_PIECES = 512
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def store_value(pickle: Sequence[bytes], buffers: Sequence[PickleBuffer], place: Place) -> bytes:
    """Write a value into a file of its own.

    Args:
        pickle: The value without its buffers, in pieces.
        buffers: What `serde.pickler.dumps_apart` returned beside it.
        place: Where to.

    The buffers are not released: that is for whoever made them.

    Returns:
        The payload that stands for the value from now on.

    Raises:
        OSError: There is room neither in shared memory nor on disk. The message names both, and what went wrong.

    Example:
        >>> import tempfile
        >>> from slipstream.serde.pickler import dumps_apart
        >>> from slipstream.store.place import Place
        >>> from slipstream.store.reading import load_stored
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     payload = store_value(*dumps_apart(["a", "value"]), Place(folder, "", "c", 0))
        ...     load_stored(payload)
        ['a', 'value']
    """
    pickle_size = sum(map(len, pickle))
    extents, size = _lay_out(pickle_size, buffers)
    path = _write_somewhere(pickle, buffers, size, place)
    return pack(path, size, pickle_size, extents)


def _lay_out(end: int, buffers: Sequence[PickleBuffer]) -> tuple[tuple[Extent, ...], int]:
    """Where the buffers come to lie after so many bytes, and how long the file is."""
    extents: list[Extent] = []
    for buffer in buffers:
        with buffer.raw() as view:
            start = end + -end % ALIGNMENT
            end = start + view.nbytes
            extents.append((start, view.nbytes, view.readonly))
    return tuple(extents), end


def _write_somewhere(pickle: Sequence[bytes], buffers: Sequence[PickleBuffer], size: int, place: Place) -> str:
    """Write to the run directory, or to disk if there is no room in it; the path."""
    number = 0
    reason = f"{place.directory}: its budget is used up"
    if place.has_room(size):
        try:
            return _write_new(pickle, buffers, place, place.directory)
        except OSError as error:
            number, reason = error.errno or 0, f"{place.directory}: {error.strerror or error}"
    if place.spill:
        try:
            path = _write_new(pickle, buffers, place, place.make_spill())
        except OSError as error:
            number, reason = error.errno or number, f"{reason}; {place.spill}: {error.strerror or error}"
        else:
            place.note_spill(reason)
            return path
    raise OSError(
        number,
        f"a value of {size:,} bytes cannot be stored ({reason}). Free some space there, keep fewer large values at a "
        "time, or set TMPDIR to a directory on a larger disk",
    )


def _write_new(pickle: Sequence[bytes], buffers: Sequence[PickleBuffer], place: Place, directory: str) -> str:
    """Write a new file in this directory; nothing of it is left if that fails."""
    descriptor, path = _open_new(place, directory)
    pieces: list[memoryview] = []
    try:
        try:
            _collect(pickle, buffers, pieces)
            _write_all(descriptor, pieces)
        finally:
            # Not left to the collector, which an exception may leave the frames here to: see `reduce_view_apart`.
            for piece in pieces:
                piece.release()
            os.close(descriptor)
    except BaseException:  # Ctrl-C too
        os.unlink(path)
        raise
    return path


def _open_new(place: Place, directory: str) -> tuple[int, str]:
    while True:
        path = place.new_path(directory)
        try:
            return os.open(path, _NEW, 0o600), path
        except FileExistsError:  # by an earlier process with the same id
            continue


def _collect(pickle: Sequence[bytes], buffers: Sequence[PickleBuffer], pieces: list[memoryview]) -> None:
    """Add what to write, one after the other."""
    pieces += map(memoryview, pickle)
    end = sum(map(len, pickle))
    for buffer in buffers:
        pieces.append(memoryview(bytes(-end % ALIGNMENT)))
        pieces.append(buffer.raw())
        end += pieces[-2].nbytes + pieces[-1].nbytes


def _write_all(descriptor: int, pieces: list[memoryview]) -> None:
    """Write all pieces; the kernel takes at most 2 GiB at a time, and may take less."""
    first = 0
    while first < len(pieces):
        written = os.writev(descriptor, pieces[first : first + _MAX_PIECES])
        while first < len(pieces) and written >= pieces[first].nbytes:
            written -= pieces[first].nbytes
            first += 1
        if written:
            whole = pieces[first]
            pieces[first] = whole[written:]
            whole.release()
