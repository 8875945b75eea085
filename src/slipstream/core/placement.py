"""Which worker gets which task, and when: once per turn, at a cost in proportion to what is assigned.

The rules, each with its reason:

- Prefetch by measured time. A worker is filled to HIGH_WATER_NS of work and again below LOW_WATER_NS, which is longer
  than the 5 ms that the reading thread may wait for the interpreter lock. A callable that was never measured counts as
  a full worker, so it gets one task at a time; so does a task that is suspected of having ended a worker.
- Few turns that send. A turn with client events only sends to a *hungry* worker: one that has at most one task. The
  rest leaves with a worker's next report, when GATHER tasks have come since the last send, or GATHER_NS after the first
  of them. (A frame at each submit cost 20-33 µs a task in a bag of 100,000; with this rule 10-13.)
- A stream of short tasks travels in frames worth their cost. While a client submits one task after another, faster
  than it could wait for any, and more tasks are live than there are workers, nothing is sent before GATHER tasks or
  WORTH_NS of work have come together: not to a hungry worker, and not with a report. GATHER_NS later, or when a
  client begins to wait, it is. (A machine whose cores are taken ran a bag of 100,000 in 24,000 frames of four tasks,
  at twice the time.)
- Workers sit in buckets by how much they have, so nothing here walks over all workers or all READY tasks. (One loop
  over workers per turn took the scheduler from 3 to 14 µs a task at 100 workers.)
- Of idle workers the one that idles since the shortest time is served first: its caches are warm. (One task at a time
  took 10 to 15 % longer where two workers took turns.)
- A task that waits for nothing but results of one worker is sent there ahead of them: a chain runs with no round trip
  per link. It counts as work like any other. Those whose callable was never measured, and those with less priority than
  what is READY, wait until they are READY themselves.
- A worker whose task waits for others leaves its slot to another one, until there are as many as there may be (see
  `slots`). Those that are more than there are slots take nothing.
- When nothing is READY and a worker idles, tasks are asked back from one that has work for a while. They stay its tasks
  until it answers.

Never here: what becomes of a task. This module decides; the scheduler's steps change states.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from slipstream.core.durations import Durations
from slipstream.core.ready import ReadyQueue
from slipstream.core.slots import Slots
from slipstream.core.states import ASSIGNED, WAITING
from slipstream.core.tasks import Task, Worker
from slipstream.protocol.ids import WorkerId

HIGH_WATER_NS = 15_000_000
LOW_WATER_NS = 7_000_000
#: A worker holds at most this many tasks, and is refilled when half of them are done.
MAX_PREFETCH = 256
REFILL_BELOW = MAX_PREFETCH // 2
GATHER = 64
GATHER_NS = 1_000_000
#: A frame costs the client some 30 µs, and the worker as much.
WORTH_NS = 300_000
#: Submissions that follow each other faster than this, in the mean, are a stream.
STREAM_GAP_NS = 200_000
#: A longer pause counts as this one.
LONGEST_GAP_NS = 8 * STREAM_GAP_NS
#: Less estimated work than this is done before a retraction is answered.
RETRACT_WORTH_NS = 5_000_000


class Placement:
    """The workers, by how much they have to do."""

    def __init__(
        self,
        durations: Durations,
        slots: Slots,
        assign: Callable[[Task, Worker], None],
        retract: Callable[[Worker, list[Task]], None],
        home_of: Callable[[Task], Worker | None],
    ) -> None:
        self.workers: dict[WorkerId, Worker] = {}
        #: Open workers with no task, with one, and with more but below the low water. Each worker is in one or none.
        self.idle: dict[WorkerId, Worker] = {}
        self.single: dict[WorkerId, Worker] = {}
        self.roomy: dict[WorkerId, Worker] = {}
        #: Workers that tasks may be asked back from.
        self.loaded: dict[WorkerId, Worker] = {}
        #: Workers that were asked and have not answered.
        self.asked: set[WorkerId] = set()
        #: Workers that changed in this turn, to be put into their buckets before placement.
        self.touched: dict[WorkerId, Worker] = {}
        #: Workers whose followers are to be looked at in this turn, and those that have some and gather more.
        self.followed: dict[WorkerId, Worker] = {}
        self.gathering: dict[WorkerId, Worker] = {}
        #: When READY tasks that a client turn left behind are sent at the latest, in ns; and when followers are.
        self.deadline: int | None = None
        self.follow_deadline: int | None = None
        self._estimate = durations.estimate
        self._slots = slots
        self._assign = assign
        self._retract = retract
        self._home_of = home_of
        #: Number of READY tasks after the last pass over all buckets.
        self._left = 0
        #: When a client submitted last, and the running mean of the gaps between, in ns.
        self._submitted_at = 0
        self._gap = STREAM_GAP_NS

    def join(self, worker: Worker) -> None:
        """A new worker takes part."""
        self.workers[worker.worker] = worker
        self.touched[worker.worker] = worker
        self._slots.join()

    def leave(self, worker: Worker) -> None:
        """A worker takes part no more. Its tasks have been taken from it."""
        identity = worker.worker
        del self.workers[identity]
        for bucket in (self.idle, self.single, self.roomy, self.loaded, self.touched, self.followed, self.gathering):
            bucket.pop(identity, None)
        self.asked.discard(identity)
        self._use(self._slots.leave(worker))

    def block(self, worker: Worker) -> None:
        """A worker's task waits for others."""
        self._use(self._slots.block(worker))

    def resume(self, worker: Worker) -> None:
        """It does not wait any more. If somebody idles in its slot, that one is parked."""
        self._slots.resume(worker)
        if self.idle and self._slots.over:
            self._put(next(iter(self.idle.values())))

    def _use(self, spare: Worker | None) -> None:
        if spare is not None:
            self.touched[spare.worker] = spare

    def follow(self, task: Task, worker: Worker) -> None:
        """A WAITING task waits for nothing but results of this worker."""
        worker.followers.append(task)
        self.followed[worker.worker] = worker

    @property
    def wake_at(self) -> int | None:
        """When placement is due at the latest."""
        if self.deadline is None or self.follow_deadline is None:
            return self.deadline if self.follow_deadline is None else self.follow_deadline
        return min(self.deadline, self.follow_deadline)

    def submitted(self, now: int) -> None:
        """Take note of a turn in which a client submitted something."""
        gap = now - self._submitted_at
        self._submitted_at = now
        self._gap += ((gap if gap < LONGEST_GAP_NS else LONGEST_GAP_NS) - self._gap) >> 3

    def place(self, ready: ReadyQueue, now: int, live: int, *, eager: bool, flush: bool) -> None:
        """Assign what is to be assigned in this turn.

        Args:
            ready: the READY tasks.
            now: the time in ns.
            live: how many tasks have not ended.
            eager: whether to fill every worker with room, since a worker reported; else only hungry ones are served.
            flush: whether to hold nothing back, since a client waits.
        """
        if self.touched:
            for worker in self.touched.values():
                self._put(worker)
                if worker.followers:
                    self.followed[worker.worker] = worker
            self.touched.clear()
        if ready.live:
            due = flush or (self.deadline is not None and now >= self.deadline)
            if not due and live > len(self.workers) and self._streaming(now) and not self._worth_a_frame(ready):
                if self.deadline is None:
                    self._set_deadline(now)
            elif eager or due or ready.live - self._left >= GATHER:
                self._fill(ready, (self.single, self.roomy))
                self._left = ready.live
                self.deadline = None
            else:
                self._serve_hungry(ready, now)
        if not ready.live:
            self.deadline = None
            self._left = 0
            if self.idle and self.loaded:
                self._balance()
        # Last, since what was assigned just now has followers, and what is asked back has none.
        if self.followed or (self.follow_deadline is not None and (eager or flush or now >= self.follow_deadline)):
            due = flush or (self.follow_deadline is not None and now >= self.follow_deadline)
            stream = not due and live > len(self.workers) and self._streaming(now)
            self._send_ahead(ready, now, due=due or (eager and not stream), hungry=not stream)

    def _send_ahead(self, ready: ReadyQueue, now: int, *, due: bool, hungry: bool) -> None:
        """Give workers what follows their own tasks.

        Args:
            ready: the READY tasks.
            now: the time in ns.
            due: whether to give to all.
            hungry: whether to give to those that have next to nothing, else only where there is enough for a frame.
        """
        chosen = tuple((self.gathering | self.followed if due else self.followed).values())
        for worker in chosen:
            if due or (hungry and len(worker.tasks) <= 1) or len(worker.followers) >= GATHER:
                self._give_followers(worker, ready)
                self.gathering.pop(worker.worker, None)
            else:
                self.gathering[worker.worker] = worker
        self.followed.clear()
        if not self.gathering:
            self.follow_deadline = None
        elif self.follow_deadline is None:
            self.follow_deadline = now + GATHER_NS

    def _give_followers(self, worker: Worker, ready: ReadyQueue) -> None:
        """As many as fit. What is left is looked at when the worker reports."""
        followers = worker.followers
        if (
            worker.long is not None or worker.held or worker.parked
        ):  # what they wait for ends, or comes back, before there is room
            followers.clear()
            return
        tasks, home_of = worker.tasks, self._home_of
        low = worker.backlog_ns < LOW_WATER_NS and len(tasks) < REFILL_BELOW
        while followers:
            task = followers[0]
            if task.state is WAITING and home_of(task) is worker and not (ready.live and ready.precedes(task.priority)):
                per_item = None if task.suspicions else self._estimate(task.digest)
                if per_item is not None:
                    estimate = per_item * (task.items or 1)
                    full = len(tasks) >= MAX_PREFETCH or worker.backlog_ns + estimate > HIGH_WATER_NS
                    if full or not low:
                        break
                    task.estimate_ns = estimate
                    worker.backlog_ns += estimate
                    self._assign(task, worker)
            followers.popleft()
        self._put(worker)

    def _streaming(self, now: int) -> bool:
        return self._gap < STREAM_GAP_NS and now - self._submitted_at < STREAM_GAP_NS

    def _worth_a_frame(self, ready: ReadyQueue) -> bool:
        if ready.live >= GATHER:
            return True
        per_item = self._estimate(ready.first().digest)
        return per_item is None or ready.live * per_item >= WORTH_NS

    def _serve_hungry(self, ready: ReadyQueue, now: int) -> None:
        if self.idle or self.single:
            self._fill(ready, (self.single,))
        if ready.live and self.deadline is None:
            self._set_deadline(now)

    def _set_deadline(self, now: int) -> None:
        if self.idle or self.single or self.roomy:
            self.deadline = now + GATHER_NS

    def _fill(self, ready: ReadyQueue, busy: tuple[dict[WorkerId, Worker], ...]) -> None:
        """Serve idle workers, and then those of these buckets."""
        idle = self.idle
        candidates = len(idle)
        for bucket in busy:
            candidates += len(bucket)
        if not candidates:
            return
        share = -(-ready.live // candidates)
        while idle:
            worker = next(reversed(idle.values()))
            self._give(worker, ready, share)
            self._put(worker)
            if not ready.live:
                return
        for bucket in busy:
            # Each worker that was in the bucket at the start is served once: it goes to the end of wherever it belongs.
            for _ in range(len(bucket)):
                if not ready.live:
                    return
                worker = next(iter(bucket.values()))
                given = self._give(worker, ready, share)
                self._put(worker)
                if not given:
                    return

    def _give(self, worker: Worker, ready: ReadyQueue, share: int) -> int:
        """Assign up to `share` tasks; fewer when the worker is full. An idle worker takes one, however long."""
        most = min(share, ready.live, MAX_PREFETCH - len(worker.tasks))
        for given in range(most):
            task = ready.take()
            per_item = None if task.suspicions else self._estimate(task.digest)
            estimate = HIGH_WATER_NS if per_item is None else per_item * (task.items or 1)
            if worker.tasks and worker.backlog_ns + estimate > HIGH_WATER_NS:
                ready.put_back(task)
                return given
            task.estimate_ns = estimate
            worker.backlog_ns += estimate
            self._assign(task, worker)
        return most

    def _put(self, worker: Worker) -> None:
        """Put a worker at the end of the bucket where it belongs."""
        identity, count = worker.worker, len(worker.tasks)
        if worker.bucket is not None:
            del worker.bucket[identity]
        bucket: dict[WorkerId, Worker] | None = None
        slots = self._slots
        if worker.parked or (slots.over and worker.long is None):
            slots.park(worker)
        elif not count:
            bucket = self.idle
        elif worker.long is None and not worker.held and worker.backlog_ns < LOW_WATER_NS and count < REFILL_BELOW:
            bucket = self.single if count == 1 else self.roomy
        worker.bucket = bucket
        if bucket is not None:
            bucket[identity] = worker
        if count > 1 and worker.backlog_ns >= RETRACT_WORTH_NS and not worker.retracting:
            self.loaded[identity] = worker
        elif self.loaded:
            self.loaded.pop(identity, None)

    def answered(self, worker: Worker) -> None:
        """The last of the tasks that a worker was asked for has been answered for."""
        self.asked.discard(worker.worker)

    def _balance(self) -> None:
        """Ask the later half of their tasks back, from as many loaded workers as there are idle ones waiting for it."""
        while self.loaded and len(self.asked) < len(self.idle):
            identity, worker = next(iter(self.loaded.items()))
            del self.loaded[identity]
            wanted = list(islice(self._unstarted(worker), len(worker.tasks) // 2))
            if wanted:
                self.asked.add(identity)
                self._retract(worker, wanted)

    @staticmethod
    def _unstarted(worker: Worker) -> Iterator[Task]:
        """What another worker could run as well, the last first."""
        return (
            task
            for task in reversed(worker.tasks.values())
            if task.state is ASSIGNED and not (task.missing or task.ahead)
        )
