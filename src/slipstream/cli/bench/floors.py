"""What no executor can beat on this machine: the pieces that any task needs, each alone in a loop.

They are measured in the rounds of the run that they are compared with, for the machine's speed changes from one minute
to the next. Nothing of Slipstream or of a peer runs here.
"""

import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from time import perf_counter

MESSAGE = bytes(64)
#: A process that answers each message with itself until the socket ends; it imports nothing else.
ECHO = """
import socket, sys
end = socket.socket(fileno=int(sys.argv[1]))
while message := end.recv(64):
    end.sendall(message)
"""


def socketpair_round_trip_s(loops: int) -> float:
    """Seconds for 64 bytes to another process and back, both of them asleep while they wait."""
    here, there = socket.socketpair()
    with here:
        with there:
            command = [sys.executable, "-I", "-S", "-c", ECHO, str(there.fileno())]
            echo = subprocess.Popen(command, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL)
        try:
            _exchange(here, 20)
            began = perf_counter()
            _exchange(here, loops)
            wall_s = perf_counter() - began
        finally:
            here.close()
            echo.wait()
    return wall_s / loops


def _exchange(end: socket.socket, loops: int) -> None:
    """Send and receive one message after the other."""
    for _ in range(loops):
        end.sendall(MESSAGE)
        if not end.recv(len(MESSAGE)):
            raise ConnectionError("the process at the other end of the socket pair has ended")


def thread_hand_over_s(loops: int) -> float:
    """Seconds from one thread's release of a lock until another, waiting for it, runs: half of to and fro."""
    to, fro = threading.Lock(), threading.Lock()
    to.acquire()
    fro.acquire()

    def answer() -> None:
        for _ in range(loops):
            to.acquire()
            fro.release()

    answering = threading.Thread(target=answer)
    answering.start()
    began = perf_counter()
    for _ in range(loops):
        to.release()
        fro.acquire()
    wall_s = perf_counter() - began
    answering.join()
    return wall_s / loops / 2


def future_s(loops: int) -> float:
    """Seconds to make a standard Future, set its result and read it, in one thread."""
    began = perf_counter()
    for value in range(loops):
        future: Future[int] = Future()
        future.set_result(value)
        future.result()
    return (perf_counter() - began) / loops


def pickle_s(loops: int) -> float:
    """Seconds to pickle the arguments of a call, `((1,), {})`."""
    dumps = pickle.dumps
    arguments: tuple[tuple[int], dict[str, int]] = ((1,), {})
    began = perf_counter()
    for _ in range(loops):
        dumps(arguments, 5)
    return (perf_counter() - began) / loops


def unpickle_s(loops: int) -> float:
    """Seconds to load them."""
    loads, payload = pickle.loads, pickle.dumps(((1,), {}), 5)
    began = perf_counter()
    for _ in range(loops):
        loads(payload)
    return (perf_counter() - began) / loops


@dataclass(frozen=True, slots=True)
class Floor:
    """A measured piece; `measure(loops)` gives seconds for one."""

    name: str
    title: str
    measure: Callable[[int], float]
    loops: int


FLOORS: dict[str, Floor] = {
    floor.name: floor
    for floor in (
        Floor("round_trip", "socketpair round trip between two processes", socketpair_round_trip_s, 1_000),
        Floor("hand_over", "hand-over between two threads", thread_hand_over_s, 1_000),
        Floor("future", "Future(), set_result, result", future_s, 5_000),
        Floor("pickle", "pickling ((1,), {})", pickle_s, 10_000),
        Floor("unpickle", "loading it", unpickle_s, 10_000),
    )
}
