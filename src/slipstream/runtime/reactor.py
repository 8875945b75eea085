"""Who reads, and when: leader and follower.

A thread that waits for a result reads the workers' sockets itself, if no other thread does: a hand-over between two
threads costs 15 µs, as much as the round trip to the worker. Where nobody waits, the I/O thread reads.

The pool's descriptors sit in an inner epoll. The I/O thread waits on an outer one that holds the inner and a kick. A
leader takes `reading` without blocking and disarms the inner in the outer, once; it does not arm it again when it
leaves, since then the I/O thread takes a fifth of the replies (2,100 wake-ups in 10,000, 80-100 µs each). Instead the
I/O thread, kicked at the disarming, ticks while leaders come and go; after a tick without one it arms the inner
again; while one stays it parks. A follower sleeps on a lock of its own and is promoted when the leader leaves. Should
a promotion get lost, the I/O thread reads after its tick: nothing depends on it but speed.

Nothing outstanding means: armed, no timer, so no wake-up at all.
"""

import contextlib
import select
import time
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Callable

from slipstream.pools.base import Pool
from slipstream.pools.wakeup import Wakeup
from slipstream.runtime import signals

_NEVER = 1 << 62
_TICK_S = 0.001
#: What waits longer looks at the clock in between: epoll counts milliseconds in 32 bits.
_LONGEST_S = 1e6


class Sleeper:
    """One thread's wait for one change. `release` may be called once, from any thread."""

    __slots__ = ("lock", "over", "pool", "woken")

    def __init__(self) -> None:
        self.lock = allocate_lock()
        self.lock.acquire()
        #: What the thread waits for has come.
        self.woken = False
        #: The thread does not wait any more.
        self.over = False
        #: While the thread leads and is blocked there: what to wake.
        self.pool: Pool | None = None

    def release(self) -> None:
        """What the thread waits for has come."""
        self.woken = True
        self.promote()
        pool = self.pool
        if pool is not None:
            pool.wake()

    def promote(self) -> None:
        """Let the thread look again whether it should lead."""
        try:
            self.lock.release()
        except RuntimeError:  # it was promoted and has not looked yet; `suppress` costs 0.5 µs
            return


