"""Classes by value: each keeps its identity in every process, and only its owner ever changes it.

A class belongs to the process that defined it. Another process makes its copy once, under the identifier that
cloudpickle's tracker gives it, and finds that copy again for every later payload; a result brings the owner's own
class back to it. Loading cloudpickle's form again would set every attribute again, which undoes what the owner has
changed since. Here state is applied by three rules:

- to a class of this process: never;
- to a copy, from its owner: each time, so that what the owner changes in place is what the next task sees;
- to a copy, from another process that has a copy: only when it is new.

A class that is defined again is another class object and has another identifier. In a reply a copy is its identifier
and nothing else. So it is in a call, whose classes travel apart (see `parts`).

Never here: the decision between by reference and by value (see `imports`).
"""

from __future__ import annotations

import weakref
from _abc import _reset_caches as reset_caches  # pyright: ignore
from abc import ABCMeta
from collections.abc import Callable
from enum import Enum
from pickle import PicklingError
from types import GetSetDescriptorType, MemberDescriptorType, new_class, resolve_bases
from typing import Any, cast

from slipstream.serde import borrowed
from slipstream.serde.imports import is_by_reference

#: Copies of other processes' classes. Whatever is tracked and not here is this process's own.
_copies: weakref.WeakSet[type] = weakref.WeakSet()
#: Copies whose state has not been applied yet: a load that failed half way leaves one here, and the next mends it.
_unfinished: weakref.WeakSet[type] = weakref.WeakSet()

#: Names of the attributes that a copy had before its state was applied first.
_made_with: weakref.WeakKeyDictionary[type, frozenset[str]] = weakref.WeakKeyDictionary()

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement, and not part of a C extension
#: What a class has of itself, or is set with it.
_NOT_SET = frozenset(("__dict__", "__weakref__", "_abc_impl"))
_DESCRIPTORS_OF_INSTANCES = (GetSetDescriptorType, MemberDescriptorType)
#: What each member of an enum has.
_OF_MEMBERS = frozenset(("_value_", "_name_", "__objclass__", "_sort_order_"))
_SINGLETON_TYPES = (type(None), type(Ellipsis), type(NotImplemented))


def is_sent(cls: type) -> bool:
    """Whether a class goes by value, with all that it is."""
    return (
        bool(cls.__flags__ & _HEAP_TYPE)
        and not is_by_reference(cls)
        and cls not in _SINGLETON_TYPES
        and cls not in borrowed.BUILTIN_TYPE_NAMES
    )


def reduce_class(cls: type) -> Any:
    """Reduce a class for `pickle.Pickler.reducer_override`: `NotImplemented` means by reference.

    Args:
        cls: Any class.
    """
    if is_by_reference(cls):
        return NotImplemented
    if cls in _SINGLETON_TYPES or cls in borrowed.BUILTIN_TYPE_NAMES:
        return borrowed.class_reduce(cls)
    if not cls.__flags__ & _HEAP_TYPE:
        return NotImplemented  # plain pickle says that it cannot be found
    if hasattr(cls, "__struct_fields__"):
        raise PicklingError("a msgspec Struct cannot be made again: define it in a module that workers can import")
    maker: Callable[..., type] = make_class
    if Enum in cls.__mro__:
        maker = make_enum
        arguments, state = _making_of_enum(cast("type[Enum]", cls))
    else:
        arguments, state = _making_of(cls), (_attributes_of(cls), dict[str, Any]())
    return (
        load_class,
        (borrowed.tracker_id(cls), maker, arguments),
        (cls not in _copies, state),
        None,
        None,
        set_class_state,
    )


def reduce_class_to_name(cls: type) -> Any:
    """The same where the class itself travels apart: only its identifier.

    Args:
        cls: Any class.
    """
    return (find_class, (borrowed.tracker_id(cls), cls.__qualname__)) if is_sent(cls) else reduce_class(cls)


def reduce_class_to_owner(cls: type) -> Any:
    """The same in a reply to the process that a copy came from: that has the class, so its identifier is enough.

    Args:
        cls: Any class.
    """
    return reduce_class_to_name(cls) if cls in _copies else reduce_class(cls)


