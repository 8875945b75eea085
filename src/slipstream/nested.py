"""Tasks that submit tasks: `current_executor()`, and what stands for the engine in a worker.

The tasks of a worker are a client of the engine, at the other end of the worker's connection. Futures, inputs and maps
are what they are in the process of the engine.

Never here: reading and waiting (see `worker.requests`), and the life of files, which is the engine's.
"""

import itertools
import os
import sys
from _thread import allocate_lock, start_new_thread
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pickle import PickleBuffer
from typing import Any, cast

from slipstream.client import FutureClient
from slipstream.errors import InfeasibleTask, PayloadError
from slipstream.executor import Executor
from slipstream.future import Future
from slipstream.protocol.codec import NOTICES, encode_requests
from slipstream.protocol.ids import TaskId
from slipstream.protocol.messages import (
    Cancel,
    CannotWait,
    ClientMessage,
    Expect,
    Missed,
    Notice,
    Provide,
    Release,
    Submit,
)
from slipstream.runtime import signals
from slipstream.runtime.reactor import Sleeper
from slipstream.store.payload import is_stored
from slipstream.worker import loop as worker_loop
from slipstream.worker.requests import Requests

#: Tasks of a worker are numbered from its own number, times this, so that no two clients use the same.
_TASKS_PER_WORKER = 1 << 40


def current_executor() -> Executor:
    """In a task: the executor that runs it, to submit more tasks to it.

    A task that waits for a result leaves its place to another one, in a further worker process if need be. So tasks may
    wait for tasks that wait for tasks, up to `max_processes` of the executor at a time. Wait with `result()`, or with
    the standard functions; and submit what needs results with futures as arguments, if the task need not see them.

    Returns:
        An executor whose `shutdown`, and `with` block, wait for what this worker's tasks have submitted, and end
        nothing. It has no `stats()`: the counters are in the process that made the executor.

    Raises:
        RuntimeError: No task runs in this process.

    Example:
        >>> from slipstream import Executor
        >>> def factorial(n):
        ...     if n < 2:
        ...         return 1
        ...     return n * current_executor().submit(factorial, n - 1).result()
        >>> with Executor(max_workers=1) as executor:
        ...     executor.submit(factorial, 3).result()
        6
    """
    global _current
    loop = worker_loop.current
    if loop is None or loop.forked or loop.page.running() is None:
        raise RuntimeError("no task runs in this process: current_executor() is for tasks, others make an Executor")
    if _current is None:
        _current = NestedExecutor(loop)
    return _current


