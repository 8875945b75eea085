"""Handlers that raise, anywhere: afterwards every handler is the user's again, and nothing that was noted is lost."""

import signal

import pytest

import scripts

#: What the scripts have in common: six handlers that count, one of which raises when armed.
SETUP = """
import signal, sys, threading
from _thread import allocate_lock
from slipstream.runtime import signals

NUMBERS = signals.HELD_SIGNALS
counts = dict.fromkeys(NUMBERS, 0)

class Raised(Exception):
    pass

def counting(number, frame):
    counts[number] += 1

def raising(number, frame):
    counts[number] += 1
    raise Raised(number)

def set_all(raises):
    for number in NUMBERS:
        counts[number] = 0
        signal.signal(number, raising if number == raises else counting)

def check_restored(raises, when):
    for number in NUMBERS:
        expected = raising if number == raises else counting
        found = signal.getsignal(number)
        assert found is expected, (when, signal.Signals(number).name, found)

def check_works(when):
    '''A later call holds back and delivers.'''
    set_all(None)
    assert signals.enter(), when
    for number in NUMBERS:
        signal.raise_signal(number)
    assert not any(counts.values()), (when, counts)
    signals.leave()
    assert all(count == 1 for count in counts.values()), (when, counts)
    check_restored(None, when)
"""

#: Raises a signal at the k-th place of the module where Python may run a handler, for every k.
EVERYWHERE = (
    SETUP
    + """
import dis

#: After these instructions the interpreter looks whether a signal came: the start of a function, a call of C code, and
#: the way back in a loop.
LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX"}

def names_of(code, known={}):
    if code not in known:
        known[code] = {instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}
    return known[code]

came = {}

def send(number):
    came[number] += 1
    signal.raise_signal(number)

class Tracer:
    def __init__(self, at, number):
        self.at, self.number, self.seen, self.where = at, number, 0, None
        self.last = {}

    def __call__(self, frame, event, argument):
        if event == "call":
            self.last[frame.f_back] = ""  # what was called is Python code: nobody looks when it returns
            self.last[frame] = "RESUME"
        if frame.f_code.co_filename != signals.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last = self.last.get(frame, "")
            self.last[frame] = names_of(frame.f_code)[frame.f_lasti]
            if last in LOOKS or "JUMP_BACKWARD" in last:
                self.seen += 1
                if self.seen == self.at:
                    self.where = (frame.f_code.co_name, frame.f_lineno, "after " + last)
                    send(self.number)
        return self

def engine_call(body):
    shielded = signals.enter()
    try:
        body()
    finally:
        if shielded:
            signals.leave()

def nothing():
    pass

def waiting():
    lock = allocate_lock()
    lock.acquire()
    signals.wait(lock, 0.0)

def waiting_with_noted():
    send(signal.SIGHUP)
    waiting()

def blocking():
    blocked = signals.begin_block()
    try:
        pass
    finally:
        if blocked:
            signals.end_block()

def noted():
    send(signal.SIGHUP)
    send(signal.SIGTERM)

def nested():
    engine_call(waiting)

BODIES = [nothing, waiting, waiting_with_noted, blocking, noted, nested]

def places(body, number, raises):
    '''Run with a signal at each place in turn; how many places there were.'''
    at = 0
    while True:
        at += 1
        set_all(raises)
        came.update(dict.fromkeys(NUMBERS, 0))
        tracer = Tracer(at, number)
        sys.settrace(tracer)
        raised = False
        try:
            engine_call(body)
        except Raised:
            raised = True
        finally:
            sys.settrace(None)
        if tracer.where is None:
            return at - 1
        when = (body.__name__, signal.Signals(number).name, *tracer.where)
        failures.extend(check(when, number, raises, raised))

def check(when, number, raises, raised):
    found = []
    try:
        check_restored(raises, when)
        assert not signals._shield.active and not signals._shield.blocked, when
        assert not signals._shield.noted, when
        assert raised == (number == raises), when
        for other in NUMBERS:
            text = f"{signal.Signals(other).name} was handled {counts[other]} times, and came {came[other]} times"
            assert counts[other] == came[other], text
        check_works(when)
    except (AssertionError, Raised) as error:
        found.append((*when, str(error.args[0])[-90:]))
        signals._shield.__init__()
    return found

failures = []
total = 0
for body in BODIES:
    for number in (NUMBERS if body in (nothing, waiting) else NUMBERS[:1] + NUMBERS[-1:]):
        for raises in (number, None):
            total += places(body, number, raises)
assert total > 300, total
for failure in dict.fromkeys(failures):
    print(failure)
print(len(failures), "of", total)
"""
)


