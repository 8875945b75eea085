"""Why a task did not run: the future whose failure is the root, and the way from there.

Never here: what is told by the engine (see `client`).
"""

from concurrent.futures import CancelledError, Future
from typing import Any

from slipstream.errors import DependencyError
from slipstream.serde.error_text import error_text

#: What a future is called that is not ours.
STRANGER = "a future of another executor"
#: Labels of a path that are shown, from its beginning and from its end.
_SHOWN = 4


class Cause:
    """The way from a failed future to a task that needs its result, through the tasks between."""

    __slots__ = ("_first", "_last", "length", "root")

    def __init__(self, root: "Future[Any]", first: tuple[str, ...], last: str, length: int) -> None:
        #: The future that failed by itself, or was cancelled.
        self.root = root
        #: Labels of the first tasks on the way, that of the last, and how many there are.
        self._first = first
        self._last = last
        self.length = length

    @classmethod
    def of(cls, root: "Future[Any]", label: str) -> "Cause":
        """The way to a task that needs the result of a failed future itself."""
        return cls(root, (label,), label, 1)

    def then(self, label: str) -> "Cause":
        """The way to a task that needs the result of the last one, by the name of that."""
        first = (*self._first, label) if len(self._first) < _SHOWN else self._first
        return Cause(self.root, first, label, self.length + 1)

    def path(self) -> tuple[str, ...]:
        """Labels from the root to the direct input; those in the middle of a long path are counted."""
        if self.length <= len(self._first):
            return self._first
        between = self.length - len(self._first) - 1
        return (*self._first, *([f"{between:,} more"] if between else []), self._last)

    def error(self, label: str) -> DependencyError:
        """The exception of a task that did not run. It decodes that of the root, once for all."""
        try:
            root = self.root.exception()
            what = "failed" if root is None else f"failed: {error_text(root)}"
        except CancelledError as cancelled:  # each time another one
            root, what = vars(self.root).setdefault("_cancelled_as", cancelled), "was cancelled"
        path = self.path()
        way = f" (the way: {' -> '.join((*path, label))})" if len(path) > 1 else ""
        text = f"task {label!r} did not run: {self._first[0]!r}, on which it depends, {what}{way}"
        error = DependencyError(text, path=path)
        error.__cause__ = root
        return error
