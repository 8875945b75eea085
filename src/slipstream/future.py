"""Futures: what the engine tells about a task, as a `concurrent.futures.Future`.

A future is light. The standard one makes a Condition, a list and a deque at once (1,600 bytes, 2.2 µs); here the
Condition is made when someone first asks for it, which `wait` and `as_completed` do and `result()` does not.

Who may write what, and under which lock:

- `_lock`, one for all futures, guards the change of a state, the making of a Condition, and the list of sleepers. A
  batch of results is written under it once. It is re-entrant, since the collector may run a finalizer that comes back
  here.
- A future that has a Condition changes its state under that one too, as the standard functions expect.
- What is not a builtin scalar is decoded by the thread that first asks for it, once.

Never here: tasks, workers, frames. What the engine tells about tasks comes to futures through `client`.
"""

import operator
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError
from concurrent.futures import Future as StandardFuture
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, LOGGER, PENDING, RUNNING
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from msgspec import Struct

from slipstream.causes import Cause
from slipstream.errors import PayloadError
from slipstream.protocol.ids import TaskId
from slipstream.runtime import signals
from slipstream.runtime.reactor import Sleeper
from slipstream.serde.exceptions import decode_exception
from slipstream.store.loading import is_gone, load_value
from slipstream.store.payload import is_stored, size_of

T = TypeVar("T")

_ENDED: Final = frozenset({CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED})
_lock = threading.RLock()


class Owner(Protocol):
    """What a future asks of the client that it belongs to."""

    @property
    def submit(self) -> Callable[..., "Future[Any]"]:
        """That of its executor.

        Raises:
            RuntimeError: It is gone.
        """
        ...

    def cancel(self, future: "Future[Any]") -> bool:
        """Cancel its task, if that is not assigned; whether it is cancelled then."""
        ...

    def wait_for(self, sleeper: Sleeper, timeout_s: float | None) -> None:
        """Wait until a sleeper is woken, or the time is over.

        Raises:
            RuntimeError: In a callback, which runs in the thread that would have to wake it.
        """
        ...

    def awaited(self, task: TaskId) -> None:
        """Somebody may wait for it by other means: the standard functions, or a callback."""
        ...

    def miss(self, future: "Future[Any]", payload: bytes) -> bool:
        """The result of a future is gone: have it made again, if that can be; another payload or a failure follows."""
        ...


class Payload(Struct, frozen=True):
    """How many bytes a task took on its way."""

    #: The definition of its callable, which each worker is sent once; 0 where workers find it by name, or where it is
    #: an object that travels with the arguments.
    callable: int
    arguments: int
    #: What the callable captures and is sent with each task, since it may change in between.
    state: int
    #: 0 until it is there.
    result: int


