"""Who is at fault when a payload cannot be made or loaded, in words that its user can act on.

Used after a failure only, so it may take its time: to find the culprit it pickles the pieces one by one.

Never here: anything that runs when all goes well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from slipstream.errors import PayloadError
from slipstream.serde.callables import callable_label
from slipstream.serde.captures import capture
from slipstream.serde.constants import facts_of
from slipstream.serde.error_text import error_text
from slipstream.serde.explain.culprits import culprits
from slipstream.serde.nested import futures_in, replace_futures
from slipstream.serde.pickler import dumps


def call_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> PayloadError:
    """Say which piece of the call cannot be pickled.

    Args:
        fn: The task's callable.
        args: Its positional arguments.
        kwargs: Its keyword arguments.
        error: What pickling the whole raised.
    """
    for where, piece, advice in (*_captured(fn), *_pieces(fn, args, kwargs)):
        for culprit in culprits(piece, where):
            return PayloadError(
                f"task {callable_label(fn)!r} cannot be sent: {culprit.path}, of type {culprit.type!r}, cannot be "
                f"pickled: {culprit.reason}. {advice}"
            )
    return PayloadError(
        f"task {callable_label(fn)!r} cannot be sent: the call as a whole cannot be pickled, though each argument can: "
        f"{error_text(error)}"
    )


def hidden_future_error(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PayloadError:
    """Say where a future stands that is not replaced by its result, since it is in an object that is no container."""
    nothing = dict.fromkeys(futures_in((args, kwargs)))
    try:
        args, kwargs = replace_futures((args, kwargs), nothing.get)
    except Exception:  # noqa: BLE001 - a container of the user's that cannot be made anew
        args, kwargs = (), {}
    for where, piece, _ in _pieces(fn, args, kwargs):
        for culprit in culprits(piece, where):
            return PayloadError(
                f"task {callable_label(fn)!r} cannot be sent: {culprit.path} is a future. Pass it as an argument, or "
                "in a list, tuple, set, dict, dataclass or the like among these: there the task finds its result"
            )
    return PayloadError(
        f"task {callable_label(fn)!r} cannot be sent: it refers to a future by other means than its arguments. Pass it "
        "as an argument: the task gets its result"
    )


def call_size_error(fn: Callable[..., Any], size: int, limit: int) -> PayloadError:
    """Say that the call is too large.

    Args:
        fn: The task's callable.
        size: Bytes of the payload.
        limit: Bytes that a payload may have.
    """
    return PayloadError(
        f"task {callable_label(fn)!r} cannot be sent: callable and arguments take {size:,} bytes, and the limit is "
        f"{limit:,}. Pass a file name, or split the task."
    )


def value_error(value: object, error: Exception) -> PayloadError:
    """Say that a value cannot be pickled.

    Args:
        value: The value.
        error: What pickling it raised.
    """
    for culprit in culprits(value, "the value"):
        if culprit.path != "the value":
            return PayloadError(f"{culprit.path}, of type {culprit.type!r}, cannot be pickled: {culprit.reason}")
    return PayloadError(f"a value of type {type(value).__qualname__!r} cannot be pickled: {error_text(error)}")


def value_size_error(value: object, size: int, limit: int) -> PayloadError:
    """Say that a value is too large.

    Args:
        value: The value.
        size: Bytes of the payload.
        limit: Bytes that a payload may have.
    """
    return PayloadError(
        f"a value of type {type(value).__qualname__!r} takes {size:,} bytes when pickled, and the limit is {limit:,}. "
        "Write it to a file, or return it in parts."
    )


def load_error(what: str, error: Exception) -> PayloadError:
    """Say that something that arrived cannot be loaded.

    Args:
        what: What arrived, such as ``"the call"``.
        error: What loading it raised.
    """
    advice = ""
    if isinstance(error, ModuleNotFoundError):
        advice = (
            f". Module {error.name!r} must be importable in every worker: they search the client's sys.path. "
            f"Or send it by value: Executor(by_value=[{error.name!r}])"
        )
    return PayloadError(f"{what} cannot be loaded: {error_text(error)}{advice}")


def state_warning(fn: Any, state_bytes: int) -> str | None:
    """That a function captures much that is sent with each task, and what; None if that was said already.

    Args:
        fn: The task's callable.
        state_bytes: What it all takes.
    """
    while type(fn) is partial:
        fn = fn.func
    captured = capture(fn)
    if captured is None or facts_of(captured.code).warned:
        return None
    facts_of(captured.code).warned = True
    path, value = max(zip(captured.paths, captured.state, strict=True), key=lambda part: len(dumps(part[1])))
    return (
        f"task {callable_label(fn)!r} captures {state_bytes / 1e6:.1f} MB that are sent with each task, since they may "
        f"change in between: most of all {path}, of type {type(value).__qualname__!r}. If it does not change, make it "
        "a tuple or bytes, which are sent once; or load it inside the task."
    )


def _captured(fn: Any) -> list[tuple[str, object, str]]:
    """What a function captures and has to be sent, like `_pieces`."""
    try:
        captured = capture(fn)
    except Exception:  # noqa: BLE001 - it may be at fault itself
        return []
    advice = "Make it inside the task, or pass what is needed of it as an argument."
    return [] if captured is None else [(p, v, advice) for p, v in zip(captured.paths, captured.state, strict=True)]


def _pieces(fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, object, str]]:
    """Each piece of a call: where it stands, itself, and what to do if it is at fault."""
    yield "the callable", fn, "Look at what it captures: its closure, its defaults, the globals it uses, its object."
    advice = "Pass something that can be pickled, or make it inside the task."
    for index, value in enumerate(args):
        yield f"args[{index}]", value, advice
    for name, value in kwargs.items():
        yield f"argument {name!r}", value, advice
