"""Futures in containers: what stands in these counts as an argument by itself.

Containers are lists, tuples, sets, dicts (keys and values) and deques, with their subclasses, and instances of
dataclasses, attrs classes and msgspec Structs. An object of any other class keeps its secrets.

Never here: pickling.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, cast

_COLLECTIONS = (list, tuple, set, frozenset, deque)


def futures_in(values: Iterable[object]) -> dict[Future[Any], None]:
    """The futures among values and in containers among these, in order; a container may contain itself.

    Example:
        >>> future = Future()
        >>> list(futures_in([1, {"a": (future, [future])}])) == [future]
        True
    """
    found: dict[Future[Any], None] = {}
    seen: dict[int, object] = {}
    waiting = [iter(values)]
    while waiting:
        value = next(waiting[-1], waiting)
        if value is waiting:
            waiting.pop()
        elif isinstance(value, Future):
            found[cast("Future[Any]", value)] = None
        elif type(value) not in _PLAIN and id(value) not in seen:
            parts = _parts(value)
            if parts is not None:
                seen[id(value)] = value
                waiting.append(iter(parts))
    return found


def replace_futures(value: Any, by: Callable[[Future[Any]], Any]) -> Any:
    """A value with futures replaced, in new containers where any was replaced in one.

    Args:
        value: Anything; containers may contain themselves.
        by: What to put in place of a future.

    Example:
        >>> future = Future()
        >>> replace_futures({"a": [future, 1]}, lambda future: 0)
        {'a': [0, 1]}
    """
    seen: dict[int, Any] = {}

    def replaced(value: Any) -> Any:
        if isinstance(value, Future):
            return by(cast("Future[Any]", value))
        if type(value) in _PLAIN or not futures_in((value,)):
            return value
        if id(value) not in seen:
            _replace_inside(value, replaced, seen)
        return seen[id(value)]

    return replaced(value)


#: The most frequent of what is no container.
_PLAIN = frozenset((int, float, str, bytes, bool, type(None)))


def _parts(value: object) -> Iterable[object] | None:
    """What stands in a container; None for anything else."""
    if isinstance(value, _COLLECTIONS):
        return cast("Iterable[object]", value)
    if isinstance(value, dict):
        return [part for item in cast("dict[object, object]", value).items() for part in item]
    names = _field_names(value)
    return None if names is None else [getattr(value, name) for name in names if hasattr(value, name)]


def _field_names(value: object) -> tuple[str, ...] | None:
    kind = cast("Any", type(value))
    if hasattr(kind, "__struct_fields__"):
        return kind.__struct_fields__
    if hasattr(kind, "__attrs_attrs__"):
        return tuple([attribute.name for attribute in kind.__attrs_attrs__])
    if dataclasses.is_dataclass(kind):
        return tuple([field.name for field in dataclasses.fields(kind)])
    return None


def _replace_inside(value: Any, new: Callable[[Any], Any], seen: dict[int, Any]) -> None:
    """Note in `seen` a container like this one with other contents. What can contain itself is noted before these."""
    kind = cast("type[Any]", type(value))
    if issubclass(kind, (tuple, frozenset)):
        make: Callable[[list[Any]], Any] = getattr(kind, "_make", kind)  # pyright: ignore
        seen[id(value)] = make([new(part) for part in value])
        return
    made = seen[id(value)] = copy.copy(value)
    if issubclass(kind, (dict, set, list, deque)):
        made.clear()
    if issubclass(kind, dict):
        made.update({new(name): new(part) for name, part in value.items()})
    elif issubclass(kind, set):
        made.update([new(part) for part in value])
    elif issubclass(kind, (list, deque)):
        made.extend([new(part) for part in value])
    else:
        for name in _field_names(value) or ():
            if hasattr(value, name):
                _set_field(made, name, new(getattr(value, name)))


def _is_struct(value: object) -> bool:
    return hasattr(cast("Any", type(value)), "__struct_fields__")


def _set_field(made: Any, name: str, value: Any) -> None:
    """Set a field, of a frozen class too."""
    if _is_struct(made):
        from msgspec.structs import force_setattr

        force_setattr(made, name, value)
    else:
        object.__setattr__(made, name, value)
