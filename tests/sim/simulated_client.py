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
from slipstream.protocol.messages import Cancel, ClientMessage, Expect, Notice, Provide, Release, Submit, TaskRunning

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


@dataclass
class Promised:
    """A value that is to come from outside: None if there will be none, or it has not come."""

    value: bytes | None = None
    provided: bool = False


class SimulatedClient:
    """A client: it says what it is made to say, and notes what it is told."""

    def __init__(self, cluster: Surroundings, identity: int) -> None:
        self.identity = identity
        self.present = True
        self.tasks: dict[int, Submitted] = {}
        self.values: dict[int, Promised] = {}
        #: Tasks that the scheduler would not have, since something that they depend on was no longer there.
        self.refused: dict[int, Submitted] = {}
        #: The final notice of each task, as it came.
        self.outcomes: dict[int, Any] = {}
        #: Called with each final notice.
        self.on_outcome: Callable[[int], None] = lambda task: None
        self._cluster = cluster
        self.requests = Link(cluster, encode, decode_requests, partial(cluster.client_said, identity))
        self.notices = Link(cluster, encode, decode_notices, self._receive)

    def submit(
        self, work: Work, *, digest: bytes = b"f", dependencies: Sequence[int | bytes] = (), **options: Any
    ) -> int:
        """Submit a task, which is kept until it is released. It takes tasks, values and results that are there."""
        task, payload = self._new_number(), msgspec.msgpack.encode(work)
        message = Submit(task, digest, payload, inputs=tuple(dependencies), keep=True, **options)
        self.tasks[task] = Submitted(message, work)
        self.requests.send([message])
        return task

    def _new_number(self) -> int:
        return self.identity * 1_000_000 + len(self.tasks) + len(self.values) + len(self.refused)

    def expect(self) -> int:
        """Promise a value."""
        value = self._new_number()
        self.values[value] = Promised()
        self.requests.send([Expect(value)])
        return value

    def provide(self, value: int, payload: bytes | None) -> None:
        """Keep a promise; None breaks it."""
        self.values[value] = Promised(payload, provided=True)
        self.requests.send([Provide(value, payload)])

    def refuse(self, message: Submit) -> None:
        """The scheduler will not have the task."""
        self.refused[message.task] = self.tasks.pop(message.task)

    def cancel(self, *tasks: int) -> None:
        for task in tasks:
            if task in self.tasks:
                self.tasks[task].cancel_wanted = True
        self.requests.send([Cancel(task) for task in tasks])

    def release(self, *tasks: int) -> None:
        for task in tasks:
            if task in self.tasks:
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
