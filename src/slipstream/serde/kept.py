"""What a client remembers of the functions and classes that it has sent, up to a number and a number of bytes.

Never here: whether what is remembered holds still.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque

from slipstream.protocol.ids import CallableDigest
from slipstream.serde.guards import Capture

#: Captures that are remembered, by code; and definitions, by digest, in bytes.
MAX_CAPTURES = 4096
MAX_DEFINITION_BYTES = 16 << 20
#: Of these, those with state: what they refer to lives as long.
MAX_WITH_STATE = 64


class _Kept:
    """What is remembered; of both the oldest goes first. Changed under `_keeping` only.

    (The first of a plain dict from whose front much was taken is found by a walk over what is not there any more.)
    """

    def __init__(self) -> None:
        #: The last capture of each code, or wrapper, by its identity: the capture keeps the object, so the number
        #: stays its.
        self.captures: OrderedDict[int, Capture] = OrderedDict()
        self.capture_bytes = 0
        #: Places of captures with state, and of some that had some.
        self.with_state: deque[int] = deque()
        self.definitions: OrderedDict[CallableDigest, bytes] = OrderedDict()
        self.definition_bytes = 0


_kept = _Kept()
_keeping = threading.RLock()  # the collector may run a finalizer in there that submits

#: The capture that is remembered at a place: 30 ns, without the lock.
capture_at = _kept.captures.get
#: The definition with a digest, if it is remembered.
definition_of = _kept.definitions.get


def _after_fork_in_child() -> None:
    global _keeping
    _keeping = threading.RLock()  # another thread of the parent may have held it


os.register_at_fork(after_in_child=_after_fork_in_child)


def keep_capture(place: int, found: Capture) -> None:
    """Remember a capture in place of the one that was there."""
    with _keeping:
        old = _kept.captures.pop(place, None)
        _kept.capture_bytes += len(found.definition) - (0 if old is None else len(old.definition))
        _kept.captures[place] = found
        if found.state:
            _kept.with_state.append(place)
        while len(_kept.with_state) > MAX_WITH_STATE:
            oldest = _kept.captures.pop(_kept.with_state.popleft(), None)
            _kept.capture_bytes -= 0 if oldest is None else len(oldest.definition)
        while _kept.capture_bytes > MAX_DEFINITION_BYTES or len(_kept.captures) > MAX_CAPTURES:
            _kept.capture_bytes -= len(_kept.captures.popitem(last=False)[1].definition)


def share(digest: CallableDigest, definition: bytes) -> tuple[CallableDigest, bytes]:
    """Remember a definition: both, as they are remembered, so that tasks that wait share one copy."""
    with _keeping:
        known = _kept.definitions.pop(digest, None)
        if known is None:
            _kept.definition_bytes += len(definition)
        else:
            definition = known
        _kept.definitions[digest] = definition
        while _kept.definition_bytes > MAX_DEFINITION_BYTES and len(_kept.definitions) > 1:
            _kept.definition_bytes -= len(_kept.definitions.popitem(last=False)[1])
    return digest, definition
