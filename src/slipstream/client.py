"""The client of this process: its futures that have not ended, and what the engine tells about their tasks.

Never here: how a future keeps its state and who waits for it (see `future`), or anything of other clients.
"""

# pyright: reportPrivateUsage=false
# This module writes what futures hold, a batch at a time; for everyone else those attributes are private.

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future as StandardFuture
from concurrent.futures._base import CANCELLED_AND_NOTIFIED, FINISHED, PENDING, RUNNING
from functools import partial
from typing import Any

from slipstream.causes import STRANGER, Cause
from slipstream.errors import PayloadError, WorkerLost
from slipstream.future import _NO_CALLBACKS, Future, lock
from slipstream.protocol.ids import TaskId
from slipstream.protocol.messages import (
    InputFailed,
    Missed,
    Notice,
    Submit,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
    ValueLost,
)
from slipstream.runtime import signals
from slipstream.runtime.sides import ClientEngine
from slipstream.serde.values import decode_value, is_scalar
from slipstream.store.payload import is_stored

#: How many results are written under the lock at a time: about 50 µs.
_BATCH = 256


#: What a task is called whose future is gone.
_FORGOTTEN = "a task whose future is gone"


class _Kept(weakref.ref[Future[Any]]):
    """Knows the task of a future whose result lies in a file."""

    __slots__ = ("task",)

    task: TaskId


