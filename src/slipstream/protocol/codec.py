"""The client's half of the codec: messages to workers become bytes, and what workers say becomes messages again.

All messages of one turn for one endpoint travel in one frame body. `worker_codec` is the other half, and says why the
two directions are written differently. What comes from a worker is decoded by type, and so checked to the last field.

Values and callables inside the messages are opaque bytes that `serde` makes.
"""

import marshal
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import astuple

from slipstream.protocol.frames import ProtocolError
from slipstream.protocol.ids import CallableDigest
from slipstream.protocol.messages import (
    Cancel,
    CannotWait,
    ClientMessage,
    Environment,
    Greeting,
    InputFailed,
    Retract,
    Run,
    Stop,
    Storage,
    Submit,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
    ValueLost,
    WorkerCommand,
    WorkerMessage,
)
from slipstream.protocol.worker_codec import (
    DEFINE,
    ENVIRONMENT,
    MARSHAL_VERSION,
    PIECE_BYTES,
    RETRACT,
    RUN,
    STOP,
    STORAGE,
)

#: What tasks of a worker are told, as a client: with the tags of the messages themselves.
NOTICES: dict[int, type[WorkerCommand]] = {
    1: Submit,
    2: Cancel,
    30: TaskRunning,
    31: TaskSucceeded,
    32: TaskFailed,
    33: TaskLost,
    34: TaskCancelled,
    35: InputFailed,
    36: ValueLost,
    37: CannotWait,
}
_TAGS: dict[type[WorkerCommand], int] = {
    Retract: RETRACT,
    Environment: ENVIRONMENT,
    Storage: STORAGE,
    Stop: STOP,
    **{kind: tag for tag, kind in NOTICES.items()},
}
#: How a frame of reports begins; a frame of a worker's tasks, as a client, begins otherwise.
_FIRST_OF_REPORTS = b"\xdd"


def encode_commands(commands: Sequence[WorkerCommand], known: dict[CallableDigest, None]) -> bytes:
    """Encode what a worker is told in one turn as one frame body.

    Args:
        commands: what it is told.
        known: the definitions that it has been sent; what it needs beside these is put in and noted here.
    """
    rows: list[tuple[int, tuple[Any, ...]]] = []
    for command in commands:
        if type(command) is Run:
            if command.definition and command.digest not in known:
                known[command.digest] = None
                rows.append((DEFINE, (command.digest, command.definition)))
            if command.classes and command.classes_digest not in known:
                known[command.classes_digest] = None
                rows.append((DEFINE, (command.classes_digest, command.classes)))
            fields = astuple(command)[:-2]
            # Payloads that own a file are bytes of a kind that marshal does not know.
            if command.inputs or type(command.payload) is not bytes:
                task, attempt, digest, payload, items, inputs, classes = fields
                fields = task, attempt, digest, bytes(payload), items, _plain(inputs), classes
            rows.append((RUN, fields))
        else:
            rows.append((_TAGS[type(command)], _plain(astuple(command))))
    try:
        return marshal.dumps(rows, MARSHAL_VERSION)
    except ValueError:  # marshal counts the bytes of one object in 31 bits
        return marshal.dumps([(tag, _in_pieces(fields)) for tag, fields in rows], MARSHAL_VERSION)


def _plain(field: Any) -> Any:
    """The same; payloads that own a file are bytes of a kind that marshal does not know."""
    if isinstance(field, tuple):
        return tuple([_plain(part) for part in field])  # pyright: ignore[reportUnknownVariableType]
    return bytes(field) if isinstance(field, bytes) else field


def _in_pieces(field: Any) -> Any:
    """A field of a command, with long bytes as lists of pieces."""
    if isinstance(field, tuple):
        return tuple([_in_pieces(part) for part in field])  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(field, bytes) or len(field) <= PIECE_BYTES:
        return field
    return [field[start : start + PIECE_BYTES] for start in range(0, len(field), PIECE_BYTES)]


def encode_requests(messages: Sequence[ClientMessage]) -> bytes:
    """Encode what a task of a worker says as a client: one frame body."""
    return msgspec.msgpack.encode(messages)


def is_request(body: bytes) -> bool:
    """Whether a frame body of a worker is what its tasks say as a client, and no report."""
    return body[:1] != _FIRST_OF_REPORTS


def _decoder_of(kind: Any) -> Callable[[bytes], Any]:
    decode: Callable[[bytes], Any] = msgspec.msgpack.Decoder(kind).decode

    def checked(body: bytes) -> Any:
        try:
            return decode(body)
        except msgspec.MsgspecError as error:
            raise ProtocolError(f"a frame of {len(body)} bytes cannot be read: {error}") from error

    return checked


#: What a worker says about tasks.
decode_reports: Callable[[bytes], list[WorkerMessage]] = _decoder_of(list[WorkerMessage])
#: What its tasks say as a client: see `is_request`.
decode_requests: Callable[[bytes], list[ClientMessage]] = _decoder_of(list[ClientMessage])
#: The first frame of a worker.
decode_greeting: Callable[[bytes], list[Greeting]] = _decoder_of(list[Greeting])