class Reactor:
    """Decides who reads from the pool.

    Args:
        pool: what is read from.
        step: reads what is there and runs a turn with it; to be called with `reading` held.
    """

    def __init__(self, pool: Pool, step: Callable[[], None]) -> None:
        self.wakeups = 0
        #: No thread may lead any more; what waits will be woken by the I/O thread.
        self.closed = False
        #: Held by the thread that reads.
        self.reading = allocate_lock()
        self._pool = pool
        self._step = step
        self._pool_descriptor = pool.fileno()
        self._outer = select.epoll()
        #: None once the reactor is closed.
        self._kick: Wakeup | None = Wakeup()
        self._outer.register(self._pool_descriptor, select.EPOLLIN)
        self._outer.register(self._kick.descriptor, select.EPOLLIN)
        #: Whether the I/O thread reads. Changed with `reading` held.
        self._armed = True
        #: The thread that leads, and how many have led so far.
        self._leader = 0
        self._epoch = 0
        self._seen_epoch = 0
        self._parked = False
        self._followers: deque[Sleeper] = deque()
        #: When the I/O thread will look at its timers by itself, in ns; and when it has to.
        self._sleeps_until = 0
        self._wake_at = _NEVER

    # --- any thread ---------------------------------------------------------------------------------------------------

    def set_timer(self, wake_at: int | None) -> None:
        """Have the I/O thread wake up at this time at the latest, in ns; None for no time."""
        at = _NEVER if wake_at is None else wake_at
        self._wake_at = at
        if at < self._sleeps_until:
            self._sleeps_until = at
            self.kick()

    def kick(self) -> None:
        """Wake the I/O thread. Also after `close`."""
        kick = self._kick
        if kick is not None:
            kick.set()

    def leads(self) -> bool:
        """Whether the calling thread leads."""
        return self._leader == get_ident()

    def wait_for(self, sleeper: Sleeper, timeout_s: float | None) -> None:
        """Wait until the sleeper is woken, reading meanwhile if no one else does; or until the time is over."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        try:
            while not sleeper.woken:
                left = -1.0 if deadline is None else _left(deadline)
                if left == 0:
                    return
                if not self._lead(sleeper, deadline):
                    self._followers.append(sleeper)
                    signals.wait(sleeper.lock, left)
        finally:
            sleeper.over = True

    # --- leading ------------------------------------------------------------------------------------------------------

    def _lead(self, sleeper: Sleeper, deadline: float | None) -> bool:
        """Read until the sleeper is woken or the time is over; false if this thread cannot lead."""
        if self.closed:
            return False
        if self.reading.acquire(False):
            if self.closed:  # since then
                self.reading.release()
                return False
            self._leader = get_ident()
            self._epoch += 1
            try:
                if self._armed:
                    self._armed = False
                    self._outer.modify(self._pool_descriptor, 0)
                    self.kick()
                self._lead_until(sleeper, deadline)
            finally:
                self._end_leading()
        elif self._leader == get_ident():  # in a signal handler, which runs while this thread is blocked below
            self._lead_until(sleeper, deadline)
            self._pool.wake()  # the wait that was interrupted may be over by now
        else:
            return False
        return not self.closed

    def _end_leading(self) -> None:
        self._leader = 0
        self._epoch += self._parked  # so that the I/O thread ticks once more, and who is promoted comes first
        self.reading.release()
        if self._parked:
            self._parked = False
            self.kick()
        if self._followers:
            self._promote()

    def _lead_until(self, sleeper: Sleeper, deadline: float | None) -> None:
        pool, step = self._pool, self._step
        while not (sleeper.woken or self.closed):
            left = -1.0 if deadline is None else _left(deadline)
            if left == 0:
                return
            sleeper.pool = pool
            if sleeper.woken:
                return
            blocked = False
            try:
                blocked = signals.begin_block()
                pool.wait(left)
            except OSError:
                if self.closed:
                    return  # a signal handler has ended the engine, and with it what was waited on
                raise
            finally:
                if blocked:
                    signals.end_block()
                sleeper.pool = None
            step()

    def _promote(self) -> None:
        followers = self._followers
        with contextlib.suppress(IndexError):
            while (follower := followers.popleft()).over or follower.woken:
                pass
            follower.promote()

    # --- the I/O thread -----------------------------------------------------------------------------------------------

    def run_once(self) -> None:
        """Wait until there is something to do, and read if it is this thread's to read."""
        timeout_s = self._until_timer()
        if not self._armed:
            timeout_s = self._follow_leaders(timeout_s)
        try:
            ready = [descriptor for descriptor, _ in self._outer.poll(timeout_s)]
        finally:
            self._sleeps_until = 0
            self._parked = False
        self.wakeups += 1
        if self._kick is not None and self._kick.descriptor in ready:
            self._kick.clear()
        if self._pool_descriptor in ready and self.reading.acquire(blocking=False):
            try:
                self._step()
            finally:
                self.reading.release()

    @property
    def due(self) -> bool:
        """Whether the timer's time has come."""
        return time.monotonic_ns() >= self._wake_at

    def _until_timer(self) -> float:
        while True:
            at = self._wake_at
            self._sleeps_until = at
            if at == self._wake_at:  # else it was set just now, by a thread that did not see for how long we sleep
                break
        return -1 if at == _NEVER else max(0.0, (at - time.monotonic_ns()) / 1e9)

    def _follow_leaders(self, timeout_s: float) -> float:
        """For how long to wait while other threads read, or have read just now."""
        epoch, self._seen_epoch = self._seen_epoch, self._epoch
        if epoch == self._epoch:
            if self.reading.acquire(blocking=False):
                try:
                    self._armed = True
                    self._outer.modify(self._pool_descriptor, select.EPOLLIN)
                finally:
                    self.reading.release()
                return timeout_s
            self._parked = True
            if self.reading.locked():
                return timeout_s  # the leader looks at `_parked` after it has let go
            self._parked = False
        return _TICK_S if timeout_s < 0 else min(timeout_s, _TICK_S)

    def step_aside(self) -> bool:
        """Let others read although this thread leads: in a signal handler that waits for something else."""
        if not self.leads():
            return False
        self._end_leading()
        return True

    def step_back(self) -> None:
        """Lead on."""
        self.reading.acquire()
        self._leader = get_ident()

    def let_go(self) -> None:
        """After `stop_leaders`, when all is over: whoever stepped aside may come back, and finds it closed."""
        if self.reading.locked():
            self.reading.release()

    def stop_leaders(self) -> None:
        """Read no more in other threads: returns with `reading` held."""
        self.closed = True
        self._pool.wake()
        self.reading.acquire()
        while self._followers:
            self._promote()

    def close(self) -> None:
        """Close descriptors only."""
        self._kick = None
        self._outer.close()

    def abandon(self) -> None:
        """The same in a forked child."""
        self.closed = True
        self.close()


def _left(deadline: float) -> float:
    """Seconds until then: 0 if it is over."""
    return min(max(deadline - time.monotonic(), 0.0), _LONGEST_S)
