"""Futures: what the engine tells about a task, as a `concurrent.futures.Future`.

A future is light. The standard one makes a Condition, a list and a deque at once (1,600 bytes, 2.2 µs); here the Condition
is made when someone first asks for it, which `wait` and `as_completed` do and `result()` does not.

Who may write what, and under which lock:

- `_lock`, one for all futures, guards the change of a state, the making of a Condition, and the list of sleepers. A batch
  of results is written under it once. It is re-entrant, since the collector may run a finalizer that comes back here.
- A future that has a Condition changes its state under that one too, as the standard functions expect.
- What is not a builtin scalar is decoded by the thread that first asks for it, once.

Never here: tasks, workers, frames.
"""

import os
import threading
from _thread import LockType, allocate_lock
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import Future as StandardFuture
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, LOGGER, PENDING, RUNNING
from typing import Any, Final, Generic, TypeVar

from slipstream.errors import DependencyError, WorkerLost
from slipstream.protocol.ids import TaskId
from slipstream.protocol.messages import (
    InputFailed,
    Notice,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
)
from slipstream.runtime import signals
from slipstream.runtime.engine import Engine
from slipstream.serde.exceptions import decode_exception
from slipstream.serde.values import decode_value, is_scalar

T = TypeVar("T")

_ENDED: Final = frozenset({CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED})
#: How many results are written under the lock at a time: about 50 µs.
_BATCH = 256

_lock = threading.RLock()


