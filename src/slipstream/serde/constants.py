"""Constants and code as bytes that depend on nothing but what they are: what digests are made of.

Pickle's bytes depend on which strings are shared and on the order of sets, those of marshal's default version on counts
of references. marshal's version 2 is stable for code, also across hash seeds and specialization.

Never here: anything that can change in place.
"""

from __future__ import annotations

import marshal
import opcode
import struct
from collections.abc import Callable
from inspect import CO_OPTIMIZED
from types import CodeType
from typing import Any

from slipstream.serde import borrowed

_STORES_GLOBAL = frozenset((opcode.opmap["STORE_GLOBAL"], opcode.opmap["DELETE_GLOBAL"]))
_STORES_CELL = frozenset((opcode.opmap["STORE_DEREF"], opcode.opmap["DELETE_DEREF"]))
#: Pieces of code whose facts are remembered; beyond it all are forgotten.
_MAX_FACTS = 4096


def utf8(text: str) -> bytes:
    """Any text as bytes."""
    return text.encode("utf-8", "surrogatepass")


CONSTANTS: dict[type, Callable[[Any], tuple[bytes, ...]]] = {
    type(None): lambda value: (b"None",),
    type(...): lambda value: (b"...",),
    bool: lambda value: (b"bool", b"%d" % value),
    int: lambda value: (b"int", hex(value).encode()),
    float: lambda value: (b"float", struct.pack("<d", value)),
    complex: lambda value: (b"complex", struct.pack("<dd", value.real, value.imag)),
    str: lambda value: (b"str", utf8(value)),
    bytes: lambda value: (b"bytes", value),
}


# --- code -------------------------------------------------------------------------------------------------------------


class Facts:
    """What does not change about a piece of code."""

    __slots__ = ("class_names", "code", "marshalled", "names", "stores", "warned")

    def __init__(self, code: CodeType) -> None:
        self.code = code
        try:
            self.marshalled: bytes | None = marshal.dumps(code, 2)
        except ValueError:  # code that was rewritten to hold constants of other types: it has no digest
            self.marshalled = None
        #: Globals that class bodies in it read: no operation says that these are globals.
        self.class_names = tuple(sorted(_names_of_class_bodies(code)))
        self.names = tuple(dict.fromkeys((*borrowed.code_globals(code), *self.class_names)))
        #: Whether it, or code nested in it, writes to a global, or may write to a variable of an enclosing function.
        self.stores = _stores(code)
        #: The user has been told that a function with this code captures much.
        self.warned = False


_facts: dict[int, Facts] = {}


def facts_of(code: CodeType) -> Facts:
    """The facts about a piece of code, remembered."""
    known = _facts.get(id(code))
    if known is None:
        if len(_facts) >= _MAX_FACTS:
            _facts.clear()
        known = _facts[id(code)] = Facts(code)
    return known


def _names_of_class_bodies(code: CodeType) -> set[str]:
    found: set[str] = set()
    for constant in code.co_consts:
        if type(constant) is CodeType:
            found |= _names_of_class_bodies(constant)
            if not constant.co_flags & CO_OPTIMIZED:
                found.update(constant.co_names)
    return found


def _stores(code: CodeType) -> bool:
    operations = set(code.co_code[::2])
    if operations & _STORES_GLOBAL or (code.co_freevars and operations & _STORES_CELL):
        return True
    return any(_stores(constant) for constant in code.co_consts if type(constant) is CodeType)
