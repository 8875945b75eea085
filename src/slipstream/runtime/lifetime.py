"""All engines of this process: they end with the program, and a forked child lets go of them.

Never here: how an engine ends.
"""

import os
import threading
import weakref
from typing import Protocol

from slipstream.runtime import signals


class _Engine(Protocol):
    def close(self) -> None: ...
    def wait_ended(self) -> None: ...
    def abandon_in_child(self) -> None: ...


engines: "weakref.WeakSet[_Engine]" = weakref.WeakSet()
#: The main thread has ended.
ending = threading.Event()


def _end_all() -> None:
    """At interpreter exit: what was submitted still runs, as with every executor of the standard library."""
    ending.set()
    shielded = signals.enter()
    try:
        present = list(engines)
        for engine in present:
            engine.close()
        for engine in present:
            engine.wait_ended()
    finally:
        if shielded:
            signals.leave()


def _after_fork_in_child() -> None:
    signals.after_fork_in_child()
    for engine in list(engines):
        engine.abandon_in_child()


threading._register_atexit(_end_all)  # pyright: ignore  # before threads are joined; what ProcessPoolExecutor uses
os.register_at_fork(after_in_child=_after_fork_in_child)
