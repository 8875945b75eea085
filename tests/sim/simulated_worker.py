"""A worker as it looks from outside: what it says and when. What a task does is in its payload.

Never here: what the scheduler ought to make of it.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import simulated_client as client
from timeline import MS, Link, some
from work import Work, decode_work

from slipstream.protocol.codec import (
    NOTICES,
    decode_reports,
    decode_requests,
    encode_commands,
    encode_requests,
    is_request,
)
from slipstream.protocol.messages import (
    Blocked,
    CannotWait,
    ClientMessage,
    Done,
    Failed,
    Gave,
    Gone,
    Kept,
    Lacks,
    Message,
    Resumed,
    Retract,
    Run,
    Started,
    Stop,
    Submit,
    TaskSucceeded,
)
from wire import commands_of, reports_body

#: As real workers have it: when a task counts as long, how long results may wait, what is short.
TICK_NS = 5 * MS
REPORT_NS = 1 * MS

Attempt = tuple[int, int]


def _encode(messages: Sequence[Any]) -> bytes:
    """What a worker reports, or one thing that its tasks say as a client."""
    return encode_requests(messages) if isinstance(messages[0], ClientMessage) else reports_body(messages)


def _decode(body: bytes) -> list[Any]:
    return decode_requests(body) if is_request(body) else decode_reports(body)


class Surroundings(client.Surroundings, Protocol):
    """What a worker needs of its cluster."""

    silence_ns: int
    results_kept: int

    def started(self, worker: "SimulatedWorker", run: Run) -> None: ...
    def stopped(self, worker: "SimulatedWorker") -> None: ...
    def worker_said(self, worker: int, messages: list[Any]) -> None: ...
    def new_file(self, attempt: Attempt, value: bytes) -> bytes: ...


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
        #: What it has read: files that it maps may be removed.
        self._mapped: set[bytes] = set()
        #: Tasks that the running one waits for, in order; and what it does when all have ended.
        self._children: list[int] = []
        self._resume: Callable[[], None] = lambda: None
        #: The running task has outlived the tick, or waits.
        self._busy = False
        self._sentry_quiet_at = 0
        self.commands = Link(cluster, partial(encode_commands, known={}), commands_of, self._receive)
        self.reports = Link(cluster, _encode, _decode, partial(cluster.worker_said, identity))
        #: Its tasks, as a client.
        self.client = client.SimulatedClient(cluster, identity, self.reports)
        self.client.on_outcome = lambda task: self._one_ended()

    def die(self) -> None:
        self.alive = self.client.present = False

    def _soon(self, delay_ns: int, action: Callable[[], None]) -> None:
        """Do something later, if there is a later."""
        self._cluster.timeline.after(delay_ns, lambda: action() if self.alive else None)

    def _receive(self, commands: list[Any]) -> None:
        if not self.alive:
            return
        for command in commands:
            if isinstance(command, Run):
                self._queue.append(command)
            elif isinstance(command, CannotWait):
                if self.running is not None and self.running[0] == command.task:
                    self._give_up(command)
            elif isinstance(command, Submit):
                self.client.refuse(command)
            elif type(command) in NOTICES.values():
                self.client.told([command])
            elif isinstance(command, Stop):
                assert self.running is None, "dismissed while it runs something"
                assert not self._queue, "dismissed although it has something"
                self._cluster.stopped(self)
                return
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
        found = [self._results.get(value) if isinstance(value, int) else value for value in run.inputs]
        inputs = [value for value in found if value is not None]
        if len(inputs) < len(found):
            self._speak([Lacks(((run.task, run.attempt),))])
            self._next()
            return
        gone = [value for value in inputs if self._cluster.is_gone(value) and value not in self._mapped]
        if gone:
            self._speak([Gone(run.task, run.attempt, tuple(dict.fromkeys(gone)))])
            self._next()
            return
        waited_ns = self._cluster.timeline.now - self._unreported_since
        if run.digest not in self._short or waited_ns >= REPORT_NS:
            self._speak([])
        self._mapped.update(inputs)
        self.running = self.last = (run.task, run.attempt)
        self._cluster.started(self, run)
        work = decode_work(run.payload)
        if work.blocks:
            self._soon(work.duration_ns // 2, partial(self._block, run))
        if work.duration_ns > TICK_NS:
            self._soon(TICK_NS + self._silence(), partial(self._outlive, run))
        if work.children:
            self._soon(work.duration_ns // 2, partial(self._nest, run, work, inputs))
        else:
            self._soon(work.duration_ns, partial(self._end, run, work, inputs))

    def _end(self, run: Run, work: Work, inputs: Sequence[bytes], error: bytes | None = None) -> None:
        self.running, self._busy = None, False
        if work.duration_ns < REPORT_NS:
            self._short.add(run.digest)
        if not self._ends:
            self._unreported_since = self._cluster.timeline.now
        if error is None and work.raises:
            error = work.error()
        if error is not None:
            self._ends.append(Failed(run.task, run.attempt, work.duration_ns, error))
        else:
            result = work.result(inputs)
            if work.stored:
                result = self._cluster.new_file((run.task, run.attempt), result)
            self._results[run.task] = result
            if len(self._results) > self._cluster.results_kept:
                self._results.popitem(last=False)
            self._ends.append(Done(run.task, run.attempt, work.duration_ns, result))
        self._next()

    def _block(self, run: Run) -> None:
        if self.running == (run.task, run.attempt):
            self._busy = True
            self._sentry_speaks(self._give_all())

    # --- a task that submits tasks, and waits for them ---------------------------------------------------------------

    def _nest(self, run: Run, work: Work, inputs: Sequence[bytes]) -> None:
        """The first of its tasks by itself, each of the others with the result of the one before."""
        options = {"digest": run.digest, **work.options()}
        for child in work.works():
            self._children.append(
                self.client.submit(child, dependencies=self._children[-1:], **options),
            )
        self._resume = partial(self._go_on, run, work, inputs)
        self._busy = True
        self._speak([Blocked(run.task, run.attempt)])
        self._sentry_speaks(self._give_all())

    def _one_ended(self) -> None:
        """When all have, and all their values are there, the task goes on."""
        if self._children and all(task in self.client.outcomes for task in self._children):
            self.client.look_at(*self._children)
            if all(task in self.client.outcomes for task in self._children):
                self._resume()

    def _go_on(self, run: Run, work: Work, inputs: Sequence[bytes]) -> None:
        outcomes = [self.client.outcomes[task] for task in self._children]
        bad = [type(outcome).__name__ for outcome in outcomes if not isinstance(outcome, TaskSucceeded)]
        self._forget_children()
        self._speak([Resumed(run.task, run.attempt)])
        error = b"because of %s" % bad[0].encode() if bad else None
        self._soon(work.duration_ns // 2, partial(self._end, run, work, inputs, error))

    def _give_up(self, message: CannotWait) -> None:
        """It must not wait, and raises."""
        run = self._resume.args[0]  # pyright: ignore
        self._forget_children()
        self._end(run, decode_work(run.payload), (), b"because of CannotWait")

    def _forget_children(self) -> None:
        for task in self._children:  # each in a frame of its own, as whatever a client within a worker says
            self.client.release(task)
        self._children, self._resume = [], lambda: None

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