class NestedExecutor(Executor):
    """The executor of a task; made by `current_executor`."""

    def __init__(self, loop: worker_loop.Loop) -> None:
        client, values = FutureClient(), WorkerValues(loop)
        engine = WorkerEngine(loop, client)
        slot, workers, self._worker_retries = loop.settings
        self._begin(
            client, engine, values, workers, cast("Iterator[TaskId]", itertools.count(slot * _TASKS_PER_WORKER))
        )

    def __repr__(self) -> str:
        return f"<NestedExecutor: {self._engine.live_tasks()} tasks of this worker's tasks not ended>"

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End nothing: the executor is that of the client.

        Args:
            wait: return when all that was submitted in this worker has ended.
            cancel_futures: cancel what of that has not been assigned to a worker.
        """
        if cancel_futures:
            self._engine.cancel_pending()
        else:
            self._submit_rest()
        if wait:
            self._engine.wait_ended()

    def _announce(self, future: Future[Any], payload: bytes) -> None:
        if is_stored(payload):
            self._engine.submit(Expect(future._task, keep=True))  # pyright: ignore[reportPrivateUsage]
            self._engine.tell(Provide(future._task, payload))  # pyright: ignore[reportPrivateUsage]
            self._client.keep(future)


class WorkerValues:
    """Writes large values where the worker writes its results; the engine owns them when it is told."""

    def __init__(self, loop: worker_loop.Loop) -> None:
        self._store = loop.store
        self.inline_bytes = sys.maxsize if loop.store is None else loop.store.inline_bytes

    def write(self, pickle: Sequence[bytes], buffers: list[PickleBuffer]) -> bytes:
        """Write a value, and return the payload that stands for it."""
        if self._store is None:
            raise PayloadError("a large value cannot be sent from here, since there is no place for its file")
        return self._store.write(pickle, buffers)

    #: What was written before is not looked for.
    write_once = write


class WorkerEngine:
    """What stands for the engine in a worker; the methods are those of `ClientEngine`."""

    def __init__(self, loop: worker_loop.Loop, client: FutureClient) -> None:
        self._loop = loop
        self._client = client
        self._requests = loop.requests = Requests(loop, self._take, _open_to_signals)
        self._requests.at_end = self._say_released
        #: Tasks that are needed no more: said with what is said next.
        self._released: deque[TaskId] = deque()
        #: Who waits for the answer to a Cancel.
        self._cancelling: dict[TaskId, Sleeper] = {}
        #: Held while there is nothing for the thread that calls back.
        self._idle = allocate_lock()
        self._idle.acquire()
        start_new_thread(self._call_back, ())
        os.register_at_fork(after_in_child=self._abandon)

    # --- what clients call --------------------------------------------------------------------------------------------

    #: What follows comes by the connection.
    answers_at_once = False

    @property
    def over(self) -> bool:
        """Whether no more tasks are taken."""
        return self._loop.forked

    def refuse_if_over(self) -> None:
        """Raise what `submit` would raise now."""
        if self._loop.forked:
            raise RuntimeError(_FORKED)

    def submit(self, *messages: Expect | Submit) -> None:
        """A new task, after values that it expects."""
        self.refuse_if_over()
        self._say(*messages)

    def tell(self, message: Provide | Missed) -> None:
        """A value that was expected, or is gone."""
        if not self._loop.forked:
            self._say(message)

    def cancel(self, tasks: Sequence[TaskId]) -> None:
        """Cancel those of the tasks that are not assigned yet, and wait for the answer."""
        self.refuse_if_over()
        sleepers = {task: Sleeper() for task in tasks}
        self._cancelling.update(sleepers)
        self._say(*map(Cancel, tasks))
        for sleeper in sleepers.values():
            self._wait(sleeper, None)

    def may_end(self, task: TaskId) -> bool:
        """Whether the task has still to end."""
        return task in self._client.futures

    def wait_for(self, sleeper: Sleeper, timeout_s: float | None) -> None:
        """Wait until the sleeper is woken or the time is over; another task has the slot of this one meanwhile."""
        self.refuse_if_over()
        self._requests.begin_waiting()
        try:
            self._wait(sleeper, timeout_s)
        finally:
            self._requests.end_waiting()

    def awaited(self, task: TaskId) -> None:
        """Somebody waits for a future by other means than `wait_for`."""
        self._requests.await_task(task)

    def release(self, task: TaskId) -> None:
        """A task with a large result is needed no more. Takes no lock: a finalizer may call this anywhere."""
        self._released.append(task)

    def leads(self) -> bool:
        """Callbacks have a thread of their own here."""
        return True

    def hand_over(self) -> None:
        """Have that thread call back."""
        try:
            self._idle.release()
        except RuntimeError:  # it has not yet begun with what was handed over before
            return

    def live_tasks(self) -> int:
        """How many tasks of this worker's tasks have not ended."""
        return len(self._client.futures)

    def count(self) -> dict[str, int]:
        """Not here."""
        raise RuntimeError("the counters of an executor are in the process that made it")

    def close(self) -> None:
        """Nothing: the engine is not this client's."""

    def cancel_pending(self) -> None:
        """Cancel whatever has not been assigned."""
        pending = self._client.pending()
        if pending:
            self.cancel(pending)

    def wait_ended(self) -> None:
        """Wait for all that was submitted here."""
        for future in list(self._client.futures.values()):
            future._wait(None)  # pyright: ignore[reportPrivateUsage]

    # --- what the engine says -----------------------------------------------------------------------------------------

    def _take(self, told: Sequence[tuple[int, Any]]) -> None:
        """Take what the tasks of this worker are told, by whoever reads."""
        notices: list[Notice] = []
        for tag, fields in told:
            message: Any = NOTICES[tag](*fields)
            if isinstance(message, Cancel):
                self._deliver(notices)
                notices = []
                sleeper = self._cancelling.pop(message.task, None)
                if sleeper is not None:
                    sleeper.release()
            elif isinstance(message, Submit):
                self._client.refused(message)
            elif isinstance(message, CannotWait):
                self._say(*map(Cancel, self._client.fail_awaited(_cannot_wait(message.processes))))
            else:
                notices.append(message)
        self._deliver(notices)

    def _deliver(self, notices: Sequence[Notice]) -> None:
        if notices:
            self._client.deliver(notices)
            self._requests.ended([notice.task for notice in notices])

    # --- inside -------------------------------------------------------------------------------------------------------

    def _wait(self, sleeper: Sleeper, timeout_s: float | None) -> None:
        self._say_released()
        if self._requests.reads():
            self._requests.read_until(sleeper, timeout_s)
        else:
            sleeper.lock.acquire(True, -1 if timeout_s is None else timeout_s)

    def _say(self, *messages: ClientMessage) -> None:
        self._requests.say(encode_requests([*self._take_released(), *messages]))

    def _say_released(self) -> None:
        if self._released:
            self._say()

    def _take_released(self) -> Iterable[ClientMessage]:
        while self._released:
            yield Release(self._released.popleft())

    def _call_back(self) -> None:
        while True:
            self._idle.acquire()
            self._client.finish_handed_over()

    def _abandon(self) -> None:
        """In a forked child of a task."""
        self._client.abandon(RuntimeError(_FORKED))


def _cannot_wait(processes: int) -> Callable[[str], InfeasibleTask]:
    def error(label: str) -> InfeasibleTask:
        return InfeasibleTask(
            f"task {label!r} cannot be waited for here: there may be {processes} worker processes (max_processes), and "
            "in each a task waits for one that it has submitted, so that none would be left to run this one. Allow for "
            "more, with Executor(max_processes=...), or pass futures as arguments instead of waiting for them in tasks"
        )

    return error


@contextmanager
def _open_to_signals() -> Generator[None]:
    """The main thread is blocked: signals are delivered at once."""
    if not signals.begin_block():
        yield
        return
    try:
        yield
    finally:
        signals.end_block()


_FORKED = "this executor belongs to the worker that this process was forked from, by a task: it cannot be used here"
#: That of this process, if it is a worker whose tasks have asked for it.
_current: NestedExecutor | None = None
