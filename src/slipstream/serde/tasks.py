"""Calls as clients encode them for workers that keep definitions: what each worker is sent once, and what each time.

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

from slipstream.protocol.ids import CallableDigest
from slipstream.serde.callables import identify
from slipstream.serde.guards import Capture
from slipstream.serde.imports import reference_of
from slipstream.serde.values import FUNCTIONS, PAIR, PAYLOAD_LIMIT, SCALARS, dump_scalars, encode_call_by

#: What may be sent as a definition.
_DEFINED_TYPES = frozenset((FunctionType, LruCacheWrapper))

#: Those of `captures` and `holes`, once they have been needed.
_capture: Callable[[Any], Capture | None] | None = None
_dump_pair: Callable[..., tuple[bytes, int] | None] | None = None


class Encoded(Struct, frozen=True, gc=False):
    """A call, encoded for a worker."""

    digest: CallableDigest
    label: str
    #: What the worker decodes for this task alone; `state_bytes` of it are what the callable captures.
    payload: bytes
    #: What a worker must have seen before; empty where the callable is in the payload.
    definition: bytes = b""
    state_bytes: int = 0


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
    if reference is None and type(fn) in _DEFINED_TYPES:
        try:
            encoded = _encode_defined(fn, args, kwargs)
        except Exception as error:  # the user's own reducers may raise anything
            from slipstream.serde.blame import call_error

            raise call_error(fn, args, kwargs, error) from error
        if encoded is not None:
            if len(encoded.payload) + len(encoded.definition) > PAYLOAD_LIMIT:
                from slipstream.serde.blame import call_size_error

                raise call_size_error(fn, len(encoded.payload) + len(encoded.definition), PAYLOAD_LIMIT)
            return encoded
    return Encoded(*identify(fn), encode_call_by(fn, reference, args, kwargs))


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


def _encode_defined(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Encoded | None:
    """The call of a function that goes by value; None if that must be in one pickle, or goes by reference after all."""
    global _capture, _dump_pair
    if _capture is None or _dump_pair is None:
        from slipstream.serde.captures import capture as _capture
        from slipstream.serde.holes import dump_pair as _dump_pair
    captured = _capture(fn)
    if captured is None:
        return None
    scalars = SCALARS.issuperset(map(type, args)) and (not kwargs or SCALARS.issuperset(map(type, kwargs.values())))
    if scalars and not captured.state:
        return Encoded(captured.digest, captured.label, dump_scalars((args, kwargs)), captured.definition)
    pair = _dump_pair((args, kwargs), captured.state, captured.spaces, fresh=captured.fresh)
    if pair is None:
        return None
    payload, middle = pair
    state_bytes = len(payload) - middle if captured.state else 0
    return Encoded(captured.digest, captured.label, bytes((PAIR,)) + payload, captured.definition, state_bytes)
