"""Tasks that end or break the worker that runs them. Workers import this module by name, so it imports little."""

import ctypes
import os
import socket
import subprocess
import time


def leave_after(text, status):
    print(text)
    os._exit(status)


def kill_after(text, number):
    print(text)
    os.kill(os.getpid(), number)
    time.sleep(600)


def crash_after(text):
    print(text)
    ctypes.string_at(0)


def close_descriptors(then_s):
    """Among them the socket to the client."""
    os.closerange(3, 256)
    time.sleep(then_s)


def shut_connection_down():
    """What the kernel does with a connection that nobody holds any more, without waiting for that."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                with socket.socket(fileno=os.dup(int(name))) as copy:
                    copy.shutdown(socket.SHUT_RDWR)
        except FileNotFoundError:
            continue  # the descriptor that listed the folder
    time.sleep(600)


def write_to_sockets(garbage):
    for name in os.listdir("/proc/self/fd"):
        try:
            is_socket = os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except FileNotFoundError:
            continue  # the descriptor that listed the folder
        if is_socket:
            os.write(int(name), garbage)


def write_to_sockets_and_stay(garbage):
    write_to_sockets(garbage)
    time.sleep(600)


def square_unless(x, fatal):
    """The square, but for one number that ends the worker before anything is told of the numbers before it."""
    if x == fatal:
        os._exit(3)
    return x * x


def note_then(path, function, *args):
    """Tell that the task runs, and whose it is, then call."""
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
    return function(*args)


def sum_for_ever():
    """A call of C code that keeps the interpreter lock for minutes."""
    return sum(range(10**11))


def spin():
    while True:
        pass


def with_grandchild(path, function, *args):
    """Start a process in the worker's group, tell of both, then call."""
    child = subprocess.Popen(["sleep", "600"])
    with open(f"{path}.new", "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    os.rename(f"{path}.new", path)
    return function(*args)


def count_then(path, function, *args):
    """Leave one character, then call: an initializer whose runs a test can count."""
    with open(path, "a") as file:
        file.write("x")
    function(*args)


class LoadsNot:
    """Pickles, and cannot be loaded anywhere but in the process that made it."""

    def __init__(self):
        self.home = os.getpid()

    def __setstate__(self, state):
        if state["home"] != os.getpid():
            raise ValueError("it does not load here")
        self.__dict__ = state
