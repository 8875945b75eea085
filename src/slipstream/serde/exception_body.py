"""One exception as bytes: its type, args and attributes, without its links to others.

`BaseException.__reduce__` calls the class again with `args`, which raises where `__init__` takes other arguments than
it passes on, or silently changes the message. Here an exception is rebuilt without its own `__new__` and `__init__`,
unless its class says itself how it is to be pickled.

Never here: notes, causes, contexts, tracebacks (see `exceptions`).
"""

from __future__ import annotations

import copyreg
import pickle
from typing import Any, cast

from slipstream.serde.error_text import error_text
from slipstream.serde.values import pickle_value

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, or by a C extension at run time


def dump_body(exc: BaseException, members: tuple[BaseException, ...]) -> tuple[bytes | None, str]:
    """Pickle one exception in the first form that can be loaded again: the bytes, or None and why there are none.

    Args:
        exc: The exception.
        members: Those of its group, if it is one; they do not become part of the bytes.
    """
    reason = ""
    for form in (_whole, _by_its_class, _without_what_does_not_pickle):
        try:
            body = pickle_value(form(exc))
            load_body(body, members)
            return body, ""
        except BaseException as error:  # noqa: BLE001 - whatever the user's class raises, its text must travel
            reason = reason or error_text(error)
    return None, reason


def _whole(exc: BaseException) -> object:
    """The exception itself where its class has its own way, and else (class, args, attributes)."""
    return exc if _pickles_its_own_way(type(exc)) else _parts(exc)


def _by_its_class(exc: BaseException) -> object:
    """As plain pickle does it, for the exception of a C extension whose `__new__` must not be gone round."""
    return exc


def _without_what_does_not_pickle(exc: BaseException) -> object:
    kind, args, state = _parts(exc)
    return kind, args, {name: value for name, value in state.items() if _pickles(value)}


def _parts(exc: BaseException) -> tuple[type[BaseException], tuple[Any, ...], dict[str, Any]]:
    kind = type(exc)
    # A builtin's own reduction adds what is neither in args nor in __dict__: a file name, the name of a module.
    reduced: Any = _builtin_base(kind).__reduce__(exc)
    state: dict[str, Any] = dict(reduced[2]) if len(reduced) > 2 and reduced[2] else {}
    state.pop("__notes__", None)
    # The members of a group are encoded by themselves.
    args: tuple[Any, ...] = (cast(Any, exc).message,) if isinstance(exc, BaseExceptionGroup) else reduced[1]
    return kind, args, state


def _builtin_base(cls: type[BaseException]) -> type[BaseException]:
    """The nearest base that is no Python class: the one whose `__new__` makes the object."""
    base: type = cls
    while base.__flags__ & _HEAP_TYPE and base.__base__ is not None:
        base = base.__base__
    return base


def _pickles_its_own_way(cls: type[BaseException]) -> bool:
    base = _builtin_base(cls)
    names = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
    return (
        base.__module__ != "builtins"
        or cls in copyreg.dispatch_table
        or any(getattr(cls, name, None) is not getattr(base, name, None) for name in names)
    )


def _pickles(value: object) -> bool:
    try:
        pickle.loads(pickle_value(value))
    except BaseException:  # noqa: BLE001 - whatever the user's class raises, the rest of the exception must travel
        return False
    return True


def load_body(body: bytes, members: tuple[BaseException, ...]) -> BaseException:
    """Load one exception, without notes and links.

    Args:
        body: What `dump_body` returned.
        members: Those of its group, if it is one.

    Raises:
        Exception: Whatever its class, its attributes or its arguments raise when they are loaded.
    """
    loaded: Any = pickle.loads(body)
    if isinstance(loaded, BaseException):
        return loaded
    if type(loaded) is not tuple:
        raise TypeError(f"its own reduction makes a {type(loaded).__qualname__} of it")
    cls, args, state = cast("tuple[type[BaseException], tuple[Any, ...], dict[str, Any]]", loaded)
    return _rebuild(cls, (*args, list(members)) if members else args, state)


def _rebuild(cls: type[BaseException], args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """Make an exception as it was, calling nothing of its own class."""
    base = _builtin_base(cls)
    exc = base.__new__(cls, *args)
    base.__init__(exc, *args)
    for name, value in state.items():
        set_attribute(exc, name, value)
    return exc


def set_attribute(exc: BaseException, name: str, value: object) -> None:
    """Set an attribute even where the exception's class refuses it, as a frozen dataclass does.

    Args:
        exc: The exception.
        name: Of the attribute.
        value: To set.
    """
    object.__setattr__(exc, name, value)
