"""The messages between clients, the scheduler and workers. They are the core's own events and effects.

Each is a flat, frozen, array-like msgspec Struct with an integer tag: about 0.1 µs to make and a few bytes on the wire.
What a worker reads and writes, it reads and writes as tuples in the order of these fields: see `worker_codec`.

`gc=False` keeps a hundred thousand of them out of the cyclic collector, which is right as long as no message can be
part of a cycle: fields are numbers, bytes, strings and tuples of these only.

Never here: behaviour. A message says what happened or what is wanted.
"""

from typing import TypeAlias

from msgspec import Struct

from slipstream.protocol.ids import NO_DIGEST, CallableDigest, TaskId

#: One try of one task: what a worker is told to run, and what it must say back.
TaskAttempt: TypeAlias = tuple[TaskId, int]


class Message(Struct, frozen=True, array_like=True, gc=False):
    """Base of all messages."""


# --- from a client to the scheduler -----------------------------------------------------------------------------------


class Submit(Message, frozen=True, array_like=True, tag=1, gc=False):
    """A task, with its arguments encoded as they were at that moment."""

    task: TaskId
    digest: CallableDigest
    payload: bytes
    #: 0 for a plain call; n for a map chunk, which is one task with n items.
    items: int = 0
    priority: int = 0
    #: How many lost workers the task may survive before it fails, and how often its lost value is made again.
    worker_retries: int = 0
    value_retries: int = 0
    #: What it takes of others, in the order in which the call counts it: a task, or a result that is there already.
    inputs: tuple[TaskId | bytes, ...] = ()
    #: Keep the outcome until the client releases it, since later tasks may depend on it. A result that lies in a file
    #: is kept in any event.
    keep: bool = False
    #: What a worker must have to run it, once; empty where the payload has it all.
    definition: bytes = b""
    #: The classes by value that it needs, which a worker must have too.
    classes_digest: CallableDigest = NO_DIGEST
    classes: bytes = b""


class Expect(Message, frozen=True, array_like=True, tag=4, gc=False):
    """A value that comes from outside of the engine, and that tasks may depend on under this number."""

    task: TaskId
    #: Keep it until the client releases it.
    keep: bool = False


class Provide(Message, frozen=True, array_like=True, tag=5, gc=False):
    """The encoded value that was expected; None if there will be none."""

    task: TaskId
    payload: bytes | None


class Cancel(Message, frozen=True, array_like=True, tag=2, gc=False):
    """The client wants the task not to run, if it has not been assigned to a worker."""

    task: TaskId


class Release(Message, frozen=True, array_like=True, tag=3, gc=False):
    """No future of the client refers to the task any more."""

    task: TaskId


class Missed(Message, frozen=True, array_like=True, tag=6, gc=False):
    """The client wants the task's result, and cannot find what this payload stands for."""

    task: TaskId
    payload: bytes


# --- from a worker to the scheduler -----------------------------------------------------------------------------------


class Started(Message, frozen=True, array_like=True, tag=10, gc=False):
    """The task has outlived the tick. Of shorter tasks only the end is told."""

    task: TaskId
    attempt: int


class Done(Message, frozen=True, array_like=True, tag=11, gc=False):
    """The task returned. `failures` are the items of a chunk that raised: (index, encoded exception)."""

    task: TaskId
    attempt: int
    duration_ns: int
    payload: bytes
    failures: tuple[tuple[int, bytes], ...] = ()


class Failed(Message, frozen=True, array_like=True, tag=12, gc=False):
    """The task raised, could not be decoded, or returned what cannot be encoded."""

    task: TaskId
    attempt: int
    duration_ns: int
    payload: bytes


class Gave(Message, frozen=True, array_like=True, tag=13, gc=False):
    """Tasks that the worker had not started and gives back."""

    tasks: tuple[TaskAttempt, ...]


class Lacks(Message, frozen=True, array_like=True, tag=15, gc=False):
    """Tasks that the worker has not started, since it does not have a definition that they need."""

    tasks: tuple[TaskAttempt, ...]


class Gone(Message, frozen=True, array_like=True, tag=16, gc=False):
    """The task has not started, since what these payloads among its inputs stand for cannot be found."""

    task: TaskId
    attempt: int
    payloads: tuple[bytes, ...]


class Blocked(Message, frozen=True, array_like=True, tag=17, gc=False):
    """The task has started, and waits for tasks that it has submitted itself."""

    task: TaskId
    attempt: int


class Resumed(Message, frozen=True, array_like=True, tag=18, gc=False):
    """The task does not wait any more."""

    task: TaskId
    attempt: int


