"""Calls as clients encode them for workers that keep definitions: what each worker is sent once, and what each time.

What needs no pickle is quick: a function that is found by name or has a definition, called with builtin scalars.

cloudpickle is imported with the first callable that goes by value (20 ms), not with this module.

Never here: what a worker needs (see `values`), and what is captured (see `captures`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import _lru_cache_wrapper as LruCacheWrapper  # pyright: ignore[reportPrivateUsage]
from functools import partial
from types import FunctionType
from typing import Any

from msgspec import Struct

from slipstream.protocol.ids import NO_DIGEST, CallableDigest
from slipstream.serde.callables import identify
from slipstream.serde.guards import Capture
from slipstream.serde.imports import reference_of
from slipstream.serde.values import FUNCTIONS, PAIR, PAYLOAD_LIMIT, SCALARS, dump_scalars, pickle_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slipstream.serde.parts import Parts

#: What may be sent as a definition.
_DEFINED_TYPES = frozenset((FunctionType, LruCacheWrapper))

#: Those of `captures` and `parts`, once they have been needed.
_capture: Callable[[Any], Capture | None] | None = None
_dump_parts: Callable[..., Parts | None] | None = None


class Encoded(Struct, frozen=True, gc=False):
    """A call, encoded for a worker."""

    digest: CallableDigest
    label: str
    #: What the worker decodes for this task alone; `state_bytes` of it are what the callable captures.
    payload: bytes
    #: What a worker must have seen before; empty where the callable is in the payload.
    definition: bytes = b""
    state_bytes: int = 0
    #: The classes by value that it needs beside, which a worker must have seen before too.
    classes_digest: CallableDigest = NO_DIGEST
    classes: bytes = b""


def encode_task(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Encoded:
    """Encode a call for workers that keep definitions, as it is at this moment.

    A partial is taken apart: what it binds goes with the arguments. So the callable of 10,000 partials is one.

    Args:
        fn: Any callable.
        args: Positional arguments.
        kwargs: Keyword arguments.

    Raises:
        PayloadError: As `encode_call`.

    Example:
        >>> encode_task(max, (1, 2), {"key": abs}).label
        'max'
    """
    while type(fn) is partial:
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func  # pyright: ignore
    reference = reference_of(fn) if type(fn) in FUNCTIONS else None  # pyright: ignore
    scalars = SCALARS.issuperset(map(type, args)) and (not kwargs or SCALARS.issuperset(map(type, kwargs.values())))
    if reference is not None and scalars:
        return Encoded(*identify(fn), dump_scalars((*reference, args, kwargs)))
    try:
        encoded = None
        if reference is None and type(fn) in _DEFINED_TYPES:
            encoded = _encode_defined(fn, args, kwargs, scalars=scalars)
        if encoded is None:
            encoded = _encode_in_parts(fn, (fn, args, kwargs) if reference is None else (*reference, args, kwargs))
    except Exception as error:  # the user's own reducers may raise anything
        from slipstream.serde.blame import call_error

        raise call_error(fn, args, kwargs, error) from error
    largest = max(len(encoded.payload), len(encoded.definition), len(encoded.classes))
    if largest > PAYLOAD_LIMIT:
        from slipstream.serde.blame import call_size_error

        raise call_size_error(fn, largest, PAYLOAD_LIMIT)
    return encoded


def encode_chunk(fn: Callable[..., Any], items: list[Any], *, spread: bool) -> Encoded:
    """Encode a chunk of a map: the worker calls `fn` for each item.

    Args:
        fn: Any callable.
        items: One argument each, or if `spread` a tuple of arguments each.
        spread: Which of the two.
    """
    bound: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while type(fn) is partial:
        bound, keywords, fn = (*fn.args, *bound), {**fn.keywords, **keywords}, fn.func  # pyright: ignore
    return encode_task(fn, (items, spread, bound, keywords), {})


def _encode_defined(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, scalars: bool
) -> Encoded | None:
    """The call of a function that goes by value; None if that must be in one pickle, or goes by reference after all."""
    global _capture, _dump_parts
    if _capture is None or _dump_parts is None:
        from slipstream.serde.captures import capture as _capture
        from slipstream.serde.parts import dump_parts as _dump_parts
    captured = _capture(fn)
    if captured is None:
        return None
    if scalars and not captured.state and not captured.classes:
        return Encoded(captured.digest, captured.label, dump_scalars((args, kwargs)), captured.definition)
    parts = _dump_parts((args, kwargs), captured.state, captured=captured)
    if parts is None:
        return None
    payload = bytes((PAIR,)) + parts.payload
    state_bytes = len(parts.payload) - parts.last if captured.state else 0
    classes = parts.classes_digest, parts.classes
    return Encoded(captured.digest, captured.label, payload, captured.definition, state_bytes, *classes)


def _encode_in_parts(fn: Callable[..., Any], call: tuple[Any, ...]) -> Encoded:
    """The call of anything else: all of it is in the payload, but for the classes that go by value."""
    global _dump_parts
    if _dump_parts is None:
        from slipstream.serde.parts import dump_parts as _dump_parts
    parts = _dump_parts(call)
    if parts is None:
        return Encoded(*identify(fn), pickle_value(call))
    return Encoded(*identify(fn), parts.payload, b"", 0, parts.classes_digest, parts.classes)
