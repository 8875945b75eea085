"""All that is used of cloudpickle, under names of our own. It has no type hints, and most of this is private in it.

A test sees to it that each of these is there and does what is relied on, so that a new release that changes one is
noticed by the tests and not by a user.

Never here: anything of our own making.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from typing import Any

from cloudpickle import cloudpickle as _untyped  # pyright: ignore[reportMissingTypeStubs]

_cloudpickle: Any = _untyped

#: Reducers by exact type, for what plain pickle refuses.
DISPATCH_TABLE: Mapping[type, Callable[[Any], Any]] = _cloudpickle.Pickler._dispatch_table
#: The two methods of its Pickler that take a function apart; they use its attribute `globals_ref`.
dynamic_function_reduce: Callable[[Any, Any], tuple[Any, ...]] = _cloudpickle.Pickler._dynamic_function_reduce
#: Names of the globals that code and the code nested in it read or write, as the keys of a dict.
code_globals: Callable[[Any], dict[str, None]] = _cloudpickle._extract_code_globals
function_getnewargs: Callable[[Any, Any], tuple[Any, ...]] = _cloudpickle.Pickler._function_getnewargs

code_reduce: Callable[[Any], tuple[Any, ...]] = _cloudpickle._code_reduce
#: Imports a module by name and returns it.
subimport: Callable[[str], Any] = _cloudpickle.subimport

#: What `types` calls the types of the interpreter itself, such as that of functions.
BUILTIN_TYPE_NAMES: Mapping[type, str] = _cloudpickle._BUILTIN_TYPE_NAMES
class_reduce: Callable[[type], Any] = _cloudpickle._class_reduce
#: (maker, arguments, state, None, None, state setter); the last two arguments are the tracker's identifier and None.
#: Used for enums, whose members are made with the class.
dynamic_class_reduce: Callable[[type], tuple[Any, ...]] = _cloudpickle._dynamic_class_reduce
#: Makes an enum: (bases, name, qualname, members by name, module, the tracker's identifier or None, None).
make_skeleton_enum: Callable[..., Any] = _cloudpickle._make_skeleton_enum
#: The attributes of a class, and how they are set on an empty one.
class_getstate: Callable[[type], Any] = _cloudpickle._class_getstate
class_setstate: Callable[[type, Any], Any] = _cloudpickle._class_setstate

#: The tracker: one identifier for each object that went by value, here or in the process it came from.
tracker_id: Callable[[Any], str] = _cloudpickle._get_or_create_tracker_id
TRACKED: weakref.WeakValueDictionary[str, Any] = _cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID
#: The object that is tracked under the identifier: the one given, unless another was there before.
lookup_or_track: Callable[[str, Any], Any] = _cloudpickle._lookup_class_or_track