def test_a_handler_that_raises_anywhere_leaves_every_handler_the_users():
    *failures, summary = scripts.run(EVERYWHERE).lines()
    assert not failures, (summary, failures)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGALRM, signal.SIGTERM, signal.SIGUSR1])
def test_what_comes_between_enter_and_leave_is_delivered_once_at_leave(number):
    script = (
        SETUP
        + f"""
number = {int(number)}
set_all(None)
assert signals.enter()
for _ in range(3):
    signal.raise_signal(number)
assert counts[number] == 0
signals.leave()
print(counts[number])
signals.enter()
signals.leave()
print(counts[number])
check_restored(None, "at the end")
"""
    )
    assert scripts.run(script).lines() == ["3", "3"]


def test_all_that_was_noted_is_delivered_although_the_first_handler_raises():
    script = (
        SETUP
        + """
set_all(signal.SIGINT)
signals.enter()
for number in NUMBERS:
    signal.raise_signal(number)
try:
    signals.leave()
except Raised as error:
    print("raised", error)
print(sorted(counts.values()))
check_restored(signal.SIGINT, "after leave")
check_works("later")
"""
    )
    assert scripts.run(script).lines() == [f"raised {int(signal.SIGINT)}", "[1, 1, 1, 1, 1, 1]"]


def test_every_handler_raises_at_leave_and_the_last_exception_knows_the_others():
    script = (
        SETUP
        + """
for number in NUMBERS:
    signal.signal(number, raising)
signals.enter()
for number in NUMBERS:
    signal.raise_signal(number)
try:
    signals.leave()
except Raised as error:
    seen = []
    while error is not None:
        seen.append(error.args[0])
        error = error.__context__
    print(sorted(seen) == sorted(NUMBERS))
print([signal.getsignal(number) is raising for number in NUMBERS].count(True))
"""
    )
    assert scripts.run(script).lines() == ["True", "6"]


def test_an_inner_enter_does_nothing_and_the_outer_leave_delivers():
    script = (
        SETUP
        + """
set_all(None)
print(signals.enter(), signals.enter())
signal.raise_signal(signal.SIGINT)
print(counts[signal.SIGINT])
signals.leave()
print(counts[signal.SIGINT], signals.enter())
signals.leave()
check_restored(None, "at the end")
"""
    )
    assert scripts.run(script).lines() == ["True False", "0", "1 True"]


def test_other_threads_neither_enter_nor_swap_anything():
    script = (
        SETUP
        + """
set_all(None)
seen = []

def other():
    seen.append(signals.enter())
    check_restored(None, "in the thread")
    lock = allocate_lock()
    lock.acquire()
    seen.append(signals.wait(lock, 0.0))
    seen.append(signals.begin_block())

def in_thread():
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()

in_thread()
print(seen)
seen.clear()
check_restored_here, check_restored = check_restored, lambda *_: None
signals.enter()
in_thread()  # while the main thread holds signals back, other threads must not let them through
signal.raise_signal(signal.SIGINT)
print(seen, counts[signal.SIGINT])
signals.leave()
print(counts[signal.SIGINT])
check_restored_here(None, "at the end")
"""
    )
    assert scripts.run(script).lines() == ["[False, False, False]", "[False, False, False] 0", "1"]


