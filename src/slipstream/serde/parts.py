"""A call in parts: what goes along with the task, and the classes by value that it needs, which a worker is sent once.

The classes of a call are pickled together at each submit (100 µs each), and named by a digest of these bytes. So a
worker that has them is sent the digest only, and one that has them not is sent what they are at that moment. In the
call a class is its identifier; so it is in the definition of the callable (see `captures`), which is a part too.

What two parts share would be two things in the worker. So a call goes in parts only if nothing that can be changed is
in two of them: no object, and no dict of globals that a function writes to. Otherwise all of it goes in one pickle.

Never here: what a worker does with these (see `classes`).
"""

from __future__ import annotations

from _blake2 import blake2b
from collections.abc import Callable, Set
from concurrent.futures import Future
from functools import partial
from pickle import PickleBuffer
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, NamedTuple, TypeAlias, cast

from slipstream.protocol.ids import NO_DIGEST, CallableDigest
from slipstream.serde import kept
from slipstream.serde.buffers import release
from slipstream.serde.classes import is_sent, reduce_class, reduce_class_to_name
from slipstream.serde.constants import CONSTANTS, facts_of
from slipstream.serde.guards import Capture
from slipstream.serde.imports import is_by_reference, is_importable
from slipstream.serde.inputs import load_input
from slipstream.serde.pickler import APART_BYTES, Pickler, Pieces
from slipstream.serde.reducers import LruCacheWrapper, load_method, reduce_view_apart

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
_CONTAINERS = frozenset((list, tuple, set, frozenset))
_UNCHANGING_MODULES = frozenset(("typing", "types", "dataclasses", "enum", "_abc"))


#: Futures among the arguments: the number of each, in order.
Inputs: TypeAlias = "dict[Future[Any], int]"


class _Part(Pickler):
    """Pickles one part, and notes what it may have in common with others."""

    def __init__(
        self,
        file: Pieces,
        reduce_class: Callable[[type], Any],
        inputs: Inputs | None,
        buffer_callback: Callable[[PickleBuffer], Any] | None = None,
    ) -> None:
        super().__init__(file, reduce_class=reduce_class, buffer_callback=buffer_callback)
        #: Futures that stand for inputs of the task; None where there can be none.
        self.inputs = inputs
        #: By identity: the globals of functions that go by value, and of those that write there.
        self.spaces: set[int] = set()
        self.written: set[int] = set()
        #: By identity: these functions, and caches.
        self.functions: dict[int, Any] = {}
        #: Containers that only say what belongs to a function or class.
        self._forms: list[object] = []

    def reducer_override(self, obj: object, /) -> Any:
        if type(obj) is not FunctionType:
            if self.inputs is not None and isinstance(obj, Future):
                return load_input, (self.inputs.setdefault(cast("Future[Any]", obj), len(self.inputs)),)
            if type(obj) is LruCacheWrapper and not is_by_reference(obj):
                self.functions[id(obj)] = obj
            return super().reducer_override(obj)
        if is_by_reference(obj):
            return NotImplemented
        self.functions[id(obj)] = obj
        self.spaces.add(id(obj.__globals__))
        if facts_of(obj.__code__).stores:
            self.written.add(id(obj.__globals__))
        reduced = self._reduce_function(obj)
        attributes, slots = reduced[2]
        self._forms += (attributes, slots["__globals__"], slots["__defaults__"], slots["__kwdefaults__"])
        self._forms += (slots["__annotations__"], obj.__closure__)
        return reduced

    def met(self) -> dict[int, Any]:
        """What has been pickled, by identity, but for what only says what belongs to a function or class."""
        forms = {id(form) for form in self._forms}
        return {identity: value for identity, (_, value) in self.memo.copy().items() if identity not in forms}


class _Classes(_Part):
    """Pickles classes."""

    def __init__(self, file: Pieces) -> None:
        super().__init__(file, reduce_class, None)
        #: All that have been pickled.
        self.classes: list[type] = []

    def reduce_class(self, cls: type) -> Any:
        reduced = reduce_class(cls)
        if is_sent(cls):
            self.classes.append(cls)
            _, (attributes, _) = reduced[2]
            self._forms.append(attributes)
        return reduced


class _Call(_Part):
    """Pickles what goes along with the task, and notes the classes."""

    def __init__(self, file: Pieces, classes: dict[type, None], inputs: Inputs) -> None:
        buffers: list[PickleBuffer] = []
        super().__init__(file, reduce_class_to_name, inputs, partial(_leave_out, buffers))
        self.classes = classes
        #: Memory of arrays, which travels apart.
        self.buffers = buffers

    def reducer_override(self, obj: object, /) -> Any:
        if issubclass(type(obj), type):
            if is_sent(cls := cast(type, obj)):
                self.classes[cls] = None
        elif type(obj) is memoryview:
            if obj.nbytes >= APART_BYTES and obj.c_contiguous:
                return reduce_view_apart(obj)
        elif type(obj) is MethodType:  # its class has all its methods when this is loaded
            found = _place_of(obj)
            if found is not None:
                return load_method, (obj.__self__, *found)
        return super().reducer_override(obj)


