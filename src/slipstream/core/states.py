"""The states of a task and the one table of what may happen in each.

The table is data. The scheduler turns each cell into a bound method once; the state diagram in the documentation is
drawn from it; a test walks every (state, input) pair. A cell is one of

- a `Step`: the method of the scheduler that handles the input, and the states that may follow;
- IGNORED: may rightly happen, since messages cross on the way; counted;
- FAULT: the endpoint that caused it broke the protocol, or, where the input is the scheduler's own, the scheduler did.

Never here: what the steps do.
"""

import enum
from typing import Final, NamedTuple, TypeAlias

from slipstream.protocol.messages import Blocked, Done, Failed, Gave, Gone, Kept, Lacks, Resumed, Started


class State(enum.IntEnum):
    """Where a task is in its life. Three are final: SUCCEEDED, FAILED and CANCELLED."""

    WAITING = 0
    READY = 1
    ASSIGNED = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    #: No task, but a value that comes from outside of the engine, and that tasks depend on.
    EXPECTED = 7


# Under their own names for what runs for each task: looking a member up in its class costs 0.1 µs on Python 3.11, and
# eight times a task that was a tenth of the scheduler's time.
WAITING: Final = State.WAITING
READY: Final = State.READY
ASSIGNED: Final = State.ASSIGNED
RUNNING: Final = State.RUNNING
SUCCEEDED: Final = State.SUCCEEDED
FAILED: Final = State.FAILED
CANCELLED: Final = State.CANCELLED
EXPECTED: Final = State.EXPECTED


class Input(enum.IntEnum):
    """What may happen to a task that exists."""

    #: The last missing dependency has succeeded.
    INPUTS_READY = 0
    #: A dependency failed or was cancelled.
    INPUT_FAILED = 1
    #: Placement chose a worker: the one that has or makes its inputs, if these are not all there yet.
    ASSIGN = 2
    #: The scheduler wants it back from its worker, to balance the load.
    RETRACT = 3
    #: Its client does not want it any more.
    CANCEL = 4
    #: Its client holds no reference to it any more.
    RELEASE = 5
    #: Its worker says: it runs, and it is not short.
    STARTED = 6
    #: Its worker says: it returned.
    DONE = 7
    #: Its worker says: it raised.
    RAISED = 8
    #: Its worker says: not started, take it back.
    GAVE = 9
    #: Its worker says: too late to take it back.
    KEPT = 10
    #: Its worker says: not started, since I lack a definition or a result that it needs.
    LACKED = 11
    #: Its worker was lost, and was running another task or none.
    WORKER_LOST = 12
    #: Its worker was lost while it ran this one.
    LOST_RUNNING = 13
    #: Its client says: here is the value that was expected, or there will be none.
    PROVIDED = 14
    #: Its worker says: not started, since a value that it takes is gone.
    INPUT_GONE = 15
    #: Its client, or a worker that was to run a dependent, says: its value is gone.
    VALUE_GONE = 16
    #: Its worker says: it waits for tasks that it has submitted, or: not any more.
    BLOCKED = 17
    RESUMED = 18


class Step(NamedTuple):
    """A handled input: the scheduler's method, and the states that may follow."""

    handler: str
    to: tuple[State, ...]


class _Otherwise(enum.Enum):
    IGNORED = "ignored"
    FAULT = "fault"


IGNORED: Final = _Otherwise.IGNORED
FAULT: Final = _Otherwise.FAULT

Cell: TypeAlias = Step | _Otherwise

_S = State
_FINAL: dict[Input, Cell] = {
    Input.CANCEL: IGNORED,
    Input.RELEASE: Step("_release", ()),
    Input.VALUE_GONE: Step("_say_lost", ()),
}

