"""What a function by value takes with it, piece by piece, with the name that each piece has for people.

The digest's walk (see `captures`) says what is state; this one names everything, without pickling or keeping anything.

Never here: sizes, and the decision between by reference and by value.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from slipstream.serde import borrowed


def captured(function: FunctionType, inside: str = "") -> Iterator[tuple[str, Any]]:
    """Each object that the function itself takes along: its defaults, closure, globals and attributes.

    Args:
        function: A function.
        inside: Where the function stands in a larger whole, to be put before each name.

    Example:
        >>> def scaled(x, by=3):
        ...     return by * x * len(x)
        >>> list(captured(scaled))
        [("the default of 'by'", 3)]
    """
    before = f"{inside}: " if inside else ""
    for path, value in _own(function):
        yield before + path, value


def _own(function: FunctionType) -> Iterator[tuple[str, Any]]:
    code, defaults = function.__code__, function.__defaults__ or ()
    for name, value in zip(code.co_varnames[code.co_argcount - len(defaults) :], defaults, strict=False):
        yield f"the default of {name!r}", value
    for name, value in (function.__kwdefaults__ or {}).items():
        yield f"the default of {name!r}", value
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield f"the variable {name!r} of an enclosing function", cell.cell_contents
        except ValueError:  # empty
            continue
    for name in borrowed.code_globals(code):
        if name in function.__globals__:
            yield f"the global {name!r}", function.__globals__[name]
    for name, value in function.__dict__.items():
        yield f"the attribute {function.__name__}.{name}", value
