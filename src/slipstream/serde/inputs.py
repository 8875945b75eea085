"""Futures among the arguments of a call: a worker finds their values in their place.

In the encoded call each future is a number, its place among the inputs of the task, which travel beside the call. One
future that stands in several places is one number, and its value one object.

Never here: what becomes of a future (see `slipstream.client`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

#: The inputs of the call that is being loaded. A worker loads one call at a time.
_present: Sequence[Any] = ()


def load_input(number: int) -> Any:
    """The input with a number; named in payloads."""
    return _present[number]


def load_with_inputs(
    load: Callable[[bytes | memoryview, Sequence[Any]], tuple[Any, Sequence[Any]]],
    payload: bytes | memoryview,
    buffers: Sequence[Any],
    inputs: Sequence[Any],
) -> tuple[Any, Sequence[Any]]:
    """Load a call whose arguments have inputs among them.

    Args:
        load: Loads a call without inputs.
        payload: The call.
        buffers: Its buffers.
        inputs: Its inputs. Where it is marshalled, their places are its last part.
    """
    global _present
    _present = inputs
    try:
        call, state = load(payload, buffers)
    finally:
        _present = ()
    if payload[0] < 0x80:
        *before, args, kwargs, places = call
        call = (*before, *put_in_places(args, kwargs, places, inputs))
    return call, state


def put_in_places(
    args: tuple[Any, ...], kwargs: dict[str, Any], places: dict[int | str, int], inputs: Sequence[Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with inputs in their places.

    Args:
        args: Positional arguments.
        kwargs: Keyword arguments.
        places: Index of a positional argument, or name of a keyword: number of the input that belongs there.
        inputs: The inputs.

    Example:
        >>> put_in_places((None, 2), {"key": None}, {0: 1, "key": 0}, ["a", "b"])
        (('b', 2), {'key': 'a'})
    """
    filled, keywords = list(args), dict(kwargs)
    for place, number in places.items():
        if isinstance(place, str):
            keywords[place] = inputs[number]
        else:
            filled[place] = inputs[number]
    return tuple(filled), keywords
