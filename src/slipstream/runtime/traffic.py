"""What went to workers and came from them, counted.

Never here: what tasks did (see `core.counters`).
"""

from collections.abc import Sequence

from slipstream.runtime.outbox import Outbox


class Traffic:
    """Frames and bytes; what went to workers that are gone is added up here, the others have it in their outboxes."""

    def __init__(self) -> None:
        self.frames_sent = 0
        self.bytes_sent = 0
        self.callables_sent = 0
        self.frames_received = 0
        self.bytes_received = 0
        self.workers_lost = 0
        self.turns = 0

    def add(self, outbox: Outbox) -> None:
        """The worker of this outbox is gone."""
        self.frames_sent += outbox.frames_sent
        self.bytes_sent += outbox.bytes_sent
        self.callables_sent += outbox.callables_sent

    def totals(self, outboxes: Sequence[Outbox]) -> dict[str, int]:
        """All counts by name, with these outboxes of workers that are up."""
        return {
            "frames_sent": self.frames_sent + sum(outbox.frames_sent for outbox in outboxes),
            "bytes_sent": self.bytes_sent + sum(outbox.bytes_sent for outbox in outboxes),
            "callables_sent": self.callables_sent + sum(outbox.callables_sent for outbox in outboxes),
            "frames_received": self.frames_received,
            "bytes_received": self.bytes_received,
            "turns": self.turns,
            "workers": len(outboxes),
            "workers_lost": self.workers_lost,
        }