def _leave_out(buffers: list[PickleBuffer], buffer: PickleBuffer) -> bool:
    """Whether a buffer stays in the pickle; else it is noted."""
    if memoryview(buffer).nbytes < APART_BYTES:
        return True
    buffers.append(buffer)
    return False


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

    payload: Pieces
    #: Where the last of its pickles begins.
    last: int
    #: Memory of arrays, which travels apart; to be released.
    buffers: list[PickleBuffer]
    classes_digest: CallableDigest = NO_DIGEST
    classes: bytes = b""


def dump_parts(call: object, *more: object, inputs: Inputs, captured: Capture | None = None) -> Parts | None:
    """Pickle a call in parts.

    Args:
        call: What goes along with the task, and may have futures in it.
        more: What goes along too, as pickles of their own, and may share objects with the first.
        inputs: The futures that are found are added: the number of each.
        captured: What is in the definition of the callable, if it has one.

    Returns:
        None if two parts share what must be one thing, so that all must go in one pickle.
    """
    pieces = Pieces()
    call_part = _Call(pieces, dict.fromkeys(() if captured is None else captured.classes), inputs)
    try:
        call_part.dump(call)
        last = 0
        call_part.inputs = None
        for value in more:
            last = pieces.size()
            call_part.dump(value)
        classes = _dump_classes(call_part, captured)
    except BaseException:
        release(call_part.buffers)
        raise
    if classes is None:
        release(call_part.buffers)
        return None
    return Parts(pieces, last, call_part.buffers, *classes)


def _dump_classes(call: _Call, captured: Capture | None) -> tuple[CallableDigest, bytes] | None:
    """Digest and bytes of the classes that a call needs; None if two parts share what must be one thing."""
    spaces = frozenset[int]() if captured is None else captured.spaces
    inside = {} if captured is None else captured.inside
    written = spaces if captured is not None and captured.fresh else frozenset[int]()
    if not (call.written.isdisjoint(spaces) and call.spaces.isdisjoint(written)):
        return None
    if not call.functions.keys().isdisjoint(inside):
        return None
    if not call.classes:
        return NO_DIGEST, b""
    pieces = Pieces()
    part = _Classes(pieces)
    part.dump(tuple(call.classes))
    spaces, written = spaces | call.spaces, written | call.written
    if not (part.written.isdisjoint(spaces) and part.spaces.isdisjoint(written)):
        return None
    if _share(call, part) or _one_thing(inside, part):
        return None
    data = pieces.join()
    digest = CallableDigest(_CLASSES + blake2b(data, digest_size=_DIGEST_BYTES).digest())
    return digest, kept.share(digest, data, tuple(part.classes))


def dump_whole(call: object, inputs: Inputs) -> Pieces:
    """Pickle a call in one part.

    Args:
        call: The callable and its arguments.
        inputs: As in `dump_parts`.
    """
    inputs.clear()
    pieces = Pieces()
    _Part(pieces, reduce_class, inputs).dump(call)
    return pieces


def _share(call: _Call, part: _Part) -> bool:
    """Whether both have met an object that can be changed, or a function."""
    if not call.functions.keys().isdisjoint(part.functions):
        return True
    first, second = call.met(), part.met()
    return any(_can_change(second[identity]) for identity in first.keys() & second.keys())


def _one_thing(inside: dict[int, Any], part: _Part) -> bool:
    """Whether it can be told that what is inside of the definition is not the same as in the other part.

    That a function and a method both call a third is no matter. It is if that is a cache or has attributes, or if it
    stands in a container where the other looks for it.
    """
    shared = inside.keys() & part.functions.keys()
    for identity in shared:
        value = inside[identity]
        if type(value) is not FunctionType or value.__dict__.keys() - {"__wrapped__"}:
            return True
    return bool(shared) and any(_holds(value, shared) for value in part.met().values())


def _holds(value: Any, shared: Set[int]) -> bool:
    """Whether a container holds one of these."""
    kind = cast(type[Any], type(value))
    if kind is dict:
        return any(id(name) in shared or id(held) in shared for name, held in value.items())
    return kind in _CONTAINERS and any(id(held) in shared for held in value)


def _can_change(value: Any) -> bool:
    kind = cast(type[Any], type(value))
    if kind is ModuleType:
        return not is_importable(value.__name__)
    return kind not in _UNCHANGING and kind.__module__ not in _UNCHANGING_MODULES and not issubclass(kind, type)
