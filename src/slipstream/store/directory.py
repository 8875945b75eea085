"""The directories of one client: made by it, removed by it, and swept by the next one if it could not.

A name tells the process id of the client and when that started, so anybody can see whether it is alive. Containers may
share `/dev/shm` and have process ids of their own, so the client holds a lock on its directory too, which the kernel
lets go when it dies.

Never here: files in them.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
import weakref
from contextlib import suppress

from slipstream.store.owned import remove_orphans
from slipstream.store.place import Place

#: Where files are memory.
SHARED_MEMORY = "/dev/shm"
#: What the client's own files are called; those of workers begin with a number.
_CLIENT = "c"
_NAME = re.compile(r"slipstream-(\d+)-(\d+)-[0-9a-f]{16}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RunDirectory:
    """Where the values of one client lie; made by `make`."""

    def __init__(self, path: str, spill: str, floor: int, lock: int) -> None:
        self.path = path
        #: On disk; made by whoever needs it first, and empty if the run directory is on disk itself.
        self.spill = spill
        #: Bytes that must stay free in its file system.
        self.floor = floor
        self._lock = lock
        self._pid = os.getpid()
        _known[path] = spill, self._pid
        #: Called when the directory is collected: its values may be needed still, the descriptor of its lock is not.
        self._let_go = weakref.finalize(self, _let_go, path, spill, lock, self._pid)
        self._let_go.atexit = False

    @classmethod
    def make(cls, budget: int | None = None) -> RunDirectory:
        """Make a run directory, and remove those of dead clients.

        Args:
            budget: Bytes that it may take of the shared memory; the default is half of what is free. With 0 it is on
                disk.

        Raises:
            OSError: It can be made neither in shared memory nor in the temporary directory.

        Example:
            >>> run = RunDirectory.make()
            >>> run.place("c").directory == run.path
            True
            >>> run.remove()
        """
        sweep()
        _remove_left()
        name = f"slipstream-{os.getpid()}-{_start_of(os.getpid())}-{secrets.token_hex(8)}"
        disk = f"{tempfile.gettempdir()}/{name}"
        if budget != 0 and _is_shared_memory(SHARED_MEMORY):
            with suppress(OSError):
                return cls._made(f"{SHARED_MEMORY}/{name}", disk, budget)
        try:
            return cls._made(disk, "", budget)
        except OSError as error:
            raise OSError(
                error.errno,
                f"no directory for large values can be made, neither in {SHARED_MEMORY} nor as {disk} "
                f"({error.strerror}). Make one of them writable, or set TMPDIR",
            ) from error

    @classmethod
    def _made(cls, path: str, spill: str, budget: int | None) -> RunDirectory:
        os.mkdir(path, 0o700)
        try:
            lock = os.open(path, _DIRECTORY)
        except OSError:
            os.rmdir(path)
            raise
        with suppress(OSError):  # a file system without locks; the process id has to do
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = os.fstatvfs(lock)
        free = found.f_bavail * found.f_frsize
        return cls(path, spill, max(0, free - (free // 2 if budget is None else budget)), lock)

    def place(self, prefix: str = _CLIENT) -> Place:
        """Where a writer of this process writes.

        Args:
            prefix: What the names of its files begin with; by default that of the client.
        """
        return Place(self.path, self.spill, prefix, self.floor)

    def remove_when_empty(self) -> None:
        """Remove it if no value in it is needed any more; otherwise that is for the end of the program."""
        if self._pid == os.getpid() and _remove_empty(self.path, self.spill):
            self._let_go()

    def remove(self) -> None:
        """Remove it with all that is in it; what is mapped stays readable. In a forked child this does nothing."""
        if self._pid == os.getpid() and self._let_go.alive:
            _remove_all(self.path, self.spill)
            self._let_go()


#: Run directories that are not known to be gone: the spill directory, and the process that made both. And those of them
#: that belong to nobody any more, but held values that were still needed.
_known: dict[str, tuple[str, int]] = {}
_left: set[str] = set()


def _let_go(path: str, spill: str, lock: int, pid: int) -> None:
    if pid == os.getpid():
        os.close(lock)
        _left.add(path)
        _remove_left()


def _remove_left() -> None:
    for path in tuple(_left):
        spill, pid = _known.get(path, ("", 0))
        if pid != os.getpid() or _remove_empty(path, spill):
            _left.discard(path)
            _known.pop(path, None)


def _remove_empty(path: str, spill: str) -> bool:
    """Remove what nobody needs, and the directories if that was all; whether they are gone."""
    for directory in filter(None, (spill, path)):
        remove_orphans(directory, but=_CLIENT)
        with suppress(OSError):  # not empty, or never made
            os.rmdir(directory)
    return not os.path.exists(path)


def _remove_all(*directories: str) -> None:
    for directory in filter(None, directories):
        shutil.rmtree(directory, ignore_errors=True)


@atexit.register
def _at_exit() -> None:
    for path, (spill, pid) in _known.items():
        if pid == os.getpid():
            _remove_all(path, spill)


def sweep() -> list[str]:
    """Remove the directories of this user's dead clients, in shared memory and in the temporary directory.

    Returns:
        The paths that were removed.
    """
    removed: list[str] = []
    places = [SHARED_MEMORY, tempfile.gettempdir()]
    for name in sorted({name for place in places for name in _names(place)}):
        paths = [path for path in (f"{place}/{name}" for place in places) if _is_ours(path)]
        if paths and not _is_alive(name) and not _is_locked(paths[0]):  # the first is the run directory
            for path in paths:
                shutil.rmtree(path, ignore_errors=True)
            removed += paths
    return removed


def _names(place: str) -> list[str]:
    try:
        return [name for name in os.listdir(place) if _NAME.fullmatch(name)]
    except OSError:
        return []


def _is_ours(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()


def _is_alive(name: str) -> bool:
    """Whether the process that a directory is named after is the one that has its id now."""
    match = _NAME.fullmatch(name)
    return match is not None and _start_of(int(match[1])) == int(match[2])


def _start_of(pid: int) -> int:
    """When a process started, in clock ticks since the machine did; 0 if there is none, or one that is dead."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name of the program comes in brackets, and may hold anything.
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _is_locked(path: str) -> bool:
    try:
        descriptor = os.open(path, _DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return False


def _is_shared_memory(path: str) -> bool:
    """Whether this is a tmpfs in which we can make a directory."""
    if not os.access(path, os.W_OK | os.X_OK):
        return False
    path = os.path.realpath(path)
    try:
        with open("/proc/self/mounts", "rb") as file:
            lines = [line.split() for line in file]
    except OSError:
        return False
    return any(fields[1] == os.fsencode(path) and fields[2] == b"tmpfs" for fields in lines)
