"""What tasks of this worker do as a client: they say what they want, are told what became of it, and wait.

While the main thread waits, it reads the connection itself: commands that are not for the waiting task are done as
ever, tasks that come are given back. Whatever else waits, the sentry reads for it, a tick after the task began.

A task that waits is blocked: that is said, so that another worker has its slot, and so is the end of it.

Never here: what a client is (see `client` and `nested`).
"""

from __future__ import annotations

import os
import select
import time
from _thread import allocate_lock, get_ident

from slipstream.protocol.worker_codec import blocked, resumed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from slipstream.worker.loop import Loop

    class Sleeper(Protocol):
        """One thread's wait for one change."""

        woken: bool


class Requests:
    """The client's end in a worker.

    Args:
        loop: the worker's.
        take: called with what the tasks of this worker are told: (tag, fields) for each notice.
        open_to_signals: entered while the main thread is blocked.
    """

    def __init__(
        self,
        loop: Loop,
        take: Callable[[Sequence[tuple[int, Any]]], None],
        open_to_signals: Callable[[], AbstractContextManager[object]],
    ) -> None:
        self._loop = loop
        self.take = take
        self._open_to_signals = open_to_signals
        self._main = loop.main_thread
        #: How many threads wait, and the tasks that somebody waits for by other means.
        self._waiting = 0
        self.awaited: set[int] = set()
        self._blocked = False
        self._changing = allocate_lock()
        #: Has the main thread look again.
        self._again = os.eventfd(0)
        #: Called when a task has ended.
        self.at_end: Callable[[], None] = lambda: None

    def say(self, body: bytes) -> None:
        """Send a frame with what a client says."""
        self._loop.link.send_body(body)

    def reads(self) -> bool:
        """Whether the calling thread is the one that reads while it waits."""
        return get_ident() == self._main

    def read_until(self, sleeper: Sleeper, timeout_s: float | None) -> None:
        """In the main thread: read until a sleeper is woken, or the time is over."""
        loop = self._loop
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if loop.task_reads:  # in a signal handler, which runs while this thread is blocked below
            self._read_until(sleeper, deadline)
            os.eventfd_write(self._again, 1)  # the wait that was interrupted may be over by now
            return
        loop.task_reads = True
        if loop.sentry.watching:
            loop.sentry.nudge()
        try:
            with loop.link.reading:
                self._read_until(sleeper, deadline)
        finally:
            loop.task_reads = False
            if loop.sentry.watching:
                loop.sentry.nudge()

    def _read_until(self, sleeper: Sleeper, deadline: float | None) -> None:
        loop = self._loop
        poll = select.poll()
        poll.register(loop.link.stream, select.POLLIN)
        poll.register(self._again, select.POLLIN)
        while not sleeper.woken:
            left = -1.0 if deadline is None else min(max(deadline - time.monotonic(), 0.0), 1e6)
            ready: list[int] = []
            with self._open_to_signals():
                if not sleeper.woken:
                    ready = [descriptor for descriptor, _ in poll.poll(None if left < 0 else left * 1000)]
            if self._again in ready:
                os.eventfd_read(self._again)
            elif ready:
                commands = loop.link.receive(block=False)
                if commands is None:
                    os._exit(1)  # the client is gone, and what the task waits for will never come
                loop.take(commands)
                loop.give_all()
            elif left == 0:
                return

    # --- blocked or not ---------------------------------------------------------------------------------------------

    def begin_waiting(self) -> None:
        """A thread begins to wait."""
        with self._changing:
            self._waiting += 1
            self._say_whether_blocked()

    def end_waiting(self) -> None:
        """It waits no more."""
        with self._changing:
            self._waiting -= 1
            self._say_whether_blocked()

    def await_task(self, task: int) -> None:
        """Somebody may wait for a task by other means: the standard functions, or asyncio."""
        with self._changing:
            self.awaited.add(task)
            self._say_whether_blocked()

    def ended(self, tasks: Sequence[int]) -> None:
        """These have ended."""
        if self.awaited:
            with self._changing:
                self.awaited.difference_update(tasks)
                self._say_whether_blocked()

    def task_ended(self) -> None:
        """The task of this worker has ended, so it is not blocked, whoever it left behind."""
        with self._changing:
            self._blocked = False
            self.awaited.clear()
        self.at_end()

    def _say_whether_blocked(self) -> None:
        is_blocked = bool(self._waiting or self.awaited)
        running = self._loop.page.running()
        if is_blocked == self._blocked or running is None:
            return
        self._blocked = is_blocked
        if is_blocked:
            self._loop.give_all(blocked(running.task, running.attempt))
        else:
            self._loop.link.flush(resumed(running.task, running.attempt))
