"""Futures as arguments: what the scheduler is told of the inputs of a task.

An input is one of three things. A future of this client that has not ended is a task on which the new one depends; the
scheduler knows the rest. One that has ended is its encoded result. Any other future, of another executor or of the
standard library, is a value that the scheduler is to expect: it is provided when the future has ended.

Between the end of a task and that of its future a moment passes, in which another thread may submit: the scheduler has
forgotten the task and refuses. Then the future counts as a stranger, and its value is provided when it is there.

Never here: how futures are found in arguments (see `serde.parts`), and when a task is ready (see `core`).
"""

# pyright: reportPrivateUsage=false
# Reads what futures hold, as `client` does.

import threading
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from concurrent.futures import Future as StandardFuture
from functools import partial
from typing import Any

from msgspec.structs import replace

from slipstream.causes import STRANGER, Cause
from slipstream.client import FutureClient, way_from
from slipstream.future import Future
from slipstream.protocol.ids import TaskId
from slipstream.protocol.messages import Expect, Provide, Submit
from slipstream.runtime import signals
from slipstream.runtime.sides import ClientEngine
from slipstream.serde.values import encode_value


class MissingInputError(Exception):
    """An input has failed before its task was submitted."""

    def __init__(self, cause: Cause, instead: Future[Any] | None = None) -> None:
        super().__init__()
        self.cause = cause
        #: What stands for a future whose result cannot be sent.
        self.instead = instead


class Dataflow:
    """The inputs of tasks of one client.

    Args:
        client: The client.
        engine: Its engine.
        task_ids: Numbers for values that are expected.
    """

    def __init__(self, client: FutureClient, engine: ClientEngine, task_ids: Iterator[TaskId]) -> None:
        self._client = client
        self._engine = engine
        self._task_ids = task_ids
        client.resubmit = self.resubmit

    def inputs_of(
        self, future: Future[Any], inputs: Sequence[StandardFuture[Any]]
    ) -> tuple[list[TaskId | bytes], dict[TaskId, StandardFuture[Any]]]:
        """What the scheduler is told of the futures that a task takes results of.

        Args:
            future: The task's own, which the client knows.
            inputs: The futures, in the order in which the call counts them.

        Returns:
            The inputs, and those futures among them that are values to be expected, by their numbers.

        Raises:
            MissingInputError: One has failed, was cancelled, or cannot be sent.
        """
        future._inputs = tuple(inputs)
        return self._numbered(inputs, [self._known(value) for value in inputs])

    def resubmit(self, message: Submit) -> None:
        """Submit a task again that depends on what the scheduler has forgotten."""
        future = self._client.futures.get(message.task)
        if future is None:
            return
        try:
            told: list[TaskId | bytes | None] = []
            futures = len(future._inputs)
            for value, before in zip(future._inputs, message.inputs[:futures], strict=True):
                if isinstance(before, bytes) or before in self._client.expected:
                    told.append(before)
                else:
                    told.append(self._known(value) if value.done() else None)
            numbered, expected = self._numbered(future._inputs, told)
            self.submit(replace(message, inputs=(*numbered, *message.inputs[futures:])), expected)
        except MissingInputError as missing:
            self._client.end_unsubmitted(future, missing.cause)
            for number in message.inputs:
                if not isinstance(number, bytes) and number in self._client.expected:
                    self._tell(Provide(number, None))  # nobody waits for it any more

    def _known(self, value: StandardFuture[Any]) -> TaskId | bytes | None:
        """What the scheduler is told of a future: a task that it knows, or a result that is there; None for neither."""
        if isinstance(value, Future) and value._owner is self._client:
            return _result_of(value) if value.done() and not value._kept else value._task
        return _result_of(value) if value.done() else None

    def _numbered(
        self, inputs: Sequence[StandardFuture[Any]], told: Sequence[TaskId | bytes | None]
    ) -> tuple[list[TaskId | bytes], dict[TaskId, StandardFuture[Any]]]:
        """Numbers for those futures of which there is nothing to tell yet."""
        numbered: list[TaskId | bytes] = []
        expected: dict[TaskId, StandardFuture[Any]] = {}
        for value, known in zip(inputs, told, strict=True):
            if known is None:
                known = next(self._task_ids)
                expected[known] = value
            numbered.append(known)
        return numbered, expected

    def submit(self, message: Submit, expected: dict[TaskId, StandardFuture[Any]]) -> None:
        """Submit a task, and provide the values that it expects when they are there."""
        if not expected:
            self._engine.submit(message)
            return
        self._client.expected.update(expected)
        try:
            self._engine.submit(*map(Expect, expected), message)
        except BaseException:
            for number in expected:
                self._client.expected.pop(number, None)
            raise
        for number, value in expected.items():
            value.add_done_callback(partial(_provide, weakref.ref(self), number))

    def provide(self, number: TaskId, value: StandardFuture[Any]) -> None:
        """A future that was waited for has ended; in whatever thread ends it."""
        payload: bytes | None = None
        try:
            payload = _result_of(value)
        except MissingInputError as missing:
            if missing.instead is not None:
                value = missing.instead
            self._client.failed[number] = value
        shielded = signals.enter()
        try:
            self._tell(Provide(number, payload))
        finally:
            if shielded:
                signals.leave()

    def _tell(self, message: Provide) -> None:
        """Provide a value. What ends by that may provide more, to and fro between executors: not too deep."""
        waiting = _telling.waiting
        waiting.append((self, message))
        if _telling.depth >= _MAX_DEPTH:
            return  # for whoever is the first
        _telling.depth += 1
        try:
            while waiting:
                flow, message = waiting.pop()
                try:
                    flow._engine.tell(message)
                finally:
                    flow._client.expected.pop(message.task, None)
                    if flow._engine.answers_at_once:
                        flow._client.failed.pop(message.task, None)
        finally:
            _telling.depth -= 1
            if waiting and not _telling.depth:  # something was thrown in here: the others are to be told in any event
                flow, message = waiting.pop()
                flow._tell(message)


#: Calls of `_tell` within each other.
_MAX_DEPTH = 16


class _Telling(threading.local):
    def __init__(self) -> None:
        self.depth = 0
        self.waiting: list[tuple[Dataflow, Provide]] = []


_telling = _Telling()


def _provide(flow: "weakref.ref[Dataflow]", number: TaskId, value: StandardFuture[Any]) -> None:
    """A stranger has ended. It does not keep alive what waits for it."""
    found = flow()
    if found is not None:
        found.provide(number, value)


def _result_of(value: StandardFuture[Any]) -> bytes:
    """The encoded result of a future that has ended.

    Raises:
        MissingInputError: There is none, or it cannot be sent.
    """
    if isinstance(value, Future) and value._owner is not None:  # not decoded here: another thread may be at it
        if not value.succeeded or value._lost is not None:
            raise MissingInputError(way_from(value))
        return encode_value(value._result) if value._encoded is None else value._encoded
    try:
        failed = value.exception() is not None
    except CancelledError:
        failed = True
    if failed:
        raise MissingInputError(way_from(value))
    try:
        return encode_value(value.result())
    except BaseException as error:  # whatever the user's own reducers raise
        instead = Future.of_failed(STRANGER, error)
        raise MissingInputError(way_from(instead), instead) from error