class Future(StandardFuture[T], Generic[T]):
    """The result of a task, now or later. Made by `Executor.submit`.

    It is a `concurrent.futures.Future` in all respects: the standard `wait` and `as_completed` take it, callbacks run in
    the engine's thread, `cancel()` succeeds until the task has been assigned to a worker.

    Example:
        >>> from slipstream import Executor
        >>> with Executor(max_workers=1) as executor:
        ...     future = executor.submit(pow, 2, 10)
        ...     future.result()
        1024
    """

    __slots__ = (
        "_decoding",
        "_done_callbacks",
        "_exception",
        "_failed",
        "_label",
        "_own_condition",
        "_payload",
        "_result",
        "_sleepers",
        "_state",
        "_table",
        "_task",
        "_waiters",
        "duration_ns",
        "failures",
    )

    #: Set once the task has succeeded: what the worker measured, in ns; and of a map chunk the items that raised.
    duration_ns: int
    failures: tuple[tuple[int, bytes], ...]

    def __init__(self, table: "FutureTable | None" = None, task: TaskId = TaskId(0), label: str = "") -> None:  # noqa: B008
        # The standard constructor is not called: what it makes at once is made when needed.
        self._table = table
        self._task = task
        self._label = label
        self._state = PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        #: The encoded result, or exception if `_failed`, until someone asks.
        self._payload: bytes | None = None
        self._failed = False
        self._decoding = False
        self._sleepers: list[LockType] | None = None
        self._own_condition: threading.Condition | None = None
        self._done_callbacks: list[Callable[[StandardFuture[T]], object]] = _NO_CALLBACKS

    def __repr__(self) -> str:
        return f"<Future of task {self._task} {self._label!r}: {self._state.lower()}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} cannot be pickled: pass its result, or do not refer to it from what a task takes along")

    # --- the standard interface ---------------------------------------------------------------------------------------

    @property
    def _condition(self) -> threading.Condition:  # pyright: ignore[reportIncompatibleVariableOverride]
        """What the standard functions wait on."""
        condition = self._own_condition
        if condition is None:
            shielded = signals.enter()
            try:
                with _lock:
                    condition = self._own_condition
                    if condition is None:
                        self._waiters: list[Any] = []
                        condition = self._own_condition = threading.Condition()
            finally:
                if shielded:
                    signals.leave()
        return condition

    def cancel(self) -> bool:
        """Cancel the task, unless it has been assigned to a worker.

        Returns:
            Whether the task is cancelled.
        """
        if self._table is None:
            return super().cancel()
        if self._state not in _ENDED:
            return self._table.cancel(self)
        return self.cancelled()

    def cancelled(self) -> bool:
        """Whether the task was cancelled."""
        return self._state in (CANCELLED, CANCELLED_AND_NOTIFIED)

    def running(self) -> bool:
        """Whether the task is known to run: a worker says so after 5 ms, of shorter ones only the end is told."""
        return self._state == RUNNING

    def done(self) -> bool:
        """Whether the task has ended, in whatever way."""
        return self._state in _ENDED

    @property
    def succeeded(self) -> bool:
        """Whether the task has ended with a result."""
        return self._state == FINISHED and not self._failed

    def result(self, timeout: float | None = None) -> T:
        """Wait for the task's result.

        Args:
            timeout: seconds to wait at most; None waits as long as it takes.

        Raises:
            TimeoutError: The task has not ended in time. It goes on.
            CancelledError: The task was cancelled.
            Exception: Whatever the task raised.
        """
        if self._state not in _ENDED:
            self._wait(timeout)
        if self._payload is not None:
            self._decode()
        if self._state != FINISHED:
            raise CancelledError
        if self._exception is not None:
            try:
                raise self._exception
            finally:
                self = None  # noqa: PLW0642  # else the traceback refers to this frame, and the frame to the future
        return self._result

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the task's end; what it raised, or None.

        Args:
            timeout: seconds to wait at most; None waits as long as it takes.

        Raises:
            TimeoutError: The task has not ended in time. It goes on.
            CancelledError: The task was cancelled.
        """
        if self._state not in _ENDED:
            self._wait(timeout)
        if self._payload is not None:
            self._decode()
        if self._state != FINISHED:
            raise CancelledError
        return self._exception

    def add_done_callback(self, fn: Callable[[StandardFuture[T]], object]) -> None:
        """Have `fn(future)` called when the task has ended: in the engine's thread, or at once if it has ended already.

        What it raises is logged. It must not wait for other futures, which the same thread would have to finish.
        """
        shielded = signals.enter()
        try:
            with _lock:
                if self._state not in _ENDED:
                    if self._done_callbacks is _NO_CALLBACKS:
                        self._done_callbacks = []
                    self._done_callbacks.append(fn)
                    return
        finally:
            if shielded:
                signals.leave()
        self._call(fn)

    # --- waiting and decoding -----------------------------------------------------------------------------------------

    def _wait(self, timeout: float | None) -> None:
        if self._table is not None and self._table.in_reader():
            raise RuntimeError(f"{self!r}: a callback cannot wait for it, since the same thread has to finish it")
        if not self._sleep(lambda: self._state not in _ENDED, timeout):
            raise TimeoutError(f"{self!r} did not end within {timeout} s")

    def _sleep(self, needed: Callable[[], bool], timeout: float | None) -> bool:
        """Sleep until the next change, if it is still needed under the lock; false if none came in time."""
        shielded = signals.enter()
        try:
            with _lock:
                if not needed():
                    return True
                sleeper = allocate_lock()
                sleeper.acquire()
                self._sleepers = [*(self._sleepers or ()), sleeper]
            timeout_s = -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX)
            if signals.wait(sleeper, timeout_s):
                return True
            with _lock:
                if self._sleepers is not None and sleeper in self._sleepers:
                    self._sleepers = [other for other in self._sleepers if other is not sleeper]
                return not needed()
        finally:
            if shielded:
                signals.leave()

    def _wake(self) -> None:
        """Wake all sleepers. To be called with `_lock` held."""
        if self._sleepers:
            for sleeper in self._sleepers:
                sleeper.release()
            self._sleepers = None

    def _decode(self) -> None:
        """Decode what has come, once; other threads wait for the one that does."""
        shielded = signals.enter()
        try:
            while self._payload is not None:
                with _lock:
                    mine = self._payload is not None and not self._decoding
                    self._decoding = self._decoding or mine
                if mine:
                    self._decode_mine()
                else:
                    self._sleep(lambda: self._decoding, None)
        finally:
            if shielded:
                signals.leave()

    def _decode_mine(self) -> None:
        payload = self._payload
        assert payload is not None
        try:
            if self._failed:
                self._exception = decode_exception(payload)
            else:
                try:
                    self._result = decode_value(payload)
                except Exception as error:  # noqa: BLE001  # loading runs the user's own constructors
                    self._exception = error
            self._payload = None
        finally:
            with _lock:
                self._decoding = False
                self._wake()

    # --- what the table tells -----------------------------------------------------------------------------------------

    def _end(self, state: str) -> None:
        """Change to a final state and wake whoever waits, but for the callbacks."""
        with _lock:
            condition = self._own_condition
            if condition is None:
                self._state = state
                self._wake()
        if condition is not None:
            with condition:
                with _lock:
                    self._state = state
                    self._wake()
                self._tell_waiters()
                condition.notify_all()

    def _tell_waiters(self) -> None:
        for waiter in self._waiters:
            if self._state == CANCELLED_AND_NOTIFIED:
                waiter.add_cancelled(self)
            elif self._failed:
                waiter.add_exception(self)
            else:
                waiter.add_result(self)

    def _invoke_callbacks(self) -> None:
        callbacks, self._done_callbacks = self._done_callbacks, _NO_CALLBACKS
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[StandardFuture[T]], object]) -> None:
        try:
            callback(self)
        except BaseException:  # noqa: BLE001  # it is the user's, and must end neither the engine nor the caller
            LOGGER.exception("exception calling callback for %r", self)


#: Stands for the list that most futures never need.
_NO_CALLBACKS: list[Callable[[StandardFuture[Any]], object]] = []


class FutureTable:
    """The client of this process: its futures that have not ended, by task.

    Args:
        engine: set by `attach`, since the two refer to each other.
    """

    def __init__(self) -> None:
        self._futures: dict[TaskId, Future[Any]] = {}
        self._engine: Engine | None = None

    def attach(self, engine: Engine) -> None:
        """Tell which engine these futures are of."""
        self._engine = engine

    def add(self, future: Future[Any]) -> None:
        """Expect news of a task. To be called before it is submitted."""
        self._futures[future._task] = future

    def discard(self, future: Future[Any]) -> None:
        """The task was not submitted after all."""
        self._futures.pop(future._task, None)

    def in_reader(self) -> bool:
        """Whether the calling thread is the one that finishes these futures."""
        return self._engine is not None and self._engine.in_reader()

    def cancel(self, future: Future[Any]) -> bool:
        """Cancel the task of a future, if it is not assigned; whether it is cancelled then."""
        assert self._engine is not None
        shielded = signals.enter()
        try:
            self._engine.cancel((future._task,))
            if future._task in self._futures:
                return False
            if not future.done():  # another thread is just writing its end
                future._sleep(lambda: not future.done(), None)
            return future.cancelled()
        finally:
            if shielded:
                signals.leave()

    # --- the Client protocol ------------------------------------------------------------------------------------------

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Take notices of the scheduler, in order."""
        for start in range(0, len(notices), _BATCH):
            self._deliver(notices[start : start + _BATCH])

    def pending(self) -> list[TaskId]:
        """Tasks that have not ended."""
        return list(self._futures)

    def fail_all(self, error: Exception) -> None:
        """End every pending future with this error."""
        ended: list[tuple[Future[Any], str]] = []
        for task in self.pending():
            future = self._futures.pop(task, None)
            if future is not None:
                fail(future, error)
                ended.append((future, FINISHED))
        _finish(ended)

    def abandon(self, error: Exception) -> None:
        """In a forked child: end every pending future, without locks that a thread of the parent may have held."""
        for future in self._futures.values():
            fail(future, error)
            future._own_condition = None
            future._sleepers = None
            future._state = FINISHED
        self._futures = {}

    def _deliver(self, notices: Sequence[Notice]) -> None:
        futures = self._futures
        slow: list[tuple[Future[Any], str]] = []
        with _lock:
            for notice in notices:
                if type(notice) is TaskRunning:
                    _mark_running(futures.get(notice.task))
                    continue
                future = futures.pop(notice.task, None)
                if future is None:
                    continue
                if type(notice) is TaskSucceeded:
                    payload = notice.payload
                    if is_scalar(payload):
                        future._result = decode_value(payload)
                    else:
                        future._payload = payload
                    future.duration_ns = notice.duration_ns
                    future.failures = notice.failures
                    if future._own_condition is None and future._done_callbacks is _NO_CALLBACKS:
                        future._state = FINISHED
                        if future._sleepers:
                            future._wake()
                        continue
                slow.append((future, _explain(future, notice)))
        _finish(slow)


