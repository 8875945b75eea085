"""The engine: turns of the scheduler, and what carries their effects out.

A turn takes the lock, feeds events, files the effects and releases the lock; then frames are sent and futures
resolved. Nothing blocks under the lock, no result is set and no callback runs under it. `submit` runs a turn in the
caller's thread, so an idle worker has its task without a thread hop; all that comes from workers is fed by the I/O
thread.

Rules of this file: every way out of the engine ends every pending future. What is called from the main thread is called
between `signals.enter` and `signals.leave`.
"""

import logging
import sys
import threading
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic_ns

from slipstream.core.effects import Effects
from slipstream.core.events import ClientWaits, Event, FromClient
from slipstream.core.scheduler import Scheduler
from slipstream.errors import InternalError, SlipstreamError
from slipstream.pools.base import Pool
from slipstream.protocol.ids import MAIN_CLIENT, SlotId, TaskId, WorkerId
from slipstream.protocol.messages import (
    Cancel,
    ClientMessage,
    Environment,
    Expect,
    Missed,
    Provide,
    Release,
    Submit,
)
from slipstream.runtime import lifetime, signals
from slipstream.runtime.arrivals import Arrivals
from slipstream.runtime.guests import Guests
from slipstream.runtime.reactor import Reactor, Sleeper
from slipstream.runtime.sides import Client
from slipstream.runtime.supervisor import start_thread
from slipstream.runtime.traffic import Traffic
from slipstream.store.values import Values

logger = logging.getLogger(__name__)


