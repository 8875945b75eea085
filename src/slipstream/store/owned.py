"""Which files the client still needs: those for which it has a payload.

Whoever counts references by hand must not be interrupted: not by the collector, not by Ctrl-C, not by another thread.
Here the interpreter counts. All payloads of a file hold one object, and a weak reference to that knows the file: it is
cleared and its callback is called in one step, so that nobody finds a file that is about to go.

Never here: files that are not announced yet, and the directories (see `directory`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import ref

from slipstream.store.payload import path_of


class _File:
    """Lives as long as a payload of its file."""

    __slots__ = ("__weakref__",)


class _Link(ref[_File]):
    """Knows which file goes with a `_File`, and whose it is: a forked child must leave it alone."""

    __slots__ = ("path", "pid")

    path: str
    pid: int


#: By path.
_links: dict[str, _Link] = {}


def _remove(
    link: _Link,
    # Bound here, since they may be gone from the module when the interpreter ends.
    links: dict[str, _Link] = _links,
    getpid: Callable[[], int] = os.getpid,
    unlink: Callable[[str], None] = os.unlink,
) -> None:
    """Remove a file for which there is no payload any more; called from any thread, wherever the last one went."""
    if links.get(link.path) is link:
        del links[link.path]
        if link.pid == getpid():
            try:
                unlink(link.path)
            except OSError:  # gone with its directory; nobody could be told anyway
                pass


def _file_at(path: str) -> _File:
    """What the payloads of this file hold."""
    known = _links.get(path)
    file = None if known is None else known()
    if file is None:
        file = _File()
        link = _links[path] = _Link(file, _remove)
        link.path, link.pid = path, os.getpid()
    return file


class Stored(bytes):
    """A payload that owns its file, together with its equals: the file is removed with the last of them.

    Args:
        payload: What `store_value` returned, in this process or another. It is taken over once.

    Raises:
        ValueError: It stands for no file.
    """

    _file: _File

    def __init__(self, payload: bytes) -> None:
        self._file = _file_at(path_of(payload))

    def __reduce__(self) -> tuple[type[bytes], tuple[bytes]]:
        return bytes, (bytes(self),)  # no other process owns the file


class Reference:
    """Finds a `Stored` again as long as there is one; bytes cannot be referred to weakly.

    Args:
        stored: The payload.
    """

    __slots__ = ("_link", "payload")

    def __init__(self, stored: Stored) -> None:
        self.payload = bytes(stored)
        self._link = ref(stored._file)  # pyright: ignore[reportPrivateUsage]

    def get(self) -> Stored | None:
        """Another `Stored` of the same file, or None if that is gone."""
        file = self._link()
        return None if file is None else Stored(self.payload)  # `file` is alive until this one holds it too


def remove_orphans(directory: str, prefix: str = "", *, but: str = "") -> int:
    """Remove what a writer wrote that nobody owns: it died before it announced it.

    Call it when all that the writer sent has been read and made a `Stored`.

    Args:
        directory: The run directory or the spill directory, as the writer's `Place` has it.
        prefix: The writer's; empty for all writers.
        but: A writer that is alive, and may be about to announce one.

    Returns:
        How many files were removed.
    """
    removed = 0
    try:
        names = os.listdir(directory)
    except OSError:  # no spill directory was made
        return 0
    for name in names:
        path = f"{directory}/{name}"
        writer = name.partition("-")[0]
        if writer != but and prefix in ("", writer) and path not in _links:
            try:
                os.unlink(path)
                removed += 1
            except OSError:
                continue
    return removed
