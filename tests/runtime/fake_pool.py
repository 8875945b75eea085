"""A pool without processes: real messages, real codec, real calls, in the memory of the test.

What is sent to a worker is decoded at once and waits in its queue. Whoever reads from the pool runs what waits; if the
pool is `held`, nothing happens until the test says so. So the test decides what has come, and the engine who reads it.
"""

import contextlib
import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from slipstream import Executor
from slipstream.core.events import WorkerEnd
from slipstream.pools.base import Capabilities, EventSink, WorkerInfo
from slipstream.protocol.codec import decode_reports
from slipstream.protocol.ids import FrameId, SlotId
from slipstream.protocol.messages import Run, WorkerCommand, WorkerMessage
from slipstream.protocol.worker_codec import encode_reports
from slipstream.serde.definitions import Definition
from slipstream.worker.page import Running, SharedPage
from slipstream.worker.runner import run_task
from wire import commands_of, reports_body

#: How long something may take that must happen. A limit for hangs, not an expectation.
LIMIT_S = 30.0

Answer = Callable[[Run], Sequence[WorkerMessage]]


@dataclass(frozen=True)
class Frame:
    """A frame as it was sent: to whom, in which turn (the number of turns so far), by which thread."""

    slot: int
    turn: int
    thread: str
    commands: tuple[WorkerCommand, ...]

    @property
    def tasks(self) -> list[int]:
        return [command.task for command in self.commands if type(command) is Run]


@dataclass
class FakeWorker:
    """Runs calls where it stands. The page is a real one."""

    slot: SlotId
    page: SharedPage
    queue: deque[Run] = field(default_factory=deque)
    definitions: dict[bytes, bytes] = field(default_factory=dict)


class FakePool:
    """Implements `slipstream.pools.base.Pool`.

    Args:
        held: nothing runs by itself; `run` and `say` make things happen.
        answer: what a worker says of a task; default is to run it.
        duration_ns: what workers measure, whatever it was.
    """

    capabilities = Capabilities("fake", addressable=True, ordered=True, can_stop=True, may_rerun=False)

    def __init__(self, *, held: bool = False, answer: Answer | None = None, duration_ns: int | None = None) -> None:
        self.held = held
        self._duration_ns = duration_ns
        self.frames: list[Frame] = []
        self.workers: dict[SlotId, FakeWorker] = {}
        self.closed = False
        self.killed = False
        #: Names of the threads that have read.
        self.readers: list[str] = []
        self._answer = answer
        self._sink: EventSink | None = None
        self._wanted = 0
        self._quiet = False
        #: What the next reader tells the sink.
        self._news: deque[Callable[[], None]] = deque()
        self._signal = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._signalling = threading.Lock()

    # --- the Pool protocol --------------------------------------------------------------------------------------------

    def start(self, workers: int, sink: EventSink) -> None:
        self._sink = sink
        self._wanted = workers

    def guard(self, directories: Sequence[str]) -> None:
        pass

    def send(self, slot: SlotId, frame: FrameId, body: bytes) -> None:
        worker = self.workers.get(slot)
        commands = tuple(commands_of(body, None if worker is None else worker.definitions))
        turn = self._sink.traffic.turns  # the sink is the engine
        self.frames.append(Frame(slot, turn, threading.current_thread().name, commands))
        if worker is not None:
            worker.queue.extend(command for command in commands if type(command) is Run)
            if not self.held:
                self.wake()

    def running(self, slot: SlotId) -> Running | None:
        worker = self.workers.get(slot)
        return None if worker is None else worker.page.running()

    def fileno(self) -> int:
        return self._signal

    def wait(self, timeout_s: float) -> None:
        poll = select.poll()
        poll.register(self._signal, select.POLLIN)
        poll.poll(None if timeout_s < 0 else timeout_s * 1000)

    def wake(self) -> None:
        with self._signalling:
            if self._signal >= 0:
                os.eventfd_write(self._signal, 1)

    def read_ready(self) -> None:
        self.readers.append(threading.current_thread().name)
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._signal)
        while self._news:
            self._news.popleft()()
        if not self.held:
            for worker in list(self.workers.values()):
                self._run_queue(worker, len(worker.queue))
            while self._news:
                self._news.popleft()()

    @property
    def untended(self) -> bool:
        return not self.closed and len(self.workers) < self._wanted

    def tend(self) -> None:
        while self.untended:
            descriptor = SharedPage.create()
            slot = SlotId(len(self.workers) + 1)
            self.workers[slot] = FakeWorker(slot, SharedPage(descriptor))
            os.close(descriptor)
            info = WorkerInfo("here", os.getpid(), "3", "0")
            self.tell(lambda slot=slot, info=info: self._sink.joined(slot, info))

    def keep(self, workers: int) -> None:
        self._wanted = workers

    def stop(self, slot: SlotId, *, kill: bool) -> bool:
        self.killed = self.killed or kill
        return True

    def close(self, *, kill: bool = False) -> None:
        self.closed = True
        self.killed = self.killed or kill
        for worker in self.workers.values():
            worker.page.close()
        self.abandon()

    def abandon(self) -> None:
        with self._signalling:
            descriptor, self._signal = self._signal, -1
        if descriptor >= 0:
            os.close(descriptor)

    # --- what tests call ----------------------------------------------------------------------------------------------

    @property
    def runs(self) -> list[int]:
        """Tasks that were sent, in the order of frames."""
        return [task for frame in self.frames for task in frame.tasks]

    def queued(self) -> list[int]:
        """Tasks that were sent and have not run."""
        return [run.task for worker in self.workers.values() for run in list(worker.queue)]  # a copy is one step

    def tell(self, *news: Callable[[], None]) -> None:
        """Let the next reader call these."""
        self._news.extend(news)
        if not self._quiet:
            self.wake()

    @contextlib.contextmanager
    def unread(self) -> Iterator[None]:
        """Nobody is told of what comes meanwhile; at the end it is all there at once."""
        self._quiet = True
        yield
        self._quiet = False
        self.wake()

    def say(self, slot: int, *messages: WorkerMessage) -> None:
        """Let the next reader find a frame with these messages of that worker."""
        body = reports_body(messages)
        self.tell(lambda: self._sink.received(SlotId(slot), body))

    def lose(self, slot: int, reason: str = "lost") -> None:
        """Let the next reader find that the worker is gone."""
        self._wanted -= 1
        del self.workers[SlotId(slot)]
        self.tell(lambda: self._sink.left(SlotId(slot), WorkerEnd(reason)))

    def break_(self, reason: str) -> None:
        """Let the next reader find that the pool cannot work any more."""
        self.tell(lambda: self._sink.broken(reason))

    def run(self, *futures_or_tasks: object) -> None:
        """Run these tasks, which must have been sent, in this order; one frame each. None given: all that wait."""
        for wanted in futures_or_tasks or self.queued():
            task = getattr(wanted, "_task", wanted)
            eventually(lambda task=task: task in self.queued())
            worker, run = next(
                (worker, run) for worker in self.workers.values() for run in list(worker.queue) if run.task == task
            )
            worker.queue.remove(run)
            self.say(worker.slot, *self._outcome(worker, run))

    def report(self) -> int:
        """Run all that waits, one frame of results a worker; how many tasks that was."""
        counts = [len(worker.queue) for worker in self.workers.values()]
        for worker, count in zip(self.workers.values(), counts, strict=True):
            self._run_queue(worker, count)
        return sum(counts)

    def release(self) -> None:
        """From now on everything runs by itself."""
        self.held = False
        self.wake()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _run_queue(self, worker: FakeWorker, count: int) -> None:
        reports: list[WorkerMessage] = []
        for _ in range(count):
            reports += self._outcome(worker, worker.queue.popleft())
        if reports:
            self.say(worker.slot, *reports)

    def _outcome(self, worker: FakeWorker, run: Run) -> Sequence[WorkerMessage]:
        if self._answer is not None:
            return self._answer(run)
        definition = Definition(run.definition) if run.definition else None
        classes = Definition(run.classes) if run.classes else None
        written, _, _ = run_task(structs.astuple(run)[:-2], definition, classes, list(run.inputs), worker.page)
        (report,) = decode_reports(b"".join(encode_reports([written])))
        return (report if self._duration_ns is None else structs.replace(report, duration_ns=self._duration_ns),)


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so that must become so."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.001)