def find_class(tracker: str, name: str) -> type:
    """The class under the identifier, which this process has or is held to have; named in payloads."""
    known = borrowed.TRACKED.get(tracker)
    if known is None:
        raise LookupError(f"class {name!r} is gone here, and so its instances cannot come back")
    return known


def _making_of(cls: type) -> tuple[Any, ...]:
    """What must be known when the class is made, and cannot be set afterwards."""
    own = vars(cls)
    namespace = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    if isinstance(own.get("__dict__"), property):
        namespace["__dict__"] = own["__dict__"]
    bases = own.get("__orig_bases__", cls.__bases__)  # those of a generic class, with their parameters
    if "__slots__" in own and resolve_bases(bases) == cls.__bases__:  # not so of a NamedTuple: it makes its own
        namespace["__slots__"] = own["__slots__"]
    return type(cls), cls.__name__, bases, namespace


def _attributes_of(cls: type) -> dict[str, Any]:
    """All that the class itself has, and its names."""
    attributes: dict[str, Any] = borrowed.class_getstate(cls)[0]
    for name, value in vars(cls).items():  # what equals an attribute of a base was left out
        if name not in attributes and name not in _NOT_SET and type(value) not in _DESCRIPTORS_OF_INSTANCES:
            attributes[name] = value
    return {**attributes, "__name__": cls.__name__, "__qualname__": cls.__qualname__}


def _making_of_enum(cls: type[Enum]) -> tuple[tuple[Any, ...], Any]:
    """What makes the class with all its members, aliases too, and what the members have beside their values."""
    _, (bases, name, qualname, _, module, _, extra), state, *_ = borrowed.dynamic_class_reduce(cls)
    members = {name: member.value for name, member in cls.__members__.items()}
    more = {name: {k: v for k, v in vars(m).items() if k not in _OF_MEMBERS} for name, m in cls.__members__.items()}
    for alias in members:
        state[0].pop(alias, None)  # members are not to be set again
    # The maker is not to track what it makes: load_class does.
    return ((bases, name, qualname, members, module, None, extra), {k: v for k, v in more.items() if v}), state


def make_enum(arguments: tuple[Any, ...], more: dict[str, dict[str, Any]]) -> type[Enum]:
    """Make an enum with its members; named in payloads."""
    made: type[Enum] = borrowed.make_skeleton_enum(*arguments)
    for name, attributes in more.items():
        vars(made.__members__[name]).update(attributes)
    return made


def make_class(metaclass: type, name: str, bases: tuple[Any, ...], namespace: dict[str, Any]) -> type:
    """Make a class without attributes; named in payloads."""
    return new_class(name, bases, {"metaclass": metaclass}, lambda body: body.update(namespace))


def load_class(tracker: str, maker: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    """Find the class that this process has under the identifier, or make an empty one to fill.

    Looking before making keeps a base's `__init_subclass__` from seeing a class that is thrown away. Of two threads
    that make one at the same time, the first to be tracked wins; it is marked as unfinished before it can be found.
    """
    known = borrowed.TRACKED.get(tracker)
    if known is not None:
        return known
    made = maker(*arguments)
    _copies.add(made)
    _unfinished.add(made)
    _made_with[made] = frozenset(vars(made))
    return borrowed.lookup_or_track(tracker, made)


def set_class_state(cls: type, payload: tuple[bool, Any]) -> None:
    """Apply the state to a copy, by the rules above."""
    from_owner, state = payload
    if cls not in _copies or not (from_owner or cls in _unfinished):
        return
    if Enum not in cls.__mro__:
        for name in set(vars(cls)) - set(state[0]) - _made_with[cls]:  # its owner has not got it: a task set it
            type.__delattr__(cls, name)
    borrowed.class_setstate(cls, state)
    if isinstance(cls, ABCMeta):
        reset_caches(cls)  # what is an instance may have changed
    _unfinished.discard(cls)
