"""The manual clock of a simulation, and connections whose messages take time on it."""

import heapq
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from slipstream.protocol.frames import FrameReader, frame_header
from slipstream.protocol.messages import Message

US = 1_000
MS = 1_000_000


def some(dice: random.Random, most: int) -> int:
    """A time up to `most`, in ns; short ones are more likely."""
    return int(most * dice.random() ** 3)


class Timeline:
    """The manual clock, and what is to happen when."""

    def __init__(self) -> None:
        self.now = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(time_ns, self.now), self._count, action))

    def after(self, delay_ns: int, action: Callable[[], None]) -> None:
        self.at(self.now + delay_ns, action)

    def run(self, limit: int) -> None:
        """Let things happen until nothing more is to happen.

        Raises:
            RuntimeError: After `limit` actions; something goes round in circles.
        """
        while self._queue:
            self.now, _, action = heapq.heappop(self._queue)
            action()
            limit -= 1
            if limit < 0:
                raise RuntimeError(f"still busy at {self.now} ns")


class Conditions(Protocol):
    """What decides how long a piece of a frame takes: at most `delay_ns`."""

    dice: random.Random
    timeline: Timeline
    delay_ns: int


class Link:
    """One direction of a connection: messages go in, and come out later, in order and whole, unless it is cut."""

    def __init__(
        self,
        conditions: Conditions,
        encode: Callable[[Sequence[Any]], bytes],
        decode: Callable[[bytes], list[Any]],
        receive: Callable[[list[Any]], None],
    ) -> None:
        self._conditions, self._encode, self._decode, self._receive = conditions, encode, decode, receive
        self._reader = FrameReader()
        self._cut = False
        #: When everything that was sent will have arrived.
        self.quiet_at = 0

    def send(self, messages: Sequence[Message]) -> None:
        body = self._encode(messages)
        stream = frame_header(len(body)) + body
        dice, timeline = self._conditions.dice, self._conditions.timeline
        cuts = sorted(dice.randrange(len(stream) + 1) for _ in range(dice.choice((0, 0, 1, 2))))
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            self.quiet_at = max(self.quiet_at, timeline.now + some(dice, self._conditions.delay_ns))
            timeline.at(self.quiet_at, partial(self._arrive, stream[start:end]))

    def cut(self) -> None:
        """What has not arrived is lost, perhaps in the middle of a frame."""
        self._cut = True

    def _arrive(self, piece: bytes) -> None:
        while piece and not self._cut:
            target = self._reader.target()
            count = min(len(piece), len(target))
            target[:count] = piece[:count]
            piece = piece[count:]
            for body in self._reader.received(count):
                self._receive(self._decode(body))
