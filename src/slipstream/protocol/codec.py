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
from slipstream.protocol.messages import Environment, Greeting, Retract, Run, Stop, WorkerCommand, WorkerMessage
from slipstream.protocol.worker_codec import ENVIRONMENT, MARSHAL_VERSION, PIECE_BYTES, RETRACT, RUN, STOP

_TAGS: dict[type[WorkerCommand], int] = {Run: RUN, Retract: RETRACT, Environment: ENVIRONMENT, Stop: STOP}


def encode_commands(commands: Sequence[WorkerCommand]) -> bytes:
    """Encode what a worker is told in one turn as one frame body."""
    try:
        return marshal.dumps([(_TAGS[type(command)], astuple(command)) for command in commands], MARSHAL_VERSION)
    except ValueError:  # marshal counts the bytes of one object in 31 bits
        return marshal.dumps([(_TAGS[type(command)], _in_pieces(command)) for command in commands], MARSHAL_VERSION)


def _in_pieces(command: WorkerCommand) -> tuple[Any, ...]:
    """The fields of a command, with long bytes as lists of pieces."""
    if not isinstance(command, Run):
        return astuple(command)
    inputs = tuple([(task, _cut(data)) for task, data in command.inputs])
    return command.task, command.attempt, command.digest, _cut(command.payload), command.items, inputs


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
