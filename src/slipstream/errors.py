"""Every exception that Slipstream raises by itself. Nothing but exception classes may live here.

The tree::

    SlipstreamError
    ├── PayloadError     something cannot be sent or loaded
    ├── RemoteError      stands for a task's exception that does not travel
    ├── DependencyError  an input of the task failed, so the task did not run
    ├── InfeasibleTask   the task asks for more than there may be
    ├── WorkerLost       the worker died while it ran the task (also a BrokenExecutor)
    └── InternalError    Slipstream itself is broken

    PayloadWarning       something is sent again and again, and need not be

What a task raises is not in this tree: it arrives in the client as it was raised, with the remote traceback as
the cause of its chain. Misuse of a call is a plain ``TypeError`` or ``ValueError``.

Every class takes one positional message, so that it survives ``pickle`` and ``copy``; whatever else it carries is
an optional keyword argument and an attribute.
"""

from __future__ import annotations

from concurrent.futures import BrokenExecutor


class SlipstreamError(Exception):
    """Base of everything that Slipstream raises by itself.

    Example:
        >>> issubclass(WorkerLost, SlipstreamError)
        True
    """


class PayloadError(SlipstreamError):
    """A callable, an argument or a result cannot be sent, or cannot be loaded where it arrived.

    The message names the task and the piece at fault; the original error is the ``__cause__``. Only the one task
    fails.

    Example:
        >>> raise PayloadError("task 'train' cannot be sent: argument 'lock' cannot be pickled")
        Traceback (most recent call last):
        ...
        slipstream.errors.PayloadError: task 'train' cannot be sent: argument 'lock' cannot be pickled
    """


class PayloadWarning(UserWarning):
    """A task's payload is larger than it need be. Given once for each function.

    Example:
        >>> issubclass(PayloadWarning, UserWarning)
        True
    """


class RemoteError(SlipstreamError):
    """Stands for an exception of a task that could not itself be brought to the client.

    Args:
        message: Type and text of the original exception, and why it could not be sent.
        type_name: Qualified name of the original type, with its module unless that is ``builtins``.
        remote_traceback: The traceback as the worker formatted it.

    Example:
        >>> RemoteError("QuotaError: u7 over 42", type_name="billing.QuotaError").type_name
        'billing.QuotaError'
    """

    def __init__(self, message: str = "", *, type_name: str = "", remote_traceback: str = "") -> None:
        super().__init__(message)
        self.type_name = type_name
        self.remote_traceback = remote_traceback


class DependencyError(SlipstreamError):
    """The task did not run, since a future among its arguments failed or was cancelled.

    The exception of the task at the root of it is the ``__cause__``, the same object for all that depend on it.

    Args:
        message: Which task did not run, and why.
        path: Labels of the tasks from the root to the direct input.

    Example:
        >>> error = DependencyError("task 'plot' did not run: its input 'load' failed")
        >>> error.__cause__ = FileNotFoundError("data.csv")
        >>> type(error.__cause__).__name__
        'FileNotFoundError'
    """

    def __init__(self, message: str = "", *, path: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class WorkerLost(SlipstreamError, BrokenExecutor):
    """The worker process died while it ran the task. The executor goes on with a new worker.

    Args:
        message: What happened to which task, why, and what to do.
        reason: The cause in a few words, such as ``"killed by SIGSEGV"``.
        signal: Number of the signal that ended the process, if one did.
        exit_status: Exit status of the process, if it ended by itself.
        last_output: The last few kB that the worker wrote to stdout and stderr.
        item: Index of the item of a map chunk that was running, if the task was a chunk.

    Example:
        >>> WorkerLost("the worker died", reason="killed by SIGKILL", signal=9).signal
        9
    """

    def __init__(
        self,
        message: str = "",
        *,
        reason: str = "",
        signal: int | None = None,
        exit_status: int | None = None,
        last_output: str = "",
        item: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.signal = signal
        self.exit_status = exit_status
        self.last_output = last_output
        self.item = item


class InfeasibleTask(SlipstreamError):
    """A task asks for more than this executor may have, so that it would wait for ever.

    Example:
        >>> issubclass(InfeasibleTask, SlipstreamError)
        True
    """


class InternalError(SlipstreamError):
    """Slipstream broke one of its own rules; every pending future fails with this rather than hang.

    It is a fault of Slipstream, never of a task: please report it with its whole text.

    Example:
        >>> issubclass(InternalError, RuntimeError)
        False
    """
