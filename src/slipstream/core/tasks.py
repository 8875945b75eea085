"""What the scheduler knows of a task and of a worker.

A task refers to others by id only, so no cycle can come about and tasks stay out of the cyclic collector (`gc=False`).
"""

from msgspec import Struct

from slipstream.core.states import State
from slipstream.protocol.ids import CallableDigest, ClientId, TaskId, WorkerId

#: The worker of a task that is not assigned.
NOWHERE = WorkerId(-1)
#: The client of a task whose client has left.
NOBODY = ClientId(-1)


class Task(Struct, gc=False):
    """A task, from its submission until nothing can refer to it any more."""

    task: TaskId
    client: ClientId
    digest: CallableDigest
    #: The encoded call; dropped when the task ends.
    payload: bytes
    items: int
    priority: int
    worker_retries: int
    #: Ids of the tasks whose results this one takes, each once.
    dependencies: tuple[TaskId, ...]
    #: Whether the client may still refer to it.
    kept: bool
    #: That of its callable, and that of the classes that it needs, if it has them.
    definition: bytes
    classes_digest: CallableDigest
    classes: bytes
    state: State
    attempt: int = 0
    #: Where it is, in a PLACED state; NOWHERE otherwise.
    worker: WorkerId = NOWHERE
    #: What it counts for in its worker's backlog, in ns.
    estimate_ns: int = 0
    #: A retraction has been asked for and not answered.
    retracting: bool = False
    #: Lost workers charged to it.
    losses: int = 0
    #: Lost workers on which it had run and was not reported, and no other task is known to be the cause.
    suspicions: int = 0
    #: Dependencies that have not succeeded yet; zero in every state but WAITING and CANCELLED, FAILED.
    missing: int = 0
    #: Live tasks that take its result, in order of submission (a dict, to remove one of 100,000 at no cost).
    dependents: dict[TaskId, None] | None = None
    #: The encoded result, while someone may still take it.
    result: bytes | None = None
    #: The failed or cancelled task that is the root of this one's failure.
    root: TaskId | None = None


class Worker:
    """One incarnation of a worker, and the tasks it has been given."""

    __slots__ = ("backlog_ns", "bucket", "held", "long", "retracting", "tasks", "worker")

    def __init__(self, worker: WorkerId) -> None:
        self.worker = worker
        #: Tasks in a PLACED state with this worker, in the order in which they were sent.
        self.tasks: dict[TaskId, Task] = {}
        #: Sum of their estimates.
        self.backlog_ns = 0
        #: The task that it said has outlived the tick, if any: it takes nothing meanwhile.
        self.long: TaskId | None = None
        #: It gave back: it takes nothing until it has completed something, or has nothing left.
        self.held = False
        #: Where placement keeps it, if it has room.
        self.bucket: dict[WorkerId, Worker] | None = None
        #: Number of its tasks that have been asked back and not answered for.
        self.retracting = 0
