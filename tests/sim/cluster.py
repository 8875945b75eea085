"""A cluster in one thread: the real scheduler and the real codec, with workers and clients that live on a manual clock.

    cluster = Cluster(random.Random(7))
    cluster.start_worker()
    client = cluster.add_client()
    task = client.submit(Work(duration_ns=2_000_000))
    cluster.run()
    client.outcomes[task]           # TaskSucceeded(...)

Whatever takes time takes a time that the dice say; so a seed tells the whole story, and the same seed tells it again.
Every message is encoded, cut into pieces, put together by a `FrameReader` and decoded. A worker behaves as a real one
does: it reports in batches, says that a task has outlived the tick, gives back what it has not started, lacks inputs,
answers retractions, and dies at any moment with whatever it had not said.

Never here: what ought to come of it. That is in `promises`.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from simulated_client import SimulatedClient
from simulated_worker import Attempt, SimulatedWorker
from timeline import MS, US, Timeline, some

from slipstream.core.events import ClientLeft, Event, FromClient, FromWorker, WorkerEnd, WorkerJoined, WorkerLeft
from slipstream.core.invariants import check_invariants
from slipstream.core.scheduler import Scheduler
from slipstream.protocol.messages import Message, Run


@dataclass(frozen=True)
class Start:
    """A task began to run: the truth, which no message need ever have told."""

    at: int
    worker: int
    task: int
    attempt: int


@dataclass(frozen=True)
class Death:
    """A worker died, and what it ran."""

    at: int
    running: Attempt | None


@dataclass
class Cluster:
    """Scheduler, workers, clients, and the clock that moves them.

    Args:
        dice: says how long everything takes.
        delay_ns: longest time for a piece of a frame to arrive.
        silence_ns: longest time for which a worker's sentry cannot speak.
        results_kept: how many results of its own tasks a worker has at hand for others.
        replace_ns: longest time until a lost worker's successor is up; None: it has none.
        check_every: after how many turns each every invariant of the scheduler is checked; that walks over all tasks.
    """

    dice: random.Random
    delay_ns: int = 100 * US
    silence_ns: int = 2 * MS
    results_kept: int = 1000
    replace_ns: int | None = 20 * MS
    check_every: int = 20
    timeline: Timeline = field(default_factory=Timeline)
    scheduler: Scheduler = field(default_factory=Scheduler)
    workers: dict[int, SimulatedWorker] = field(default_factory=dict)
    clients: dict[int, SimulatedClient] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    deaths: dict[int, Death] = field(default_factory=dict)
    #: Every message that went in or out of the scheduler, as it was when decoded or before it was encoded.
    log: list[tuple[int, str, Message]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    #: Called at each start of a task, after it is noted.
    on_start: Callable[[SimulatedWorker], None] = lambda worker: None

    def __post_init__(self) -> None:
        self._inbox: list[Event] = []
        self._turn_planned = False
        self._turns = 0
        self._clients_left: set[int] = set()

    def some(self, most: int) -> int:
        """A time up to `most`, in ns; short ones are more likely."""
        return some(self.dice, most)

    def run(self, limit: int = 200_000) -> None:
        """Let everything happen that is to happen."""
        self.timeline.run(limit)

    def messages(self) -> Counter[str]:
        """How many messages of each kind there were."""
        return Counter(type(message).__name__ for _, _, message in self.log)

    # --- workers and clients ----------------------------------------------------------------------------------------

    def start_worker(self, delay_ns: int = 0) -> None:
        """A new worker, which is up after a while."""
        worker = SimulatedWorker(self, len(self.workers) + 1)
        self.workers[worker.identity] = worker

        def up() -> None:
            if worker.alive:
                self.happens(WorkerJoined(worker.identity))

        self.timeline.after(delay_ns, up)

    def add_client(self) -> SimulatedClient:
        client = self.clients[len(self.clients)] = SimulatedClient(self, len(self.clients))
        return client

    def kill(self, worker: SimulatedWorker) -> None:
        """A worker dies now. What it has sent arrives before that is known, or not at all, or afterwards."""
        worker.die()
        self.deaths[worker.identity] = Death(self.timeline.now, worker.running)
        end = WorkerEnd("killed", signal=9, running=worker.running, last=worker.last)
        known_at = self.timeline.now + self.some(MS)
        fate = self.dice.choice(("before", "not at all", "afterwards"))
        if fate == "before":
            known_at = max(known_at, worker.reports.quiet_at)
        elif fate == "not at all":
            self.timeline.at(known_at, worker.reports.cut)
        self.timeline.at(known_at, partial(self.happens, WorkerLeft(worker.identity, end)))
        if self.replace_ns is not None:
            self.start_worker(self.some(self.replace_ns))

    def started(self, worker: SimulatedWorker, run: Run) -> None:
        """A worker tells the truth, not the scheduler."""
        self.starts.append(Start(self.timeline.now, worker.identity, run.task, run.attempt))
        self.on_start(worker)

    # --- turns ------------------------------------------------------------------------------------------------------

    def worker_said(self, worker: int, messages: list[Any]) -> None:
        self._note(f"worker {worker} >", messages)
        self.happens(FromWorker(worker, messages))

    def client_said(self, client: int, messages: list[Any]) -> None:
        self._note(f"client {client} >", messages)
        self.happens(FromClient(client, messages))

    def happens(self, event: Event) -> None:
        """An event for the next turn, which is soon."""
        self._inbox.append(event)
        if not self._turn_planned:
            self._turn_planned = True
            self.timeline.after(self.some(100 * US), self._turn)

    def _turn(self) -> None:
        events, self._inbox, self._turn_planned = self._inbox, [], False
        self._clients_left |= {event.client for event in events if isinstance(event, ClientLeft)}
        effects = self.scheduler.handle(events, self.timeline.now)
        self._turns += 1
        if self._turns % self.check_every == 0:
            check_invariants(self.scheduler)
        for worker, commands in effects.workers.items():
            self._note(f"worker {worker} <", commands)
            self.workers[worker].commands.send(commands)
        for client, notices in effects.clients.items():
            self._note(f"client {client} <", notices)
            self.clients[client].notices.send(notices)
            if client in self._clients_left:
                self.faults.append(f"client {client} has left and is told {notices}")
        for client, message in effects.refused:
            self.clients[client].refuse(message)
        self.faults += [*effects.faulty_workers.values(), *effects.faulty_clients.values()]
        if effects.wake_at is not None and effects.wake_at <= self.timeline.now:
            self.faults.append(f"at {self.timeline.now} the scheduler wants to be called again at {effects.wake_at}")
        if effects.wake_at is not None:
            self.timeline.at(effects.wake_at, self._wake)

    def _wake(self) -> None:
        due_at = self.scheduler.placement.wake_at
        if due_at is not None and due_at <= self.timeline.now and not self._turn_planned:
            self._turn()

    def _note(self, direction: str, messages: Sequence[Message]) -> None:
        self.log += [(self.timeline.now, direction, message) for message in messages]
