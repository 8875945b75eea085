"""What a task raised, as bytes, and back: type, args, attributes, notes, causes, contexts and groups.

An exception is a graph: causes, contexts and the members of groups. Each exception in it is encoded by itself, so that
one that does not travel costs only itself and arrives as a RemoteError in its place. The worker loads what it has
encoded before it sends it; the client therefore gets the type whenever it can be had.

Traceback objects do not travel. The worker's formatted text does, as the cause of the last exception of the chain.

Never here: how one exception is taken apart (see `exception_body`); decisions about retries. Nothing here keeps a frame
alive.
"""

from __future__ import annotations

import os
import pickle
from types import TracebackType
from typing import Any, NamedTuple, cast

from slipstream.serde.error_text import error_text
from slipstream.serde.exception_body import dump_body, load_body, set_attribute
from slipstream.serde.plain_exceptions import decode_plainly
from slipstream.serde.values import PAYLOAD_LIMIT, PICKLED

#: Exceptions of one graph that travel; whatever is beyond is cut off, as in a loop that chains for ever.
GRAPH_LIMIT = 1000
#: Characters of a formatted traceback; the middle of a longer one is left out.
TRACEBACK_LIMIT = 200_000

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class RemoteTraceback(Exception):
    """Carries the traceback of a worker as text; it stands as the cause of the exception that was raised there.

    Args:
        text: The traceback as the worker formatted it.

    Example:
        >>> "ValueError: 3" in str(RemoteTraceback("ValueError: 3"))
        True
    """

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


class _Entry(NamedTuple):
    """One exception of the graph. Links are indexes into the list of entries."""

    type_name: str
    text: str  # type and text, and why the exception itself does not travel
    body: bytes | None = None  # pickled; None where nothing but the text travels
    members: tuple[int, ...] = ()  # of a group
    cause: int | None = None
    context: int | None = None
    suppress_context: bool = False
    notes: tuple[str, ...] = ()


def encode_exception(exc: BaseException, task_label: str = "") -> bytes:
    """Encode what a task raised, in the process where it was raised.

    Args:
        exc: The exception, with its traceback.
        task_label: The task's callable, named in the text of an exception that does not travel.

    Example:
        >>> type(decode_exception(encode_exception(KeyError("a"))))
        <class 'KeyError'>
    """
    try:
        payload = _encode(exc, task_label)
        if len(payload) <= PAYLOAD_LIMIT:
            return payload
        reason = f"it takes {len(payload):,} bytes"
    except Exception as error:  # noqa: BLE001 - whatever the user's class does, its text must travel
        reason = error_text(error)
    return pickle.dumps((_format(exc), [tuple(_text_only(exc, task_label, reason))]), 5)


def decode_exception(payload: bytes) -> BaseException:
    """Load what a task raised. Never raises: at worst it returns a RemoteError with the text.

    Args:
        payload: What `encode_exception` returned.

    Example:
        >>> try:
        ...     raise ValueError("three")
        ... except ValueError as error:
        ...     payload = encode_exception(error)
        >>> error = decode_exception(payload)
        >>> error, type(error.__cause__).__name__
        (ValueError('three'), 'RemoteTraceback')
    """
    try:
        if payload[0] < PICKLED:
            return decode_plainly(payload)
        text, records = pickle.loads(payload)
        return _decode([_Entry(*record) for record in records], text)
    except Exception as error:  # noqa: BLE001 - this is data, and its future must end
        return _remote_error(f"the exception of a task cannot be loaded: {error_text(error)}")


# --- encoding ---------------------------------------------------------------------------------------------------------


def _encode(exc: BaseException, task_label: str) -> bytes:
    graph = _collect(exc)
    index = {id(each): i for i, each in enumerate(graph)}
    return pickle.dumps((_format(exc), [tuple(_encode_entry(each, index, task_label)) for each in graph]), 5)


def _collect(exc: BaseException) -> list[BaseException]:
    """Every exception that can be reached from this one, itself first; a RemoteTraceback is in the text already."""
    found: dict[int, BaseException] = {}
    waiting = [exc]
    while waiting and len(found) < GRAPH_LIMIT:
        each = waiting.pop()
        if id(each) not in found:
            found[id(each)] = each
            linked = (each.__context__, each.__cause__, *reversed(_members(each)))
            waiting += [other for other in linked if other is not None and not isinstance(other, RemoteTraceback)]
    return list(found.values())


