"""Keeps signal handlers out of engine code.

Python runs a signal handler between any two bytecodes of the main thread, and it may raise: in the middle of a turn, or
between taking a lock and entering the `try` that would release it. With exceptions every 0.2 to 3 ms an unprotected engine
hung for ever in 4 of 4 runs within 4 s; `with` and `try/finally` do not help.

So a call that enters the engine from the main thread swaps in a handler that only takes note. What was noted is delivered
when the call leaves, or at once while it is blocked in `wait`, where there is nothing to tear. The swap uses `_signal`
(0.6 µs a call); `signal.signal` converts to enums and costs 10.
"""

import _signal
import threading
from _thread import LockType, get_ident
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], Any]

#: Held where a Python handler is set.
HELD_SIGNALS = tuple(
    int(number)
    for number in (
        _signal.SIGINT,
        _signal.SIGALRM,
        _signal.SIGTERM,
        _signal.SIGHUP,
        _signal.SIGUSR1,
        _signal.SIGUSR2,
    )
)


class _Shield:
    """The state of the main thread: what is swapped out, what was noted."""

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        self.active = False
        #: Signals go to their own handlers at once.
        self.blocked = False
        self.handlers: dict[int, _Handler] = {}
        self.noted: list[int] = []


_shield = _Shield()


def enter() -> bool:
    """Hold signals back from here on. True if this call did it: `leave` must follow. Only the main thread needs it."""
    shield = _shield
    if shield.active or get_ident() != shield.main:
        return False
    getsignal, swap = _signal.getsignal, _signal.signal
    handlers = {number: handler for number in HELD_SIGNALS if callable(handler := getsignal(number))}
    try:
        for number in handlers:
            swap(number, _note)
    except BaseException:  # of a handler that is not swapped yet
        _restore(list(handlers.items()))
        raise
    shield.handlers = handlers
    shield.active = True
    return True


def leave() -> None:
    """Let signals through again, and deliver what was noted: their handlers may raise from here."""
    shield = _shield
    shield.blocked = False
    noted = shield.noted
    shield.active = False
    try:
        _restore(list(shield.handlers.items()))
    finally:
        if noted:
            shield.noted = []
            _deliver(noted)


def wait(lock: LockType, timeout_s: float = -1) -> bool:
    """Acquire a lock that another thread will release; signals are delivered meanwhile, and may raise from here.

    Args:
        lock: a lock made for this one wait.
        timeout_s: in seconds; negative waits for ever.

    Returns:
        Whether it was acquired in time.
    """
    shield = _shield
    if get_ident() != shield.main or not shield.active:
        return lock.acquire(True, timeout_s)
    try:
        shield.blocked = True
        while shield.noted:
            number = shield.noted.pop(0)
            shield.handlers[number](number, None)
        return lock.acquire(True, timeout_s)
    finally:
        shield.blocked = False


def _note(number: int, frame: FrameType | None) -> None:
    shield = _shield
    if not shield.blocked:
        shield.noted.append(number)
        return
    shield.blocked = False  # the handler may call the engine
    try:
        shield.handlers[number](number, frame)
    finally:
        shield.blocked = True


def _restore(handlers: list[tuple[int, _Handler]]) -> None:
    """Put all handlers back, also when one that is back already raises."""
    if handlers:
        number, handler = handlers.pop()
        try:
            _signal.signal(number, handler)
        finally:
            _restore(handlers)


def _deliver(noted: list[int]) -> None:
    if noted:
        number = noted.pop(0)
        try:
            _signal.raise_signal(number)
        finally:
            _deliver(noted)


def after_fork_in_child() -> None:
    """The thread that forked is the child's main thread."""
    _shield.main = get_ident()