#: What is not named here is a FAULT.
_HANDLED: dict[State, dict[Input, Cell]] = {
    State.WAITING: {
        Input.INPUTS_READY: Step("_make_ready", (_S.READY,)),
        Input.INPUT_FAILED: Step("_fail_by_input", (_S.FAILED,)),
        Input.ASSIGN: Step("_assign", (_S.ASSIGNED,)),
        Input.CANCEL: Step("_cancel", (_S.CANCELLED,)),
        Input.RELEASE: Step("_release_early", (_S.WAITING,)),
        Input.VALUE_GONE: IGNORED,
    },
    State.READY: {
        Input.ASSIGN: Step("_assign", (_S.ASSIGNED,)),
        Input.CANCEL: Step("_cancel", (_S.CANCELLED,)),
        Input.RELEASE: Step("_release_early", (_S.READY,)),
        Input.VALUE_GONE: IGNORED,
    },
    State.ASSIGNED: {
        Input.INPUT_FAILED: Step("_fail_by_input", (_S.FAILED,)),
        Input.RETRACT: Step("_retract", (_S.ASSIGNED,)),
        Input.CANCEL: IGNORED,
        Input.RELEASE: Step("_release_early", (_S.ASSIGNED,)),
        Input.VALUE_GONE: IGNORED,
        Input.STARTED: Step("_start", (_S.RUNNING,)),
        Input.BLOCKED: Step("_block", (_S.RUNNING,)),
        Input.DONE: Step("_succeed", (_S.SUCCEEDED,)),
        Input.RAISED: Step("_fail", (_S.FAILED,)),
        Input.GAVE: Step("_take_back", (_S.READY, _S.WAITING, _S.FAILED)),
        Input.KEPT: Step("_keep", (_S.ASSIGNED,)),
        Input.LACKED: Step("_lack", (_S.READY, _S.WAITING, _S.FAILED)),
        Input.INPUT_GONE: Step("_lose_inputs", (_S.READY, _S.WAITING, _S.FAILED)),
        Input.WORKER_LOST: Step("_lose_unstarted", (_S.READY, _S.WAITING, _S.FAILED)),
        Input.LOST_RUNNING: Step("_lose_running", (_S.READY, _S.WAITING, _S.FAILED)),
    },
    State.RUNNING: {
        Input.CANCEL: IGNORED,
        Input.RELEASE: Step("_release_early", (_S.RUNNING,)),
        Input.VALUE_GONE: IGNORED,
        Input.DONE: Step("_succeed", (_S.SUCCEEDED,)),
        Input.RAISED: Step("_fail", (_S.FAILED,)),
        Input.STARTED: IGNORED,
        Input.KEPT: Step("_keep", (_S.RUNNING,)),
        Input.BLOCKED: Step("_block", (_S.RUNNING,)),
        Input.RESUMED: Step("_resume", (_S.RUNNING,)),
        Input.INPUT_GONE: Step("_lose_inputs", (_S.READY, _S.WAITING, _S.FAILED)),
        Input.WORKER_LOST: Step("_lose_unstarted", (_S.READY, _S.WAITING, _S.FAILED)),
        Input.LOST_RUNNING: Step("_lose_running", (_S.READY, _S.WAITING, _S.FAILED)),
    },
    State.EXPECTED: {
        Input.PROVIDED: Step("_take_value", (_S.SUCCEEDED, _S.FAILED)),
        Input.CANCEL: Step("_drop", (_S.CANCELLED,)),
        Input.RELEASE: Step("_release_early", (_S.EXPECTED,)),
        Input.VALUE_GONE: IGNORED,
    },
    State.SUCCEEDED: {**_FINAL, Input.VALUE_GONE: Step("_lose_value", (_S.SUCCEEDED, _S.READY, _S.WAITING, _S.FAILED))},
    State.FAILED: _FINAL,
    State.CANCELLED: _FINAL,
}

TABLE: Final[dict[State, dict[Input, Cell]]] = {
    state: {what: row.get(what, FAULT) for what in Input} for state, row in _HANDLED.items()
}

#: States in which a task still has to end.
LIVE: Final = frozenset({State.WAITING, State.READY, State.ASSIGNED, State.RUNNING, State.EXPECTED})
#: States in which a task counts against a worker.
PLACED: Final = frozenset({State.ASSIGNED, State.RUNNING})
#: The input that a worker's message is; in any other a FAULT is the scheduler's own.
INPUT_OF: Final[dict[type, Input]] = {
    Started: Input.STARTED,
    Done: Input.DONE,
    Failed: Input.RAISED,
    Gave: Input.GAVE,
    Kept: Input.KEPT,
    Lacks: Input.LACKED,
    Gone: Input.INPUT_GONE,
    Blocked: Input.BLOCKED,
    Resumed: Input.RESUMED,
}
BY_WORKER: Final = frozenset(INPUT_OF.values())
