"""Text that somebody else wrote, such as names in a file or keys of a dict, for a terminal and for JSON.

Never here: layout.
"""

from __future__ import annotations

#: Longer text is cut.
MAX_LENGTH = 1000


def printable(text: str) -> str:
    r"""Escape what a terminal would act on and what UTF-8 cannot encode, and bound the length.

    Args:
        text: Anything, for one line.

    Example:
        >>> printable("os\x1b[2J"), printable("\ud800")
        ('os\\x1b[2J', '\\ud800')
    """
    text = text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH] + "..."
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
