"""The unpickler's stack and memo, with names in place of objects.

What is no name is one placeholder, so the whole is as large as the number of opcodes makes it, and never as large as
what they describe.

Never here: what an opcode means for a report.
"""

from __future__ import annotations

import pickletools
from typing import Any

#: A longer string is no name of a module or class.
MAX_NAME_LENGTH = 500
#: Stands for every object that is no name, and for a MARK.
UNKNOWN = None
MARK: Any = object()


class Malformed(Exception):
    """What is wrong with the pickle, for people."""


class Global(str):
    """The full name of a global."""

    __slots__ = ()


class Stack:
    """Both, and the opcodes that work on nothing else. Those take an argument that most ignore, as in the table."""

    def __init__(self) -> None:
        self._items: list[Any] = []
        #: Names only; `_put` has the numbers of all that is there.
        self._memo: dict[int, Any] = {}
        self._put: set[int] = set()

    def push(self, *items: Any) -> None:
        """Push names, placeholders, or tuples of one."""
        self._items += items

    def pop(self, _: Any = None) -> Any:
        """Pop an object."""
        if not self._items:
            raise Malformed("it takes more from the stack than is there")
        if self._items[-1] is MARK:
            raise Malformed("it takes a mark for an object")
        return self._items.pop()

    def take(self, opcode: pickletools.OpcodeInfo) -> list[Any]:
        """Pop what an opcode takes: so many objects, or all down to the last mark and what stands before that."""
        before = opcode.stack_before
        taken: list[Any] = []
        if pickletools.markobject in before:
            taken = self.down_to_mark()
            before = before[: before.index(pickletools.markobject)]
        return [*[self.pop() for _ in before][::-1], *taken]

    def down_to_mark(self, _: Any = None) -> list[Any]:
        """Pop all above the last mark, and the mark."""
        taken: list[Any] = []
        while self._items:
            item = self._items.pop()
            if item is MARK:
                return taken[::-1]
            taken.append(item)
        raise Malformed("it looks for a mark that is not there")

    def discard(self, _: Any) -> None:
        """Pop an object or a mark."""
        if self._items and self._items[-1] is MARK:
            self._items.pop()
        else:
            self.pop()

    def mark(self, _: Any) -> None:
        """Set a mark."""
        self._items.append(MARK)

    def duplicate(self, _: Any) -> None:
        """Push the top again."""
        top = self.pop()
        self._items += (top, top)

    def memoize(self, _: Any) -> None:
        """Remember the top under the next number."""
        self.remember(len(self._put))

    def remember(self, number: int) -> None:
        """Remember the top under a number."""
        top = self.pop()
        self._items.append(top)
        self._put.add(number)
        if top is UNKNOWN:
            self._memo.pop(number, None)
        else:
            self._memo[number] = top

    def recall(self, number: int) -> None:
        """Push what is remembered under a number."""
        if number not in self._put:
            raise Malformed(f"it asks for object {number} of the memo, which is not there")
        self._items.append(self._memo.get(number, UNKNOWN))