class Kept(Message, frozen=True, array_like=True, tag=14, gc=False):
    """Tasks asked for by `Retract` that the worker has started or finished."""

    tasks: tuple[TaskAttempt, ...]


# --- from the scheduler to a worker -----------------------------------------------------------------------------------


class Run(Message, frozen=True, array_like=True, tag=20, gc=False):
    """Run this attempt. Of its inputs, one that is a number is the result of a task that this worker has run before.

    Definitions are sent to a worker that does not have them, as commands of their own before this one.
    """

    task: TaskId
    attempt: int
    digest: CallableDigest
    payload: bytes
    items: int = 0
    inputs: tuple[TaskId | bytes, ...] = ()
    classes_digest: CallableDigest = NO_DIGEST
    definition: bytes = b""
    classes: bytes = b""


class Retract(Message, frozen=True, array_like=True, tag=21, gc=False):
    """Give back those of these that have not started; answered by `Gave` and `Kept`."""

    tasks: tuple[TaskAttempt, ...]


class Environment(Message, frozen=True, array_like=True, tag=22, gc=False):
    """The client's import path has changed; what follows is to be loaded with this one."""

    sys_path: tuple[str, ...]


class Storage(Message, frozen=True, array_like=True, tag=25, gc=False):
    """Where the worker is to write large results: directories, the first part of names, and how many bytes to leave.

    Results of up to `inline_bytes` are not large: they travel in messages.
    """

    directory: str
    spill: str
    prefix: str
    floor: int
    inline_bytes: int


class Stop(Message, frozen=True, array_like=True, tag=23, gc=False):
    """Leave when what was sent before has run."""


# --- from the scheduler to a client -----------------------------------------------------------------------------------


class TaskRunning(Message, frozen=True, array_like=True, tag=30, gc=False):
    """The task has started, and is not short."""

    task: TaskId


class TaskSucceeded(Message, frozen=True, array_like=True, tag=31, gc=False):
    """The task's encoded result; for a chunk also the items that failed."""

    task: TaskId
    payload: bytes
    duration_ns: int = 0
    failures: tuple[tuple[int, bytes], ...] = ()


class TaskFailed(Message, frozen=True, array_like=True, tag=32, gc=False):
    """The task raised: its encoded exception."""

    task: TaskId
    payload: bytes


class TaskLost(Message, frozen=True, array_like=True, tag=33, gc=False):
    """The worker was lost while it ran the task, once more than the task may survive."""

    task: TaskId
    attempt: int
    reason: str
    signal: int | None
    exit_status: int | None
    last_output: bytes
    #: Index of the item of a chunk that was running.
    item: int


class ValueLost(Message, frozen=True, array_like=True, tag=36, gc=False):
    """The task's result is gone and is not made again; or a value that it takes is gone, so that it cannot run."""

    task: TaskId
    reason: str


class TaskCancelled(Message, frozen=True, array_like=True, tag=34, gc=False):
    """The task was cancelled before it was assigned."""

    task: TaskId


class InputFailed(Message, frozen=True, array_like=True, tag=35, gc=False):
    """The task cannot run: `root`, on which it depends through any number of others, has failed or was cancelled.

    What happened to `input`, on which it depends directly, has been told before, if the client was to be told.
    """

    task: TaskId
    root: TaskId
    input: TaskId


class CannotWait(Message, frozen=True, array_like=True, tag=37, gc=False):
    """The task must not wait for others: that many workers do, and there may be no more to run what they wait for."""

    task: TaskId
    processes: int


# --- at the start of a worker; between it and its pool ----------------------------------------------------------------


class Hello(Message, frozen=True, array_like=True, tag=40, gc=False):
    """The worker is up, its initializer has run, and it can take tasks."""

    pid: int
    python: str
    slipstream: str


class StartFailed(Message, frozen=True, array_like=True, tag=41, gc=False):
    """The worker's initializer raised: the traceback as text."""

    text: str


ClientMessage: TypeAlias = Submit | Expect | Provide | Missed | Cancel | Release
WorkerMessage: TypeAlias = Started | Done | Failed | Gave | Kept | Lacks | Gone | Blocked | Resumed
Notice: TypeAlias = (
    TaskRunning | TaskSucceeded | TaskFailed | TaskLost | ValueLost | TaskCancelled | InputFailed | CannotWait
)
#: Beside what concerns the worker: what its tasks are told as a client, a Submit that was refused, and a Cancel after
#: whatever came of it.
WorkerCommand: TypeAlias = Run | Retract | Environment | Storage | Stop | Notice | Submit | Cancel
Greeting: TypeAlias = Hello | StartFailed
