"""The sentry: a second thread of the worker that speaks while the main thread is in a long task.

It sleeps while tasks are short. Once a task outlives the tick it says so, sends what results wait, gives back what
has not started, and then reads in place of the main thread until the task ends. It needs the interpreter lock and may
be silent for seconds (1.4 s in one `sum(range())`), so it is a courtesy: nothing that must happen depends on it.
"""

from __future__ import annotations

import os
import select
import time
from _thread import allocate_lock, start_new_thread

from slipstream.protocol import worker_codec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slipstream.worker.loop import Loop
    from slipstream.worker.page import Running

#: A task that runs longer is told to the scheduler.
TICK_NS = 5_000_000


class Sentry:
    """Watches the loop it belongs to. Parked, and no wake-up at all, while no frame comes."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        #: Whether it waits for the end of a long task: the main thread must then call `nudge`.
        self.watching = False
        self._parked = True
        self._frames = 0
        self._wake = allocate_lock()
        self._wake.acquire()
        self._nudged = os.eventfd(0)
        start_new_thread(self._watch, ())

    def frame_came(self) -> None:
        """There is work (again): tick for a while."""
        self._frames += 1
        if self._parked:
            self._parked = False
            try:
                self._wake.release()
            except RuntimeError:  # it was just waking up by itself
                pass

    def nudge(self) -> None:
        """The task that was being watched has ended, or begins or ceases to read: look again."""
        os.eventfd_write(self._nudged, 1)

    def _watch(self) -> None:
        while True:
            self._wake.acquire()
            self._tick_while_busy()

    def _tick_while_busy(self) -> None:
        frames = -1
        while True:
            time.sleep(TICK_NS / 1e9)
            running = self._loop.page.running()
            if running is not None:
                if time.monotonic_ns() - running.started_ns >= TICK_NS:
                    self._speak_for(running)
            elif frames == self._frames:
                # The main thread looks at `_parked` after it has counted a frame, so one of the two sees the other.
                self._parked = True
                if frames == self._frames:
                    return
                self._parked = False
            frames = self._frames

    def _speak_for(self, running: Running) -> None:
        """Tell of a long task, and answer for the main thread until it ends."""
        loop = self._loop
        loop.link.flush(worker_codec.started(running.task, running.attempt))
        poll = select.poll()
        poll.register(loop.link.stream, select.POLLIN)
        poll.register(self._nudged, select.POLLIN)
        self.watching = True
        while self._runs_still(running):
            loop.give_all()
            # While the task itself reads, since it waits for what will come, there is only the nudge to look at.
            poll.modify(loop.link.stream, 0 if loop.task_reads else select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll()]
            if self._nudged in ready:
                os.eventfd_read(self._nudged)
            elif self._runs_still(running) and not self._read() and not loop.task_reads:
                break
        self.watching = False

    def _runs_still(self, running: Running) -> bool:
        now = self._loop.page.running()
        return now is not None and now.started_ns == running.started_ns and now.task == running.task

    def _read(self) -> bool:
        """Take what the client says; false if the main thread reads, or the client is gone."""
        loop = self._loop
        if not loop.link.reading.acquire(blocking=False):
            return False
        try:
            commands = loop.link.receive(block=False)
            loop.take(commands)
        finally:
            loop.link.reading.release()
        return commands is not None
