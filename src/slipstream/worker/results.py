"""What a worker's last tasks returned, for the tasks that were sent after them and take it.

Never here: what is reported. A result that is not here any more is sent with the task that lacks it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import OrderedDict
else:
    from _collections import OrderedDict

#: Results that are kept, and bytes of those that are not small: a small one is kept at the cost of counting them.
MAX_KEPT = 16_384
KEPT_BYTES = 4 << 20
SMALL_BYTES = 256


class Results:
    """Encoded results by task, the oldest first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._bytes = 0
        self.get = self._kept.get

    def add(self, task: int, result: bytes) -> None:
        """Keep a result; the oldest may have to go."""
        kept = self._kept
        kept[task] = result
        if len(result) > SMALL_BYTES or len(kept) > MAX_KEPT:
            self._make_room(_large(result))

    def _make_room(self, more: int) -> None:
        kept = self._kept
        self._bytes += more
        while self._bytes > KEPT_BYTES or len(kept) > MAX_KEPT:
            self._bytes -= _large(kept.popitem(last=False)[1])


def _large(result: bytes) -> int:
    """What it counts for."""
    return len(result) if len(result) > SMALL_BYTES else 0
