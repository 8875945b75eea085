"""A worker as it looks from outside: what it says and when. What a task does is in its payload.

Never here: what the scheduler ought to make of it.
"""

import random
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol
from zlib import crc32

import msgspec
from timeline import MS, US, Link, Timeline, some

from slipstream.protocol.codec import decode_reports, encode_commands
from slipstream.protocol.messages import Done, Failed, Gave, Kept, Lacks, Message, Retract, Run, Started
from wire import commands_of, reports_body

#: As real workers have it: when a task counts as long, how long results may wait, what is short.
TICK_NS = 5 * MS
REPORT_NS = 1 * MS

Attempt = tuple[int, int]


class Work(msgspec.Struct, frozen=True, array_like=True):
    """What a task does. It is the task's payload."""

    duration_ns: int = US
    #: Makes its result differ from that of others.
    salt: int = 0
    raises: bool = False
    #: It waits for a result of its own, and the worker gives back the rest as soon as it does.
    blocks: bool = False

    def result(self, inputs: Sequence[bytes]) -> bytes:
        """What the task returns; another order of inputs or another input gives another result."""
        return b"%d" % crc32(repr((self.salt, list(inputs))).encode())

    def error(self) -> bytes:
        """What the task raises."""
        return b"error %d" % self.salt


_decode_work: Callable[[bytes], Work] = msgspec.msgpack.Decoder(Work).decode


class Surroundings(Protocol):
    """What a worker needs of its cluster."""

    dice: random.Random
    timeline: Timeline
    delay_ns: int
    silence_ns: int
    results_kept: int

    def started(self, worker: "SimulatedWorker", run: Run) -> None: ...
    def worker_said(self, worker: int, messages: list[Any]) -> None: ...


class SimulatedWorker:
    """A worker process: one task at a time in order, and a sentry that speaks while the task runs."""

    def __init__(self, cluster: Surroundings, identity: int) -> None:
        self.identity = identity
        self.alive = True
        #: What the shared page says: the attempt that runs at this moment.
        self.running: Attempt | None = None
        #: And which ran last, or runs.
        self.last: Attempt | None = None
        self._cluster = cluster
        self._queue: deque[Run] = deque()
        #: Ends that have not been reported, and when the first of them came about.
        self._ends: list[Message] = []
        self._unreported_since = 0
        self._short: set[bytes] = set()
        #: Results of its own tasks, the latest last: as many as it keeps.
        self._results: OrderedDict[int, bytes] = OrderedDict()
        #: The running task has outlived the tick, or waits.
        self._busy = False
        self._sentry_quiet_at = 0
        self.commands = Link(cluster, partial(encode_commands, known={}), commands_of, self._receive)
        self.reports = Link(cluster, reports_body, decode_reports, partial(cluster.worker_said, identity))

    def die(self) -> None:
        self.alive = False

    def _soon(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Do something later, if there is a later."""
        self._cluster.timeline.after(delay_ns, lambda: action() if self.alive else None)

    def _receive(self, commands: list[Any]) -> None:
        if not self.alive:
            return
        for command in commands:
            if isinstance(command, Run):
                self._queue.append(command)
            else:
                assert isinstance(command, Retract)
                self._soon(self._silence(), partial(self._answer, command.tasks))
        if self._busy:
            self._sentry_speaks(self._give_all())
        elif self.running is None:
            self._next()

    # --- the main thread --------------------------------------------------------------------------------------------

    def _next(self) -> None:
        if not self._queue:
            self._speak([])
            return
        run = self._queue.popleft()
        inputs = [self._results.get(value) if isinstance(value, int) else value for value in run.inputs]
        if None in inputs:
            self._speak([Lacks(((run.task, run.attempt),))])
            self._next()
            return
        waited_ns = self._cluster.timeline.now - self._unreported_since
        if run.digest not in self._short or waited_ns >= REPORT_NS:
            self._speak([])
        self.running = self.last = (run.task, run.attempt)
        self._cluster.started(self, run)
        work = _decode_work(run.payload)
        if work.blocks:
            self._soon(work.duration_ns // 2, partial(self._block, run))
        if work.duration_ns > TICK_NS:
            self._soon(TICK_NS + self._silence(), partial(self._outlive, run))
        self._soon(work.duration_ns, partial(self._end, run, work, inputs))

    def _end(self, run: Run, work: Work, inputs: Sequence[bytes]) -> None:
        self.running, self._busy = None, False
        if work.duration_ns < REPORT_NS:
            self._short.add(run.digest)
        if not self._ends:
            self._unreported_since = self._cluster.timeline.now
        if work.raises:
            self._ends.append(Failed(run.task, run.attempt, work.duration_ns, work.error()))
        else:
            result = self._results[run.task] = work.result(inputs)
            if len(self._results) > self._cluster.results_kept:
                self._results.popitem(last=False)
            self._ends.append(Done(run.task, run.attempt, work.duration_ns, result))
        self._next()

    def _block(self, run: Run) -> None:
        if self.running == (run.task, run.attempt):
            self._busy = True
            self._sentry_speaks(self._give_all())

    # --- the sentry -------------------------------------------------------------------------------------------------

    def _outlive(self, run: Run) -> None:
        if self.running == (run.task, run.attempt):
            self._busy = True
            self._sentry_speaks([Started(run.task, run.attempt), *self._give_all()])

    def _answer(self, tasks: Sequence[Attempt]) -> None:
        gave = tuple(attempt for attempt in tasks if any(attempt == (run.task, run.attempt) for run in self._queue))
        kept = tuple(attempt for attempt in tasks if attempt not in gave)
        self._queue = deque(run for run in self._queue if (run.task, run.attempt) not in gave)
        self._sentry_speaks([*([Gave(gave)] if gave else []), *([Kept(kept)] if kept else [])])

    def _give_all(self) -> list[Message]:
        gave = tuple((run.task, run.attempt) for run in self._queue)
        self._queue.clear()
        return [Gave(gave)] if gave else []

    def _sentry_speaks(self, messages: list[Message]) -> None:
        """It has made up its mind; before the message is out the main thread may have said something else."""
        self._sentry_quiet_at = max(self._sentry_quiet_at, self._cluster.timeline.now + self._silence())
        self._soon(self._sentry_quiet_at - self._cluster.timeline.now, partial(self._speak, messages))

    def _silence(self) -> int:
        """The sentry needs the interpreter lock, and may have to wait for it."""
        return some(self._cluster.dice, self._cluster.silence_ns)

    def _speak(self, messages: list[Message]) -> None:
        """Send what has not been reported, and then these."""
        if self._ends or messages:
            self.reports.send([*self._ends, *messages])
            self._ends = []
