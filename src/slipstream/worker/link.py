"""The worker's end of its one connection: frames in, frames out.

The main thread and the sentry both use it. Reading is guarded by `reading`, which the main thread holds while it
waits for a frame; the sentry only ever tries it. Results that wait to be sent are kept in one list: its owner
appends, whoever sends takes a slice from the front, so appending needs no lock.
"""

import contextlib
import threading
import time
from _socket import MSG_DONTWAIT, socket  # `socket` itself takes 4 ms to import
from collections.abc import Sequence

from slipstream.protocol.codec import FrameReader, decode_commands, encode, frame_header
from slipstream.protocol.messages import Done, Failed, Message, WorkerCommand, WorkerMessage

#: Results wait for others this long, or until so many bytes of them wait.
REPORT_AFTER_NS = 1_000_000
REPORT_BYTES = 65_536


class Link:
    """Frames over a blocking stream socket."""

    def __init__(self, stream: socket) -> None:
        self.stream = stream
        self.reading = threading.Lock()
        self._reader = FrameReader()
        self._sending = threading.Lock()
        self._waiting: list[WorkerMessage] = []
        self._waiting_bytes = 0
        self._due_ns = 0

    def receive(self, *, block: bool) -> list[WorkerCommand] | None:
        """Commands that have come; none if there is nothing and `block` is false; None at the end of the stream.

        To be called with `reading` held.
        """
        flags = 0 if block else MSG_DONTWAIT
        commands: list[WorkerCommand] = []
        while True:
            try:
                count = self.stream.recv_into(self._reader.target(), 0, flags)
            except BlockingIOError:
                return commands
            except ConnectionResetError:
                return None
            if not count:
                return None
            for body in self._reader.received(count):
                commands += decode_commands(body)
            if commands and not self._reader.midway:
                return commands

    def add(self, message: Done | Failed) -> bool:
        """Let a result wait for others; whether it is time to send them."""
        waiting, now_ns = self._waiting, time.monotonic_ns()
        if not waiting:
            self._due_ns = now_ns + REPORT_AFTER_NS
            self._waiting_bytes = 0
        waiting.append(message)
        self._waiting_bytes += len(message.payload)
        return now_ns >= self._due_ns or self._waiting_bytes >= REPORT_BYTES

    def flush(self, *more: WorkerMessage) -> None:
        """Send the results that wait, and then these, as one frame."""
        with self._sending:
            count = len(self._waiting)
            messages = self._waiting[:count]
            del self._waiting[:count]
            messages += more
            if messages:
                self.send(messages)

    def send(self, messages: Sequence[Message]) -> None:
        """Send one frame. A client that is gone is noticed when reading."""
        body = encode(messages)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if len(body) < REPORT_BYTES:
                self.stream.sendall(frame_header(body) + body)
            else:
                self.stream.sendall(frame_header(body))
                self.stream.sendall(body)
