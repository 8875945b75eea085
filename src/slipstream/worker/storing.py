"""Where a worker writes its large results, as the client has said.

What does the writing is imported with the first of them, since most workers never have one.

Never here: which results are large (see `serde.values`), and what is in a file (see `store.writing`).
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from pickle import PickleBuffer

    from slipstream.store.place import Place


class ResultStore:
    """Made of the fields of a `Storage` message."""

    def __init__(self, directory: str, spill: str, prefix: str, floor: int, inline_bytes: int) -> None:
        self.inline_bytes = inline_bytes
        self._at = directory, spill, prefix, floor
        self._place: Place | None = None

    def write(self, pickle: Sequence[bytes], buffers: list[PickleBuffer]) -> bytes:
        """Write a result to a file; the payload that stands for it."""
        from slipstream.store.place import Place
        from slipstream.store.writing import store_value

        if self._place is None:
            self._place = Place(*self._at)
        payload = store_value(pickle, buffers, self._place)
        warning = self._place.take_warning()
        if warning is not None:
            sys.stderr.write(f"slipstream: {warning}\n")
        return payload
