"""How objects that plain pickle refuses, or would send by a name that no worker knows, are taken apart.

A reducer takes one object and returns what `object.__reduce__` returns. Most are cloudpickle's; those here replace or
add to them. What they name in a payload is loaded by the worker, so these functions must stay importable.

Never here: classes (see `classes`) and functions (see `pickler`).
"""

from __future__ import annotations

import functools
import marshal
import typing
from collections.abc import Callable
from concurrent.futures import Future
from pickle import PickleBuffer
from types import CellType, CodeType, MethodType, ModuleType
from typing import Any, cast
from weakref import WeakKeyDictionary

from slipstream.serde import borrowed
from slipstream.serde.imports import is_by_reference, is_importable

#: What `object.__reduce__` may return: a name to look up, or a constructor with its arguments and state.
Reduced = str | tuple[Any, ...]
Reducer = Callable[[Any], Reduced]

LruCacheWrapper: type = type(functools.lru_cache(lambda: None))


def load_module(name: str) -> ModuleType:
    """Make an empty module to fill; it does not enter `sys.modules`."""
    return ModuleType(name)


def set_module_state(module: ModuleType, state: dict[str, Any]) -> None:
    """Fill a module that goes by value."""
    vars(module).update(state, __builtins__=__builtins__)


def _reduce_module(module: ModuleType) -> Reduced:
    name = module.__name__
    if name == "__main__" or is_importable(name):  # each process has a __main__ of its own
        return borrowed.subimport, (name,)
    # Where it came from says nothing in the other process, and a test runner's loader would drag the runner along.
    state = {k: v for k, v in vars(module).items() if k not in ("__builtins__", "__loader__", "__spec__")}
    return load_module, (name,), state, None, None, set_module_state


def _reduce_code(code: CodeType) -> Reduced:
    # A tenth of the time of cloudpickle's, and the file name stays, so that a remote traceback shows the source.
    # Version 2: the bytes of later versions change with reference counts.
    try:
        return marshal.loads, (marshal.dumps(code, 2),)
    except ValueError:  # code that was rewritten to hold constants of other types
        return borrowed.code_reduce(code)


def load_view(data: bytes | bytearray | memoryview, shape: tuple[str, tuple[int, ...] | None] | None) -> memoryview:
    """Make a memoryview of these bytes: `shape` is the format and lengths, where it is not plain bytes."""
    view = memoryview(data)
    return view if shape is None else cast(Any, view).cast(*shape)


def _reduce_view(view: memoryview) -> Reduced:
    data = view.tobytes()
    return load_view, (data if view.readonly else bytearray(data), _shape_of(view, data))


def reduce_view_apart(view: memoryview) -> Reduced:
    """Take a C-contiguous memoryview apart without copying it.

    Whoever pickles it must release the buffer in any event: up to Python 3.12.6 the interpreter crashes if the
    collector meets a memoryview together with a PickleBuffer of it, in the frames of an exception for example
    (https://github.com/python/cpython/issues/77894).
    """
    return load_view, (PickleBuffer(view), _shape_of(view, view.cast("B") if view.nbytes else b""))


def _shape_of(view: memoryview, data: bytes | memoryview) -> tuple[str, tuple[int, ...] | None] | None:
    """What makes such a view of plain bytes, if they must be more than that."""
    if view.ndim == 1 and view.format == "B":
        return None
    shape = (view.format, view.shape)
    try:
        load_view(data, shape)
    except (TypeError, ValueError):  # a structured format, or a length of 0: only the bytes can be had again
        return None
    return shape


def load_cell() -> CellType:
    """Make an empty cell to fill."""
    return CellType()


def set_cell(cell: CellType, content: tuple[Any]) -> None:
    """Fill a cell."""
    (cell.cell_contents,) = content


