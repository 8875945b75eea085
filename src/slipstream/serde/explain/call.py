"""`doctor`: what a call costs to send, what of it cannot be sent, and what to do about it.

Everything is measured on the call as it is now, by the code that would send it. Nothing is sent or called.

Never here: files (see `pickle_file`) and how a report is shown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from types import FunctionType
from typing import Any

from slipstream.serde.callables import callable_label
from slipstream.serde.captures import capture
from slipstream.serde.error_text import error_text
from slipstream.serde.explain.advice import advise
from slipstream.serde.explain.captured import captured
from slipstream.serde.explain.culprits import Culprit, culprits, pickled_bytes
from slipstream.serde.explain.import_times import TIMEOUT_S, ImportTime, import_times
from slipstream.serde.explain.other_way import other_way
from slipstream.serde.explain.pickle_file import outline
from slipstream.serde.explain.printable import printable
from slipstream.serde.explain.reasons import how_and_why
from slipstream.serde.explain.report import Captured, Piece, Report
from slipstream.serde.holes import dump_with_holes
from slipstream.serde.imports import is_by_reference
from slipstream.serde.reducers import LruCacheWrapper
from slipstream.serde.tasks import Encoded, encode_task

#: Captures that are listed; the largest first.
LISTED_CAPTURES = 50


def doctor(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Say what it would cost to send a call, and what of it cannot be sent. Nothing is sent, and `fn` is not called.

    Modules that a worker would import are imported in a fresh interpreter, for 20 s at most, to see how long each
    takes. Not seen: changes of attributes of modules, of what goes by reference, and of files on disk.

    Args:
        fn: What would be submitted.
        args: Its positional arguments.
        kwargs: Its keyword arguments.

    Raises:
        TypeError: `fn` cannot be called.

    Example:
        >>> table = [0] * 100_000
        >>> report = doctor(lambda x: table[x], 3)
        >>> report.ok, report.callable.how, report.callable.why
        (True, 'by value', 'a lambda: no module has it under a name')
        >>> [(found.path, found.kind) for found in report.captures]
        [("the global 'table'", 'state')]
        >>> print(report.advice[0])
        The global 'table' takes 200.2 kB with each task: pass it as an argument, make it a tuple or bytes, or...
    """
    return explain(fn, args, kwargs)


def explain(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], timeout_s: float = TIMEOUT_S
) -> Report:
    """What `doctor` does.

    Args:
        fn: What would be submitted.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        timeout_s: Seconds for importing in a fresh interpreter; 0 imports nothing.
    """
    if not callable(fn):
        raise TypeError(f"{type(fn).__qualname__!r} object cannot be called, so it is no task")
    label = printable(callable_label(fn))
    fn, args, kwargs = _without_partials(fn, args, kwargs)
    pieces = {
        **{f"args[{index}]": value for index, value in enumerate(args)},
        **{f"argument {name!r}": value for name, value in kwargs.items()},
    }
    encoded, error = _encode(fn, args, kwargs)
    definition = encoded.definition if encoded else b""
    how, why = how_and_why(fn)
    found = () if encoded else _culprits({"the callable": fn, **pieces})
    times = _times(_modules(fn, encoded) if encoded else (), timeout_s)
    report = Report(
        label=label,
        callable=Piece("the callable", _kind(fn), how, why, len(definition) or _bytes(fn)),
        arguments=tuple(
            Piece(path, _kind(value), *how_and_why(value), _bytes(value)) for path, value in pieces.items()
        ),
        definition_bytes=len(definition),
        classes_bytes=len(encoded.classes) if encoded else 0,
        task_bytes=len(encoded.payload) if encoded else None,
        state_bytes=encoded.state_bytes if encoded else 0,
        captures=tuple(_captures(fn)) if how == "by value" else (),
        imports=times,
        culprits=found,
        other_way=other_way(fn) if how == "by reference" else None,
        problem=_problem(error, found, times),
        advice=(),
    )
    return advise(report)


