"""Runs one task: decode, call, encode. Whatever goes wrong in it becomes a message about this task and no other.

Never here: waiting, sending, or any engine layer wrapped around the user's function.
"""

import time
from collections.abc import Callable
from typing import Any

from slipstream.errors import PayloadError
from slipstream.protocol.messages import Done, Failed, Run
from slipstream.serde.callables import callable_label
from slipstream.serde.exceptions import encode_exception
from slipstream.serde.values import decode_call, encode_value
from slipstream.worker.page import SharedPage

_now = time.monotonic_ns


def run_task(run: Run, page: SharedPage) -> Done | Failed:
    """Run an attempt and say how it ended. Never raises."""
    began = _now()
    page.begin(run.task, run.attempt, began)
    try:
        function, args, kwargs = _load(run.payload)
        if run.items:
            payload, failures = _run_chunk(function, *args, page)
            return Done(run.task, run.attempt, _now() - began, payload, failures)
        value = function(*args, **kwargs)
        try:
            payload = encode_value(value)
        except PayloadError as error:
            raise PayloadError(f"the result of task {callable_label(function)!r} cannot be sent: {error}") from error
        return Done(run.task, run.attempt, _now() - began, payload)
    except BaseException as error:  # noqa: BLE001  # whatever a task raises is data
        return Failed(run.task, run.attempt, _now() - began, _encode_raised(error))
    finally:
        page.end()


def _load(payload: bytes) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    try:
        return decode_call(payload)
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}"
        raise PayloadError(f"the task's callable or arguments cannot be loaded in the worker: {reason}") from error


def _encode_raised(error: BaseException) -> bytes:
    """The exception without the frames of this file."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    return encode_exception(error.with_traceback(traceback))


def _run_chunk(
    function: Callable[..., Any], items: list[Any], spread: bool, page: SharedPage
) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    """Call the function for each item (each a tuple of arguments if `spread`). An item that raises fails alone."""
    results: list[Any] = []
    failures: list[tuple[int, bytes]] = []
    append, at_item = results.append, page.at_item
    for index, item in enumerate(items):
        at_item(index)
        try:
            append(function(*item) if spread else function(item))
        except BaseException as error:  # noqa: BLE001  # whatever a task raises is data
            append(None)
            failures.append((index, _encode_raised(error)))
    try:
        return encode_value(results), tuple(failures)
    except PayloadError:
        return _encode_singly(function, results, failures)


def _encode_singly(
    function: Callable[..., Any], results: list[Any], failures: list[tuple[int, bytes]]
) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    """Some result cannot be sent: find which, so that the others can."""
    for index, value in enumerate(results):
        try:
            encode_value(value)
        except PayloadError as error:
            label = callable_label(function)
            failed = PayloadError(f"the result of task {label!r} for item {index} of its chunk cannot be sent: {error}")
            failed.__cause__ = error
            failures.append((index, encode_exception(failed)))
            results[index] = None
    return encode_value(results), tuple(sorted(failures))
