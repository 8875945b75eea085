"""Short words for what happens to a scheduler in the tests of the core, and for what it answered.

The clock stands still unless a test moves it; only before a turn of a client does time pass by itself, so that its
turns are no stream. Every invariant is checked after each turn.
"""

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from slipstream.core.effects import Effects
from slipstream.core.events import ClientLeft, Event, FromClient, FromWorker, WorkerEnd, WorkerJoined, WorkerLeft
from slipstream.core.invariants import check_invariants
from slipstream.core.placement import HIGH_WATER_NS, LOW_WATER_NS
from slipstream.core.scheduler import Scheduler
from slipstream.core.states import State
from slipstream.core.tasks import Task, Worker
from slipstream.protocol.ids import MAIN_CLIENT
from slipstream.protocol.messages import Done, Retract, Run, Submit

US = 1_000
MS = 1_000_000


@dataclass
class Told:
    """All effects of one turn. Two are equal if nothing at all differs."""

    workers: dict[int, list[Any]] = field(default_factory=dict)
    clients: dict[int, list[Any]] = field(default_factory=dict)
    wake_at: int | None = None
    faulty_workers: dict[int, str] = field(default_factory=dict)
    faulty_clients: dict[int, str] = field(default_factory=dict)
    lacking: list[tuple[int, bytes]] = field(default_factory=list)
    refused: list[tuple[int, Submit]] = field(default_factory=list)
    wanted: int | None = None
    dismissed: list[int] = field(default_factory=list)

    @classmethod
    def by(cls, effects: Effects) -> "Told":
        return cls(
            effects.workers,
            effects.clients,
            effects.wake_at,
            effects.faulty_workers,
            effects.faulty_clients,
            effects.lacking,
            effects.refused,
            effects.wanted,
            effects.dismissed,
        )

    def sent_to(self, worker: int) -> list[int]:
        """Tasks that the worker was told to run, in order."""
        return [command.task for command in self.workers.get(worker, []) if type(command) is Run]

    def retracted_from(self, worker: int) -> list[tuple[int, int]]:
        return [attempt for c in self.workers.get(worker, []) if type(c) is Retract for attempt in c.tasks]

    def notices(self, client: int = MAIN_CLIENT) -> list[Any]:
        return self.clients.get(client, [])


class Turns:
    """A scheduler, driven turn by turn, with so many slots and so many workers at most: see `Scheduler`."""

    def __init__(self, slots: int = 0, most: int = 0) -> None:
        self.scheduler = Scheduler(slots, most)
        self.now = 10**9
        #: What passes before each turn of a client, in ns. Less than 200 µs makes its turns a stream.
        self.pace_ns = 500 * US
        #: Whether every invariant is checked after each turn.
        self.checked = True

    def turn(self, *events: Event) -> Told:
        told = Told.by(self.scheduler.handle(events, self.now))
        assert told.wake_at is None or told.wake_at > self.now, "would be called again and again"
        if self.checked:
            check_invariants(self.scheduler)
            assert not self.forgotten_followers()
        return told

    def forgotten_followers(self) -> list[int]:
        """First in line to follow a hungry worker, which has room for it, and nothing is to be done about it.

        Only where there is one worker: what others report changes what is expected to have room.
        """
        placement = self.scheduler.placement
        if len(placement.workers) != 1 or placement.wake_at is not None:
            return []
        (worker,) = placement.workers.values()
        if (
            worker.long is not None
            or worker.held
            or worker.parked
            or len(worker.tasks) > 1
            or worker.backlog_ns >= LOW_WATER_NS
        ):
            return []
        return [task.task for task in islice(worker.followers, 1) if self._fits(task, worker)]

    def _fits(self, task: Task, worker: Worker) -> bool:
        per_item = self.scheduler.durations.estimate(task.digest)
        if task.suspicions or per_item is None or self.scheduler.ready.precedes(task.priority):
            return False
        missing = [t for n in task.dependencies if (t := self.scheduler.tasks[n]).state is not State.SUCCEEDED]
        at_home = all(dependency.worker == worker.worker and not dependency.retracting for dependency in missing)
        fits = worker.backlog_ns + per_item * (task.items or 1) <= HIGH_WATER_NS
        return task.state is State.WAITING and at_home and fits

    def join(self, *workers: int) -> Told:
        """One turn in which these workers join: the last first, so that the first named is the next to be served."""
        return self.turn(*map(WorkerJoined, reversed(workers)))

    def submit(self, *tasks: int, client: int = MAIN_CLIENT, **fields: Any) -> Told:
        """One turn in which a client submits these tasks."""
        return self.client(*[submit(task, **fields) for task in tasks], client=client)

    def client(self, *messages: Any, client: int = MAIN_CLIENT) -> Told:
        self.now += self.pace_ns
        return self.turn(FromClient(client, messages))

    def worker(self, worker: int, *messages: Any) -> Told:
        return self.turn(FromWorker(worker, messages))

    def done(self, worker: int, *tasks: int, duration_ns: int = US) -> Told:
        """One turn in which a worker reports tasks that it has, each returning b'r'."""
        return self.worker(worker, *[Done(task, self.attempt(task), duration_ns, b"r") for task in tasks])

    def lose(self, worker: int, running: tuple[int, int] | None = None) -> Told:
        return self.turn(WorkerLeft(worker, WorkerEnd("lost", running=running)))

    def client_left(self, client: int) -> Told:
        return self.turn(ClientLeft(client))

    def learn(self, digest: bytes, duration_ns: int) -> None:
        """Let the scheduler know how long calls of a callable take, as if they had been measured before."""
        self.scheduler.durations.learn(digest, duration_ns)

    def attempt(self, task: int) -> int:
        return self.scheduler.tasks[task].attempt

    def state(self, task: int) -> State | None:
        """State of a task; None if it was forgotten, or never was."""
        known = self.scheduler.tasks.get(task)
        return None if known is None else known.state

    def states(self, *tasks: int) -> list[State | None]:
        return [self.state(task) for task in tasks]

    def held_by(self, worker: int) -> list[int]:
        return list(self.scheduler.placement.workers[worker].tasks)

    def waiting_room(self) -> list[int]:
        """READY tasks in the order in which they would be placed."""
        return [task.task for task in self.scheduler.ready.tasks()]


def submit(task: int, digest: bytes = b"f", payload: bytes = b"p", **fields: Any) -> Submit:
    return Submit(task, digest, payload, **fields)


def run(task: int, attempt: int = 1, digest: bytes = b"f", payload: bytes = b"p", **fields: Any) -> Run:
    return Run(task, attempt, digest, payload, **fields)


def given(*workers: int, duration_ns: int | None = US, ready: range = range(0)) -> Turns:
    """Workers, a callable b'f' whose calls are known to take that long, and tasks that came before the workers."""
    turns = Turns()
    if duration_ns is not None:
        turns.learn(b"f", duration_ns)
    if ready:
        turns.submit(*ready)
    if workers:
        turns.join(*workers)
    return turns
