"""Starts the engine's own threads, and sees when one ends that should not.

Whatever an internal thread dies of becomes an InternalError for every pending future: nothing waits for a thread that
is gone.
"""

import logging
import signal
import threading
from collections.abc import Callable

from slipstream.errors import InternalError

logger = logging.getLogger(__name__)


def start_thread(name: str, target: Callable[[], None], on_death: Callable[[InternalError], None]) -> threading.Thread:
    """Run `target` in a daemon thread that blocks all signals.

    Args:
        name: of the thread; "slipstream-" goes before it.
        target: returns when its work is over.
        on_death: called in that thread if `target` raises, with an error that has the exception as its cause.
    """

    def supervised() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            target()
        except BaseException as error:  # a top-level loop: reported, and everything stops
            logger.critical("the internal thread %r died", name, exc_info=True)
            failure = InternalError(f"the engine's {name!r} thread died of {type(error).__name__}: {error}")
            failure.__cause__ = error
            on_death(failure)

    thread = threading.Thread(target=supervised, name=f"slipstream-{name}", daemon=True)
    thread.start()
    return thread
