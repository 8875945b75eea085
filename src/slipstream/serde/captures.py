"""What a function that goes by value captures, and the proof that this has not changed.

A function crosses to a worker once, as a definition, and is named by its digest from then on. The digest comes from a
walk over the function's code and all it captures: defaults, closure, the globals that its code names, and the same of
each by-value function among these. What the walk meets is one of three kinds:

- constant: numbers, strings, tuples and frozensets of constants, whatever goes by reference, by-value functions. It is
  part of the digest and of the definition. Of a class that goes by value, the identifier is (see `parts`).
- state: all else, since it may be changed in place without anybody noticing. The digest says only where it stands; the
  definition has a hole there, and the objects travel with each task.
- absent: a global that the code names and that is not there (a builtin, mostly).

The walk takes 20 to 100 µs, so what it found is kept by code, with guards: each place that was looked at, and the
object that was there. As long as all are there still (12 to 38 ns a guard), the digest holds. That is proof for what is
constant; state needs none, since it is sent anew.

Not guarded: annotations and doc strings, attributes of modules and of what goes by reference, files edited on disk.

The bytes of a pickle identify nothing: equal functions give different ones (shared strings, order of sets). marshal's
default version neither: it depends on counts of references; version 2 does not.

Never here: how definitions travel and are kept (see `definitions`).
"""

from __future__ import annotations

import functools
import os
import struct
import sys
from _blake2 import blake2b
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, cast

from slipstream.protocol.ids import CallableDigest
from slipstream.serde import borrowed, imports, kept
from slipstream.serde.callables import callable_label
from slipstream.serde.classes import is_sent
from slipstream.serde.constants import CONSTANTS, facts_of, utf8
from slipstream.serde.definitions import DEFINED, write_definition
from slipstream.serde.guards import ABSENT, Capture, content_of
from slipstream.serde.reducers import LruCacheWrapper

#: So often a function is walked over that other threads change meanwhile.
_MAX_WALKS = 10
#: A tuple nested deeper is state.
_MAX_DEPTH = 50
_DIGEST_BYTES = 16
#: What `functools.lru_cache` sets.
_SET_BY_WRAPPING = frozenset((*functools.WRAPPER_ASSIGNMENTS, "__wrapped__", "__type_params__", "cache_parameters"))
#: By reference if they can be found by name.
_NAMED = frozenset((FunctionType, BuiltinFunctionType, LruCacheWrapper))


def capture(fn: Any) -> Capture | None:
    """What a callable captures now, if it is one that is sent as a definition; None for any other.

    Args:
        fn: A function that goes by value, or an `lru_cache` around one.

    Raises:
        Exception: Whatever pickling a constant that it captures raises.
    """
    if type(fn) is FunctionType:
        function, place = fn, id(fn.__code__)
    elif type(fn) is LruCacheWrapper and type(fn.__wrapped__) is FunctionType:
        function, place = fn.__wrapped__, id(fn)
    else:
        return None
    known = kept.capture_at(place)
    if known is not None and known.holds_for(fn, function):
        return known
    if imports.is_by_reference(fn):
        return None
    walks = 0
    while True:
        try:
            walk = _Walk(fn, function)
        except _NoDigestError:
            return None
        walks += 1
        found = walk.capture
        known = kept.definition_of(found.digest)
        found.definition, classes = known or write_definition(fn, found.state, fresh=found.fresh)
        found.classes = (*found.classes, *[cls for cls in classes if cls not in found.classes])  # of annotations
        if known or found.holds_for(fn, function):
            kept.share(found.digest, found.definition, classes)
            if walk.lasting:
                kept.keep_capture(place, found)
            return found
        if walks >= _MAX_WALKS:
            # Other threads change it all the time. What was written is of no one moment, so no other task has it.
            found.digest = CallableDigest(DEFINED + os.urandom(_DIGEST_BYTES))
            return found


class _NoDigestError(Exception):
    """The function, or one that it captures, has code that marshal cannot write."""


