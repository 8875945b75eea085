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
    Environment,
    Greeting,
    Retract,
    Run,
    Stop,
    Storage,
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

_TAGS: dict[type[WorkerCommand], int] = {Retract: RETRACT, Environment: ENVIRONMENT, Storage: STORAGE, Stop: STOP}


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
            if type(command.payload) is not bytes:
                fields = (*fields[:3], bytes(command.payload), *fields[4:])
            if command.inputs:
                inputs = tuple([bytes(value) if isinstance(value, bytes) else value for value in command.inputs])
                task, attempt, digest, payload, items, _, classes = fields
                fields = task, attempt, digest, payload, items, inputs, classes
            rows.append((RUN, fields))
        else:
            rows.append((_TAGS[type(command)], astuple(command)))
    try:
        return marshal.dumps(rows, MARSHAL_VERSION)
    except ValueError:  # marshal counts the bytes of one object in 31 bits
        return marshal.dumps([(tag, _in_pieces(tag, fields)) for tag, fields in rows], MARSHAL_VERSION)


def _in_pieces(tag: int, fields: tuple[Any, ...]) -> tuple[Any, ...]:
    """The fields of a command, with long bytes as lists of pieces."""
    if tag == DEFINE:
        digest, definition = fields
        return digest, _cut(definition)
    if tag != RUN:
        return fields
    task, attempt, digest, payload, items, inputs, classes = fields
    inputs = tuple([_cut(value) if isinstance(value, bytes) else value for value in inputs])
    return task, attempt, digest, _cut(payload), items, inputs, classes


def _cut(data: bytes) -> bytes | list[bytes]:
    if len(data) <= PIECE_BYTES:
        return data
    return [data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES)]


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
#: The first frame of a worker.
decode_greeting: Callable[[bytes], list[Greeting]] = _decoder_of(list[Greeting])
