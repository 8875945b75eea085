"""Where one process writes its files: the run directory, and the spill directory on disk once that is full.

Full is what the file system says. A budget is kept as bytes that must stay free in it, so that one `statvfs` (2 µs)
counts what all writers have written, and also the files that are unlinked and still mapped, which no listing shows.

Never here: the making of the run directory, and the content of files.
"""

from __future__ import annotations

import itertools
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


class Place:
    """Where files go, and what they are called.

    Args:
        directory: The run directory, which exists.
        spill: The spill directory, which is made when it is needed; empty for none.
        prefix: What the names of this writer's files begin with, without a hyphen.
        floor: Bytes that must stay free in the file system of the run directory.
    """

    __slots__ = ("_numbers", "_told", "_warning", "directory", "floor", "prefix", "spill")

    def __init__(self, directory: str, spill: str, prefix: str, floor: int) -> None:
        self.directory = directory
        self.spill = spill
        self.prefix = prefix
        self.floor = floor
        self._numbers: Iterator[int] = itertools.count()
        self._warning = ""
        self._told = False

    def new_path(self, directory: str) -> str:
        """A path in one of the two directories that this process has not used yet.

        Args:
            directory: The one.
        """
        # With the process id, since a forked child has the same prefix and counts from the same number.
        return f"{directory}/{self.prefix}-{os.getpid()}-{next(self._numbers)}"

    def has_room(self, size: int) -> bool:
        """Whether the run directory's budget allows for so many bytes more.

        Args:
            size: The bytes.
        """
        if not self.spill:
            return True  # there is no better place
        try:
            found = os.statvfs(self.directory)
        except OSError:
            return True  # whatever it is, the attempt to write will tell
        return not found.f_blocks or found.f_bavail * found.f_frsize - size >= self.floor  # 0: a tmpfs without limit

    def make_spill(self) -> str:
        """The path of the spill directory, which exists now.

        Raises:
            OSError: It cannot be made, or somebody else has made one of that name.
        """
        try:
            os.mkdir(self.spill, 0o700)
        except FileExistsError:
            found = os.lstat(self.spill)
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise PermissionError(f"{self.spill} is not ours, or open to others") from None
        return self.spill

    def note_spill(self, reason: str) -> None:
        """Remember to say that values go to disk.

        Args:
            reason: Why this one does.
        """
        self._warning = (
            f"values go to disk ({self.spill}), which is slower than shared memory, since {reason}. Keep fewer large "
            "results at a time (a value is freed with its last future), or give the run directory more room."
        )

    def take_warning(self) -> str | None:
        """That values go to disk, once: a text for the user, or None."""
        if self._told or not self._warning:
            return None
        self._told = True
        return self._warning
