"""What a callable is called, and by what it is recognised.

Both functions take anything that can be called: functions, partials, methods, classes, instances with `__call__`,
objects that answer every attribute with a surprise. Neither ever fails.

Never here: pickling, and anything that calls the callable.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from functools import partial
    from typing import Any

    from slipstream.protocol.ids import CallableDigest
else:
    from _functools import partial

_DIGEST_BYTES = 16
#: A name longer than this is cut: labels are for people.
_LABEL_LENGTH = 200
_PARTIAL_DEPTH = 10  # a partial of a partial is rare, and one of itself must end
#: Digest and label by (module, qualified name); emptied when full, since making them again costs 2 µs.
_identified: dict[tuple[Any, Any], tuple[CallableDigest, str]] = {}
_IDENTIFIED_KEPT = 4096


def callable_label(fn: object) -> str:
    """Name a callable for people: its qualified name without the module.

    Args:
        fn: Anything. A partial is named after its function, an instance after its class.

    Example:
        >>> from functools import partial
        >>> callable_label(partial(str.join, "-")), callable_label(print)
        ('str.join', 'print')
    """
    if issubclass(type(fn), partial):
        fn = _function_of(fn)
    name = _text(fn, "__qualname__") or _text(fn, "__name__") or _text(type(fn), "__qualname__")
    return (name or "?")[:_LABEL_LENGTH]


def callable_digest(fn: object) -> CallableDigest:
    """Identify a callable by its name: 17 bytes, the same in every process.

    It says nothing about what the callable does: two versions of a function share one digest, and so do all lambdas of
    one scope. That is enough to keep statistics of durations, and for nothing else.

    Args:
        fn: Anything. A partial is identified by its function, an instance by its class.

    Example:
        >>> callable_digest(len) == callable_digest(len), callable_digest(len) == callable_digest(max)
        (True, False)
    """
    return identify(fn)[0]


def identify(fn: object) -> tuple[CallableDigest, str]:
    """The digest and the label of a callable, from one look-up: 0.25 µs for a function seen before.

    Args:
        fn: Anything.

    Example:
        >>> identify(len) == (callable_digest(len), callable_label(len))
        True
    """
    if issubclass(type(fn), partial):
        fn = _function_of(fn)
    if type(fn) is FunctionType or type(fn) is BuiltinFunctionType:
        name: tuple[Any, Any] = (fn.__module__, fn.__qualname__)
    else:
        name = (_text(fn, "__module__") or _text(type(fn), "__module__"), callable_label(fn))
    try:
        return _identified[name]
    except KeyError:
        if len(_identified) >= _IDENTIFIED_KEPT:
            _identified.clear()
        found = _identified[name] = (_digest_of(name), callable_label(fn))
        return found
    except TypeError:  # a function's __module__ may be set to anything
        return _digest_of(name), callable_label(fn)


def _digest_of(name: tuple[Any, Any]) -> CallableDigest:
    module, qualified_name = (part if isinstance(part, str) else "" for part in name)
    from _blake2 import blake2b  # hashlib would load OpenSSL: 6 ms before the first task

    # The prefix keeps digests by name apart from digests of another kind.
    content = f"by-name\0{module}\0{qualified_name}".encode(errors="surrogatepass")
    return b"n" + blake2b(content, digest_size=_DIGEST_BYTES).digest()  # pyright: ignore[reportReturnType]


def _function_of(fn: Any) -> Any:
    """The function of a partial. Not by `isinstance`, which asks the object for its `__class__`."""
    for _ in range(_PARTIAL_DEPTH):
        if not issubclass(type(fn), partial):
            break
        fn = fn.func  # pyright: ignore
    return fn  # pyright: ignore[reportUnknownVariableType]


def _text(owner: object, attribute: str) -> str:
    """A string attribute, or nothing."""
    try:
        found = getattr(owner, attribute, "")
    except Exception:  # noqa: BLE001 - the callable may be any object, and a label must not fail its task
        return ""
    return found if type(found) is str else ""
