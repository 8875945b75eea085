"""The worker's end of its one connection: frames in, frames out.

The main thread and the sentry both use it. Reading is guarded by `reading`, which the main thread holds while it
waits for a frame; the sentry only ever tries it. Results that wait to be sent are kept in one list: its owner
appends, whoever sends takes a slice from the front, so appending needs no lock.
"""

from __future__ import annotations

from _socket import MSG_DONTWAIT, socket  # `socket` itself takes 4 ms to import
from _thread import allocate_lock
from time import monotonic_ns

from slipstream.protocol.frames import FrameReader, frame_header
from slipstream.protocol.worker_codec import decode_commands, encode_reports

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from slipstream.protocol.worker_codec import Report

#: Results wait for others this long, or until so many bytes of them wait.
REPORT_AFTER_NS = 1_000_000
REPORT_BYTES = 65_536


class Link:
    """Frames over a blocking stream socket."""

    def __init__(self, stream: socket) -> None:
        self.stream = stream
        self.reading = allocate_lock()
        self._reader = FrameReader()
        self._sending = allocate_lock()
        self._waiting: list[Report] = []
        self._waiting_bytes = 0
        self._due_ns = 0

    def receive(self, *, block: bool) -> list[tuple[int, Any]] | None:
        """Commands that have come; none if there is nothing and `block` is false; None at the end of the stream.

        To be called with `reading` held.
        """
        flags = 0 if block else MSG_DONTWAIT
        commands: list[tuple[int, Any]] = []
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

    def add(self, result: Report, size: int) -> bool:
        """Let a result, whose payload has this size, wait for others; whether it is time to send them."""
        waiting, now_ns = self._waiting, monotonic_ns()
        if not waiting:
            self._due_ns = now_ns + REPORT_AFTER_NS
            self._waiting_bytes = 0
        waiting.append(result)
        self._waiting_bytes += size
        return now_ns >= self._due_ns or self._waiting_bytes >= REPORT_BYTES

    def flush(self, *more: Report) -> None:
        """Send the results that wait, and then these, as one frame."""
        with self._sending:
            self._send_waiting(more)

    def _send_waiting(self, more: Sequence[Report]) -> None:
        count = len(self._waiting)
        reports = self._waiting[:count]
        del self._waiting[:count]
        reports += more
        if reports:
            self.send(reports)

    def send_body(self, body: bytes) -> None:
        """Send a frame that was encoded elsewhere, after the results that wait."""
        with self._sending:
            self._send_waiting(())
            self._send_pieces([body])

    def send(self, reports: Sequence[Report]) -> None:
        """Send one frame. A client that is gone is noticed when reading."""
        self._send_pieces(encode_reports(reports))

    def _send_pieces(self, pieces: list[bytes]) -> None:
        size = sum(map(len, pieces))
        pieces.insert(0, frame_header(size))
        if size < REPORT_BYTES:
            pieces = [b"".join(pieces)]
        try:
            for piece in pieces:
                self.stream.sendall(piece)
        except (BrokenPipeError, ConnectionResetError):
            return