def _mark_running(future: Future[Any] | None) -> None:
    if future is not None and future._state == PENDING:
        future._state = RUNNING


def _explain(future: Future[Any], notice: Notice) -> str:
    """Note how a task ended; the future's final state."""
    if isinstance(notice, TaskCancelled):
        return CANCELLED_AND_NOTIFIED
    if isinstance(notice, TaskFailed):
        future._payload = notice.payload
        future._failed = True
    elif isinstance(notice, TaskLost):
        fail(future, _worker_lost(future, notice))
    elif isinstance(notice, InputFailed):
        fail(future, DependencyError(f"task {future._label!r} did not run: task {notice.root}, its input, failed"))
    return FINISHED


def fail(future: Future[Any], error: Exception) -> None:
    """Note the error with which a future will end."""
    future._exception = error
    future._failed = True


def _worker_lost(future: Future[Any], lost: TaskLost) -> WorkerLost:
    output = lost.last_output.decode("utf-8", "backslashreplace").strip()
    text = f"task {future._label!r} (attempt {lost.attempt}) was running when its worker was lost: {lost.reason}"
    if output:
        text += f". The worker's last output:\n{output}"
    return WorkerLost(
        text,
        reason=lost.reason,
        signal=lost.signal,
        exit_status=lost.exit_status,
        last_output=output,
        item=lost.item,
    )


def _finish(ended: list[tuple[Future[Any], str]]) -> None:
    """Give futures their final state, all of them, and only then call back: a callback may ask for another of them."""
    for future, state in ended:
        future._end(state)
    for future, _ in ended:
        future._invoke_callbacks()


def failed(label: str, error: Exception) -> Future[Any]:
    """A future of a task that was never submitted, since this went wrong."""
    future: Future[Any] = Future(None, TaskId(0), label)
    fail(future, error)
    future._end(FINISHED)
    return future


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)
