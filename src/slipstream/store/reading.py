"""The value of a payload that stands for a file.

A large file is mapped privately: nothing is copied, arrays can be written to, and what is written stays in this process
(the kernel copies a page at the first write to it). A mapping holds a descriptor, so there may be so many of them only;
what comes after is read, and small files always are.

Never here: what is to be done about a value that is gone.
"""

from __future__ import annotations

import os
from _weakref import ref

from slipstream.store.payload import unpack

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from mmap import mmap
    from typing import Any

    from slipstream.store.payload import Extent

#: A smaller file is read: that takes less time than to map it and touch its pages.
MAPPED_BYTES = 1 << 20
#: Mappings that this process has at a time, at most.
MAX_MAPPINGS = 512
#: read(2) takes no more.
_MAX_READ = 1 << 30

#: Mappings that are alive, which they are as long as an array or a view lies in them.
_mappings: set[ref[mmap]] = set()


class ValueGoneError(LookupError):
    """The file of a stored value is not there any more, or is not what was written.

    Args:
        path: Of the file.

    Example:
        >>> str(ValueGoneError("/dev/shm/a/b"))
        'the stored value /dev/shm/a/b is gone: its file was removed or cut short; it has to be computed again'
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"the stored value {self.path} is gone: its file was removed or cut short; it has to be computed again"


def load_stored(payload: bytes) -> Any:
    """Load the value that a payload stands for.

    Args:
        payload: What `store_value` returned, in any process of this machine.

    Raises:
        ValueGoneError: Its file is gone.
        OSError: The file cannot be opened or read.
        Exception: Whatever loading the pickle raises.
    """
    from pickle import loads

    path, size, pickle_size, extents = unpack(payload)
    content = memoryview(_content(path, size))
    return loads(content[:pickle_size], buffers=_views(content, extents))


def _views(content: memoryview, extents: Sequence[Extent]) -> list[memoryview]:
    views: list[memoryview] = []
    for offset, length, readonly in extents:
        view = content[offset : offset + length]
        views.append(view.toreadonly() if readonly else view)
    return views


def load_buffers(payload: bytes) -> list[memoryview] | None:
    """The buffers of a payload that stands for these alone; None for one that stands for a value.

    Args:
        payload: What `store_value` returned.

    Raises:
        ValueGoneError: Its file is gone.
    """
    path, size, pickle_size, extents = unpack(payload)
    return None if pickle_size else _views(memoryview(_content(path, size)), extents)


def load_content(payload: bytes) -> memoryview:
    """What lies in the file of a payload that stands for a call.

    Args:
        payload: What `store_value` returned.

    Raises:
        ValueGoneError: Its file is gone.
        OSError: The file cannot be opened or read.
    """
    path, size, _, _ = unpack(payload)
    return memoryview(_content(path, size))


def live_mappings() -> int:
    """How many files this process has mapped now."""
    return len(_mappings)


def _content(path: str, size: int) -> mmap | bytearray:
    """The bytes of a file, which may be written to without changing it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise ValueGoneError(path) from None
    try:
        if os.fstat(descriptor).st_size != size:
            raise ValueGoneError(path)
        mapped = _map(descriptor, size) if size >= MAPPED_BYTES and len(_mappings) < _max_mappings() else None
        return _read(descriptor, path, size) if mapped is None else mapped
    finally:
        os.close(descriptor)


def _max_mappings() -> int:
    """At most half of the descriptors that this process may have: the rest is the user's."""
    from resource import RLIMIT_NOFILE, getrlimit

    limit = getrlimit(RLIMIT_NOFILE)[0]
    return MAX_MAPPINGS if limit < 0 else min(MAX_MAPPINGS, limit // 2)


def _map(descriptor: int, size: int) -> mmap | None:
    """Map a file; None if this process can have no more mappings or descriptors."""
    from mmap import MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap

    try:
        mapped = mmap(descriptor, size, flags=MAP_PRIVATE, prot=PROT_READ | PROT_WRITE)
    except OSError:
        return None
    _mappings.add(ref(mapped, _mappings.discard))
    return mapped


def _read(descriptor: int, path: str, size: int) -> bytearray:
    content = bytearray(size)
    view = memoryview(content)
    done = 0
    while done < size:
        count = os.readv(descriptor, [view[done : done + _MAX_READ]])
        if not count:
            raise ValueGoneError(path)
        done += count
    return content
