"""What a client remembers of the functions and classes that it has sent, up to a number and a number of bytes.

Never here: whether what is remembered holds still.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque

from slipstream.protocol.ids import CallableDigest
from slipstream.serde.definitions import OBJECT_BYTES
from slipstream.serde.guards import Capture

#: Captures that are remembered, by code; and definitions, by digest, in bytes.
MAX_CAPTURES = 4096
MAX_DEFINITION_BYTES = 16 << 20
#: Of these, those with state: what they refer to lives as long. So do globals.
MAX_WITH_STATE = 64
MAX_SPACES = 64


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
        #: With the globals of remembered captures, by identity: places. These globals live as long.
        self.spaces: OrderedDict[int, set[int]] = OrderedDict()
        #: And the classes by value that each refers to: instances of these may come back when nothing else refers to
        #: them any more.
        self.definitions: OrderedDict[CallableDigest, tuple[bytes, tuple[type, ...]]] = OrderedDict()
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
        _forget(place)
        _kept.capture_bytes += len(found.definition)
        _kept.captures[place] = found
        space = id(found.globals)
        _kept.spaces.setdefault(space, set()).add(place)
        _kept.spaces.move_to_end(space)
        if found.state:
            _kept.with_state.append(place)
        while len(_kept.with_state) > MAX_WITH_STATE:
            _forget(_kept.with_state.popleft())
        while len(_kept.spaces) > MAX_SPACES:
            for oldest in _kept.spaces.popitem(last=False)[1]:
                _forget(oldest)
        while _kept.capture_bytes > MAX_DEFINITION_BYTES or len(_kept.captures) > MAX_CAPTURES:
            _forget(next(iter(_kept.captures)))


def _forget(place: int) -> None:
    found = _kept.captures.pop(place, None)
    if found is not None:
        _kept.capture_bytes -= len(found.definition)
        places = _kept.spaces.get(id(found.globals))
        if places is not None:
            places.discard(place)
            if not places:
                del _kept.spaces[id(found.globals)]


def share(digest: CallableDigest, definition: bytes, classes: tuple[type, ...]) -> bytes:
    """Remember a definition, and return it as it was remembered before, so that tasks that wait share one copy.

    Args:
        digest: Its digest.
        definition: Its bytes.
        classes: The classes by value that it refers to; they live as long.
    """
    with _keeping:
        known = _kept.definitions.pop(digest, None)
        if known is None:
            known = definition, classes
            _kept.definition_bytes += len(definition) + OBJECT_BYTES
        _kept.definitions[digest] = known
        while _kept.definition_bytes > MAX_DEFINITION_BYTES and len(_kept.definitions) > 1:
            _kept.definition_bytes -= len(_kept.definitions.popitem(last=False)[1][0]) + OBJECT_BYTES
    return known[0]
