"""How much memory this process and all its descendants take together, and the peak of that while something runs."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

import psutil

#: Between two looks; each look takes the kernel a walk through all pages, so nothing is timed meanwhile.
INTERVAL_S = 0.05


def resident_bytes() -> int:
    """Proportional set sizes: a page that several of these processes share counts once."""
    this = psutil.Process()
    return sum(_proportional_set_bytes(process.pid) for process in (this, *this.children(recursive=True)))


def _proportional_set_bytes(pid: int) -> int:
    """Of one process; 0 if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as lines:
        for line in lines:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


class Peak:
    """Looks at the memory again and again from a thread, from entering to leaving."""

    def __init__(self) -> None:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, name="bench-memory")
        self._before = 0
        self._peak = 0
        #: How often it has looked.
        self.looks = 0

    @property
    def growth(self) -> int:
        """Bytes at the peak beyond those at the beginning."""
        return self._peak - self._before

    def __enter__(self) -> Self:
        self._before = self._peak = resident_bytes()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(INTERVAL_S):
            self._peak = max(self._peak, resident_bytes())
            self.looks += 1
