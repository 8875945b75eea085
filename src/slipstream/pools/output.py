"""What workers print: passed on to the client's own descriptors as bytes, its end kept for the story of a death.

The client's descriptors may block (a full pipe, a stopped terminal). Then the rest waits, and so in time does the
worker that prints, as it would if it had the descriptor itself; the engine does not.
"""

import fcntl
import os
import select

#: A descriptor that is ready takes at least this many bytes without blocking (POSIX: PIPE_BUF).
_PIECE_BYTES = 4096
#: What a worker printed last is kept up to this many bytes.
TAIL_BYTES = 4096


def occupy_standard_descriptors() -> list[int]:
    """Put /dev/null where the client has closed a standard stream; the descriptors that were opened.

    Else the next descriptor that the engine opens gets that number, and what workers print goes there.
    """
    opened: list[int] = []
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            opened.append(os.open(os.devnull, os.O_RDWR))  # the lowest number that is free, which is this one
    return opened


def away_from_standard(descriptor: int) -> int:
    """The same descriptor, or if it is a standard stream's, since the client closed that just now, another for it.

    Else what workers print would go into a pipe or socket of the engine.
    """
    if descriptor > 2:
        return descriptor
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return moved


class OutputPipe:
    """One stream of one worker, on its way to a descriptor of the client.

    Args:
        source: read end of the worker's pipe.
        target: the client's descriptor, usually 1 or 2.
    """

    def __init__(self, source: int, target: int) -> None:
        os.set_blocking(source, False)
        self.source = source
        self.target = target
        self._ready = select.poll()
        self._ready.register(target, select.POLLOUT)
        self.tail = b""

    def forward(self) -> bool:
        """Pass on one piece, if there is one. False at the end of the stream. To be called while not `stuck`."""
        try:
            data = os.read(self.source, _PIECE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        self._write(data)
        return bool(data)

    @property
    def stuck(self) -> bool:
        """Whether the client's descriptor takes nothing now."""
        return not self._ready.poll(0)

    def drain(self) -> None:
        """Pass on what an ended worker left, without waiting for anything; the tail is kept in any case."""
        while True:
            try:
                data = os.read(self.source, _PIECE_BYTES)
            except OSError:
                return
            if not data:
                return
            if self.stuck:
                self.tail = (self.tail + data)[-TAIL_BYTES:]
            else:
                self._write(data)

    def _write(self, data: bytes) -> None:
        self.tail = (self.tail + data)[-TAIL_BYTES:]
        try:
            while data:
                data = data[os.write(self.target, data) :]
        except OSError:
            return  # the client closed its own stream: the tail is all that is left
