"""How long modules take to import in a fresh interpreter, one after the other, as a worker would import them.

Modules are imported in a process of their own, never here, and that process is killed when its time is up.

Never here: which modules matter.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence

import msgspec

from slipstream.serde.explain.printable import printable

#: Seconds that all imports together may take.
TIMEOUT_S = 20.0

_MARK = "slipstream import "
_LINE = re.compile(r"import time:\s+\d+ \|\s+(\d+) \| (\S.*)")  # two spaces more for each level below the top
_PROGRAM = f"""
import sys
path, names = sys.argv[1:].copy(), []
names, sys.path[:] = path[1 : 1 + int(path[0])], path[1 + int(path[0]) :]
for name in names:
    print("{_MARK}+", name, file=sys.stderr, flush=True)
    try:
        __import__(name)
    except BaseException as error:
        text = " ".join(f"{{type(error).__name__}}: {{error}}".split())[:200]
        print("{_MARK}!", text, file=sys.stderr, flush=True)
print("{_MARK}.", file=sys.stderr, flush=True)
"""


class ImportTime(msgspec.Struct, frozen=True):
    """One import: what it took beyond the imports before it, in seconds; None if it did not end."""

    module: str
    seconds: float | None
    #: What it raised, or why nothing was measured; empty if all went well.
    error: str = ""
    #: Whether it was tried and went wrong: a worker could not import it either.
    failed: bool = False


def import_times(modules: Iterable[str], timeout_s: float = TIMEOUT_S) -> tuple[ImportTime, ...]:
    """Import modules in a fresh interpreter with this `sys.path`, in this order.

    Args:
        modules: Dotted names.
        timeout_s: Seconds for all of them together.

    Example:
        >>> [found, missing] = import_times(["colorsys", "no_such_module"])
        >>> found.seconds > 0, missing.error
        (True, "ModuleNotFoundError: No module named 'no_such_module'")
        >>> found.failed, missing.failed
        (False, True)
    """
    names = list(dict.fromkeys(name for name in modules if name and "\\0" not in name))
    if not names:
        return ()
    lines, in_time = _run(names, timeout_s)
    return tuple(_read(names, lines, "" if in_time else f"did not end within {timeout_s:g} s"))


def _run(names: Sequence[str], timeout_s: float) -> tuple[list[str], bool]:
    """What the interpreter wrote to standard error, and whether it ended in time.

    It writes to a file: whoever else holds that open cannot keep us waiting.
    """
    path = [entry for entry in sys.path if type(entry) is str]
    command = [sys.executable, "-X", "importtime", "-c", _PROGRAM, str(len(names)), *names, *path]
    with tempfile.TemporaryFile(prefix="slipstream-") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=output, start_new_session=True
        )
        try:
            process.wait(timeout_s)
            in_time = True
        except subprocess.TimeoutExpired:
            in_time = False
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # what the modules started goes too
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return output.read().decode(errors="replace").splitlines(), in_time


def _read(names: Sequence[str], lines: Sequence[str], late: str) -> Iterable[ImportTime]:
    """Add up the imports at the top level between one mark and the next: a parent package is at the top level too."""
    microseconds = [0] * len(names)
    errors = [""] * len(names)
    present, ended = -1, False
    for line in lines:
        if line.startswith(_MARK):
            kind, text = line[len(_MARK)], line[len(_MARK) + 2 :]
            if kind == "+" and present + 1 < len(names):
                present += 1
            elif kind == "!" and present >= 0:
                errors[present] = printable(text)
            ended = ended or kind == "."
        elif present >= 0 and not ended and (found := _LINE.fullmatch(line)):
            microseconds[present] += int(found[1])
    for index, name in enumerate(names):
        if index < present or ended:
            error = errors[index]
            yield ImportTime(name, None if error else microseconds[index] / 1e6, error, failed=bool(error))
        elif index == present:
            yield ImportTime(name, None, late or "ends the process that imports it", failed=not late)
        else:
            yield ImportTime(name, None, "not tried: the import before it did not end")
