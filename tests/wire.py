"""Frame bodies for tests that stand in for a worker: its own codec, with the messages that the client's side knows."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import astuple

from slipstream.protocol import worker_codec
from slipstream.protocol.messages import (
    Done,
    Environment,
    Failed,
    Gave,
    Hello,
    Kept,
    Message,
    Retract,
    Run,
    Started,
    StartFailed,
    Stop,
    WorkerCommand,
)

_COMMANDS: dict[int, Callable[..., WorkerCommand]] = {
    worker_codec.RUN: Run,
    worker_codec.RETRACT: Retract,
    worker_codec.ENVIRONMENT: Environment,
    worker_codec.STOP: Stop,
}
_REPORTS: dict[type[Message], Callable[..., tuple[bytes, ...]]] = {
    Started: worker_codec.started,
    Done: worker_codec.done,
    Failed: worker_codec.failed,
    Gave: worker_codec.gave,
    Kept: worker_codec.kept,
    Hello: worker_codec.hello,
    StartFailed: worker_codec.start_failed,
}


def commands_of(body: bytes) -> list[WorkerCommand]:
    """What a worker reads in a frame."""
    return [_COMMANDS[tag](*fields) for tag, fields in worker_codec.decode_commands(body)]


def reports_body(messages: Sequence[Any]) -> bytes:
    """The frame with which a worker says this."""
    reports = [_REPORTS[type(message)](*astuple(message)) for message in messages]
    return b"".join(worker_codec.encode_reports(reports))