def _members(exc: BaseException) -> tuple[BaseException, ...]:
    return cast(Any, exc).exceptions if isinstance(exc, BaseExceptionGroup) else ()


def _encode_entry(exc: BaseException, index: dict[int, int], task_label: str) -> _Entry:
    body, reason = dump_body(exc, _members(exc))
    members = [index.get(id(member)) for member in _members(exc)]
    if None in members:
        body, reason = None, f"it leads to more than {GRAPH_LIMIT} others"
    entry = _text_only(exc, task_label, reason)
    if body is not None:
        entry = entry._replace(body=body, members=tuple(i for i in members if i is not None), text=error_text(exc))
    return entry._replace(
        cause=index.get(id(exc.__cause__)),
        context=index.get(id(exc.__context__)),
        suppress_context=exc.__suppress_context__,
        notes=tuple(_safe_text(note) for note in _notes(exc)),
    )


def _text_only(exc: BaseException, task_label: str, reason: str) -> _Entry:
    task = f"raised by task {task_label!r}; " if task_label else ""
    return _Entry(
        type_name=_type_name(type(exc)),
        text=f"{error_text(exc)} ({task}the exception itself does not travel: {reason})",
    )


def _notes(exc: BaseException) -> list[object]:
    notes: object = getattr(exc, "__notes__", None)
    return list(notes) if isinstance(notes, list | tuple) else []  # pyright: ignore[reportUnknownArgumentType]


def _format(exc: BaseException) -> str:
    """The traceback of the whole graph, from the first frame that is not the engine's."""
    import traceback  # 3 ms, and most workers never need it

    try:
        text = "".join(traceback.format_exception(type(exc), exc, _user_frames(exc.__traceback__)))
    except Exception as error:  # noqa: BLE001 - a user's exception may fail to be formatted
        text = f"{error_text(exc)}\n(its traceback cannot be formatted: {error_text(error)})\n"
    if len(text) > TRACEBACK_LIMIT:
        half = TRACEBACK_LIMIT // 2
        text = f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
    return text


def _user_frames(tb: TracebackType | None) -> TracebackType | None:
    first = tb
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        first = first.tb_next
    return first or tb  # the engine's own frames, where there is nothing else


def _type_name(cls: type) -> str:
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def _safe_text(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - a note may be any object
        return f"<a {type(value).__qualname__} without text>"


# --- decoding ---------------------------------------------------------------------------------------------------------


def _decode(entries: list[_Entry], text: str) -> BaseException:
    built: dict[int, BaseException] = {}
    for i in range(len(entries)):
        _build(i, entries, built, text)
    for i, entry in enumerate(entries):
        _link(built[i], entry, built)
    _attach(built[0], text)
    return built[0]


def _build(i: int, entries: list[_Entry], built: dict[int, BaseException], text: str) -> BaseException:
    """Make one exception, after the members of its group."""
    if i not in built:
        entry = entries[i]
        try:
            if entry.body is None:
                raise ValueError("only its text has travelled")
            built[i] = load_body(entry.body, tuple(_build(member, entries, built, text) for member in entry.members))
        except Exception:  # noqa: BLE001 - this is data, and its future must end
            built[i] = _remote_error(entry.text, type_name=entry.type_name, remote_traceback=text)
    return built[i]


def _remote_error(message: str, *, type_name: str = "", remote_traceback: str = "") -> BaseException:
    from slipstream.errors import RemoteError  # brings concurrent.futures: 8 ms, and a worker seldom decodes

    return RemoteError(message, type_name=type_name, remote_traceback=remote_traceback)


def _link(exc: BaseException, entry: _Entry, built: dict[int, BaseException]) -> None:
    if entry.notes:
        set_attribute(exc, "__notes__", list(entry.notes))
    set_attribute(exc, "__cause__", None if entry.cause is None else built[entry.cause])
    set_attribute(exc, "__context__", None if entry.context is None else built[entry.context])
    set_attribute(exc, "__suppress_context__", entry.suppress_context)  # setting the cause has set it


def _attach(exc: BaseException, text: str) -> None:
    """Put the remote traceback where it is printed first: as the cause of the chain's last exception."""
    seen = {id(exc)}
    while True:
        following = exc.__cause__
        if following is None and not exc.__suppress_context__:
            following = exc.__context__
        if following is None or id(following) in seen:
            break
        seen.add(id(following))
        exc = following
    suppressed = exc.__suppress_context__
    set_attribute(exc, "__cause__", RemoteTraceback(text))
    set_attribute(exc, "__suppress_context__", suppressed)
