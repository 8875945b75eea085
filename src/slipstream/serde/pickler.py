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
        file: io.BytesIO,
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
    file = io.BytesIO()
    Pickler(file, reduce_class=reduce_class_to_owner if reply else reduce_class).dump(value)
    return file.getvalue()


class _Apart(Pickler):
    """Leaves large buffers out, those of memoryviews too."""

    def reducer_override(self, obj: object, /) -> Any:
        if type(obj) is memoryview and obj.nbytes >= APART_BYTES and obj.c_contiguous:
            return reduce_view_apart(obj)
        return super().reducer_override(obj)


def dumps_apart(value: object, *, reply: bool = False) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """Pickle any value, with its large buffers apart: they are neither copied nor looked at.

    Only what offers its memory to pickle has buffers: arrays and memoryviews do, bytes and bytearrays do not.

    Args:
        value: What to send.
        reply: Whether it goes to the process that the classes here were sent by.

    Returns:
        The pickle, and the buffers that `pickle.loads` must be given with it. Release them when they are written (see
        `reduce_view_apart`), also if that fails.

    Raises:
        Exception: As `dumps`.

    Example:
        >>> pickled, buffers = dumps_apart(memoryview(bytes(100_000)))
        >>> len(pickled) < 200, len(pickle.loads(pickled, buffers=buffers))
        (True, 100000)
    """
    buffers: list[pickle.PickleBuffer] = []

    def stays(buffer: pickle.PickleBuffer) -> bool:
        if memoryview(buffer).nbytes < APART_BYTES:
            return True
        buffers.append(buffer)
        return False

    file = io.BytesIO()
    reducer = reduce_class_to_owner if reply else reduce_class
    try:
        _Apart(file, reduce_class=reducer, buffer_callback=stays).dump(value)
    except BaseException:
        for buffer in buffers:
            buffer.release()
        raise
    return file.getvalue(), buffers
