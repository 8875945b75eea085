"""Frame bodies for tests that stand in for a worker: its own codec, with the messages that the client's side knows."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import astuple

from slipstream.protocol import worker_codec
from slipstream.protocol.codec import NOTICES
from slipstream.protocol.messages import (
    Blocked,
    Done,
    Environment,
    Failed,
    Gave,
    Gone,
    Hello,
    Kept,
    Lacks,
    Message,
    Resumed,
    Retract,
    Run,
    Started,
    StartFailed,
    Stop,
    Storage,
    WorkerCommand,
)

_COMMANDS: dict[int, Callable[..., WorkerCommand]] = {
    worker_codec.RETRACT: Retract,
    worker_codec.ENVIRONMENT: Environment,
    worker_codec.STORAGE: Storage,
    worker_codec.STOP: Stop,
    **NOTICES,
}
_REPORTS: dict[type[Message], Callable[..., tuple[bytes, ...]]] = {
    Started: worker_codec.started,
    Done: worker_codec.done,
    Failed: worker_codec.failed,
    Gave: worker_codec.gave,
    Kept: worker_codec.kept,
    Lacks: worker_codec.lacks,
    Gone: worker_codec.gone,
    Blocked: worker_codec.blocked,
    Resumed: worker_codec.resumed,
    Hello: worker_codec.hello,
    StartFailed: worker_codec.start_failed,
}


def commands_of(body: bytes, definitions: dict[bytes, bytes] | None = None) -> list[WorkerCommand]:
    """What a worker reads in a frame.

    Args:
        body: the frame's.
        definitions: those that the worker has, by digest; what the frame brings is added.
    """
    known = {} if definitions is None else definitions
    commands: list[WorkerCommand] = []
    for tag, fields in worker_codec.decode_commands(body):
        if tag == worker_codec.DEFINE:
            digest, definition = fields
            known[digest] = definition
        elif tag == worker_codec.RUN:
            commands.append(Run(*fields, known.get(fields[2], b""), known.get(fields[6], b"")))
        else:
            commands.append(_COMMANDS[tag](*fields))
    return commands


def reports_body(messages: Sequence[Any]) -> bytes:
    """The frame with which a worker says this."""
    reports = [_REPORTS[type(message)](*astuple(message)) for message in messages]
    return b"".join(worker_codec.encode_reports(reports))
