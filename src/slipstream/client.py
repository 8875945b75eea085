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
from typing import Any

from slipstream.causes import STRANGER, Cause
from slipstream.errors import WorkerLost
from slipstream.future import _NO_CALLBACKS, Future, lock
from slipstream.protocol.ids import TaskId
from slipstream.protocol.messages import (
    InputFailed,
    Notice,
    Submit,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
)
from slipstream.runtime import signals
from slipstream.runtime.engine import Engine
from slipstream.serde.values import decode_value, is_scalar

#: How many results are written under the lock at a time: about 50 µs.
_BATCH = 256


class FutureClient:
    """The client of this process: its futures that have not ended, by task."""

    def __init__(self) -> None:
        #: The executor adds a future before it submits the task, and takes it away if that fails.
        self.futures: dict[TaskId, Future[Any]] = {}
        #: Futures whose values the scheduler expects.
        self.expected: weakref.WeakValueDictionary[TaskId, StandardFuture[Any]] = weakref.WeakValueDictionary()
        #: Submits again what the scheduler has refused.
        self.resubmit: Callable[[Submit], None] = lambda message: None
        self._engine: Engine | None = None
        #: Futures with callbacks that ended while another thread was reading.
        self._handed_over: deque[Future[Any]] = deque()

    def attach(self, engine: Engine, submit: Callable[[], Callable[..., Future[Any]] | None]) -> None:
        """Tell which engine these futures are of, and how to find their executor's `submit`, if that is still there."""
        self._engine = engine
        self._find_submit = submit
        self.wait_for = engine.wait_for  # without a call in between

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

    # --- the Client protocol ------------------------------------------------------------------------------------------

    def deliver(self, notices: Sequence[Notice]) -> None:
        """Take notices of the scheduler, in order."""
        #: Those of tasks that ended badly: notices of what depends on them follow.
        failed: dict[TaskId, Future[Any]] = {}
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

    def _deliver(self, notices: Sequence[Notice], failed: dict[TaskId, Future[Any]]) -> None:
        futures = self.futures
        slow: list[tuple[Future[Any], str]] = []
        with lock():
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
                        future._payload = future._encoded = payload
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

    def _way_from(self, task: TaskId, failed: dict[TaskId, Future[Any]]) -> Cause:
        """Why what depends on a task, or on a value from outside, does not run."""
        return way_from(failed[task] if task in failed else self.expected[task])

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
    return FINISHED


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
