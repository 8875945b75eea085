"""Who reads, and when: the thread that waits for the pool's descriptor, for a kick, or for the next timer.

There is one reader now, the I/O thread. The pool's descriptors sit in an epoll of their own inside the one that this
thread waits on, so that a thread that waits for a result can become the reader later without touching this wait.

Nothing outstanding means no timer, so no wake-up at all.
"""

import contextlib
import os
import select
import threading
import time

_NEVER = 1 << 62


class Reactor:
    """Waits for the pool, a kick or a time.

    Args:
        pool_descriptor: readable when the pool has something to read.
    """

    def __init__(self, pool_descriptor: int) -> None:
        self._pool_descriptor = pool_descriptor
        self._kick = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        #: Held while the kick is used, so that it is not another's descriptor by then.
        self._kicking = threading.Lock()
        self._epoll = select.epoll()
        self._epoll.register(pool_descriptor, select.EPOLLIN)
        self._epoll.register(self._kick, select.EPOLLIN)
        #: When the waiting thread will look at its timers by itself, in ns.
        self._sleeps_until = 0
        #: When it has to look, in ns.
        self._wake_at = _NEVER
        self.wakeups = 0

    def set_timer(self, wake_at: int | None) -> None:
        """Have `wait` return at this time at the latest; None for no time. From any thread."""
        at = _NEVER if wake_at is None else wake_at
        self._wake_at = at
        if at < self._sleeps_until:
            self._sleeps_until = at
            self.kick()

    def kick(self) -> None:
        """Have `wait` return now. From any thread, also after `close`."""
        with self._kicking:
            if self._kick >= 0:
                os.eventfd_write(self._kick, 1)

    def wait(self) -> bool:
        """Wait until there is something to do; whether the pool has something to read."""
        while True:
            at = self._wake_at
            self._sleeps_until = at
            if at == self._wake_at:  # else it was set just now, by a thread that did not see for how long we sleep
                break
        timeout_s = -1 if at == _NEVER else max(0.0, (at - time.monotonic_ns()) / 1e9)
        try:
            ready = [descriptor for descriptor, _ in self._epoll.poll(timeout_s)]
        finally:
            self._sleeps_until = 0
        self.wakeups += 1
        if self._kick in ready:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._kick)
        return self._pool_descriptor in ready

    @property
    def due(self) -> bool:
        """Whether the timer's time has come."""
        return time.monotonic_ns() >= self._wake_at

    def close(self) -> None:
        """Close descriptors only."""
        with self._kicking:
            kick, self._kick = self._kick, -1
        if kick >= 0:
            os.close(kick)
            self._epoll.close()

    def abandon(self) -> None:
        """The same in a forked child, where another thread may have held the lock."""
        self._kicking = threading.Lock()
        self.close()
