"""What an exception says, in a length for a message.

Never here: anything that needs an import; a worker loads this at its start.
"""

from __future__ import annotations

_TEXT_LENGTH = 2000


def error_text(error: BaseException) -> str:
    """Type and text of an exception in one line's length; never fails.

    Args:
        error: Any exception.

    Example:
        >>> error_text(KeyError("a"))
        "KeyError: 'a'"
    """
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's exception may fail to say what it is
        text = "<it has no text: its __str__ raises>"
    text = text if len(text) <= _TEXT_LENGTH else text[:_TEXT_LENGTH] + "..."
    return f"{type(error).__qualname__}: {text}" if text else type(error).__qualname__
