"""What the scheduler knows of a task and of a worker.

A task refers to others by id only, so no cycle can come about and tasks stay out of the cyclic collector (`gc=False`).
"""

from collections import deque

from msgspec import Struct

from slipstream.core.states import WAITING, State
from slipstream.protocol.ids import NO_DIGEST, CallableDigest, ClientId, TaskId, WorkerId

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
    items: int = 0
    #: That of its submission, and how deep it is nested: see `urgency`.
    priority: int = 0
    worker_retries: int = 0
    value_retries: int = 0
    #: What it takes of others: tasks, and results that were there at its submit; and the tasks among these, each once.
    inputs: tuple[TaskId | bytes, ...] = ()
    dependencies: tuple[TaskId, ...] = ()
    #: Whether the client may still refer to it.
    kept: bool = False
    #: That of its callable, and that of the classes that it needs, if it has them.
    definition: bytes = b""
    classes_digest: CallableDigest = NO_DIGEST
    classes: bytes = b""
    state: State = WAITING
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
    #: Dependencies that have not succeeded yet; not zero in WAITING, and in ASSIGNED where it was sent ahead.
    missing: int = 0
    #: How many of its dependents were sent ahead to its worker.
    ahead: int = 0
    #: Tasks that take its result, in order of submission (a dict, to remove one of 100,000 at no cost), and whether
    #: they count it as missing. They are live, or have a recipe that names it.
    dependents: dict[TaskId, bool] | None = None
    #: The encoded result, while someone may still take it.
    result: bytes | None = None
    #: Its client has released it.
    released: bool = False
    #: How many recipes in a row are needed to run it again, beside its own; -1 if it has none.
    depth: int = -1
    #: How many of its dependents have succeeded, and name it in their recipes.
    bound: int = 0
    #: How often its value was lost.
    value_losses: int = 0
    #: The failed or cancelled task that is the root of this one's failure.
    root: TaskId | None = None

    @property
    def recipe(self) -> bool:
        """Whether it has succeeded and can be run again, should its value be lost: its call and inputs are here."""
        return self.depth >= 0


#: So many levels of nesting are told apart.
LEVELS = 1 << 20


def urgency(priority: int, parent: Task | None) -> int:
    """The priority of a task that another one has submitted, or a client from outside.

    Within one priority of the user, what a task waits for goes before what was there before, and the deeper the sooner:
    else each slot that is left by a task that waits begins another that will wait. (300 tasks that wait for one task
    each took 128 processes, and then failed.)

    Args:
        priority: As submitted.
        parent: Who submitted it, if that is a task.

    Example:
        >>> urgency(1, None) > urgency(0, Task(1, ClientId(0), NO_DIGEST, b"")) > urgency(0, None)
        True
    """
    level = 0 if parent is None else min(parent.priority % LEVELS + 1, LEVELS - 1)
    return priority * LEVELS + level


class Worker:
    """One incarnation of a worker, and the tasks it has been given."""

    __slots__ = (
        "backlog_ns",
        "blocked",
        "bucket",
        "followers",
        "held",
        "long",
        "parked",
        "retracting",
        "tasks",
        "worker",
    )

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
        #: Its task waits for others: it has no slot meanwhile.
        self.blocked = False
        #: It is one more than there are slots: it takes nothing until one of those blocks.
        self.parked = False
        #: Where placement keeps it, if it has room.
        self.bucket: dict[WorkerId, Worker] | None = None
        #: Tasks that wait for nothing but results of this worker, and may be sent ahead; and some that did so before.
        self.followers: deque[Task] = deque()
        #: Number of its tasks that have been asked back and not answered for.
        self.retracting = 0
