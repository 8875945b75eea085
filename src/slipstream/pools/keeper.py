"""The client's end of the keeper (see `worker.keeper`): start it, keep its list true, replace it when it is lost."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from slipstream.pools.output import away_from_standard
from slipstream.worker import keeper


class Keeper:
    """One running keeper process and the list of groups it would end."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._directories: tuple[str, ...] = ()
        self._pipe = -1
        self._process: subprocess.Popen[bytes] | None = None
        #: Readable when the keeper has ended.
        self.pidfd = -1

    def start(self) -> None:
        """Start a keeper, and tell it of all groups so far."""
        theirs, self._pipe = map(away_from_standard, os.pipe())
        try:
            command = [sys.executable, "-I", "-S", keeper.__file__, str(theirs)]
            self._process = subprocess.Popen(
                command, pass_fds=[theirs], stdin=subprocess.DEVNULL, start_new_session=True, cwd="/"
            )
        except OSError:
            self.abandon()
            raise
        finally:
            os.close(theirs)
        self.pidfd = away_from_standard(os.pidfd_open(self._process.pid))
        for group in tuple(self._groups):
            self._tell(b"+%d\n" % group)
        for directory in self._directories:
            self._tell(b"/%s\n" % os.fsencode(directory))

    def add(self, group: int) -> None:
        """A worker's process group has come to be."""
        self._groups.add(group)
        self._tell(b"+%d\n" % group)

    def remove(self, group: int) -> None:
        """A worker's process group has been ended: its number may soon be another's."""
        self._groups.discard(group)
        self._tell(b"-%d\n" % group)

    def guard(self, directories: Sequence[str]) -> None:
        """These directories are to go with the client."""
        if self._directories != tuple(filter(None, directories)):
            self._directories = tuple(filter(None, directories))
            for directory in self._directories:
                self._tell(b"/%s\n" % os.fsencode(directory))

    def leave_directories(self) -> None:
        """The client itself removes the directories from now on."""
        self._tell(b"!\n")

    def wait(self) -> None:
        """Wait for the end of a keeper that was let go of with `abandon`. It kills what is on its list."""
        if self._process is None:
            return
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def abandon(self) -> None:
        """Close descriptors only: without its pipe the keeper ends."""
        for descriptor in (self._pipe, self.pidfd):
            if descriptor >= 0:
                os.close(descriptor)
        self._pipe = self.pidfd = -1

    def _tell(self, line: bytes) -> None:
        if self._pipe >= 0:
            with contextlib.suppress(BrokenPipeError):  # its death is seen through `pidfd`
                os.write(self._pipe, line)
