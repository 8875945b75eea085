"""Runs one task: decode, call, encode. Whatever goes wrong in it becomes a message about this task and no other.

Never here: waiting, sending, or any engine layer wrapped around the user's function.
"""

from __future__ import annotations

from time import monotonic_ns

from slipstream.protocol.worker_codec import done, failed, gone
from slipstream.serde.callables import callable_label
from slipstream.serde.plain_exceptions import encode_plainly
from slipstream.serde.values import STORED, decode_call, encode_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from functools import partial
    from typing import Any, TypeAlias

    from slipstream.protocol.worker_codec import Report, RunFields
    from slipstream.serde.definitions import Definition
    from slipstream.serde.values import Store
    from slipstream.worker.page import SharedPage

    Loaded: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
else:
    from _functools import partial


#: `store.loading`, once a task has had inputs: to ask for it in each took a microsecond.
_loading: Any = None


def run_task(
    run: RunFields,
    definition: Definition | None,
    classes: Definition | None,
    inputs: Sequence[bytes],
    page: SharedPage,
    store: Store | None = None,
) -> tuple[Report, bytes | None, int]:
    """Run an attempt and say how it ended. Raises in a forked child of the task only, which does not report.

    Args:
        run: what to run.
        definition: that of its callable, if it has one.
        classes: that of the classes that it needs, if there are any.
        inputs: encoded values of the futures among its arguments.
        page: where it is noted what runs.
        store: writes large results; without it they travel like others.

    Returns:
        What to report, the encoded result if there is one, and how long the attempt took, in ns.
    """
    global _loading
    task, attempt, _, call, chunk, _, _ = run
    began = monotonic_ns()
    page.begin(task, attempt, began)
    function: Callable[..., Any] | None = None
    failures: tuple[tuple[int, bytes], ...] = ()
    try:
        if inputs or call[0] == STORED:
            if _loading is None:
                from slipstream.store import loading as _loading
            try:
                loaded: Loaded = _loading.load_call(call, definition, classes, inputs)
            except _loading.InputsGoneError as error:
                return gone(task, attempt, error.payloads), None, monotonic_ns() - began
            function, args, kwargs = loaded
        else:
            function, args, kwargs = decode_call(call, definition, classes)
        if chunk:
            items, spread, bound, keywords = args
            if bound or keywords:
                function = partial(function, *bound, **keywords)
            payload, failures = _run_chunk(function, items, spread, page, store)
        else:
            value = function(*args, **kwargs)
            # A forked child that came back reports nothing, and must leave no file.
            payload = b"" if page.detached else _encode_result(function, value, store)
        duration = monotonic_ns() - began
        return done(task, attempt, duration, payload, failures), payload, duration
    except BaseException as error:  # whatever a task raises is data
        if page.detached:
            raise  # but not in a child that it has forked
        payload = _encode_raised(error, function)
        duration = monotonic_ns() - began
        return failed(task, attempt, duration, payload), None, duration
    finally:
        page.end()


def _encode_result(function: object, value: object, store: Store | None) -> bytes:
    try:
        return encode_value(value, store)
    except Exception as error:
        from slipstream.errors import PayloadError  # it imports concurrent.futures, which most workers never need

        raise PayloadError(f"the result of task {callable_label(function)!r} cannot be sent: {error}") from error


def _encode_raised(error: BaseException, function: object) -> bytes:
    """The exception without the frames of this file."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_frame.f_code.co_filename == __file__:
        traceback = traceback.tb_next
    try:
        from slipstream.serde.exceptions import encode_exception  # 5 ms, when a task raises first

        return encode_exception(error.with_traceback(traceback), callable_label(function))
    except BaseException as failure:  # noqa: BLE001  # no descriptor or memory is left, say, or the import path is gone
        return encode_plainly(error, failure)


def _run_chunk(
    function: Callable[..., Any], items: list[Any], spread: bool, page: SharedPage, store: Store | None
) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    """Call the function for each item (each a tuple of arguments if `spread`). An item that raises fails alone."""
    results: list[Any] = []
    failures: list[tuple[int, bytes]] = []
    append, at_item = results.append, page.at_item
    for index, item in enumerate(items):
        at_item(index)
        try:
            append(function(*item) if spread else function(item))
        except BaseException as error:  # whatever a task raises is data
            if page.detached:
                raise
            append(None)
            failures.append((index, _encode_raised(error, function)))
        if page.detached:  # the other items are the parent's
            return b"", ()
    try:
        return encode_value(results, store), tuple(failures)
    except Exception:  # noqa: BLE001  # some result cannot be sent: find which, so that the others can
        return _encode_singly(function, results, failures, store)


def _encode_singly(
    function: Callable[..., Any], results: list[Any], failures: list[tuple[int, bytes]], store: Store | None
) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    for index, value in enumerate(results):
        try:
            _encode_result(function, value, None)
        except Exception as error:  # noqa: BLE001  # it is data
            failures.append((index, _encode_raised(error, function)))
            results[index] = None
    return encode_value(results, store), tuple(sorted(failures))
