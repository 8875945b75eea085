"""The worker's main loop: take frames, run their tasks in order, report.

The main thread runs tasks and, between them, reads. While a task outlives the tick, the sentry reads in its place.
The queue of tasks that have not started is a deque whose ends are popped atomically, so each task is either run here
or given back, never both.
"""

import contextlib
import os
import sys
from collections import deque
from collections.abc import Iterable

from slipstream.protocol.messages import Environment, Gave, Kept, Retract, Run, Stop, TaskAttempt, WorkerCommand
from slipstream.worker.link import Link
from slipstream.worker.page import SharedPage
from slipstream.worker.runner import run_task
from slipstream.worker.sentry import Sentry

#: A callable whose recent calls were shorter is run before earlier results are sent.
SHORT_NS = 1_000_000
#: Callables remembered as short; beyond it all are forgotten and prove themselves again.
MAX_SHORT = 4096


class Loop:
    """What the worker does between its start and its end."""

    def __init__(self, link: Link, page: SharedPage) -> None:
        self.link = link
        self.page = page
        #: Tasks that have not started.
        self.queue: deque[Run] = deque()
        self.stopping = False
        self.sentry = Sentry(self)
        #: This is a child that a task forked, and that came back from the task.
        self._forked = False
        os.register_at_fork(after_in_child=self._leave_to_parent)
        #: digest -> recent longest call in ns.
        self._recent: dict[bytes, int] = {}

    def run(self) -> None:
        """Work until told to stop, or until the client is gone."""
        queue = self.queue
        while True:
            try:
                run = queue.popleft()
            except IndexError:
                self.link.flush()
                _flush_streams()
                if self.stopping:
                    return
                self._read(block=True)
            else:
                self._run(run)

    def _run(self, run: Run) -> None:
        link, recent = self.link, self._recent
        longest = recent.get(run.digest, SHORT_NS)
        if longest >= SHORT_NS or run.items:
            link.flush()
        report = run_task(run, self.page)
        if self._forked:
            _flush_streams()
            os._exit(0)  # the parent reports: two processes must not answer on one connection
        sentry = self.sentry
        if sentry.watching:
            sentry.task_ended()
        duration = report.duration_ns
        if len(recent) >= MAX_SHORT:
            recent.clear()
        # Fades by 1/16 a call, as one slow call says little about the next.
        recent[run.digest] = max(duration, longest - (longest >> 4))
        if link.add(report):
            link.flush()
            self._read(block=False)

    def _leave_to_parent(self) -> None:
        """In a forked child: let go of the connection, which is the parent's."""
        self._forked = True
        self.link.stream.close()
        self.page.detach()

    def _read(self, *, block: bool) -> None:
        with self.link.reading:
            if block and (self.queue or self.stopping):
                return  # the sentry read in the meantime
            self.take(self.link.receive(block=block))

    def take(self, commands: Iterable[WorkerCommand] | None) -> None:
        """Do what the client says, or, if it is gone, stop. To be called with `link.reading` held."""
        if commands is None:
            self.page.report_broken()
            self.queue.clear()
            self.stopping = True
            return
        for command in commands:
            if type(command) is Run:
                self.queue.append(command)
            elif isinstance(command, Retract):
                self._give_back(command.tasks)
            elif isinstance(command, Environment):
                sys.path[:] = command.sys_path
            elif isinstance(command, Stop):
                self.stopping = True
        self.sentry.frame_came()

    def _give_back(self, wanted: tuple[TaskAttempt, ...]) -> None:
        """Answer for every attempt asked for: not started and given back, or kept."""
        asked = set(wanted)
        gave: list[TaskAttempt] = []
        for run in self.drain():
            attempt = (run.task, run.attempt)
            if attempt in asked:
                gave.append(attempt)
            else:
                self.queue.append(run)
        given = set(gave)
        kept = tuple(attempt for attempt in wanted if attempt not in given)
        answers = ([Gave(tuple(gave))] if gave else []) + ([Kept(kept)] if kept else [])
        self.link.flush(*answers)

    def drain(self) -> list[Run]:
        """Take all that has not started, in order."""
        taken: list[Run] = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self.queue.pop())
        taken.reverse()
        return taken


def _flush_streams() -> None:
    """Let what a task printed without a line's end be seen. Tasks may have closed or replaced the streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
