"""What a simulated task does, and what must come of it. It is the task's payload.

Never here: who runs it, and when.
"""

from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import msgspec

from slipstream.protocol.ids import STORED

US = 1_000


class Work(msgspec.Struct, frozen=True, array_like=True):
    """What a task does. It is the task's payload."""

    duration_ns: int = US
    #: Makes its result differ from that of others.
    salt: int = 0
    raises: bool = False
    #: It waits for something that is none of the scheduler's business, and its worker gives back the rest meanwhile.
    blocks: bool = False
    #: It submits so many tasks and waits for them; so do these, as many levels deep.
    children: int = 0
    levels: int = 0
    #: Its result lies in a file.
    stored: bool = False
    #: What its own tasks survive.
    retries: int = 0

    def result(self, inputs: Sequence[bytes]) -> bytes:
        """What the task returns; another order of inputs or another input gives another result."""
        results: list[bytes] = []
        for child in self.works():
            results.append(child.result(results[-1:]))
        return b"%d" % crc32(repr((self.salt, [value_of(value) for value in inputs], results)).encode())

    def error(self) -> bytes:
        """What the task raises."""
        return b"error %d" % self.salt

    def works(self) -> list["Work"]:
        """What the tasks do that it submits, each of which takes the result of the one before."""
        levels = self.levels - 1
        children = self.children if levels > 0 else 0
        return [
            Work(self.duration_ns, n, False, False, children, levels, self.stored, self.retries)
            for n in range(self.children)
        ]

    def options(self) -> dict[str, Any]:
        """With what they are submitted."""
        return {"worker_retries": self.retries, "value_retries": self.retries}


def value_of(payload: bytes) -> bytes:
    """What a payload stands for: one in a file is followed by the name of the file."""
    return payload[1:].partition(b" ")[0] if payload[:1] == STORED else payload


decode_work: Callable[[bytes], Work] = msgspec.msgpack.Decoder(Work).decode
