"""A client as it looks from outside: it says what it is made to say, and notes what it is told."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec
from simulated_worker import Work
from timeline import Link, Timeline

from slipstream.core.events import ClientLeft, ClientWaits, Event
from slipstream.protocol.messages import Cancel, ClientMessage, Notice, Release, Submit, TaskRunning

encode: Callable[[Sequence[Any]], bytes] = msgspec.msgpack.encode
decode_requests: Callable[[bytes], list[ClientMessage]] = msgspec.msgpack.Decoder(list[ClientMessage]).decode
decode_notices: Callable[[bytes], list[Notice]] = msgspec.msgpack.Decoder(list[Notice]).decode


class Surroundings(Protocol):
    """What a client needs of its cluster."""

    dice: random.Random
    timeline: Timeline
    delay_ns: int

    def client_said(self, client: int, messages: list[Any]) -> None: ...
    def happens(self, event: Event) -> None: ...


@dataclass
class Submitted:
    """A task as its client knows it."""

    message: Submit
    work: Work
    released: bool = False
    cancel_wanted: bool = False


class SimulatedClient:
    """A client: it says what it is made to say, and notes what it is told."""

    def __init__(self, cluster: Surroundings, identity: int) -> None:
        self.identity = identity
        self.present = True
        self.tasks: dict[int, Submitted] = {}
        #: The final notice of each task, as it came.
        self.outcomes: dict[int, Any] = {}
        #: Called with each final notice.
        self.on_outcome: Callable[[int], None] = lambda task: None
        self._cluster = cluster
        self.requests = Link(cluster, encode, decode_requests, partial(cluster.client_said, identity))
        self.notices = Link(cluster, encode, decode_notices, self._receive)

    def submit(self, work: Work, *, digest: bytes = b"f", dependencies: Sequence[int] = (), **options: Any) -> int:
        """Submit a task, which is kept until it is released."""
        task, payload = self.identity * 1_000_000 + len(self.tasks), msgspec.msgpack.encode(work)
        message = Submit(task, digest, payload, dependencies=tuple(dependencies), keep=True, **options)
        self.tasks[task] = Submitted(message, work)
        self.requests.send([message])
        return task

    def cancel(self, *tasks: int) -> None:
        for task in tasks:
            self.tasks[task].cancel_wanted = True
        self.requests.send([Cancel(task) for task in tasks])

    def release(self, *tasks: int) -> None:
        for task in tasks:
            self.tasks[task].released = True
        self.requests.send([Release(task) for task in tasks])

    def wait(self) -> None:
        """Begin to wait for a result, as the scheduler will hear after what was sent before."""
        if self.present:
            event = ClientWaits(self.identity)
            self._cluster.timeline.at(self.requests.quiet_at, partial(self._cluster.happens, event))

    def leave(self) -> None:
        """Go away. What was sent before arrives before that is known."""
        self.present = False
        self._cluster.timeline.at(self.requests.quiet_at, partial(self._cluster.happens, ClientLeft(self.identity)))

    def _receive(self, notices: list[Any]) -> None:
        if not self.present:
            return
        for notice in notices:
            if isinstance(notice, TaskRunning):
                continue
            if notice.task in self.outcomes:
                raise AssertionError(f"told {notice} after {self.outcomes[notice.task]}")
            self.outcomes[notice.task] = notice
            self.on_outcome(notice.task)
