"""`gather`: the results of futures, in the containers in which the futures stand.

Never here: how futures are found (see `serde.nested`).
"""

import time
from concurrent.futures import Future
from typing import Any

from slipstream.serde.nested import futures_in, replace_futures


def gather(nested: Any, *, timeout: float | None = None, return_exceptions: bool = False) -> Any:
    """Wait for all futures in nested containers; the same containers with results in their place.

    Containers are lists, tuples, sets, dicts (keys and values) and deques, dataclasses, attrs classes and msgspec
    Structs, as in the arguments of a task. What holds no future is returned as it is.

    Args:
        nested: A future, or a container; containers may contain themselves.
        timeout: Seconds to wait for all together; None waits as long as it takes.
        return_exceptions: Whether to put the exceptions of tasks that failed in their place, instead of raising the
            first.

    Raises:
        TimeoutError: They have not all ended in time. They go on.
        CancelledError: One was cancelled.
        Exception: What the first of them raised, in the order in which they stand.

    Example:
        >>> from slipstream import Executor
        >>> with Executor(max_workers=1) as executor:
        ...     gather({"sum": executor.submit(sum, [1, 2]), "all": [executor.submit(abs, -3), 4]})
        {'sum': 3, 'all': [3, 4]}
    """
    until = None if timeout is None else time.monotonic() + timeout
    results: dict[Future[Any], Any] = {}
    for future in futures_in((nested,)):
        left = None if until is None else max(0.0, until - time.monotonic())
        try:
            results[future] = future.result(left)
        except BaseException as error:
            if not (return_exceptions and future.done()):
                raise
            results[future] = error
    return replace_futures(nested, results.__getitem__)
