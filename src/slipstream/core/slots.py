"""How many workers run tasks at a time, and what becomes of the others.

A worker whose task waits for tasks that it has submitted itself is blocked: it needs no processor, so another worker
has its slot. That may be one that was parked, which is what happens to workers when there are more than slots;
otherwise the pool is to start one. Nothing hangs as long as one worker is not blocked, so the last one that there may
be must not be.

Never here: which worker gets which task (see `placement`).
"""

from slipstream.core.effects import Effects
from slipstream.core.tasks import Worker
from slipstream.protocol.ids import WorkerId


class Slots:
    """Counts of workers.

    Args:
        slots: how many are to run tasks at a time; 0 for all that there are.
        most: how many there may be; 0 for no limit.
    """

    __slots__ = ("_dismissed", "_slots", "_told", "_wanted", "active", "blocked", "changed", "most", "parked")

    def __init__(self, slots: int, most: int) -> None:
        self.most = most
        #: Workers that may take tasks, that are blocked, and that are parked.
        self.active = 0
        self.blocked = 0
        self.parked: dict[WorkerId, Worker] = {}
        #: There is something to tell.
        self.changed: bool = False
        self._slots = slots
        #: How many there should be, and how many that were when it was told last.
        self._wanted: int = slots
        self._told: int = slots
        self._dismissed: list[WorkerId] = []

    @property
    def over(self) -> bool:
        """Whether more workers are active than there are slots."""
        return self.active > self._slots > 0

    @property
    def free(self) -> bool:
        """Whether fewer workers are active than there are slots."""
        return self.active < self._slots

    def join(self) -> None:
        """There is one more."""
        self.active += 1

    def leave(self, worker: Worker) -> Worker | None:
        """A worker, which is not blocked any more, is gone. Who is to take its place, if anyone is there."""
        if worker.parked:
            self.parked.pop(worker.worker, None)
        else:
            self.active -= 1
        return self._fill()

    def may_block(self) -> bool:
        """Whether one more worker may wait for others: one must be left that does not."""
        return not self.most or self.blocked + 1 < self.most

    def block(self, worker: Worker) -> Worker | None:
        """A worker waits for others. Who is to take its place, if anyone is there."""
        worker.blocked = True
        self.blocked += 1
        if worker.parked:
            self._take_back(worker)
        self.active -= 1
        return self._fill()

    def resume(self, worker: Worker) -> None:
        """A worker that was blocked goes on."""
        if worker.blocked:
            worker.blocked = False
            self.blocked -= 1
            self.active += 1
            self._want()

    def park(self, worker: Worker) -> None:
        """A worker is one too many: it takes nothing, and is dismissed if it has nothing, and enough others wait."""
        if not worker.parked:
            worker.parked = True
            self.active -= 1
            self.parked[worker.worker] = worker
        if not worker.tasks and len(self.parked) > self._slots and worker.worker in self.parked:
            del self.parked[worker.worker]
            self._dismissed.append(worker.worker)
        self._want()

    def tell(self, effects: Effects) -> None:
        """Say what has changed since the last time."""
        if self._wanted != self._told:
            effects.wanted = self._wanted
            self._told = self._wanted
        effects.dismissed, self._dismissed = self._dismissed, []
        self.changed = False

    def _fill(self) -> Worker | None:
        """Take a parked worker back where a slot is free."""
        spare: Worker | None = None
        if self.parked and self.free:
            spare = next(iter(self.parked.values()))
            self._take_back(spare)
        self._want()
        return spare

    def _take_back(self, worker: Worker) -> None:
        del self.parked[worker.worker]
        worker.parked = False
        self.active += 1

    def _want(self) -> None:
        if not self._slots:  # as many as there are
            return
        wanted = self._slots + self.blocked + min(len(self.parked), self._slots)
        if self.most:
            wanted = min(wanted, self.most)
        self._wanted = wanted
        self.changed = wanted != self._told or bool(self._dismissed)
