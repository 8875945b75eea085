"""The large values of one client: written once, found again, and removed when nobody needs them.

Nothing is made or imported before it is needed: a program that moves small values only has no run directory, but for
the milliseconds in which its workers start.

Never here: which parts of a value lie apart (see `serde.values` and `serde.parts`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from slipstream.protocol.messages import Done, WorkerMessage
from slipstream.serde.values import INLINE_BYTES
from slipstream.store.payload import is_stored

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pickle import PickleBuffer

    from slipstream.store.directory import RunDirectory
    from slipstream.store.place import Place
    from slipstream.store.sent import Sent


class Writer(Protocol):
    """Writes large values: `Values`, or what a worker has instead."""

    #: Up to so many bytes a value is not large.
    inline_bytes: int

    def write(self, pickle: Sequence[bytes], buffers: list[PickleBuffer]) -> bytes:
        """Write a value, and return the payload that stands for it."""
        ...

    def write_once(self, pickle: Sequence[bytes], buffers: list[PickleBuffer]) -> bytes:
        """Write what a task takes."""
        ...


class Values:
    """Where one client and its workers put large values.

    Args:
        inline_bytes: Up to so many bytes a value is not large.
        store_bytes: What all may take of the shared memory; None for half of what is free when it is first needed, and
            0 for nothing of it.
    """

    def __init__(self, inline_bytes: int = INLINE_BYTES, store_bytes: int | None = None) -> None:
        self.inline_bytes = inline_bytes
        self._store_bytes = store_bytes
        self._making = threading.RLock()
        self._run: RunDirectory | None = None
        self._place: Place | None = None
        self._sent: Sent | None = None

    def run(self) -> RunDirectory:
        """The run directory, made when it is first asked for.

        Raises:
            OSError: It cannot be made.
        """
        with self._making:
            if self._run is None:
                from slipstream.store.directory import RunDirectory

                self._run = RunDirectory.make(self._store_bytes)
                self._place = self._run.place()
            return self._run

    def write(self, pickle: Sequence[bytes], buffers: list[PickleBuffer]) -> bytes:
        """Write a value, and return the payload that owns its file.

        Args:
            pickle: The value without its buffers, in pieces.
            buffers: Its buffers, which the caller releases.

        Raises:
            OSError: There is no room for it.
        """
        from slipstream.store.owned import Stored
        from slipstream.store.writing import store_value

        self.run()
        assert self._place is not None
        stored = Stored(store_value(pickle, buffers, self._place))
        warning = self._place.take_warning()
        if warning is not None:
            import warnings

            warnings.warn(warning, RuntimeWarning, stacklevel=4)  # a ResourceWarning is hidden
        return stored

    def write_once(self, pickle: Sequence[bytes], buffers: list[PickleBuffer]) -> bytes:
        """Write what a task takes, unless one of the same content has been written and is still there.

        Args:
            pickle: An encoded call, in pieces; or none.
            buffers: The memory of an argument, which the caller releases; or none.

        Raises:
            OSError: There is no room for it.
        """
        from slipstream.store.owned import Stored
        from slipstream.store.sent import Sent

        with self._making:
            if self._sent is None:
                self._sent = Sent()
        found = self._sent.find(pickle, buffers)
        if found is not None:
            return found
        stored = self.write(pickle, buffers)
        assert isinstance(stored, Stored)
        self._sent.remember(stored, pickle, buffers)
        return stored

    def worker_left(self, prefix: str) -> None:
        """Remove what a worker wrote and never announced. All that it said has been taken over."""
        if self._run is not None:
            from slipstream.store.owned import remove_orphans

            remove_orphans(self._run.path, prefix)
            remove_orphans(self._run.spill, prefix)

    def close(self) -> None:
        """No more values come: remove the run directory, or if some are still needed, with the last of them."""
        with self._making:
            if self._run is not None:
                self._run.remove_when_empty()


def own(payload: bytes) -> bytes:
    """Take over what a worker has written: the file, if there is one, goes with this payload, and its equals."""
    if not is_stored(payload):
        return payload
    from slipstream.store.owned import Stored

    return Stored(payload)


def own_result(report: WorkerMessage) -> WorkerMessage:
    """Take over the result that a report announces, if it lies in a file."""
    if not isinstance(report, Done) or not is_stored(report.payload):
        return report
    from msgspec.structs import replace

    return replace(report, payload=own(report.payload))
