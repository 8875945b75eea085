"""The worker's half of the codec, without msgspec: its import alone took 30 of the 75 ms of a worker's start.

Commands come as one marshalled list of (tag, fields), the fields in the order of the message of that tag in `messages`.
marshal believes what it reads, which is right in this direction only: it comes from the client, which may have the
worker run anything. Reports go the other way, and are written here as the msgpack that the client's typed decoder
checks: an array of [tag, *fields]. A report is a tuple of pieces, so that a large result is never copied to be sent.

Nothing is imported here that an interpreter does not need anyway; `typing` alone takes 10 ms.

Never here: anything that only a client needs.
"""

from __future__ import annotations

import marshal
from struct import Struct

from slipstream.protocol.frames import ProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, TypeAlias

    from slipstream.protocol.ids import CallableDigest, TaskId
    from slipstream.protocol.messages import TaskAttempt

    #: A `Run` without definitions: task, attempt, digest, payload, items, inputs, digest of classes.
    RunFields: TypeAlias = tuple[TaskId, int, CallableDigest, bytes, int, tuple[TaskId | bytes, ...], CallableDigest]
    #: A message of a worker, in pieces.
    Report: TypeAlias = tuple[bytes, ...]

#: Tags of the messages in `messages` that a worker reads, and writes.
RUN, RETRACT, ENVIRONMENT, STOP, DEFINE, STORAGE = 20, 21, 22, 23, 24, 25
_STARTED, _DONE, _FAILED, _GAVE, _KEPT, _LACKS, _GONE, _BLOCKED, _RESUMED = 10, 11, 12, 13, 14, 15, 16, 17, 18
_HELLO, _START_FAILED = 40, 41

#: Later versions mark references, by addresses and counts of references: the same commands would not be the same bytes.
MARSHAL_VERSION = 2
#: What is longer travels as a list of such pieces. (marshal takes 2 GiB at most.)
PIECE_BYTES = 1 << 30

# msgpack's first bytes. Numbers have a fixed width, since choosing the shortest costs more than sending 20 bytes.
_ARRAY, _ARRAY_32, _BIN_32, _STR_32, _UINT_32, _UINT_64 = 0x90, 0xDD, 0xC6, 0xDB, 0xCE, 0xCF
_NO_FAILURES = b"\x90"
_sized = Struct(">BI").pack
_attempt = Struct(">BBBQBI").pack
_result = Struct(">BBBQBIBQBI").pack
_pair = Struct(">BBQBI").pack


def decode_commands(body: bytes) -> list[tuple[int, Any]]:
    """Read what the client says: (tag, fields) for each command.

    Raises:
        ProtocolError: If it is no frame of commands.
    """
    try:
        commands = marshal.loads(body)
    except (EOFError, ValueError, TypeError) as error:
        raise ProtocolError(f"a frame of {len(body)} bytes cannot be read: {error}") from error
    return commands if len(body) <= PIECE_BYTES else [(tag, _whole(fields)) for tag, fields in commands]


def _whole(field: Any) -> Any:
    """A field, with bytes in one piece that were too long for marshal."""
    if type(field) is tuple:
        return tuple([_whole(part) for part in field])  # pyright: ignore
    return b"".join(field) if type(field) is list else field  # pyright: ignore


def encode_reports(reports: Sequence[Report]) -> list[bytes]:
    """The pieces of a frame body with these messages."""
    pieces = [_sized(_ARRAY_32, len(reports))]
    for report in reports:
        pieces += report
    return pieces


def done(
    task: int, attempt: int, duration_ns: int, payload: bytes, failures: Sequence[tuple[int, bytes]] = ()
) -> Report:
    """The task returned."""
    head = _result(_ARRAY | 6, _DONE, _UINT_64, task, _UINT_32, attempt, _UINT_64, duration_ns, _BIN_32, len(payload))
    if not failures:
        return head, payload, _NO_FAILURES
    pieces = [head, payload, _sized(_ARRAY_32, len(failures))]
    for index, failure in failures:
        pieces += (_pair(_ARRAY | 2, _UINT_64, index, _BIN_32, len(failure)), failure)
    return tuple(pieces)


def failed(task: int, attempt: int, duration_ns: int, payload: bytes) -> Report:
    """The task raised."""
    head = _result(_ARRAY | 5, _FAILED, _UINT_64, task, _UINT_32, attempt, _UINT_64, duration_ns, _BIN_32, len(payload))
    return head, payload


def started(task: int, attempt: int) -> Report:
    """The task has outlived the tick."""
    return (_attempt(_ARRAY | 3, _STARTED, _UINT_64, task, _UINT_32, attempt),)


def blocked(task: int, attempt: int) -> Report:
    """The task waits for others."""
    return (_attempt(_ARRAY | 3, _BLOCKED, _UINT_64, task, _UINT_32, attempt),)


def resumed(task: int, attempt: int) -> Report:
    """It does not wait any more."""
    return (_attempt(_ARRAY | 3, _RESUMED, _UINT_64, task, _UINT_32, attempt),)


def gave(attempts: Sequence[TaskAttempt]) -> Report:
    """These have not started, and are given back."""
    return _about(_GAVE, attempts)


def kept(attempts: Sequence[TaskAttempt]) -> Report:
    """These were asked for too late."""
    return _about(_KEPT, attempts)


def lacks(attempts: Sequence[TaskAttempt]) -> Report:
    """These cannot be run without a definition that this worker does not have."""
    return _about(_LACKS, attempts)


def gone(task: int, attempt: int, payloads: Sequence[bytes]) -> Report:
    """What these payloads stand for cannot be found, so the task has not started."""
    pieces = [_attempt(_ARRAY | 4, _GONE, _UINT_64, task, _UINT_32, attempt), _sized(_ARRAY_32, len(payloads))]
    for payload in payloads:
        pieces += (_sized(_BIN_32, len(payload)), payload)
    return tuple(pieces)


def _about(tag: int, attempts: Sequence[TaskAttempt]) -> Report:
    pairs = [_pair(_ARRAY | 2, _UINT_64, task, _UINT_32, attempt) for task, attempt in attempts]
    return bytes((_ARRAY | 2, tag)), _sized(_ARRAY_32, len(attempts)), *pairs


def hello(pid: int, python: str, slipstream: str) -> Report:
    """The worker is up."""
    return bytes((_ARRAY | 4, _HELLO)), _sized(_UINT_32, pid), *_text(python), *_text(slipstream)


def start_failed(text: str) -> Report:
    """The initializer raised."""
    return bytes((_ARRAY | 2, _START_FAILED)), *_text(text)


def _text(text: str) -> tuple[bytes, bytes]:
    data = text.encode("utf-8", "backslashreplace")
    return _sized(_STR_32, len(data)), data
