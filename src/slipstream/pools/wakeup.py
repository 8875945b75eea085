"""What wakes a thread that polls, from any other thread.

Closing a descriptor that another thread is about to write to is a race that no check can end: the number may be another
file's by then. A lock would, and would deadlock where a finalizer wakes a thread that holds it. So nobody closes one:
it goes when the last reference goes, and who writes holds one.
"""

import contextlib
import os


class Wakeup:
    """An eventfd: readable once it was set, until it is cleared.

    Example:
        >>> wakeup = Wakeup()
        >>> wakeup.set()
        >>> os.eventfd_read(wakeup.descriptor)
        1
    """

    __slots__ = ("descriptor",)

    def __init__(self) -> None:
        self.descriptor = -1
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def set(self) -> None:
        """Make it readable."""
        os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """Make it unreadable."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)
