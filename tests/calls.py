"""What tests of several folders submit. Workers import this module by name, so it imports next to nothing."""

import os
import signal
import sys
import threading
import time


def add(a, b):
    return a + b


def square(x):
    return x * x


def echo(value):
    return value


def everything(*args, **kwargs):
    return args, kwargs


def pid(*_):
    return os.getpid()


def nap(seconds, value=None):
    time.sleep(seconds)
    return value


def nap_busily(seconds):
    """Take the processor and the interpreter lock for a while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def sit_in_c():
    """A call of C code that keeps the interpreter lock for minutes."""
    return sum(range(10**11))


def raise_(error):
    raise error


def note(path, text="x"):
    """Leave a trace that outlives the worker, so that a test can count the runs of a task."""
    with open(path, "a") as file:
        file.write(text)


def note_and_wait(path, go, text="x"):
    """Tell that the task runs, and return when the other file is there."""
    note(path, text)
    wait_for(go)
    return os.getpid()


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.002)


def wait_for_text(path, text):
    """Wait until the file ends with these characters, in any order."""
    while True:
        try:
            with open(path) as file:
                if sorted(file.read()[-len(text) :]) == sorted(text):
                    return
        except FileNotFoundError:
            pass
        time.sleep(0.002)


def note_item(path, item):
    note(path, str(item))


def note_and_wait_as(path, gate):
    """Leave a trace; go on at once if the gate is "0"."""
    note(path)
    if gate != "0":
        wait_for(gate)
    return gate


def nap_and_tell(seconds):
    time.sleep(seconds)
    return os.getpid()


def lock_at(x, fatal):
    """The number, but for one that gives what cannot be sent."""
    return threading.Lock() if x == fatal else x


def die(number=signal.SIGKILL):
    os.kill(os.getpid(), number)


def leave(status):
    os._exit(status)


def say(text, stream="stdout"):
    print(text, file=getattr(sys, stream), flush=True)


def die_at(x, fatal):
    """Square, but for one number that ends the worker."""
    if x == fatal:
        os._exit(3)
    return x * x


def die_or_note(x, fatal, path):
    if x == fatal:
        os._exit(3)
    note(path, str(x))
