"""The keeper: a small process, one per engine, that ends the workers when the client is gone, however it went.

It runs as `python -I -S keeper.py` in a session of its own, so it may import nothing but what an interpreter starts
with. It reads lines from a pipe that only the client can write: `+PID` and `-PID` for each worker's process group,
`/PATH` (the path after one slash more) for a directory of large values, `!` when the client sees to those itself. At
the end of the file it kills the groups that remain, removes the directories, and ends. (PR_SET_PDEATHSIG alone left
grandchildren alive in 7 of 8 trials, an end of file noticed by the worker failed where the worker sat in C code; with a
keeper 0 of 8.)
"""

import os
import signal
import sys


def keep(pipe: int) -> None:
    """Follow the client's list of groups until it ends, then kill what is on it."""
    groups: set[int] = set()
    directories: list[bytes] = []
    rest = b""
    while True:
        data = os.read(pipe, 4096)
        if not data:
            break
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line[:1] == b"/":
                directories.append(line[1:])
            elif line == b"!":
                directories.clear()
            else:
                change = groups.add if line[:1] == b"+" else groups.discard
                change(int(line[1:]))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except OSError:  # it is gone already
            continue
    for directory in directories:
        remove(directory)


def remove(directory: bytes) -> None:
    """Remove a directory of files. A worker that dies at this moment may still make one in between."""
    for _ in range(3):
        try:
            for name in os.listdir(directory):
                os.unlink(directory + b"/" + name)
            os.rmdir(directory)
        except OSError:  # it was never made, or somebody else removes it too
            continue


if __name__ == "__main__":
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    keep(int(sys.argv[1]))
