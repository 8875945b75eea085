"""Identities. All are plain integers: they are compared and hashed millions of times.

A `WorkerId` names one incarnation of a worker: a replacement in the same slot has another id, so a message from a
worker that is gone can never be taken for one of its successor. Together with (task, attempt) it decides whether a
message still means anything; without these ids 120 of 300 random schedules completed a task twice.
"""

from typing import NewType

TaskId = NewType("TaskId", int)
WorkerId = NewType("WorkerId", int)
ClientId = NewType("ClientId", int)
SlotId = NewType("SlotId", int)
FrameId = NewType("FrameId", int)

CallableDigest = NewType("CallableDigest", bytes)

#: What an encoded value begins with that lies in a file; the rest says where.
STORED = b"\x82"
#: Of nothing.
NO_DIGEST = CallableDigest(b"")
#: The client that lives in the process of the engine itself. The tasks of a worker are a client of the worker's number.
MAIN_CLIENT = ClientId(0)
