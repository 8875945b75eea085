"""What travels in messages in place of a value that lies in a file.

Its first byte follows those of `serde.values`; the rest is marshal: the path, how long the file is, how much of it is
the pickle at its front, and where each buffer of the value lies.

Never here: anything that touches a file.
"""

from __future__ import annotations

import marshal

TYPE_CHECKING = False
if TYPE_CHECKING:
    #: Offset in the file and length, in bytes, and whether it must not be written to.
    Extent = tuple[int, int, bool]

#: The first byte of a payload that stands for a file. Marshal's are below 0x80, and pickles begin with 0x80 and 0x81.
STORED = 0x82
_FIRST = bytes((STORED,))
#: What every such payload begins with: marshal's tuple comes next.
STORED_START = _FIRST + b"("
_MARSHAL_VERSION = 2


def is_stored(payload: bytes) -> bool:
    """Whether a payload stands for a value in a file.

    Args:
        payload: Any payload.

    Example:
        >>> is_stored(pack("/dev/shm/a/b", 3, 3, ())), is_stored(b"N")
        (True, False)
    """
    return payload[0] == STORED


def pack(path: str, size: int, pickle_size: int, extents: tuple[Extent, ...]) -> bytes:
    """Make the payload of a file.

    Args:
        path: Its absolute path.
        size: Its bytes.
        pickle_size: Bytes of the pickle at its front.
        extents: Where the buffers lie, in the order in which the pickle asks for them.

    Example:
        >>> unpack(pack("/dev/shm/a/b", 80, 3, ((64, 16, True),)))
        ('/dev/shm/a/b', 80, 3, ((64, 16, True),))
    """
    return _FIRST + marshal.dumps((path, size, pickle_size, extents), _MARSHAL_VERSION)


def unpack(payload: bytes) -> tuple[str, int, int, tuple[Extent, ...]]:
    """Take a payload apart again.

    Args:
        payload: What `pack` returned, in any process.

    Raises:
        ValueError: It stands for no file.
    """
    if payload[0] != STORED:
        raise ValueError(f"the payload begins with byte {payload[0]:#x}, so it stands for no stored value")
    return marshal.loads(memoryview(payload)[1:])


def path_of(payload: bytes) -> str:
    """The path of the file that a payload stands for.

    Args:
        payload: What `pack` returned.

    Example:
        >>> path_of(pack("/dev/shm/a/b", 3, 3, ()))
        '/dev/shm/a/b'
    """
    return unpack(payload)[0]


def size_of(payload: bytes) -> int:
    """How many bytes the file has that a payload stands for.

    Args:
        payload: What `pack` returned.

    Example:
        >>> size_of(pack("/dev/shm/a/b", 3, 3, ()))
        3
    """
    return unpack(payload)[1]
