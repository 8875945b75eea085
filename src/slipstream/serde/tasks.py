"""Calls as clients encode them for workers that keep definitions: what each worker is sent once, and what each time.

What needs no pickle is quick: a function that is found by name or has a definition, called with builtin scalars.

cloudpickle is imported with the first callable that goes by value (20 ms), not with this module.

Never here: what a worker needs (see `values`), and what is captured (see `captures`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import _lru_cache_wrapper as LruCacheWrapper  # pyright: ignore[reportPrivateUsage]
from functools import partial
from pickle import PickleBuffer
from types import FunctionType
from typing import Any

from msgspec import Struct

from slipstream.protocol.ids import NO_DIGEST, CallableDigest
from slipstream.serde.buffers import release
from slipstream.serde.callables import identify
from slipstream.serde.guards import Capture
from slipstream.serde.imports import reference_of
from slipstream.serde.nested import futures_in
from slipstream.serde.values import FIXED, FUNCTIONS, PAIR, PAYLOAD_LIMIT, PICKLED, SCALARS, SIZED, dump_scalars

TYPE_CHECKING = False
if TYPE_CHECKING:
    from slipstream.serde.parts import Inputs, Parts

#: A payload of this size goes to a file. A smaller one is sooner through a socket (bytes of 1, 2, 3, 4 and 100 MB there
#: and back took 1.0, 3.0, 11, 11 and 530 ms; in a file 1.7, 3.7, 5.5, 7.0 and 230).
LARGE_CALL_BYTES = 2 << 20
#: What may be sent as a definition.
_DEFINED_TYPES = frozenset((FunctionType, LruCacheWrapper))

#: Those of `captures` and `parts`, once they have been needed.
_capture: Callable[[Any], Capture | None] | None = None
_dump_parts: Callable[..., Parts | None] | None = None


class Encoded(Struct, frozen=True, gc=False):
    """A call, encoded for a worker."""

    digest: CallableDigest
    label: str
    #: What the worker decodes for this task alone; `state_bytes` of it are what the callable captures. In pieces if it
    #: is large, and to be stored then.
    payload: bytes | list[bytes]
    #: What a worker must have seen before; empty where the callable is in the payload.
    definition: bytes = b""
    state_bytes: int = 0
    #: The classes by value that it needs beside, which a worker must have seen before too.
    classes_digest: CallableDigest = NO_DIGEST
    classes: bytes = b""
    #: The futures among the arguments, in the order in which the payload counts them.
    inputs: tuple[Future[Any], ...] = ()
    #: Memory of arrays among the arguments, which travels apart. To be released when it is written.
    buffers: Sequence[PickleBuffer] = ()


def encode_task(
    fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], large_bytes: int = PAYLOAD_LIMIT + 1
) -> Encoded:
    """Encode a call for workers that keep definitions, as it is at this moment.

    A partial is taken apart: what it binds goes with the arguments. So the callable of 10,000 partials is one.

    Args:
        fn: Any callable.
        args: Positional arguments. Futures among them, and in containers among them, are inputs of the task.
        kwargs: Keyword arguments; the same holds.
        large_bytes: From which size on the payload is left in pieces; by default it never is.

    Raises:
        PayloadError: As `encode_call`; or a future stands in an object that is no container.

    Example:
        >>> encode_task(max, (1, 2), {"key": abs}).label
        'max'
    """
    while type(fn) is partial:
        args, kwargs, fn = (*fn.args, *args), {**fn.keywords, **kwargs}, fn.func  # pyright: ignore
    reference = reference_of(fn) if type(fn) in FUNCTIONS else None  # pyright: ignore
    inputs: Inputs = {}
    fixed = not kwargs and FIXED.issuperset(map(type, args))
    scalars = (args, kwargs) if fixed else _scalars_of(args, kwargs, inputs, large_bytes)
    if reference is not None and scalars is not None:
        digest, label = identify(fn)
        payload = dump_scalars(reference + scalars)
        call = payload if len(payload) < large_bytes else [payload]
        # By position: names and unpacking in this one call took 0.5 µs of the 3 of all this.
        return Encoded(digest, label, call, b"", 0, NO_DIGEST, b"", tuple(inputs))
    try:
        encoded = None
        if reference is None and type(fn) in _DEFINED_TYPES:
            encoded = _encode_defined(fn, args, kwargs, scalars, inputs, large_bytes)
        if encoded is None:
            call = (fn, args, kwargs) if reference is None else (*reference, args, kwargs)
            encoded = _encode_in_parts(fn, call, inputs, large_bytes)
    except Exception as error:  # the user's own reducers may raise anything
        from slipstream.serde.blame import call_error

        raise call_error(fn, args, kwargs, error) from error
    pickled = isinstance(encoded.payload, list) or encoded.payload[0] >= PICKLED
    if inputs and pickled and inputs.keys() - futures_in((args, kwargs)).keys():
        from slipstream.serde.blame import hidden_future_error

        release(encoded.buffers)
        raise hidden_future_error(fn, args, kwargs)
    largest = max(len(encoded.payload), len(encoded.definition), len(encoded.classes))  # what is stored has no limit
    if largest > PAYLOAD_LIMIT:
        from slipstream.serde.blame import call_size_error

        release(encoded.buffers)
        raise call_size_error(fn, largest, PAYLOAD_LIMIT)
    return encoded


def encode_chunk(
    fn: Callable[..., Any], items: list[Any], *, spread: bool, large_bytes: int = PAYLOAD_LIMIT + 1
) -> Encoded:
    """Encode a chunk of a map: the worker calls `fn` for each item.

    Args:
        fn: Any callable.
        items: One argument each, or if `spread` a tuple of arguments each.
        spread: Which of the two.
        large_bytes: As in `encode_task`.
    """
    bound: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while type(fn) is partial:
        bound, keywords, fn = (*fn.args, *bound), {**fn.keywords, **keywords}, fn.func  # pyright: ignore
    return encode_task(fn, (items, spread, bound, keywords), {}, large_bytes)


def _scalars_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Inputs, large_bytes: int
) -> tuple[Any, ...] | None:
    """What marshal can take of the arguments, all of them or all but futures; None where it must be pickle."""
    if SCALARS.issuperset(map(type, args)) and (not kwargs or SCALARS.issuperset(map(type, kwargs.values()))):
        for value in args:
            if type(value) in SIZED and len(value) >= large_bytes:
                return None  # marshal would copy it
        return args, kwargs
    return _with_places(args, kwargs, inputs)


def _with_places(args: tuple[Any, ...], kwargs: dict[str, Any], inputs: Inputs) -> tuple[Any, ...] | None:
    """Arguments with None in place of futures, and the places of these; None if other arguments are no scalars."""
    places: dict[int | str, int] = {}
    filled: Any = list(args)
    keywords: Any = dict(kwargs)
    for kept, values in (filled, enumerate(args)), (keywords, kwargs.items()):
        for place, value in values:
            if type(value) in SCALARS:
                continue
            if not isinstance(value, Future):
                inputs.clear()
                return None
            places[place] = inputs.setdefault(value, len(inputs))  # pyright: ignore
            kept[place] = None
    return tuple(filled), keywords, places


def _encode_defined(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    scalars: tuple[Any, ...] | None,
    inputs: Inputs,
    large_bytes: int,
) -> Encoded | None:
    """The call of a function that goes by value; None if that must be in one pickle, or goes by reference after all."""
    global _capture, _dump_parts
    if _capture is None or _dump_parts is None:
        from slipstream.serde.captures import capture as _capture
        from slipstream.serde.parts import dump_parts as _dump_parts
    captured = _capture(fn)
    if captured is None:
        return None
    if scalars is not None and not captured.state and not captured.classes:
        payload = _joined([dump_scalars(scalars)], large_bytes)
        return Encoded(captured.digest, captured.label, payload, captured.definition, inputs=tuple(inputs))
    inputs.clear()
    parts = _dump_parts((args, kwargs), captured.state, inputs=inputs, captured=captured)
    if parts is None:
        return None
    payload = _joined([bytes((PAIR,)), *parts.payload], large_bytes)
    state_bytes = parts.payload.size() - parts.last if captured.state else 0
    classes = parts.classes_digest, parts.classes
    apart = tuple(inputs), parts.buffers
    return Encoded(captured.digest, captured.label, payload, captured.definition, state_bytes, *classes, *apart)


def _encode_in_parts(fn: Callable[..., Any], call: tuple[Any, ...], inputs: Inputs, large_bytes: int) -> Encoded:
    """The call of anything else: all of it is in the payload, but for the classes that go by value."""
    global _dump_parts
    if _dump_parts is None:
        from slipstream.serde.parts import dump_parts as _dump_parts
    inputs.clear()
    parts = _dump_parts(call, inputs=inputs)
    if parts is None:
        from slipstream.serde.parts import dump_whole

        return Encoded(*identify(fn), _joined(dump_whole(call, inputs), large_bytes), inputs=tuple(inputs))
    classes = parts.classes_digest, parts.classes
    payload = _joined(parts.payload, large_bytes)
    return Encoded(*identify(fn), payload, b"", 0, *classes, tuple(inputs), parts.buffers)


def _joined(pieces: list[bytes], large_bytes: int) -> bytes | list[bytes]:
    """A payload in one piece, unless it is large."""
    if len(pieces) == 1 and len(pieces[0]) < large_bytes:  # as almost always
        return pieces[0]
    return b"".join(pieces) if sum(map(len, pieces)) < large_bytes else pieces