class FutureClient:
    """The client of this process: its futures that have not ended, by task."""

    def __init__(self) -> None:
        #: The executor adds a future before it submits the task, and takes it away if that fails.
        self.futures: dict[TaskId, Future[Any]] = {}
        #: Futures whose values the scheduler expects.
        self.expected: weakref.WeakValueDictionary[TaskId, StandardFuture[Any]] = weakref.WeakValueDictionary()
        #: Of these, those that failed, until what depends on them has been told.
        self.failed: dict[TaskId, StandardFuture[Any]] = {}
        #: Futures that have ended, and whose tasks the scheduler keeps until they are gone.
        self.kept: dict[TaskId, _Kept] = {}
        #: Submits again what the scheduler has refused.
        self.resubmit: Callable[[Submit], None] = lambda message: None
        self._engine: ClientEngine | None = None
        #: Futures with callbacks that ended while another thread was reading.
        self._handed_over: deque[Future[Any]] = deque()

    def attach(self, engine: ClientEngine, submit: Callable[[], Callable[..., Future[Any]] | None]) -> None:
        """Tell which engine these futures are of, and how to find their executor's `submit`, if that is still there."""
        self._engine = engine
        self._find_submit = submit
        self.wait_for = engine.wait_for  # without a call in between
        self.awaited = engine.awaited

    @property
    def submit(self) -> Callable[..., Future[Any]]:
        """That of the executor."""
        found = self._find_submit()
        if found is None:
            raise RuntimeError("the executor of this future is gone: keep it for as long as futures are to be used so")
        return found

    def cancel(self, future: Future[Any]) -> bool:
        """Cancel the task of a future, if it is not assigned; whether it is cancelled then."""
        assert self._engine is not None
        shielded = signals.enter()
        try:
            self._engine.cancel((future._task,))
            if self._engine.may_end(future._task):
                return False
            if not future.done():  # another thread is just writing its end
                future._sleep(lambda: not future.done(), None)
            return future.cancelled()
        finally:
            if shielded:
                signals.leave()

    def keep(self, future: Future[Any]) -> None:
        """Have the scheduler forget the task of this future, whose result lies in a file, when the future is gone."""
        assert self._engine is not None
        future._kept = True
        kept = _Kept(future, partial(_release, weakref.ref(self._engine), self.kept))
        kept.task = future._task
        self.kept[future._task] = kept

    def miss(self, future: Future[Any], payload: bytes) -> bool:
        """The result of a future is gone: have it made again, if that can be."""
        assert self._engine is not None
        if self._engine.over:
            return False
        self._engine.tell(Missed(future._task, payload))
        return True

    # --- the Client protocol ------------------------------------------------------------------------------------------

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Take notices of the scheduler, in order."""
        #: Those of tasks that ended badly: notices of what depends on them follow.
        failed: dict[TaskId, StandardFuture[Any]] = {}
        if len(notices) <= _BATCH:
            self._deliver(notices, failed)
            return
        for start in range(0, len(notices), _BATCH):
            self._deliver(notices[start : start + _BATCH], failed)

    def refused(self, message: Submit) -> None:
        """The scheduler has forgotten a task on which this one depends."""
        self.resubmit(message)

    def end_unsubmitted(self, future: Future[Any], cause: Cause) -> None:
        """End a future whose task cannot be submitted, since an input has failed."""
        self.futures.pop(future._task, None)
        future._inputs = ()
        future._miss(cause)
        self._finish([(future, FINISHED)])

    def pending(self) -> list[TaskId]:
        """Tasks that have not ended."""
        return list(self.futures)

    def fail_all(self, error: Exception) -> None:
        """End every pending future with this error."""
        ended: list[tuple[Future[Any], str]] = []
        for task in self.pending():
            future = self.futures.pop(task, None)
            if future is not None:
                future._inputs = ()
                future._fail(error)
                ended.append((future, FINISHED))
        self._finish(ended)

    def fail_awaited(self, error: Callable[[str], Exception]) -> list[TaskId]:
        """End the futures that somebody waits for with an error, made for the label of each; their tasks."""
        ended: list[tuple[Future[Any], str]] = []
        for task in self.pending():
            future = self.futures[task]
            if future._sleepers or future._own_condition is not None or future._done_callbacks:
                del self.futures[task]
                future._inputs = ()
                future._fail(error(future._label))
                ended.append((future, FINISHED))
        self._finish(ended)
        return [future._task for future, _ in ended]

    def finish_handed_over(self) -> None:
        """Call back for futures that another thread has finished; in the I/O thread."""
        while self._handed_over:
            self._handed_over.popleft()._invoke_callbacks()

    def abandon(self, error: Exception) -> None:
        """In a forked child: end every pending future, without locks that a thread of the parent may have held."""
        for future in self.futures.values():
            future._fail(error)
            future._own_condition = None
            future._sleepers = None
            future._state = FINISHED
        self.futures = {}

    def _deliver(self, notices: Sequence[Notice], failed: dict[TaskId, StandardFuture[Any]]) -> None:
        futures = self.futures
        slow: list[tuple[Future[Any], str]] = []
        with lock():
            for notice in notices:
                if type(notice) is TaskRunning:
                    _mark_running(futures.get(notice.task))
                    continue
                future = futures.pop(notice.task, None)
                if future is None:
                    self._take_late(notice, failed)
                    continue
                if type(notice) is TaskSucceeded:
                    payload = notice.payload
                    if is_scalar(payload):
                        future._result = decode_value(payload)
                    else:
                        future._payload = future._encoded = payload
                        if is_stored(payload):
                            self.keep(future)
                    future._result_bytes = len(payload)
                    future.duration_ns = notice.duration_ns
                    future.failures = notice.failures
                    if future._inputs:
                        future._inputs = ()
                    if future._own_condition is None and future._done_callbacks is _NO_CALLBACKS:
                        future._state = FINISHED
                        if future._sleepers:
                            future._wake()
                        continue
                else:
                    failed[notice.task] = future
                    if isinstance(notice, InputFailed):
                        future._miss(self._way_from(notice.input, failed))
                slow.append((future, _explain(future, notice)))
        if slow:
            self._finish(slow)

    def end_with(self, future: Future[Any], payload: bytes) -> None:
        """End a future that has no task with a value."""
        if is_scalar(payload):
            future._result = decode_value(payload)
        else:
            future._payload = future._encoded = payload
        future._result_bytes = len(payload)
        self._finish([(future, FINISHED)])

    def _way_from(self, task: TaskId, failed: dict[TaskId, StandardFuture[Any]]) -> Cause:
        """Why what depends on a task, or on a value from outside, does not run."""
        value = failed.get(task)
        if value is None:
            value = failed[task] = self.failed.pop(task, None) or self._lost(task)
        return way_from(value)

    def _lost(self, task: TaskId) -> StandardFuture[Any]:
        """The future of a task whose value was lost before."""
        future = self.kept[task]()
        assert future is not None  # or the scheduler would have been told
        return future

    def _take_late(self, notice: Notice, failed: dict[TaskId, StandardFuture[Any]]) -> None:
        """What became of a task whose value was lost, and whose future has ended before."""
        kept = self.kept.get(notice.task)
        future = None if kept is None else kept()
        if isinstance(notice, TaskSucceeded):
            if future is not None:
                future._made_again(notice.payload)
            return
        instead: Future[Any] = Future(None, notice.task, _FORGOTTEN if future is None else future._label)
        if isinstance(notice, InputFailed):
            instead._miss(self._way_from(notice.input, failed))
        _explain(instead, notice)
        if isinstance(notice, ValueLost):
            instead._fail(PayloadError(f"the result of task {instead._label!r} is gone, and {notice.reason}"))
        instead._end(FINISHED)
        failed[notice.task] = instead
        if future is not None:
            future._lose(instead)

    def _finish(self, ended: list[tuple[Future[Any], str]]) -> None:
        """Give futures their final state, all of them, and only then call back: a callback may ask for another of them.

        Callbacks never run inside some thread's `result()`: where that reads, they are left to the I/O thread.
        """
        for future, state in ended:
            future._end(state)
        assert self._engine is not None
        called_back = [future for future, _ in ended if future._done_callbacks]
        if called_back and self._engine.leads():
            self._handed_over += called_back
            self._engine.hand_over()
        else:
            for future in called_back:
                future._invoke_callbacks()


def way_from(value: StandardFuture[Any]) -> Cause:
    """Why a task that needs the result of a failed or cancelled future cannot run."""
    return value.way_from() if isinstance(value, Future) else Cause.of(value, STRANGER)


def _mark_running(future: Future[Any] | None) -> None:
    if future is not None and future._state == PENDING:
        future._state = RUNNING


def _explain(future: Future[Any], notice: Notice) -> str:
    """Note how a task ended; the future's final state."""
    future._inputs = ()
    if isinstance(notice, TaskCancelled):
        return CANCELLED_AND_NOTIFIED
    if isinstance(notice, TaskFailed):
        future._payload = notice.payload
        future._failed = True
    elif isinstance(notice, TaskLost):
        future._fail(_worker_lost(future, notice))
    elif isinstance(notice, ValueLost):
        future._fail(PayloadError(f"task {future._label!r} cannot run: {notice.reason}"))
    return FINISHED


def _release(engine: "weakref.ref[ClientEngine]", kept: dict[TaskId, _Kept], gone: _Kept) -> None:
    """A future is gone; called wherever the last reference to it went."""
    if kept.get(gone.task) is gone:
        del kept[gone.task]
    found = engine()
    if found is not None:
        found.release(gone.task)


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
        item=None if lost.item < 0 else lost.item,
    )
