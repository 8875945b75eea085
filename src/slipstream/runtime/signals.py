"""Keeps signal handlers out of engine code.

Python runs a signal handler between any two bytecodes of the main thread, and it may raise: in the middle of a turn,
or between taking a lock and entering the `try` that would release it. With exceptions every 0.2 to 3 ms an
unprotected engine hung for ever in 4 of 4 runs within 4 s; `with` and `try/finally` do not help.

So a call that enters the engine from the main thread swaps in a handler that only takes note. What was noted is
delivered when the call leaves, or at once while it is blocked in `wait`, where there is nothing to tear. The swap
uses `_signal` (0.6 µs a call); `signal.signal` converts to enums and costs 10.
"""

import importlib
import signal
import threading
from _thread import LockType, get_ident
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

_Handler: TypeAlias = Callable[[int, FrameType | None], Any]

#: The C functions behind `signal`: without its conversion to enums.
_signal: Any = importlib.import_module("_signal")

#: Held where a Python handler is set.
HELD_SIGNALS = tuple(
    map(int, (signal.SIGINT, signal.SIGALRM, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
)
_INT, _ALRM, _TERM, _HUP, _USR1, _USR2 = HELD_SIGNALS


class _Shield:
    """The state of the main thread: what is swapped out, what was noted."""

    def __init__(self) -> None:
        self.main = threading.main_thread().ident
        #: A call is about to hold signals back, or does so.
        self.entering = False
        self.active = False
        #: Signals go to their own handlers at once.
        self.blocked = False
        #: What was set when last looked at, and the Python handlers among it.
        self.seen: tuple[Any, ...] = ()
        self.handlers: dict[int, _Handler] = {}
        self.noted: list[int] = []


_shield = _Shield()


def enter() -> bool:
    """Hold signals back from here on. True if this call did it: `leave` must follow. Only the main thread needs it."""
    shield = _shield
    if shield.entering or get_ident() != shield.main:
        return False
    get = _signal.getsignal
    shield.entering = True
    try:
        # Spelled out, 0.13 µs; `map` takes 0.4, a loop as much.
        seen = get(_INT), get(_ALRM), get(_TERM), get(_HUP), get(_USR1), get(_USR2)
        if seen != shield.seen:
            shield.handlers = {n: handler for n, handler in zip(HELD_SIGNALS, seen, strict=True) if callable(handler)}
            shield.seen = seen
        for number in shield.handlers:
            _signal.signal(number, _note)
    except BaseException:  # of a handler that is not swapped yet
        leave()
        raise
    shield.active = True
    return True


def leave() -> None:
    """Let signals through again, and deliver what was noted: their handlers may raise from here."""
    shield = _shield
    shield.blocked = shield.active = False
    handlers, noted = list(shield.handlers.items()), shield.noted
    raised: BaseException | None = None
    # In one loop, and nothing is taken from a list by a call: whatever is put back may raise after each call and at the
    # start of each function, and the rest must follow all the same.
    while handlers or noted or shield.entering:
        try:
            while handlers:
                number, handler = handlers[-1]
                if _signal.getsignal(number) is _note:  # else a handler has set another one
                    _signal.signal(number, handler)
                del handlers[-1]
            shield.entering = False
            while noted:
                number = noted[0]
                del noted[0]
                _signal.raise_signal(number)
        except BaseException as error:  # noqa: BLE001  # raised below
            error.__context__ = error.__context__ or raised
            raised = error
    if raised is not None:
        raise raised


def wait(lock: LockType, timeout_s: float = -1) -> bool:
    """Acquire a lock that another thread will release; signals are delivered meanwhile, and may raise from here.

    Args:
        lock: a lock made for this one wait.
        timeout_s: in seconds; negative waits for ever.

    Returns:
        Whether it was acquired in time.
    """
    if not begin_block():
        return lock.acquire(True, timeout_s)
    try:
        return lock.acquire(True, timeout_s)
    finally:
        end_block()


def begin_block() -> bool:
    """The thread is about to block, with nothing to tear: what was noted is delivered now, what comes at once.

    True if `end_block` must follow, in a `finally`: handlers may raise from here on.
    """
    shield = _shield
    if not shield.active or get_ident() != shield.main:
        return False
    shield.blocked = True
    if shield.noted:
        _open(shield)
    return True


def _open(shield: _Shield) -> None:
    """Let signals through at once; those that were noted until then first. Their handlers may call the engine."""
    while True:
        shield.blocked = True
        if not shield.noted:
            return
        shield.blocked = False
        number = shield.noted[0]
        del shield.noted[0]  # not by a call, after which a handler may raise
        shield.handlers[number](number, None)


def end_block() -> None:
    """The thread does not block any more: signals are noted again."""
    _shield.blocked = False


def _note(number: int, frame: FrameType | None) -> None:
    shield = _shield
    if not shield.blocked:
        shield.noted.append(number)
        return
    shield.blocked = False  # the handler may call the engine; and if it raises, the wait is over
    shield.handlers[number](number, frame)
    _open(shield)


def after_fork_in_child() -> None:
    """The thread that forked is the child's main thread; the one that may have held signals back is not there."""
    if _shield.main != get_ident():
        if _shield.entering:
            leave()
        _shield.main = get_ident()
