"""What a callable that goes by reference would take if its module went by value.

Never here: anything that sends.
"""

from __future__ import annotations

import io
from types import FunctionType
from typing import Any, cast

from slipstream.serde import borrowed
from slipstream.serde.error_text import error_text
from slipstream.serde.explain.captured import captured
from slipstream.serde.explain.culprits import Culprit, culprits, pickled_bytes
from slipstream.serde.explain.printable import printable
from slipstream.serde.explain.report import OtherWay
from slipstream.serde.pickler import Pickler

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


class _ByValue(Pickler):
    """A pickler for which one module cannot be imported."""

    def __init__(self, file: io.BytesIO, module: str) -> None:
        super().__init__(file)
        self._module = module

    def reducer_override(self, obj: object, /) -> Any:
        if type(obj) is FunctionType and obj.__module__ == self._module:
            return self._dynamic_function_reduce(obj)
        if issubclass(type(obj), type) and getattr(obj, "__module__", None) == self._module:
            defined = cast(type, obj)
            if defined.__flags__ & _HEAP_TYPE:
                return borrowed.dynamic_class_reduce(defined)
        return super().reducer_override(obj)


def other_way(fn: Any) -> OtherWay | None:
    """Measure a function by value; None for what cannot go so, as a function written in C.

    Args:
        fn: A callable that goes by reference.

    Example:
        >>> import shutil
        >>> found = other_way(shutil.which)
        >>> found.module, found.bytes_by_reference < 100 < found.bytes_by_value
        ('shutil', True)
        >>> other_way(len) is None
        True
    """
    if type(fn) is not FunctionType:
        return None
    module = fn.__module__
    small = pickled_bytes(fn)
    try:
        return OtherWay(module, small, pickled_bytes(fn, lambda file: _ByValue(file, module)))
    except Exception as error:  # noqa: BLE001 - the module's objects may raise anything
        return OtherWay(module, small, None, _culprits(fn, error))


def _culprits(fn: FunctionType, error: Exception) -> tuple[Culprit, ...]:
    found = tuple(culprit for path, value in captured(fn) for culprit in culprits(value, path))
    return found or (Culprit("the callable", "function", printable(error_text(error)), exact=False),)
