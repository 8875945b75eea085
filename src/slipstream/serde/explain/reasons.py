"""Why something goes by reference or by value, in words.

Never here: the decision itself (see `imports`).
"""

from __future__ import annotations

import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Literal

from slipstream.serde.explain.printable import printable
from slipstream.serde.imports import is_by_reference, is_importable
from slipstream.serde.reducers import LruCacheWrapper

How = Literal["by reference", "by value"]


def how_and_why(value: Any) -> tuple[How, str]:
    """Whether a value goes by reference or by value, and the reason for people.

    Example:
        >>> how_and_why(len), how_and_why([1])
        (('by reference', 'workers import builtins.len'), ('by value', 'data'))
    """
    kind = _type_of(value)
    if kind is ModuleType:
        if is_importable(value.__name__):
            return "by reference", f"workers import {printable(value.__name__)}"
        return "by value", _why_no_module(value.__name__)
    if issubclass(kind, type) or kind in (FunctionType, BuiltinFunctionType, LruCacheWrapper):
        if is_by_reference(value):
            return "by reference", f"workers import {printable(f'{value.__module__}.{value.__qualname__}')}"
        return "by value", _why_not_by_name(value)
    if kind is MethodType:
        return "by value", "a bound method: its object goes with each task"
    if kind.__module__ == "builtins":
        return "by value", "data"
    if is_by_reference(kind):
        return "by value", f"data; workers import {printable(f'{kind.__module__}.{kind.__qualname__}')}"
    return "by value", f"data; its class {printable(kind.__qualname__)} too: {_why_not_by_name(kind)}"


def _type_of(value: object) -> type[Any]:
    return type(value)


def _why_not_by_name(value: Any) -> str:
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if name.endswith("<lambda>"):
        return "a lambda: no module has it under a name"
    if module == "__main__":
        return "defined in __main__, which no worker can import"
    if "<locals>" in name:
        return f"a nested {'class' if isinstance(value, type) else 'function'}: no module has it under a name"
    if not isinstance(module, str) or not is_importable(module):
        return _why_no_module(module)
    return f"{printable(f'{module}.{name}')} is another object now: wrapped, or defined again"


def _why_no_module(name: object) -> str:
    if name == "__main__":
        return "defined in __main__, which no worker can import"
    if not isinstance(name, str) or name not in sys.modules:
        return "it names no module that is loaded"
    return f"workers do not find this module {printable(name)} on sys.path"
