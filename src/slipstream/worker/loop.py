"""The worker's main loop: take frames, run their tasks in order, report.

The main thread runs tasks and, between them, reads. While a task outlives the tick, the sentry reads in its place.
The queue of tasks that have not started is a deque whose ends are popped atomically, so each task is either run here
or given back, never both.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident

from slipstream.protocol.worker_codec import DEFINE, ENVIRONMENT, RETRACT, RUN, STOP, STORAGE, gave, kept, lacks
from slipstream.serde.definitions import DEFINED, Definitions
from slipstream.worker.results import Results
from slipstream.worker.runner import run_task
from slipstream.worker.sentry import Sentry
from slipstream.worker.storing import ResultStore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable
    from typing import Any, TypeAlias

    from slipstream.protocol.messages import TaskAttempt
    from slipstream.protocol.worker_codec import Report, RunFields
    from slipstream.serde.definitions import Definition
    from slipstream.worker.link import Link
    from slipstream.worker.page import SharedPage
    from slipstream.worker.requests import Requests

    #: A task, the definition of its callable, and that of the classes that it needs.
    Queued: TypeAlias = tuple[RunFields, Definition | None, Definition | None]
else:
    from _collections import deque

#: A callable whose recent calls were shorter is run before earlier results are sent.
SHORT_NS = 1_000_000
#: Callables remembered as short; beyond it all are forgotten and prove themselves again.
MAX_SHORT = 4096


class Loop:
    """What the worker does between its start and its end."""

    def __init__(self, link: Link, page: SharedPage) -> None:
        self.link = link
        self.page = page
        #: Tasks that have not started, with the definitions of their callables and classes, which are thereby kept.
        self.queue: deque[Queued] = deque()
        self.definitions = Definitions()
        self.results = Results()
        #: Where large results go, if anywhere.
        self.store: ResultStore | None = None
        self.stopping = False
        self.main_thread = get_ident()
        self.sentry = Sentry(self)
        #: The task that runs reads itself, since it waits for tasks that it has submitted.
        self.task_reads = False
        #: What tasks of this worker do as a client, once they do.
        self.requests: Requests | None = None
        #: What they have to know of their executor: this worker's number, how many workers there are, and retries.
        self.settings: tuple[int, int, int] = (0, 1, 0)
        #: This is a child that a task forked, and that came back from the task.
        self.forked = False
        os.register_at_fork(after_in_child=self._leave_to_parent)
        #: digest -> recent longest call in ns.
        self._recent: dict[bytes, int] = {}

    def run(self) -> None:
        """Work until told to stop, or until the client is gone."""
        queue = self.queue
        while True:
            if queue:
                try:
                    run, definition, classes = queue.popleft()
                except IndexError:  # the sentry gave it back just now
                    continue
                self._run(run, definition, classes)
            else:
                self.link.flush()
                _flush_streams()
                if self.stopping:
                    return
                self._read(block=True)

    def _run(self, run: RunFields, definition: Definition | None, classes: Definition | None) -> None:
        link, recent = self.link, self._recent
        digest, chunk = run[2], run[4]
        inputs: list[bytes] = []
        if run[5]:
            own = [self.results.get(value) if isinstance(value, int) else value for value in run[5]]
            inputs = [value for value in own if value is not None]
            if len(inputs) < len(own):  # one has failed, or was given back, or is too long ago
                link.add(lacks([run[:2]]), 0)
                return
        longest = recent.get(digest, SHORT_NS)
        if longest >= SHORT_NS or chunk:
            link.flush()
        try:
            report, result, duration = run_task(run, definition, classes, inputs, self.page, self.store)
        except BaseException as error:  # of a forked child: run_task raises nothing else
            self.leave_if_forked(error)
            raise
        self.leave_if_forked(None)
        sentry = self.sentry
        if sentry.watching:
            sentry.nudge()
        if self.requests is not None:
            self.requests.task_ended()
        if len(recent) >= MAX_SHORT:
            recent.clear()
        # Fades by 1/16 a call, as one slow call says little about the next.
        recent[digest] = max(duration, longest - (longest >> 4))
        if result is not None and not chunk:
            self.results.add(run[0], result)
        if link.add(report, len(report[1])):
            link.flush()
            self._read(block=False)

    def leave_if_forked(self, error: BaseException | None) -> None:
        """In a forked child that came back from a task: end, as its program would. Two must not answer the client."""
        if not self.forked:
            return
        status = 0 if error is None else 1
        try:
            if isinstance(error, SystemExit):
                if error.code is None or isinstance(error.code, int):
                    status = (error.code or 0) & 0xFF
                else:
                    sys.stderr.write(f"{error.code}\n")
            elif error is not None:
                sys.excepthook(type(error), error, error.__traceback__)
            _flush_streams()
        finally:
            os._exit(status)  # whatever the task has made of its streams

    def _leave_to_parent(self) -> None:
        """In a forked child: let go of the connection, which is the parent's."""
        self.forked = True
        self.link.stream.close()
        self.page.detach()

    def _read(self, *, block: bool) -> None:
        with self.link.reading:
            if block and (self.queue or self.stopping):
                return  # the sentry read in the meantime
            self.take(self.link.receive(block=block))

    def take(self, commands: Iterable[tuple[int, Any]] | None) -> None:
        """Do what the client says, or, if it is gone, stop. To be called with `link.reading` held."""
        if commands is None:
            self.page.report_broken()
            self.queue.clear()
            self.stopping = True
            return
        lacking: list[TaskAttempt] = []
        told: list[tuple[int, Any]] = []
        for tag, fields in commands:
            if tag == RUN:
                if not (fields[6] or fields[2][:1] == DEFINED):
                    self.queue.append((fields, None, None))
                elif not self._queue_with_definitions(fields):
                    lacking.append(fields[:2])
            elif tag == DEFINE:
                self.definitions.add(*fields)
            elif tag == RETRACT:
                self._give_back(*fields)
            elif tag == ENVIRONMENT:
                (sys.path[:],) = fields
            elif tag == STORAGE:
                self.store = ResultStore(*fields)
            elif tag == STOP:
                self.stopping = True
            else:
                told.append((tag, fields))
        self.definitions.drop_old()
        if lacking:
            self.link.flush(lacks(lacking))
        self.sentry.frame_came()
        if told and self.requests is not None:
            self.requests.take(told)

    def _queue_with_definitions(self, fields: RunFields) -> bool:
        """Queue a task with what it needs, if that is here."""
        definition = classes = None
        if fields[2][:1] == DEFINED:
            definition = self.definitions.get(fields[2])
            if definition is None:
                return False
        if fields[6]:
            classes = self.definitions.get(fields[6])
            if classes is None:
                return False
        self.queue.append((fields, definition, classes))
        return True

    def _give_back(self, wanted: tuple[TaskAttempt, ...]) -> None:
        """Answer for every attempt asked for: not started and given back, or kept."""
        asked = set(wanted)
        given: list[TaskAttempt] = []
        for run in self.drain():
            attempt = run[0][:2]
            if attempt in asked:
                given.append(attempt)
            else:
                self.queue.append(run)
        late = asked.difference(given)
        answers = ([gave(given)] if given else []) + ([kept([x for x in wanted if x in late])] if late else [])
        self.link.flush(*answers)

    def give_all(self, *more: Report) -> None:
        """Give back all that has not started, and say more."""
        runs = self.drain()
        if runs:
            more = (gave([run[:2] for run, *_ in runs]), *more)
        if more:
            self.link.flush(*more)

    def drain(self) -> list[Queued]:
        """Take all that has not started, in order."""
        taken: list[Queued] = []
        try:
            while True:
                taken.append(self.queue.pop())
        except IndexError:
            pass
        taken.reverse()
        return taken


#: That of this process, if it is a worker.
current: Loop | None = None


def _flush_streams() -> None:
    """Let what a task printed without a line's end be seen. Tasks may have closed or replaced the streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:  # noqa: BLE001  # a closed stream, or whatever a task has put in its place
            continue