def _reduce_cell(cell: CellType) -> Reduced:
    # Filled when it is known, since what it holds may refer to it: an inner function that calls itself.
    try:
        return load_cell, (), (cell.cell_contents,), None, None, set_cell
    except ValueError:  # empty
        return load_cell, ()


def _refuse_future(future: Future[Any]) -> Reduced:
    raise TypeError("a future cannot be pickled: pass it as an argument of the task, which then gets its result")


def load_lru_cache(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    """Wrap the function in a new, empty cache."""
    return functools.lru_cache(maxsize, typed)(function)


def _reduce_lru_cache(wrapper: Any) -> Reduced:
    if is_by_reference(wrapper):
        return cast(str, wrapper.__qualname__)
    parameters = wrapper.cache_parameters()
    made_anew = ("__wrapped__", "cache_parameters")
    attributes: dict[str, Any] = {k: v for k, v in wrapper.__dict__.items() if k not in made_anew}
    return load_lru_cache, (wrapper.__wrapped__, parameters["maxsize"], parameters["typed"]), attributes or None


def _reduce_cached_property(value: functools.cached_property[Any]) -> Reduced:
    # Up to Python 3.11 it holds a lock.
    return functools.cached_property, (value.func,), {k: v for k, v in vars(value).items() if k != "lock"}


def _reduce_method(method: MethodType) -> Reduced:
    owner: object = method.__self__
    if isinstance(owner, type) and is_by_reference(owner) and getattr(owner, method.__name__, None) == method:
        # A class method: its bare function is the value of no name, and would be sent by value. Not so where the class
        # goes by value too: a method that its own state refers to must load before the class has any attribute.
        return getattr, (owner, method.__name__)
    return MethodType, (method.__func__, owner)


def load_method(owner: object, cls: type, name: str) -> MethodType:
    """Bind a method of a class that goes by value; named in payloads."""
    function = vars(cls)[name]
    return MethodType(getattr(function, "__func__", function), owner)


def load_type_parameter(
    kind: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any], tracker: str
) -> Any:
    """Make a type parameter or NewType, or find the one that this process has already."""
    return borrowed.lookup_or_track(tracker, kind(*arguments, **options))


def _reduce_type_parameter(parameter: Any) -> Reduced:
    """Type variables and NewTypes: plain pickle sends them by name only."""
    name: str = parameter.__name__
    if is_by_reference(parameter, getattr(parameter, "__qualname__", name)):
        return name
    kind = cast(Any, type(parameter))
    arguments: tuple[Any, ...] = (name,)
    options: dict[str, Any] = {}
    if kind is typing.NewType:
        arguments = (name, parameter.__supertype__)
    elif kind is typing.TypeVar:
        arguments = (name, *parameter.__constraints__)
    if kind in (typing.TypeVar, typing.ParamSpec):
        options = {"bound": parameter.__bound__, "covariant": parameter.__covariant__}
        options["contravariant"] = parameter.__contravariant__
    return load_type_parameter, (kind, arguments, options, borrowed.tracker_id(parameter))


def _reduce_weak_dictionary(value: WeakKeyDictionary[Any, Any]) -> Reduced:
    # Every functools.singledispatch function has one for its cache.
    return WeakKeyDictionary, (dict(value),)


#: By exact type; asked after classes and functions.
REDUCERS: dict[type, Reducer] = {
    **borrowed.DISPATCH_TABLE,
    CellType: _reduce_cell,
    Future: _refuse_future,
    CodeType: _reduce_code,
    LruCacheWrapper: _reduce_lru_cache,
    MethodType: _reduce_method,
    ModuleType: _reduce_module,
    functools.cached_property: _reduce_cached_property,
    WeakKeyDictionary: _reduce_weak_dictionary,
    memoryview: _reduce_view,
    typing.NewType: _reduce_type_parameter,
    typing.ParamSpec: _reduce_type_parameter,
    typing.TypeVar: _reduce_type_parameter,
    typing.TypeVarTuple: _reduce_type_parameter,
}