class Future(StandardFuture[T], Generic[T]):
    """The result of a task, now or later. Made by `Executor.submit`.

    It is a `concurrent.futures.Future` in all respects: the standard `wait` and `as_completed` take it, callbacks run
    in the engine's thread, `cancel()` succeeds until the task has been assigned to a worker.

    Example:
        >>> from slipstream import Executor
        >>> with Executor(max_workers=1) as executor:
        ...     future = executor.submit(pow, 2, 10)
        ...     future.result()
        1024
    """

    __slots__ = (
        "_cause",
        "_decoding",
        "_definition_bytes",
        "_done_callbacks",
        "_encoded",
        "_exception",
        "_failed",
        "_inputs",
        "_kept",
        "_label",
        "_lost",
        "_own_condition",
        "_owner",
        "_payload",
        "_result",
        "_result_bytes",
        "_sent_bytes",
        "_sleepers",
        "_state",
        "_state_bytes",
        "_task",
        "_waiters",
        "duration_ns",
        "failures",
    )

    #: Set once the task has succeeded: what the worker measured, in ns; and of a map chunk the items that raised.
    duration_ns: int
    failures: tuple[tuple[int, bytes], ...]

    def __init__(self, owner: Owner | None = None, task: TaskId = TaskId(0), label: str = "") -> None:  # noqa: B008
        # The standard constructor is not called: what it makes at once is made when needed.
        self._owner = owner
        self._task = task
        self._label = label
        self._state = PENDING
        self._result: Any = None
        self._exception: BaseException | None = None
        #: The encoded result, or exception if `_failed`, or why the task did not run, until someone asks.
        self._payload: bytes | Cause | None = None
        #: The encoded result, if it is no scalar: tasks may take it, whatever the user makes of the decoded one.
        self._encoded: bytes | None = None
        #: The result lies in a file, and the scheduler knows the task as long as this future is there.
        self._kept = False
        #: What stands for the future where its result is an input, since that was lost and could not be made again.
        self._lost: Future[Any] | None = None
        #: Futures that the task takes results of, until it has ended.
        self._inputs: tuple[StandardFuture[Any], ...] = ()
        self._failed = False
        #: Bytes of definition, payload and, as a part of the payload, state; and of the result. (In a tuple they would
        #: be a second object for the collector, and make it run twice as often: 0.5 to 1 µs a task.)
        self._definition_bytes = self._sent_bytes = self._state_bytes = self._result_bytes = 0
        self._decoding = False
        #: Why the task did not run, if it did not.
        self._cause: Cause | None = None
        self._sleepers: list[Sleeper] | None = None
        self._own_condition: threading.Condition | None = None
        self._done_callbacks: list[Callable[[StandardFuture[T]], object]] = _NO_CALLBACKS

    @classmethod
    def of_missing_input(cls, owner: Owner, label: str, cause: Cause) -> "Future[Any]":
        """The future of a task that was not submitted, since an input has failed before."""
        future: Future[Any] = cls(owner, TaskId(0), label)
        future._miss(cause)
        future._end(FINISHED)
        return future

    @classmethod
    def of_failed(cls, label: str, error: BaseException, owner: Owner | None = None) -> "Future[Any]":
        """The future of a task that was not submitted, since this went wrong."""
        future: Future[Any] = cls(owner, TaskId(0), label)
        future._fail(error)
        future._end(FINISHED)
        return future

    def __repr__(self) -> str:
        return f"<Future of task {self._task} {self._label!r}: {self._state.lower()}>"

    def __reduce__(self) -> Any:
        raise TypeError(f"{self!r} cannot be pickled: pass it as an argument of the task, which then gets its result")

    # --- the standard interface ---------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # a property, where type checkers of users expect the attribute of the standard future

        @property
        def _condition(self) -> threading.Condition:
            """What the standard functions wait on."""
            return self._own_condition or self._make_condition()

    def cancel(self) -> bool:
        """Cancel the task, unless it has been assigned to a worker.

        Returns:
            Whether the task is cancelled.
        """
        if self._owner is None:
            return super().cancel()
        if self._state not in _ENDED:
            return self._owner.cancel(self)
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
            self._decode(timeout)
        if self._state != FINISHED:
            raise CancelledError
        if self._exception is not None:
            try:
                raise self._exception
            finally:
                self = None  # else the traceback refers to this frame, and the frame to the future
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
            self._decode(timeout)
        if self._state != FINISHED:
            raise CancelledError
        return self._exception

    def payload(self) -> Payload:
        """What the task took to send, in bytes.

        Example:
            >>> from slipstream import Executor
            >>> with Executor(max_workers=1) as executor:
            ...     future = executor.submit(len, "abc")
            ...     future.result(), future.payload().callable, future.payload().arguments < 50
            (3, 0, True)
        """
        state, result = self._state_bytes, self._result_bytes
        if self._encoded is not None and is_stored(self._encoded):
            result = size_of(self._encoded)
        return Payload(self._definition_bytes, self._sent_bytes - state, state, result)

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
                    self._tell_awaited()
                    return
        finally:
            if shielded:
                signals.leave()
        self._call(fn)

    def __await__(self) -> Generator[Any, None, T]:
        """In asyncio: the result, without blocking the loop."""
        from asyncio import wrap_future

        return wrap_future(self).__await__()

    # --- parts of the result, where it is -----------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> "Future[Any]":
        """The future of `result[index]`: a task that takes this one's result.

        Example:
            >>> from slipstream import Executor
            >>> with Executor(max_workers=1) as executor:
            ...     future = executor.submit(divmod, 17, 5)
            ...     future[0].result(), future[1].result()
            (3, 2)
        """
        return self._submitter()(operator.getitem, self, index)

    #: It has items, but no end: else a loop over it would go on for ever.
    __iter__ = None  # pyright: ignore[reportUnannotatedClassAttribute]
    __contains__ = None  # pyright: ignore[reportUnannotatedClassAttribute]

    def attr(self, name: str) -> "Future[Any]":
        """The future of an attribute of the result: a task that takes this one's result.

        Args:
            name: Of the attribute.

        Example:
            >>> from slipstream import Executor
            >>> with Executor(max_workers=1) as executor:
            ...     executor.submit(complex, 3, 4).attr("imag").result()
            4.0
        """
        return self._submitter()(getattr, self, name)

    def _submitter(self) -> Callable[..., "Future[Any]"]:
        if self._owner is None:
            raise RuntimeError(f"{self!r} was not submitted by an executor that could run a task with its result")
        return self._owner.submit

    # --- waiting and decoding -----------------------------------------------------------------------------------------

    def _wait(self, timeout: float | None) -> None:
        if self._owner is None:  # the user ends it, perhaps by hand under the condition: the standard wait
            super().exception(timeout)
            return
        if not self._sleep(lambda: self._state not in _ENDED, timeout):
            raise TimeoutError(f"{self!r} did not end in time")

    def _make_condition(self) -> threading.Condition:
        shielded = signals.enter()
        try:
            with _lock:
                if self._own_condition is None:
                    self._waiters: list[Any] = []
                    self._own_condition = threading.Condition()
                    self._tell_awaited()
                return self._own_condition
        finally:
            if shielded:
                signals.leave()

    def _tell_awaited(self) -> None:
        if self._owner is not None and self._state not in _ENDED:
            self._owner.awaited(self._task)

    def _sleep(self, needed: Callable[[], bool], timeout: float | None, *, reading: bool = True) -> bool:
        """Sleep until the next change, if it is still needed under the lock; false if none came in time.

        Args:
            needed: Whether there is something to wait for.
            timeout: Seconds.
            reading: Whether the change comes from a worker, so that somebody must read. Then no callback may wait.
        """
        shielded = signals.enter()
        try:
            with _lock:
                if not needed():
                    return True
                sleeper = Sleeper()
                self._sleepers = [*(self._sleepers or ()), sleeper]
            if self._owner is None or not reading:
                signals.wait(sleeper.lock, -1 if timeout is None else min(max(timeout, 0), threading.TIMEOUT_MAX))
            else:
                self._owner.wait_for(sleeper, timeout)
            if sleeper.woken:
                return True
            with _lock:
                self._sleepers = [other for other in self._sleepers or () if other is not sleeper]
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

    def _decode(self, timeout: float | None) -> None:
        """Decode what has come, once; other threads wait for the one that does.

        Args:
            timeout: Seconds to wait at most, should it be gone and have to be made again.
        """
        shielded = signals.enter()
        try:
            while True:
                with _lock:
                    payload = self._payload
                    if payload is None:
                        return
                    mine = not self._decoding
                    self._decoding = True
                if mine:
                    self._decode_mine(payload, timeout)
                else:
                    self._sleep(lambda: self._decoding, None, reading=False)
        finally:
            if shielded:
                signals.leave()

    def _decode_mine(self, payload: bytes | Cause, timeout: float | None) -> None:
        try:
            if isinstance(payload, Cause):
                self._exception = payload.error(self._label)
            elif self._failed:
                self._exception = decode_exception(payload)
                if isinstance(self._exception, PayloadError) and self._label not in str(self._exception):
                    self._exception.add_note(f"This was task {self._label!r}.")  # who cannot load it cannot say
            else:
                try:
                    self._result = load_value(payload)
                except Exception as error:  # noqa: BLE001  # loading runs the user's own constructors
                    if self._have_made_again(payload, error, timeout):
                        return
                    error.add_note(f"This was the result of task {self._label!r}.")
                    self._exception = error
            self._payload = None
        finally:
            with _lock:
                self._decoding = False
                self._wake()

    def _have_made_again(self, payload: bytes, error: Exception, timeout: float | None) -> bool:
        """Whether there is another payload now, or a failure, after the file of this one was gone."""
        if not self._kept or self._owner is None or not is_gone(error) or not self._owner.miss(self, payload):
            return False
        while self._payload is payload:
            if not self._sleep(lambda: self._payload is payload, timeout) and self._payload is payload:
                raise TimeoutError(f"the result of {self!r} was lost, and was not computed again in time")
        return True

    # --- what the client tells ----------------------------------------------------------------------------------------

    def _fail(self, error: BaseException) -> None:
        """Note the error with which the future will end."""
        self._exception = error
        self._failed = True

    def _miss(self, cause: Cause) -> None:
        """Note that the task cannot run."""
        self._payload = self._cause = cause
        self._failed = True

    def _made_again(self, payload: bytes) -> None:
        """The result was lost, and is there again. What is decoded already stays. To be called with `_lock` held."""
        self._encoded = payload
        if self._payload is not None:
            self._payload = payload
            self._wake()

    def _lose(self, instead: "Future[Any]") -> None:
        """The result was lost, and this is what came of making it again. What is decoded already stays."""
        with _lock:
            self._lost, self._kept = instead, False
            if self._payload is not None:
                self._exception, self._payload, self._failed = instead._exception, instead._payload, True
                self._wake()

    def way_from(self) -> Cause:
        """Why a task that needs the result of this failed, cancelled or lost one cannot run."""
        if self._lost is not None:
            return Cause.of(self._lost, self._label)
        return Cause.of(self, self._label) if self._cause is None else self._cause.then(self._label)

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


def lock() -> "threading.RLock":
    """The lock of all futures."""
    return _lock


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)
