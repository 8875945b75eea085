"""The pickler: pickle protocol 5, with a decision for each class and function between by reference and by value.

By reference where another process can import it (see `imports`), by value otherwise: plain pickle would write
`__main__.f`, which no worker can load. For what goes by value, cloudpickle's C-based machinery is used.

cloudpickle costs 12 ms to import, so this module is imported by those who need it, when they need it.

Never here: framing, scalars, or the wording of errors.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from types import FunctionType
from typing import Any, cast

from slipstream.serde.borrowed import dynamic_function_reduce, function_getnewargs
from slipstream.serde.classes import reduce_class, reduce_class_to_owner
from slipstream.serde.constants import facts_of
from slipstream.serde.imports import is_by_reference
from slipstream.serde.reducers import REDUCERS, reduce_view_apart

#: A smaller buffer stays in the pickle.
APART_BYTES = 64 << 10


class Pieces(list[bytes]):
    """A pickle in the pieces in which it is written: frames of 64 kB, and between them large bytes and strings.

    Joined they are that pickle. A large `bytes` is a piece itself, so it is not copied before it is written or joined;
    a large `bytearray` is so too, which may change: let neither wait.
    """

    __slots__ = ()

    def write(self, piece: bytes | pickle.PickleBuffer, /) -> None:
        """Take the next piece."""
        if type(piece) is pickle.PickleBuffer:  # of an array that stays in the pickle
            with piece.raw() as memory:
                piece = bytes(memory)
        self.append(piece)

    def size(self) -> int:
        """Bytes of all."""
        return sum(map(len, self))

    def join(self) -> bytes:
        """All in one."""
        return b"".join(self)


class Pickler(pickle.Pickler):
    """One payload's pickler.

    It borrows cloudpickle's two methods for functions and is no subclass of its Pickler, whose dispatch table is a
    ChainMap: a look-up there is a Python call that raises for each object that it does not hold.

    A pickler must not refer to itself: what it has met would live until the collector comes.
    """

    _dynamic_function_reduce = dynamic_function_reduce
    _function_getnewargs = function_getnewargs

    def __init__(
        self,
        file: io.BytesIO | Pieces,
        *,
        reduce_class: Callable[[type], Any] = reduce_class,
        buffer_callback: Callable[[pickle.PickleBuffer], Any] | None = None,
    ) -> None:
        super().__init__(file, 5, buffer_callback=buffer_callback)
        self._reducer_of_classes = reduce_class
        #: By identity of the original globals: functions that share theirs share them again in the other process.
        self.globals_ref: dict[int, dict[str, Any]] = {}

    def reducer_override(self, obj: object, /) -> Any:
        """Decide on one object; called for everything but numbers, strings and builtin containers."""
        kind = type(obj)
        if type(obj) is FunctionType:
            return NotImplemented if is_by_reference(obj) else self._reduce_function(obj)
        if issubclass(kind, type):  # not isinstance: an object may claim to be a class
            return self.reduce_class(cast(type, obj))
        reducer = REDUCERS.get(kind)
        return NotImplemented if reducer is None else reducer(obj)

    def reduce_class(self, cls: type) -> Any:
        """Reduce one class."""
        return self._reducer_of_classes(cls)

    def _reduce_function(self, function: FunctionType) -> Any:
        """As cloudpickle does; but functions share cells there too, and class bodies in them find globals."""
        make, arguments, state, *rest = self._dynamic_function_reduce(function)
        if function.__closure__:
            arguments = (*arguments[:-1], function.__closure__)
            state[1]["__closure__"] = None
        reduced = (make, arguments, state, *rest)
        for name in facts_of(function.__code__).class_names:
            if name in function.__globals__:
                reduced[2][1]["__globals__"].setdefault(name, function.__globals__[name])
        return reduced


def dumps(value: object, *, reply: bool = False) -> bytes:
    """Pickle any value.

    Args:
        value: What to send.
        reply: Whether it goes to the process that the classes here were sent by.

    Raises:
        Exception: Whatever the value's own reducers raise, and pickle's `PicklingError` or `TypeError`.

    Example:
        >>> pickle.loads(dumps(lambda: 3))()
        3
    """
    pieces = Pieces()
    Pickler(pieces, reduce_class=reduce_class_to_owner if reply else reduce_class).dump(value)
    return pieces.join()


class _Apart(Pickler):
    """Leaves large buffers out, those of memoryviews too."""

    #: A smaller one stays.
    apart_bytes = APART_BYTES

    def reducer_override(self, obj: object, /) -> Any:
        if type(obj) is memoryview and obj.nbytes >= self.apart_bytes and obj.c_contiguous:
            return reduce_view_apart(obj)
        return super().reducer_override(obj)


def dumps_apart(
    value: object, apart_bytes: int = APART_BYTES, *, reply: bool = False
) -> tuple[Pieces, list[pickle.PickleBuffer]]:
    """Pickle any value, with its large buffers apart: they are neither copied nor looked at.

    Only what offers its memory to pickle has buffers: arrays and memoryviews do, bytes and bytearrays do not.

    Args:
        value: What to send.
        apart_bytes: A smaller buffer stays in the pickle.
        reply: Whether it goes to the process that the classes here were sent by.

    Returns:
        The pickle in pieces, and the buffers that `pickle.loads` must be given with it. Release them when they are
        written (see `reduce_view_apart`), also if that fails.

    Raises:
        Exception: As `dumps`.

    Example:
        >>> pickled, buffers = dumps_apart(memoryview(bytes(100_000)))
        >>> pickled.size() < 200, len(pickle.loads(pickled.join(), buffers=buffers))
        (True, 100000)
    """
    buffers: list[pickle.PickleBuffer] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        if memoryview(buffer).nbytes < apart_bytes:
            return True
        buffers.append(buffer)
        return False

    pieces = Pieces()
    pickler = _Apart(pieces, reduce_class=reduce_class_to_owner if reply else reduce_class, buffer_callback=stays)
    pickler.apart_bytes = apart_bytes
    try:
        pickler.dump(value)
    except BaseException:
        for buffer in buffers:
            buffer.release()
        raise
    return pieces, buffers
