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
answers retractions, and dies at any moment with whatever it had not said. Some results lie in files, which may get
lost; some tasks submit others and wait for them.

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
from timeline import MS, US, Link, Timeline, some

from slipstream.core.events import ClientLeft, Event, FromClient, FromWorker, WorkerEnd, WorkerJoined, WorkerLeft
from slipstream.core.invariants import check_invariants
from slipstream.core.scheduler import Scheduler
from slipstream.protocol.ids import STORED, ClientId
from slipstream.protocol.messages import ClientMessage, Message, Run, Stop

#: Clients have other numbers, since the tasks of a worker are a client of its number.
FIRST_WORKER = 101


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
        slots: how many workers are to run tasks at a time; 0 for all that were started.
        most: how many workers there may be; 0 for no limit.
        check_every: after how many turns each every invariant of the scheduler is checked; that walks over all tasks.
    """

    dice: random.Random
    delay_ns: int = 100 * US
    silence_ns: int = 2 * MS
    results_kept: int = 1000
    replace_ns: int | None = 20 * MS
    slots: int = 0
    most: int = 0
    check_every: int = 40
    timeline: Timeline = field(default_factory=Timeline)
    scheduler: Scheduler = field(init=False)
    workers: dict[int, SimulatedWorker] = field(default_factory=dict)
    clients: dict[int, SimulatedClient] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    deaths: dict[int, Death] = field(default_factory=dict)
    #: Every message that went in or out of the scheduler, as it was when decoded or before it was encoded.
    log: list[tuple[int, str, Message]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    #: Values in files that are there, those that are not any more, and what each attempt left in one.
    files: dict[bytes, None] = field(default_factory=dict)
    gone: set[bytes] = field(default_factory=set)
    made: dict[Attempt, bytes] = field(default_factory=dict)
    #: How many workers had to leave, since there was no use for them.
    dismissed: int = 0
    #: Called at each start of a task, after it is noted.
    on_start: Callable[[SimulatedWorker], None] = lambda worker: None
    #: Called with the payload of each value that a file was made for.
    on_file: Callable[[bytes], None] = lambda payload: None

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.slots, self.most)
        self._wanted = self.slots
        self._inbox: list[Event] = []
        self._turn_planned = False
        self._turns = 0
        #: Clients whose leaving is known, and those of whom the scheduler knows it.
        self._clients_leaving: set[int] = set()
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
        worker = SimulatedWorker(self, len(self.workers) + FIRST_WORKER)
        self.workers[worker.identity] = worker

        def up() -> None:
            if worker.alive:
                self.happens(WorkerJoined(worker.identity))

        self.timeline.after(delay_ns, up)

    def employ(self, slots: int, most: int) -> None:
        """Say how many workers are to run tasks at a time, and how many there may be, before anything happens."""
        self.slots, self.most = slots, most
        self.__post_init__()

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
        self.timeline.at(known_at, partial(self._left, worker.identity, end))
        if self.replace_ns is not None:
            self._replace(self.replace_ns)

    def _replace(self, replace_ns: int) -> None:
        """As many as there should be."""
        if not self.slots:
            self.start_worker(self.some(replace_ns))
        for _ in range(self._wanted - sum(worker.alive for worker in self.workers.values())):
            self.start_worker(self.some(replace_ns))

    def stopped(self, worker: SimulatedWorker) -> None:
        """A worker leaves, as it was told."""
        self.dismissed += 1
        worker.die()
        self.timeline.after(self.some(MS), partial(self._left, worker.identity, WorkerEnd("dismissed")))

    def _left(self, worker: int, end: WorkerEnd) -> None:
        """Its tasks are no client any more either."""
        self.happens(WorkerLeft(worker, end))
        self.happens(ClientLeft(ClientId(worker)))

    def started(self, worker: SimulatedWorker, run: Run) -> None:
        """A worker tells the truth, not the scheduler."""
        self.starts.append(Start(self.timeline.now, worker.identity, run.task, run.attempt))
        self.on_start(worker)

    # --- values in files ----------------------------------------------------------------------------------------------

    def new_file(self, attempt: Attempt, value: bytes) -> bytes:
        """The payload of a value that a task has put into a file."""
        payload = self.made[attempt] = b"%b%b %d" % (STORED, value, len(self.made))
        self.files[payload] = None
        self.on_file(payload)
        return payload

    def is_gone(self, payload: bytes) -> bool:
        """Whether it lies in a file that cannot be found."""
        return payload in self.gone

    def remove_file(self, payload: bytes) -> None:
        if payload in self.files:
            del self.files[payload]
            self.gone.add(payload)

    # --- turns ------------------------------------------------------------------------------------------------------

    def worker_said(self, worker: int, messages: list[Any]) -> None:
        self._note(f"worker {worker} >", messages)
        if not isinstance(messages[0], ClientMessage):
            self.happens(FromWorker(worker, messages))
        elif self.workers[worker].client.identity not in self._clients_leaving:
            self.happens(FromClient(ClientId(worker), messages))

    def client_said(self, client: int, messages: list[Any]) -> None:
        self._note(f"client {client} >", messages)
        self.happens(FromClient(client, messages))

    def happens(self, event: Event) -> None:
        """An event for the next turn, which is soon."""
        if isinstance(event, ClientLeft):
            self._clients_leaving.add(event.client)
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
            self._way_to(client).send(notices)
            if client in self._clients_left:
                self.faults.append(f"client {client} has left and is told {notices}")
        for client, message in effects.refused:
            if client in self.workers:
                self.workers[client].commands.send([message])
            else:
                self.clients[client].refuse(message)
        for worker in effects.dismissed:
            self.workers[worker].commands.send([Stop()])
        if effects.wanted is not None:
            self._wanted = effects.wanted
            if self.replace_ns is not None:
                self._replace(self.replace_ns)
        self.faults += [*effects.faulty_workers.values(), *effects.faulty_clients.values()]
        if effects.wake_at is not None and effects.wake_at <= self.timeline.now:
            self.faults.append(f"at {self.timeline.now} the scheduler wants to be called again at {effects.wake_at}")
        if effects.wake_at is not None:
            self.timeline.at(effects.wake_at, self._wake)

    def _way_to(self, client: int) -> Link:
        return self.workers[client].commands if client in self.workers else self.clients[client].notices

    def _wake(self) -> None:
        due_at = self.scheduler.placement.wake_at
        if due_at is not None and due_at <= self.timeline.now and not self._turn_planned:
            self._turn()

    def _note(self, direction: str, messages: Sequence[Message]) -> None:
        self.log += [(self.timeline.now, direction, message) for message in messages]
