"""What a worker's last tasks returned, for the tasks that were sent after them and take it.

Never here: what is reported. A result that is not here any more is sent with the task that lacks it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections import OrderedDict
else:
    from _collections import OrderedDict

#: Bytes of results that are kept.
KEPT_BYTES = 4 << 20
#: What one costs beside.
_ENTRY_BYTES = 200


class Results:
    """Encoded results by task, the oldest first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, bytes] = OrderedDict()
        self._bytes = 0
        self.get = self._kept.get

    def add(self, task: int, result: bytes) -> None:
        """Keep a result; the oldest may have to go."""
        self._kept[task] = result
        self._bytes += len(result) + _ENTRY_BYTES
        while self._bytes > KEPT_BYTES:
            self._bytes -= len(self._kept.popitem(last=False)[1]) + _ENTRY_BYTES