class _Walk:
    """One walk over a callable. Afterwards `capture` is complete."""

    def __init__(self, fn: Any, function: FunctionType) -> None:
        self.capture = Capture(fn, function)
        self._hash = blake2b(digest_size=_DIGEST_BYTES, person=b"function")
        #: By identity: the number of each function, and of each object that is state.
        self._numbers: dict[int, int] = {}
        #: By identity: the number of each dict of globals. Functions that share theirs see what the others write.
        self._spaces: dict[int, int] = {}
        #: By identity: the functions and caches that are part of the definition.
        self._inside: dict[int, Any] = {}
        #: Whether a cache is among these.
        self._caches = False
        #: By identity: the number of each cell, which functions may share.
        self._cells: dict[int, int] = {}
        #: Globals that have a guard already: (identity of the dict, name), and what is there.
        self._guarded: dict[tuple[int, str], Any] = {}
        self._state: list[Any] = []
        self._classes: dict[type, None] = {}
        self._paths: list[str] = []
        #: Something is written to what the function captures, so each task has its own.
        self.fresh = False
        self._depth = 0
        self._root = function
        #: All state was found among globals, which live on anyway. What only this function refers to, and may be
        #: large, must not be kept alive by being remembered.
        self.lasting = True
        self._in_globals = False
        self._value(fn, "the callable", root=True)
        found = self.capture
        found.state, found.paths, found.classes = tuple(self._state), tuple(self._paths), tuple(self._classes)
        found.spaces, found.inside = frozenset(self._spaces), self._inside
        # A cache that was filled with what a class was is of no use when that has changed.
        self.fresh = found.fresh = self.fresh or (self._caches and bool(self._classes))
        found.label = callable_label(fn)
        self._hash.update(b"fresh" if self.fresh or self._state else b"kept")
        found.digest = CallableDigest(DEFINED + self._hash.digest())

    def _tell(self, tag: bytes, *parts: bytes) -> None:
        """Hash something in a way that nothing else is hashed."""
        self._hash.update(tag + struct.pack(f"<{len(parts)}q", *map(len, parts)))
        for part in parts:
            self._hash.update(part)

    # --- values -------------------------------------------------------------------------------------------------------

    def _value(self, value: Any, path: str, *, root: bool = False) -> None:
        kind: type[Any] = type(value)  # pyright: ignore[reportUnknownVariableType]
        constant = CONSTANTS.get(kind)
        if constant is not None:
            self._tell(*constant(value))
        elif value is ABSENT:
            self._tell(b"absent")
        elif kind is tuple and self._depth < _MAX_DEPTH:
            self._tuple(value, path)
        elif kind is frozenset and all(type(item) in CONSTANTS for item in value):
            items = sorted(b"\0".join(CONSTANTS[type(item)](item)) for item in value)
            self._tell(b"frozenset", *items)
        elif kind is FunctionType and (root or not imports.is_by_reference(value)):
            self._function(value)
        elif kind is LruCacheWrapper and (root or not imports.is_by_reference(value)):
            self._wrapper(value, path)
        elif kind in _NAMED and imports.is_by_reference(value):
            self._tell(b"by reference", utf8(value.__module__), utf8(value.__qualname__))
        elif kind is ModuleType and (value.__name__ == "__main__" or imports.is_importable(value.__name__)):
            self._module(value)
        elif issubclass(kind, type) and imports.is_by_reference(value):
            self._tell(b"class", utf8(value.__module__), utf8(value.__qualname__))
        elif issubclass(kind, type) and is_sent(value):
            self._tell(b"class by value", borrowed.tracker_id(value).encode())
            self._classes[value] = None
            self.lasting = self.lasting and self._in_globals
        else:
            self._state_object(value, path)

    def _module(self, module: ModuleType) -> None:
        """A module, and those of its submodules that are there: the worker imports what the code names of these."""
        name = module.__name__
        there = [other for other in tuple(sys.modules) if other.startswith(f"{name}.")] if module.__package__ else []
        self._tell(b"module", utf8(name), *map(utf8, sorted(there)))
        if module.__package__:
            self.capture.sizes.append((sys.modules, len(sys.modules)))

    def _tuple(self, value: tuple[Any, ...], path: str) -> None:
        self._tell(b"tuple", b"%d" % len(value))
        self._depth += 1
        for index, item in enumerate(value):
            self._value(item, f"{path}[{index}]")
        self._depth -= 1

    def _state_object(self, value: Any, path: str) -> None:
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._state)
            self._state.append(value)
            self._paths.append(path)
            self.lasting = self.lasting and self._in_globals
        self._tell(b"state", b"%d" % number)

    def _wrapper(self, wrapper: Any, path: str) -> None:
        parameters = wrapper.cache_parameters()
        attributes = cast(dict[str, Any], vars(wrapper))
        self.capture.sizes.append((attributes, len(attributes)))
        self._inside[id(wrapper)] = wrapper
        self._caches = True
        self._tell(b"lru_cache", repr((parameters["maxsize"], parameters["typed"])).encode())
        for name in tuple(attributes):
            if name not in _SET_BY_WRAPPING:
                self._tell(b"attribute", utf8(name))
                self._value(self.capture.guard(attributes, name), f"{path}.{name}")
        self._value(wrapper.__wrapped__, path, root=wrapper.__wrapped__ is self._root)

    # --- functions ----------------------------------------------------------------------------------------------------

    def _function(self, function: FunctionType) -> None:
        number = self._numbers.get(id(function))
        if number is not None:
            self._tell(b"function again", b"%d" % number)
            return
        self._numbers[id(function)] = len(self._numbers)
        self._inside[id(function)] = function
        code = function.__code__
        known = facts_of(code)
        if known.marshalled is None:
            raise _NoDigestError
        self.fresh = self.fresh or known.stores
        self._tell(b"globals", b"%d" % self._spaces.setdefault(id(function.__globals__), len(self._spaces)))
        self._tell(
            b"function",
            known.marshalled,
            utf8(function.__name__),
            utf8(function.__qualname__),
            utf8(str(function.__module__)),
        )
        own = function is self._root
        if not own:
            self.capture.functions.append(
                (function, code, function.__defaults__, function.__kwdefaults__, len(function.__dict__))
            )
        self._defaults(function)
        self._closure(function, own=own)
        self._globals(function, known.names)
        self._attributes(function)

    # --- parts of functions -------------------------------------------------------------------------------------------

    def _defaults(self, function: FunctionType) -> None:
        names = function.__code__.co_varnames
        first = function.__code__.co_argcount - len(function.__defaults__ or ())
        for place, value in enumerate(function.__defaults__ or ()):
            self._tell(b"default")
            self._value(value, f"the default of {names[first + place]!r}")
        keywords = function.__kwdefaults__ or {}
        if keywords:
            self.capture.sizes.append((keywords, len(keywords)))
        for name in sorted(keywords):
            self._tell(b"keyword", utf8(name))
            self._value(self.capture.guard(keywords, name), f"the default of {name!r}")

    def _closure(self, function: FunctionType, *, own: bool) -> None:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            content = content_of(cell)
            if not own:
                self.capture.cells.append((cell, content))
            self._tell(b"cell", b"%d" % self._cells.setdefault(id(cell), len(self._cells)))
            self._value(content, f"the variable {name!r} of an enclosing function")

    def _globals(self, function: FunctionType, names: tuple[str, ...]) -> None:
        there = function.__globals__
        for name in names:
            value = self._guarded.get((id(there), name), self)
            if value is self:
                value = self._guarded[id(there), name] = self.capture.guard(there, name)
            self._tell(b"global", utf8(name))
            before, self._in_globals = self._in_globals, True
            self._value(value, f"the global {name!r}")
            self._in_globals = before

    def _attributes(self, function: FunctionType) -> None:
        for name in tuple(function.__dict__):
            self._tell(b"attribute", utf8(name))
            self._value(self.capture.guard(function.__dict__, name), f"the attribute {function.__name__}.{name}")
            self.fresh = self.fresh or name != "__wrapped__"
