"""What the pool tells the engine: events for the next turn, and who there is to be told something.

Called by whoever reads. Never here: turns, and what follows from an event.
"""

import logging
from collections.abc import Callable

from slipstream.core.events import ClientLeft, Event, FromClient, FromWorker, WorkerEnd, WorkerJoined, WorkerLeft
from slipstream.errors import SlipstreamError, WorkerLost
from slipstream.pools.base import Pool, WorkerInfo
from slipstream.protocol.codec import decode_reports, decode_requests, is_request
from slipstream.protocol.frames import ProtocolError
from slipstream.protocol.ids import ClientId, SlotId, WorkerId
from slipstream.protocol.messages import Environment, Storage
from slipstream.runtime.guests import Guests
from slipstream.runtime.outbox import Outbox
from slipstream.runtime.traffic import Traffic
from slipstream.store.payload import STORED_START
from slipstream.store.values import Values, own_result

logger = logging.getLogger(__name__)


class Arrivals:
    """The engine's `EventSink`.

    Args:
        values: where large values go.
        guests: the tasks of workers that are clients.
        traffic: counts frames.
        fail: called if no task can run any more.
    """

    def __init__(
        self, values: Values, guests: Guests, traffic: Traffic, fail: Callable[[SlipstreamError], None]
    ) -> None:
        #: Of the workers that are up.
        self.outboxes: dict[WorkerId, Outbox] = {}
        #: Workers that were told to leave, so that nothing is lost with them.
        self.dismissed: set[WorkerId] = set()
        #: What a new worker is told first. Both are set before there is one.
        self.environment = Environment(())
        self.pool: Pool | None = None
        self._values = values
        self._guests = guests
        self.traffic = traffic
        self._fail = fail
        self._inbox: list[Event] = []
        #: No more tasks are taken, so workers leave.
        self.closing = False

    def take(self) -> list[Event]:
        """The events since the last call."""
        events, self._inbox = self._inbox, []
        return events

    def joined(self, slot: SlotId, worker: WorkerInfo) -> None:
        """A worker is up."""
        logger.debug("worker %d joined: process %d", slot, worker.pid)
        assert self.pool is not None
        identity = WorkerId(slot)
        outbox = self.outboxes[identity] = Outbox(self.pool, slot)
        outbox.commands.append(self.environment)  # after it can be found: else a change might be missed
        try:
            run = self._values.run()
        except OSError as error:  # results travel through the socket then, however large
            logger.warning("%s", error)
        else:
            self.pool.guard((run.path, run.spill))
            outbox.commands.append(Storage(run.path, run.spill, str(slot), run.floor, self._values.inline_bytes))
        self._inbox.append(WorkerJoined(identity))

    def received(self, slot: SlotId, body: bytes) -> None:
        """A frame came from a worker."""
        self.traffic.frames_received += 1
        self.traffic.bytes_received += len(body)
        try:
            if is_request(body):
                requests = self._guests.take(WorkerId(slot), decode_requests(body))
                self._inbox.append(FromClient(ClientId(slot), requests))
                return
            reports = decode_reports(body)
            if STORED_START in body:  # a quick look: few other frames have such bytes
                reports = [own_result(report) for report in reports]
            self._inbox.append(FromWorker(WorkerId(slot), reports))
        except ProtocolError as error:
            logger.error("worker %d sent what it must not, and is killed: %s", slot, error)
            if self.pool is not None:
                self.pool.stop(slot, kill=True, reason=str(error))

    def left(self, slot: SlotId, end: WorkerEnd) -> None:
        """A worker is gone."""
        logger.debug("worker %d left: %s", slot, end.reason)
        identity = WorkerId(slot)
        self.traffic.workers_lost += not (self.closing or identity in self.dismissed)
        self.dismissed.discard(identity)
        self._inbox.append(WorkerLeft(identity, end))
        if self._guests.leave(identity):
            self._inbox.append(ClientLeft(ClientId(slot)))
        self.traffic.add(self.outboxes.pop(identity))
        self._values.worker_left(str(slot))

    def broken(self, reason: str) -> None:
        """The pool cannot work any more."""
        self._fail(WorkerLost(f"the executor cannot run tasks any more: {reason}"))

    def close(self) -> None:
        """The engine is over, and so are all workers."""
        for outbox in self.outboxes.values():
            self.traffic.add(outbox)
        self.outboxes.clear()
