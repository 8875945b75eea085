"""What waits to be sent to one worker, and who sends it.

Commands are appended under the engine's lock, in the order of turns; frames are encoded and sent outside of it. Whoever
finds the outbox free sends what is there; whoever finds it taken leaves, since the sender looks again before it goes.
So frames keep the order of turns, a turn makes at most one frame per worker, and nobody waits.
"""

from threading import Lock

from slipstream.pools.base import Pool
from slipstream.protocol.codec import encode_commands
from slipstream.protocol.ids import CallableDigest, FrameId, SlotId
from slipstream.protocol.messages import WorkerCommand

#: Digests remembered of one worker; beyond it all are forgotten, and definitions are sent again.
MAX_KNOWN = 65_536


class Outbox:
    """Commands for one worker."""

    __slots__ = ("_pool", "_sending", "_slot", "bytes_sent", "callables_sent", "commands", "frames_sent", "known")

    def __init__(self, pool: Pool, slot: SlotId) -> None:
        #: Appended to at the end by turns, cut at the front by the sender; both are one step under the interpreter
        #: lock.
        self.commands: list[WorkerCommand] = []
        self.frames_sent = 0
        self.bytes_sent = 0
        self.callables_sent = 0
        #: Digests of the definitions that the worker was sent, and has not said that it lacks.
        self.known: dict[CallableDigest, None] = {}
        self._pool = pool
        self._slot = slot
        self._sending = Lock()

    def send(self) -> None:
        """Send all that waits as one frame, unless another thread is doing so."""
        commands, sending = self.commands, self._sending
        while commands and sending.acquire(False):
            try:
                count = len(commands)
                batch = commands[:count]
                del commands[:count]
                if batch:
                    before = len(self.known)
                    body = encode_commands(batch, self.known)
                    self.callables_sent += max(0, len(self.known) - before)
                    if len(self.known) > MAX_KNOWN:
                        self.known = {}
                    self.frames_sent += 1
                    self.bytes_sent += len(body)
                    self._pool.send(self._slot, FrameId(self.frames_sent), body)
            finally:
                sending.release()
