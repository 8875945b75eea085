"""A call in parts: what goes along with the task, and the classes by value that it needs, which a worker is sent once.

The classes of a call are pickled together at each submit (100 µs each), and named by a digest of these bytes. So a
worker that has them is sent the digest only, and one that has them not is sent what they are at that moment. In the
call a class is its identifier; so it is in the definition of the callable (see `captures`), which is a part too.

What two parts share would be two things in the worker. So a call goes in parts only if nothing that can be changed is
in two of them: no object, and no dict of globals that a function writes to. Otherwise all of it goes in one pickle.

Never here: what a worker does with these (see `classes`).
"""

from __future__ import annotations

import io
from _blake2 import blake2b
from collections.abc import Callable, Iterable
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple, cast

from slipstream.protocol.ids import NO_DIGEST, CallableDigest
from slipstream.serde import kept
from slipstream.serde.classes import is_sent, reduce_class, reduce_class_to_name
from slipstream.serde.constants import CONSTANTS, facts_of
from slipstream.serde.imports import is_by_reference, is_importable
from slipstream.serde.pickler import Pickler
from slipstream.serde.reducers import load_method

#: The first byte of the digest of classes.
_CLASSES = b"c"
_DIGEST_BYTES = 16
#: Whose instances never change, or not so that anybody would rely on it.
_UNCHANGING = frozenset(
    (
        *(*CONSTANTS, tuple, frozenset, range, slice, property, staticmethod, classmethod),
        *(BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType),
    )
)
_UNCHANGING_MODULES = frozenset(("typing", "types", "dataclasses", "enum", "_abc"))


class _Part(Pickler):
    """Pickles one part, and notes what it may have in common with others."""

    def __init__(self, file: io.BytesIO, reduce_class: Callable[[type], Any]) -> None:
        super().__init__(file, reduce_class=reduce_class)
        #: By identity: the globals of functions that go by value, and of those that write there.
        self.spaces: set[int] = set()
        self.written: set[int] = set()

    def reducer_override(self, obj: object, /) -> Any:
        if type(obj) is not FunctionType:
            return super().reducer_override(obj)
        if is_by_reference(obj):
            return NotImplemented
        self.spaces.add(id(obj.__globals__))
        if facts_of(obj.__code__).stores:
            self.written.add(id(obj.__globals__))
        return self._reduce_function(obj)


class _Call(_Part):
    """Pickles what goes along with the task, and notes the classes."""

    def __init__(self, file: io.BytesIO, classes: dict[type, None]) -> None:
        super().__init__(file, reduce_class_to_name)
        self._classes = classes

    def reducer_override(self, obj: object, /) -> Any:
        if issubclass(type(obj), type):
            if is_sent(cls := cast(type, obj)):
                self._classes[cls] = None
        elif type(obj) is MethodType:  # its class has all its methods when this is loaded
            found = _place_of(obj)
            if found is not None:
                return load_method, (obj.__self__, *found)
        return super().reducer_override(obj)


def _place_of(method: MethodType) -> tuple[type, str] | None:
    """The class that goes by value and has the function of this method, and its name there."""
    owner, function = method.__self__, method.__func__
    name = str(getattr(function, "__name__", ""))
    for cls in (owner if isinstance(owner, type) else type(owner)).__mro__:
        value = vars(cls).get(name)
        if value is function or getattr(value, "__func__", None) is function:
            return (cls, name) if is_sent(cls) else None
    return None


class Parts(NamedTuple):
    """What goes along with the task, and the classes."""

    payload: bytes
    #: Where the last of its pickles begins.
    last: int
    classes_digest: CallableDigest = NO_DIGEST
    classes: bytes = b""


def dump_parts(
    *values: object, spaces: frozenset[int] = frozenset(), fresh: bool = False, classes: Iterable[type] = ()
) -> Parts | None:
    """Pickle a call in parts.

    Args:
        values: What goes along with the task, a pickle each; they may share objects.
        spaces: Identities of the globals of what is in the definition of the callable, if it has one.
        fresh: Whether that writes to them.
        classes: The classes by value that it refers to.

    Returns:
        None if two parts share what can be changed, so that all must go in one pickle.
    """
    needed = dict.fromkeys(classes)
    file = io.BytesIO()
    call = _Call(file, needed)
    last = 0
    for value in values:
        last = file.tell()
        call.dump(value)
    written = spaces if fresh else frozenset[int]()
    if not (call.written.isdisjoint(spaces) and call.spaces.isdisjoint(written)):
        return None
    if not needed:
        return Parts(file.getvalue(), last)
    classes_file = io.BytesIO()
    part = _Part(classes_file, reduce_class)
    part.dump(tuple(needed))
    spaces, written = spaces | call.spaces, written | call.written
    if not (part.written.isdisjoint(spaces) and part.spaces.isdisjoint(written)):
        return None
    if _share(call.memo.copy(), part.memo.copy()):
        return None
    data = classes_file.getvalue()
    digest = CallableDigest(_CLASSES + blake2b(data, digest_size=_DIGEST_BYTES).digest())
    return Parts(file.getvalue(), last, *kept.share(digest, data))


def _share(first: dict[int, tuple[int, Any]], second: dict[int, tuple[int, Any]]) -> bool:
    """Whether two picklers have met the same object, by their memos, and it can be changed."""
    shared = [second[identity][1] for identity in first.keys() & second.keys()]
    changing = {id(value) for value in shared if _can_change(value)}
    if changing:  # a function's own dicts are guarded, and mostly empty
        for _, value in first.values():
            if type(value) is FunctionType:
                changing -= {id(value.__dict__), id(value.__annotations__), id(value.__kwdefaults__)}
    return bool(changing)


def _can_change(value: Any) -> bool:
    kind = cast(type[Any], type(value))
    if kind is ModuleType:
        return not is_importable(value.__name__)
    return kind not in _UNCHANGING and kind.__module__ not in _UNCHANGING_MODULES and not issubclass(kind, type)
