"""What the scheduler counts. Items of a map chunk count as tasks."""

from msgspec import Struct


class Counters(Struct):
    """Totals since the start."""

    submitted: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    #: Runs of tasks whose values were lost. The task itself is counted once, by its first end.
    recomputed: int = 0
    #: Sum of the durations that workers measured, in ns.
    run_ns: int = 0
    #: Messages about an attempt or a worker that is over.
    stale: int = 0
    #: Inputs that rightly have no effect, such as the cancellation of a finished task.
    ignored: int = 0