class Engine:
    """One scheduler, one pool, the threads between them.

    Args:
        make_pool: makes the pool when the first task is submitted; until then nothing is started or opened.
        workers: how many workers to keep.
        client: the client of this process.
        values: where large values go; by default it has a place of its own.
        max_processes: how many workers there may be, with those whose tasks wait for others.
    """

    def __init__(
        self,
        make_pool: Callable[[], Pool],
        workers: int,
        client: Client,
        values: Values | None = None,
        max_processes: int = 0,
    ) -> None:
        self.workers = workers
        self._values = values or Values()
        self.traffic = Traffic()
        #: Why no task can run any more, once that is so.
        self.error: SlipstreamError | None = None
        self._make_pool = make_pool
        self._client = client
        self._scheduler = Scheduler(workers, max_processes)
        self._lock = threading.RLock()  # a finalizer may run before `_owner` is set
        #: The thread inside the lock: a finalizer that the collector runs there may come back in.
        self._owner = 0
        #: Events of such a finalizer, fed after the turn.
        self._deferred: list[Event] = []
        #: Tasks that the main client has released since the last turn.
        self._released: deque[TaskId] = deque()
        self._guests = Guests()
        #: What the pool tells, and who there is to be told something.
        self._arrivals = Arrivals(self._values, self._guests, self.traffic, self._fail)
        self._outboxes = self._arrivals.outboxes
        self._sys_path: list[str] = []
        self._pool: Pool | None = None
        self._reactor: Reactor | None = None
        self._thread: threading.Thread | None = None
        #: What the reactor's timer is set to.
        self._wake_at: int | None = None
        #: Started, and taking tasks.
        self._open = False
        #: No more tasks are taken; the I/O thread ends when none is live.
        self._closing = False
        self._ended = False
        self._end_waiters: list[threading.Lock] = []
        self._forked = False
        lifetime.engines.add(self)

    # --- what clients call --------------------------------------------------------------------------------------------

    def submit(self, *messages: Expect | Submit) -> None:
        """Run a turn with a new task of the main client, and values that it expects.

        Raises:
            RuntimeError: After shutdown, or in a forked child.
            SlipstreamError: If the engine is broken; as `error` says.
        """
        self._turn((FromClient(MAIN_CLIENT, messages),), submitting=True)

    def tell(self, message: Provide | Missed) -> None:
        """Run a turn with a value that was expected, or is gone; nothing if the engine was left behind by a fork."""
        if not self._forked:
            self._turn((FromClient(MAIN_CLIENT, (message,)),))

    #: A turn is over when the call that began it returns.
    answers_at_once = True

    @property
    def over(self) -> bool:
        """Whether no more tasks are taken."""
        return self._closing or self._ended or self._forked or self.error is not None

    def refuse_if_over(self) -> None:
        """Raise what `submit` would raise now, whatever the task."""
        if self._forked:
            raise RuntimeError(_FORKED)
        if self.error is not None:
            raise type(self.error)(str(self.error)) from self.error
        if self._closing or self._ended:
            if lifetime.ending.is_set():
                raise RuntimeError("cannot submit a task while the interpreter ends")
            raise RuntimeError("cannot submit a task after shutdown: make a new Executor")

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Run a turn that cancels those of the tasks that are not assigned yet."""
        self._turn((FromClient(MAIN_CLIENT, [Cancel(task) for task in tasks]),))

    def awaited(self, task: TaskId) -> None:
        """Somebody waits for a future by other means than `wait_for`."""

    def release(self, task: TaskId) -> None:
        """A task with a large result is needed no more. Takes no lock: a finalizer may call this anywhere."""
        self._released.append(task)
        reactor = self._reactor
        if reactor is not None and len(self._released) == 1:
            reactor.kick()

    def close(self) -> None:
        """Take no more tasks, and end when there is none. Takes no lock: a finalizer may call this anywhere."""
        self._closing = self._arrivals.closing = True
        self._open = False
        reactor = self._reactor
        if reactor is not None:
            reactor.kick()

    def cancel_pending(self) -> None:
        """Cancel whatever has not been assigned."""
        pending = self._client.pending()
        if pending and not self._ended:
            self.cancel(pending)

    def wait_ended(self) -> None:
        """Wait until all is over and nothing is left, after `close`."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        waiter = allocate_lock()
        waiter.acquire()
        self._end_waiters.append(waiter)
        reactor = self._reactor
        # In a signal handler, this thread may have been reading: someone else must be able to.
        aside = reactor is not None and reactor.step_aside()
        try:
            if not self._ended:
                signals.wait(waiter)
            thread.join()
        finally:
            if aside and reactor is not None:
                reactor.step_back()

    def wait_for(self, sleeper: Sleeper, timeout_s: float | None) -> None:
        """Wait until the sleeper is woken or the time is over; read results meanwhile, if no other thread does.

        Raises:
            RuntimeError: In the I/O thread, which runs callbacks and has to finish what they would wait for.
        """
        reactor = self._reactor
        if self._thread is not None and self._thread.ident == get_ident():
            raise RuntimeError("a callback cannot wait for another future, since the same thread has to finish it")
        if self._wake_at is not None:  # tasks are held back for a fuller frame
            self._turn((_MAIN_WAITS,))
        if reactor is None:
            signals.wait(sleeper.lock, -1 if timeout_s is None else timeout_s)
        else:
            reactor.wait_for(sleeper, timeout_s)

    def hand_over(self) -> None:
        """Have the I/O thread call `finish_handed_over` of the client."""
        if self._reactor is not None:
            self._reactor.kick()

    def leads(self) -> bool:
        """Whether the calling thread reads in the place of the I/O thread."""
        return self._reactor is not None and self._reactor.leads()

    def may_end(self, task: TaskId) -> bool:
        """Whether the task has still to end. Of one that has not, the future is being told, by another thread."""
        return task in self._scheduler.tasks or self._owner == get_ident()

    def live_tasks(self) -> int:
        """How many tasks have not ended."""
        return self._scheduler.live

    def count(self) -> dict[str, int]:
        """Counters by name."""
        counters, traffic, outboxes = self._scheduler.counters, self.traffic, list(self._outboxes.values())
        return {
            "tasks": counters.submitted,
            "succeeded": counters.succeeded,
            "failed": counters.failed,
            "cancelled": counters.cancelled,
            "run_ns": counters.run_ns,
            **traffic.totals(outboxes),
        }

    def wakeups(self) -> int:
        """How often the I/O thread has woken up."""
        return 0 if self._reactor is None else self._reactor.wakeups

    # --- turns --------------------------------------------------------------------------------------------------------

    def _turn(self, events: Sequence[Event], *, submitting: bool = False) -> None:
        me = get_ident()
        if self._owner == me:
            if submitting:
                self.refuse_if_over()
            self._deferred += events
            return
        if self._forked:
            raise RuntimeError(_FORKED)
        outboxes = self._outboxes
        self._lock.acquire()
        self._owner = me
        try:
            if submitting and (not self._open or sys.path != self._sys_path):
                self._admit()
            self.traffic.turns += 1
            if self._released:
                events = (*events, FromClient(MAIN_CLIENT, self._take_released()))
            try:
                effects = self._scheduler.handle(events, monotonic_ns())
            except BaseException as error:  # noqa: BLE001  # no future may hang for it, whoever threw it in here
                self._scheduler_broke(error)
                effects = _NO_EFFECTS
            for worker, digest in effects.lacking:
                if worker in outboxes:
                    outboxes[worker].known.pop(digest, None)
            for worker, commands in effects.workers.items():
                outbox = outboxes.get(worker)
                if outbox is not None:  # else it has just left, and the scheduler is about to be told
                    outbox.commands += commands
            guests = self._guests.tell(events, effects, outboxes) if self._guests.present else ()
            if effects.wake_at != self._wake_at and self._reactor is not None:
                self._wake_at = effects.wake_at
                self._reactor.set_timer(effects.wake_at)
        finally:
            self._owner = 0
            self._lock.release()
        for worker in effects.workers:
            outbox = outboxes.get(worker)
            if outbox is not None:
                outbox.send()
        for outbox in guests:
            outbox.send()
        if MAIN_CLIENT in effects.clients:
            self._client.deliver(effects.clients[MAIN_CLIENT])
        for client, message in effects.refused:
            if client == MAIN_CLIENT:
                self._client.refused(message)
        if effects.faulty_workers or effects.faulty_clients:
            self._punish(effects)
        if effects.wanted is not None or effects.dismissed:
            self._resize(effects.wanted, effects.dismissed)
        if effects is _NO_EFFECTS:
            self._break()
        if self._deferred:
            deferred, self._deferred = self._deferred, []
            self._turn(deferred)
        if self._closing and not self._scheduler.live and self._reactor is not None:
            self._reactor.kick()  # the I/O thread sleeps until the last task has ended, and that has in another thread

    def _take_released(self) -> list[ClientMessage]:
        taken: list[ClientMessage] = []
        while self._released:
            taken.append(Release(self._released.popleft()))
        return taken

    def _admit(self) -> None:
        self.refuse_if_over()
        if self._thread is None:
            self._start()
        if sys.path != self._sys_path:
            self._send_path()

    def _scheduler_broke(self, error: BaseException) -> None:
        self._fail(error if isinstance(error, InternalError) else _internal(error))
        if not isinstance(error, Exception):
            self._break()
            raise error

    def _punish(self, effects: Effects) -> None:
        """End the endpoints that broke the protocol."""
        for worker, reason in effects.faulty_workers.items():
            logger.error("worker %d broke the protocol, and is killed: %s", worker, reason)
            if self._pool is not None:
                self._pool.stop(SlotId(worker), kill=True, reason=reason)
        for client, reason in effects.faulty_clients.items():
            if client != MAIN_CLIENT:
                logger.error("a task of worker %d broke the protocol, and it is killed: %s", client, reason)
                if self._pool is not None:
                    self._pool.stop(SlotId(client), kill=True, reason=reason)
                continue
            self._fail(InternalError(f"the client of this process broke the protocol: {reason}"))
            self._break()

    def _resize(self, wanted: int | None, dismissed: Sequence[WorkerId]) -> None:
        """Have so many workers, and send those away."""
        pool, reactor = self._pool, self._reactor
        if pool is None or reactor is None or self._ended:
            return
        if wanted is not None:
            pool.keep(wanted)
        for worker in dismissed:
            self._arrivals.dismissed.add(worker)
            pool.stop(SlotId(worker), kill=False)
        if pool.untended:
            reactor.kick()

    def _send_path(self) -> None:
        """The client's import path has changed: tell every worker before its next task."""
        self._sys_path = list(sys.path)
        environment = Environment(tuple(entry for entry in self._sys_path if type(entry) is str))
        self._arrivals.environment = environment
        for outbox in list(self._outboxes.values()):
            outbox.commands.append(environment)

    # --- the I/O thread -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._send_path()
        pool = self._arrivals.pool = self._make_pool()
        try:
            self._reactor = Reactor(pool, self._step)
        except OSError:
            pool.close(kill=True)
            raise
        self._pool = pool
        self._open = True  # before the thread runs: it may break at once
        self._thread = start_thread("io", self._run, self._died)

    def _run(self) -> None:
        pool, reactor = self._pool, self._reactor
        assert pool is not None and reactor is not None
        pool.start(self.workers, self._arrivals)
        while not self._is_over():
            pool.tend()
            reactor.run_once()
            if reactor.due or self._released:
                self._turn(())
            self._client.finish_handed_over()
        self._end()

    def _step(self) -> None:
        """Read what has come and run a turn with it: in the I/O thread, or in one that waits for a result."""
        pool, reactor = self._pool, self._reactor
        assert pool is not None and reactor is not None
        try:
            pool.read_ready()
            events = self._arrivals.take()
            if events:
                self._turn(events)
        except BaseException as error:  # no future may hang for it, whoever threw it into this thread
            self._fail(_internal(error))
            if not isinstance(error, Exception):
                raise
        finally:
            if self.error is not None:
                reactor.closed = True
            if self.error is not None or pool.untended:
                reactor.kick()

    def _is_over(self) -> bool:
        with self._lock:
            if self.error is not None or (self._closing and not self._scheduler.live):
                self._closing = self._arrivals.closing = True
                return True
            return False

    def _end(self) -> None:
        pool, reactor = self._pool, self._reactor
        assert pool is not None and reactor is not None
        try:
            reactor.stop_leaders()
            if self.error is not None:
                self._break()
            self._client.finish_handed_over()
            pool.close(kill=self.error is not None)
            self._arrivals.close()
            self._scheduler.forget_all()
        finally:
            self._values.close()
            reactor.close()
            reactor.let_go()
            self._ended = True
            for waiter in self._end_waiters:
                waiter.release()

    def _died(self, failure: InternalError) -> None:
        self._fail(failure)
        self._closing = True
        if self._ended:  # it died while it ended
            self._break()
        else:
            self._end()

    def _fail(self, error: SlipstreamError) -> None:
        """Note why no task can run any more."""
        self._open = False
        if self.error is None:
            self.error = error

    def _break(self) -> None:
        """End every pending future; the I/O thread then ends the rest."""
        error = self.error or InternalError("the engine broke")
        self._client.fail_all(error)
        if self._reactor is not None:
            self._reactor.kick()

    # --- forks --------------------------------------------------------------------------------------------------------

    def abandon_in_child(self) -> None:
        """In a forked child, where no other thread lives and any lock may be taken: let go of everything."""
        self._forked = True
        self._open = False
        self._thread = None
        if not self._ended:
            self._client.abandon(RuntimeError(_FORKED))
            if self._pool is not None:
                self._pool.abandon()
            if self._reactor is not None:
                self._reactor.abandon()
        self._pool = self._reactor = None


def _internal(error: BaseException) -> InternalError:
    failure = InternalError(f"the scheduler raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


_MAIN_WAITS = ClientWaits(MAIN_CLIENT)
#: Of a turn in which the scheduler broke.
_NO_EFFECTS = Effects()
_FORKED = "this executor belongs to the process that this one was forked from: make a new Executor in the child"
