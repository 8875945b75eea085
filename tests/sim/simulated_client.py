"""A client as it looks from outside: it says what it is made to say, and notes what it is told."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import msgspec
from timeline import Link, Timeline
from work import Work

from slipstream.core.events import ClientLeft, ClientWaits, Event
from slipstream.protocol.ids import STORED
from slipstream.protocol.messages import (
    Cancel,
    ClientMessage,
    Expect,
    Missed,
    Notice,
    Provide,
    Release,
    Submit,
    TaskRunning,
    TaskSucceeded,
    ValueLost,
)

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
    def is_gone(self, payload: bytes) -> bool: ...
    def remove_file(self, payload: bytes) -> None: ...


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
    """A client: it says what it is made to say, and notes what it is told.

    Args:
        cluster: where it is.
        identity: its number.
        requests: carries what it says, if it is a client within a worker.
    """

    def __init__(self, cluster: Surroundings, identity: int, requests: Link | None = None) -> None:
        self.identity = identity
        self.present = True
        self.tasks: dict[int, Submitted] = {}
        self.values: dict[int, Promised] = {}
        #: Tasks that the scheduler would not have, since something that they depend on was no longer there.
        self.refused: dict[int, Submitted] = {}
        #: The final notice of each task, as it came; and all of those whose value was lost.
        self.outcomes: dict[int, Any] = {}
        self.history: dict[int, list[Any]] = {}
        #: Called with each final notice.
        self.on_outcome: Callable[[int], None] = lambda task: None
        self._cluster = cluster
        said = partial(cluster.client_said, identity)
        self.requests = requests or Link(cluster, encode, decode_requests, said)
        self.notices = Link(cluster, encode, decode_notices, self.told)

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
        """Drop futures; and with the last one that takes a value in a file, the file."""
        for task in tasks:
            if task in self.tasks:
                self.tasks[task].released = True
                self._remove_file(task)
        self.requests.send([Release(task) for task in tasks])

    def _remove_file(self, task: int) -> None:
        outcome = self.outcomes.get(task)
        if isinstance(outcome, TaskSucceeded) and outcome.payload[:1] == STORED:
            takers = [other for other, submitted in self.tasks.items() if task in submitted.message.inputs]
            if all(other in self.outcomes for other in takers):
                self._cluster.remove_file(outcome.payload)

    def look_at(self, *tasks: int) -> None:
        """Take the values of these, and say so where one is gone: it comes again, or why it does not."""
        for task in tasks:
            outcome = self.outcomes.get(task)
            held = isinstance(outcome, TaskSucceeded) and not self.tasks[task].released
            if held and self._cluster.is_gone(outcome.payload):
                del self.outcomes[task]
                self.requests.send([Missed(task, outcome.payload)])

    def wait(self) -> None:
        """Begin to wait for a result, as the scheduler will hear after what was sent before."""
        if self.present:
            event = ClientWaits(self.identity)
            self._cluster.timeline.at(self.requests.quiet_at, partial(self._cluster.happens, event))

    def leave(self) -> None:
        """Go away. What was sent before arrives before that is known."""
        self.present = False
        self._cluster.timeline.at(self.requests.quiet_at, partial(self._cluster.happens, ClientLeft(self.identity)))

    def told(self, notices: list[Any]) -> None:
        """Note what happened to its tasks."""
        if not self.present:
            return
        for notice in notices:
            if isinstance(notice, TaskRunning) or self._is_of_a_value(notice):
                continue
            before = self.outcomes.get(notice.task)
            again = isinstance(before, TaskSucceeded | ValueLost) and self.has_lost(notice.task)
            if before is not None and not again:
                raise AssertionError(f"told {notice} after {before}")
            self.outcomes[notice.task] = notice
            self.history.setdefault(notice.task, []).append(notice)
            self.on_outcome(notice.task)

    def _is_of_a_value(self, notice: Any) -> bool:
        """Whether it says that a value that was promised, and provided, is gone."""
        if notice.task not in self.values:
            return False
        value = self.values[notice.task].value
        if not isinstance(notice, ValueLost) or value is None or not self._cluster.is_gone(value):
            raise AssertionError(f"told {notice} of {value}")
        return True

    def has_lost(self, task: int) -> bool:
        """Whether a value is gone that a task has had."""
        values = [notice.payload for notice in self.history.get(task, []) if isinstance(notice, TaskSucceeded)]
        return any(map(self._cluster.is_gone, values))