def test_default_and_ignored_signals_are_left_alone():
    script = (
        SETUP
        + """
from _signal import getsignal
before = {}
for number, handler in zip(NUMBERS, [signal.SIG_DFL, signal.SIG_IGN] * 3):
    signal.signal(number, handler)
    before[number] = getsignal(number)
signal.signal(signal.SIGINT, counting)
signals.enter()
print([number for number in NUMBERS[1:] if getsignal(number) != before[number]])
for number in NUMBERS:
    if before[number] == signal.SIG_IGN:
        signal.raise_signal(number)
signal.raise_signal(signal.SIGINT)
print(counts[signal.SIGINT])
signals.leave()
print([number for number in NUMBERS[1:] if getsignal(number) != before[number]], counts[signal.SIGINT])
signals.enter()
signal.raise_signal(signal.SIGTERM) if before[signal.SIGTERM] == signal.SIG_DFL else signal.raise_signal(signal.SIGHUP)
print("not reached")
"""
    )
    ended = scripts.run(script)
    assert ended.out.splitlines() == ["[]", "0", "[] 1"]
    assert ended.status in (-signal.SIGTERM, -signal.SIGHUP)


def test_handlers_that_are_set_anew_are_seen_by_the_next_enter():
    script = (
        SETUP
        + """
set_all(None)
signals.enter()
signals.leave()
seen = []
signal.signal(signal.SIGUSR1, lambda number, frame: seen.append("new"))
signals.enter()
signal.raise_signal(signal.SIGUSR1)
signals.leave()
print(seen, counts[signal.SIGUSR1])
"""
    )
    assert scripts.run(script).lines() == ["['new'] 0"]


def test_what_was_noted_is_delivered_before_a_wait_and_what_comes_during_it_at_once():
    script = (
        SETUP
        + """
import os, time
set_all(None)
seen = []

def ends_the_wait(number, frame):
    if len(seen) == 1:
        seen.append(("during", lock.locked()))
        lock.release()

signals.enter()
signal.raise_signal(signal.SIGINT)
lock = allocate_lock()
lock.acquire()

def later():
    while not signals._shield.blocked:
        time.sleep(0.001)
    seen.append(("before", counts[signal.SIGINT]))
    while len(seen) == 1:
        os.kill(os.getpid(), signal.SIGUSR1)
        time.sleep(0.2)

signals._shield.handlers[int(signal.SIGUSR1)] = ends_the_wait
thread = threading.Thread(target=later)
thread.start()
print(signals.wait(lock))
thread.join()
print(seen[:2])
signal.raise_signal(signal.SIGINT)  # not blocked any more: noted again
print(counts[signal.SIGINT])
signals.leave()
print(counts[signal.SIGINT])
"""
    )
    assert scripts.run(script).lines() == ["True", "[('before', 1), ('during', True)]", "1", "2"]


def test_a_handler_that_calls_the_engine_while_a_call_is_blocked_is_shielded_itself():
    script = (
        SETUP
        + """
set_all(None)
states = []

def nested(number, frame):
    states.append((signals._shield.active, signals._shield.blocked))
    inner = signals.enter()
    signal.raise_signal(signal.SIGINT)  # comes in the middle of what the handler does with the engine
    states.append((inner, counts[signal.SIGINT]))
    if inner:
        signals.leave()

signal.signal(signal.SIGUSR1, nested)
signals.enter()
signal.raise_signal(signal.SIGUSR1)
lock = allocate_lock()
lock.acquire()
print(signals.wait(lock, 0.01))
print(states, counts[signal.SIGINT])
signals.leave()
print(counts[signal.SIGINT])
check_restored_but_one = [signal.getsignal(number) is counting for number in NUMBERS].count(True)
print(check_restored_but_one, signal.getsignal(signal.SIGUSR1) is nested)
"""
    )
    first, states, count, restored = scripts.run(script).lines()
    assert first == "False"
    assert "(False, 0)" in states
    assert (count, restored) == ("1", "5 True")
