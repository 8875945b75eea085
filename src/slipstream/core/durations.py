"""How long a call of each callable takes, learned from what workers measured.

An estimate is what prefetch needs and no more: it is wrong for the first call and slow to follow a change, and the
worker gives back what it cannot start in time.
"""

from slipstream.protocol.ids import CallableDigest

#: Callables whose mean is remembered; beyond it the oldest is forgotten and has to be measured again.
MAX_CALLABLES = 4096
#: Where the longest recent call is over this many means, the mean says nothing about the next call.
SKEWED = 10


class Durations:
    """Running mean and recent maximum per callable, in integer nanoseconds per item.

    Example:
        >>> durations = Durations()
        >>> durations.estimate(b"f") is None
        True
        >>> durations.learn(b"f", 800)
        >>> durations.estimate(b"f")
        800
    """

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        #: digest -> [mean, recent maximum]
        self._seen: dict[CallableDigest, list[int]] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def learn(self, digest: CallableDigest, duration_ns: int) -> None:
        """Take one measured call, or the mean of the items of a chunk, into account."""
        entry = self._seen.get(digest)
        if entry is None:
            if len(self._seen) >= MAX_CALLABLES:
                del self._seen[next(iter(self._seen))]
            self._seen[digest] = [duration_ns, duration_ns]
            return
        mean, most = entry
        entry[0] = mean + ((duration_ns - mean) >> 3)
        # The maximum fades by 1/64 a call: one preempted no-op (3 ms for 2 µs) is forgotten after some 300 calls.
        most -= most >> 6
        entry[1] = most if most > duration_ns else duration_ns

    def estimate(self, digest: CallableDigest) -> int | None:
        """Expected duration of the next call in ns; None if none has been measured."""
        entry = self._seen.get(digest)
        if entry is None:
            return None
        mean, most = entry
        return most if most > SKEWED * mean else mean