@contextlib.contextmanager
def executor_over(pool: FakePool, workers: int = 1) -> Iterator[Executor]:
    """An executor whose tasks go to this pool. At the end everything that is held runs."""
    executor = Executor(max_workers=workers)
    executor._engine._make_pool = lambda: pool
    try:
        yield executor
    finally:
        pool.release()
        for future in list(executor._client.futures.values())[:1]:
            with contextlib.suppress(BaseException):
                future.exception(0)  # flushes what is held back, also where a test has stopped the clock
        shut_down(executor, pool)
        pool.abandon()  # of an executor that never submitted anything


def shut_down(executor: Executor, pool: FakePool) -> None:
    """End the executor; one that has lost a task would wait for it for ever, and with it all other tests."""
    ending = InThread(executor.shutdown)
    ending.thread.join(LIMIT_S / 3)
    if ending.thread.is_alive():
        pool.break_("the test is over")
        ending.end()
        raise AssertionError("the executor waits for a task that was lost")


def workers_up(executor: Executor, pool: FakePool) -> None:
    """Submit a first task, run it, and wait until all workers have joined."""
    future = executor.submit(abs, 0)
    if pool.held:
        pool.run(future)
    future.result(LIMIT_S)
    eventually(lambda: executor.stats().workers == executor._workers)


class InThread:
    """A call in a thread of its own, for calls that block."""

    def __init__(self, call: Callable[..., object], *args: object) -> None:
        self.value: object = None
        self.error: BaseException | None = None
        self._call = call
        self._args = args
        self.thread = threading.Thread(target=self._run, name="waiter", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.value = self._call(*self._args)
        except BaseException as error:
            self.error = error

    @property
    def ident(self) -> int:
        assert self.thread.ident is not None
        return self.thread.ident

    def end(self) -> object:
        """Wait for the end of the call: what it returned, or its exception."""
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive(), "the call hangs"
        return self.value if self.error is None else self.error
