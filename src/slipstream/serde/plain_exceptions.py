"""An exception as bytes without any import: for a worker that cannot import what `exceptions` needs.

A task that has used up all descriptors or memory raises just then. Builtin exceptions with plain arguments arrive as
such, of others type and text; the rest of the chain and the traceback are lost.

Never here: anything that can fail.
"""

from __future__ import annotations

import builtins
import marshal

_SCALARS = (type(None), bool, int, float, str, bytes)
_MARSHAL_VERSION = 2  # its first byte tells it from a pickle, see `values`


def encode_plainly(error: BaseException, failure: BaseException) -> bytes:
    """The exception, and why it is not encoded as others are.

    Args:
        error: What the task raised.
        failure: What went wrong with the usual encoding.

    Example:
        >>> error = decode_plainly(encode_plainly(OSError(24, "Too many open files"), ImportError("no descriptor")))
        >>> error, error.__notes__
        (OSError(24, 'Too many open files'), ['Its traceback could not be sent: ImportError: no descriptor'])
    """
    kind = type(error)
    known = kind.__module__ == "builtins" and kind is getattr(builtins, kind.__name__, None)
    arguments = error.args if known and all(type(argument) in _SCALARS for argument in error.args) else None
    return marshal.dumps((kind.__qualname__, arguments, _text(error), _text(failure)), _MARSHAL_VERSION)


def decode_plainly(payload: bytes) -> BaseException:
    """Load what `encode_plainly` made, in the client.

    Args:
        payload: The bytes.
    """
    name, arguments, text, why = marshal.loads(payload)
    error: BaseException
    if arguments is not None:
        error = getattr(builtins, name)(*arguments)
    else:
        from slipstream.errors import RemoteError

        error = RemoteError(text, type_name=name)
    error.add_note(f"Its traceback could not be sent: {why}")
    return error


def _text(error: BaseException) -> str:
    name = type(error).__qualname__
    try:
        return f"{name}: {error}"
    except Exception:  # noqa: BLE001 - its `__str__` is the user's
        return name
