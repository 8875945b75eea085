"""Runs scripts in an interpreter of their own, with a hard limit: what must hold for a whole client process.

A script that hangs shows where all its threads are. Nothing of it outlives the test: its workers by the keeper, the
rest by its session.
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TESTS = str(Path(__file__).parent)
#: A script may take this long on a busy machine. It is a limit for hangs, not an expectation.
LIMIT_S = float(os.environ.get("SCRIPT_LIMIT_S", "60"))
PRELUDE = f"""
import faulthandler, sys
faulthandler.enable()
sys.path.insert(0, {TESTS!r})
"""


@dataclass(frozen=True)
class Ended:
    """How a script ended."""

    status: int
    out: str
    err: str

    def lines(self) -> list[str]:
        """What it printed; it must have ended well and have complained about nothing."""
        assert (self.status, self.err) == (0, ""), self
        return self.out.splitlines()


def command_of(text: str, *flags: str) -> list[str]:
    return [sys.executable, *flags, "-c", PRELUDE + textwrap.dedent(text)]


@contextlib.contextmanager
def started(script: str, *flags: str, **options) -> Iterator[subprocess.Popen[str]]:
    """A script that runs beside the test, and is killed at the end if it is still there."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    process = subprocess.Popen(command_of(script, *flags), start_new_session=True, **options)
    try:
        with process:
            try:
                yield process
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    finally:
        process.wait()


def run(script: str, *flags: str, **options) -> Ended:
    """Run a script to its end."""
    with started(script, *flags, **options) as process:
        return end_of(process)


def end_of(process: subprocess.Popen[str], stdin: str | None = None) -> Ended:
    """Wait for the end of a script; one that hangs is made to show its threads."""
    try:
        out, err = process.communicate(stdin, timeout=LIMIT_S)
    except subprocess.TimeoutExpired as expired:
        process.send_signal(signal.SIGABRT)
        process.wait()
        # Forked children and workers may hold the pipes open: take what there is.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate(timeout=LIMIT_S)
        raise AssertionError(f"the script did not end within {LIMIT_S} s:\n{out}\n{err}") from expired
    return Ended(process.returncode, out or "", err or "")
