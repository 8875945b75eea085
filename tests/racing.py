"""Threads that get in each other's way as often as they can."""

import sys
import threading
from collections.abc import Callable, Iterable


def race(runs: Iterable[Callable[[], object]], interval_s: float = 1e-6) -> None:
    """Run each in a thread of its own, switching between them all the time, until all have ended."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(interval_s)
    try:
        threads = [threading.Thread(target=run) for run in runs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