def _without_partials(
    fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """A partial is taken apart when it is sent: what it binds are arguments."""
    while type(fn) is partial:
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func
    return fn, args, kwargs


def _encode(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Encoded | None, str]:
    try:
        return encode_task(fn, args, kwargs), ""
    except Exception as error:  # noqa: BLE001 - the user's own reducers may raise anything; the report says what
        return None, printable(error_text(error))


def _problem(error: str, found: tuple[Culprit, ...], times: Iterable[ImportTime]) -> str:
    if found:
        return f"cannot be sent: {found[0].path} cannot be pickled"
    if error:
        return error
    lost = [time.module for time in times if time.failed]
    return f"can be sent, and not be loaded: {lost[0]} cannot be imported" if lost else ""


def _culprits(pieces: dict[str, Any]) -> tuple[Culprit, ...]:
    return tuple(culprit for path, value in pieces.items() for culprit in culprits(value, path))


def _times(modules: Iterable[str], timeout_s: float) -> tuple[ImportTime, ...]:
    return import_times(modules, timeout_s) if timeout_s > 0 else tuple(ImportTime(name, None) for name in modules)


def _kind(value: object) -> str:
    return printable(type(value).__qualname__)


def _bytes(value: object, without: Sequence[object] = ()) -> int | None:
    """How many it takes by itself, without these objects in it; None if it cannot be pickled."""
    try:
        return len(dump_with_holes(value, without, whole=True)[0]) if without else pickled_bytes(value)
    except Exception:  # noqa: BLE001 - the user's own reducers may raise anything; `culprits` says what
        return None


# --- captures and modules ---------------------------------------------------------------------------------------------


def _captures(fn: Any) -> Iterator[Captured]:
    """Whatever the callable takes along, the largest first."""
    function = fn.__wrapped__ if type(fn) is LruCacheWrapper else fn
    if type(function) is not FunctionType:
        return
    try:
        found = capture(fn)
    except Exception:  # noqa: BLE001 - the user's own reducers may raise anything; `culprits` says what
        found = None
    paths, state = (found.paths, found.state) if found else ((), ())
    kept = {id(value) for value in state}
    listed = [Captured(path, _kind(value), "state", _bytes(value)) for path, value in zip(paths, state, strict=True)]
    for path, value in _all_captured(function):
        if id(value) not in kept:
            kind = "by reference" if how_and_why(value)[0] == "by reference" else "constant"
            listed.append(Captured(path, _kind(value), kind, _bytes(value, state)))
    listed.sort(key=lambda item: -(sys.maxsize if item.bytes is None else item.bytes))
    yield from listed[:LISTED_CAPTURES]


def _all_captured(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """The captures of a function, and of the functions by value among them."""
    waiting, seen = [(function, "")], {id(function)}
    while waiting:
        present, inside = waiting.pop(0)
        for path, value in captured(present, inside):
            if id(value) in seen and type(value) is FunctionType:
                continue
            seen.add(id(value))
            yield path, value
            if type(value) is FunctionType and not is_by_reference(value):
                waiting.append((value, printable(value.__qualname__)))


def _modules(fn: Any, encoded: Encoded) -> tuple[str, ...]:
    """Modules that a worker imports for the call, without those that every worker has."""
    names: dict[str, None] = {}
    if how_and_why(fn)[0] == "by reference":  # its module stands in the payload as a string
        names[fn.__module__] = None
    assert isinstance(encoded.payload, bytes)  # in pieces only for who asks for them
    for data in (encoded.definition[1:], encoded.classes, encoded.payload):
        while data[:1] in (b"\x80", b"\x81"):  # marshal, which names nothing, begins otherwise
            data = data[1:] if data[:1] == b"\x81" else data
            found = outline(data)
            names.update(dict.fromkeys(found.modules))
            data = data[len(data) - found.trailing_bytes :]
    return tuple(name for name in names if name not in _HAD and not name.startswith("slipstream."))


#: What every interpreter has loaded when it starts.
_HAD = frozenset((*sys.builtin_module_names, "__main__", "slipstream", "?"))
