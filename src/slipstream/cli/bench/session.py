"""The bench's end of a client process: start it, ask it, and leave nothing of it behind, whatever it is doing.

What is asked, and what the answers mean, never lives here.
"""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self

import psutil

#: A repetition takes seconds; what has not answered by then hangs.
ANSWER_TIMEOUT_S = 120.0
#: For a client with nothing to do to leave by itself.
LEAVE_TIMEOUT_S = 3.0
#: Each sweep ends what was started during the one before it.
SWEEPS = 5


class ClientFailed(Exception):
    """The client process could not measure: the system raised, hung, or took the process with it."""


class Session:
    """One client process, started when it is first asked something and again after it failed."""

    def __init__(self, system: str, workers: int) -> None:
        self._command = [sys.executable, "-P", "-m", "slipstream.cli.bench.client", system, str(workers)]
        self._process: subprocess.Popen[str] | None = None
        self._stderr: IO[bytes] | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(leave_s=LEAVE_TIMEOUT_S if error is None else 0.0)

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request.

        Raises:
            ClientFailed: With what went wrong, in words for the user. The next request has a fresh process.
        """
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            print(json.dumps(request), file=process.stdin, flush=True)
            ready, _, _ = select.select([process.stdout], [], [], ANSWER_TIMEOUT_S)
            line = process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if not line:
            raise ClientFailed(self._why_silent(hung=line is None))
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            self.stop(leave_s=0.0)
            raise ClientFailed(answer["error"])
        return answer

    def stop(self, leave_s: float) -> None:
        """End the process and all its descendants: by itself within `leave_s` seconds, by force after that."""
        process, self._process = self._process, None
        if process is None:
            return
        family = _family(process.pid)
        for pipe in (process.stdin, process.stdout):
            with suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            process.wait(leave_s)
        _kill(family, group=process.pid)
        process.wait()
        if self._stderr is not None:
            self._stderr.close()
        if self._directory is not None:
            _kill_users_of(self._directory.name)
            self._directory.cleanup()

    def _start(self) -> subprocess.Popen[str]:
        """A process group of its own: Ctrl-C reaches the bench alone, which then ends its clients."""
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed by stop
        # Some systems leave files, and all of them do that are ended by force.
        self._directory = tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, "TMPDIR": self._directory.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
            process_group=0,
        )
        return self._process

    def _why_silent(self, *, hung: bool) -> str:
        """Ends the client; what is known of why it gave no answer."""
        process, stderr = self._process, self._stderr
        assert process is not None
        assert stderr is not None
        if hung:
            self.stop(leave_s=0.0)
            return f"no answer within {ANSWER_TIMEOUT_S:.0f} s"
        status = process.wait()
        stderr.seek(0)
        last = stderr.read().decode(errors="replace").strip().splitlines()[-1:]
        self.stop(leave_s=0.0)
        return ": ".join([f"its client process ended with status {status}", *last])


def _family(pid: int) -> list[psutil.Process]:
    """The process and its descendants, now: later they may have another parent."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _kill(family: Iterable[psutil.Process], group: int) -> None:
    """SIGKILL for those that still run, by two ways: each alone misses some."""
    # Some systems put their workers into groups of their own. (psutil knows a pid that was given to another process.)
    _kill_each(family)
    # Descendants whose parent has ended are nobody's children that we could list.
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def _kill_users_of(directory: str) -> None:
    """SIGKILL for all that inherited this directory: workers in groups of their own, whose parents had ended before."""
    for _ in range(SWEEPS):
        users = [process for process in psutil.process_iter() if _has_directory(process, directory)]
        if not users:
            return
        _kill_each(users)
        psutil.wait_procs(users, timeout=1)


def _has_directory(process: psutil.Process, directory: str) -> bool:
    """Whether this is its directory for temporary files, by the environment that it was started with."""
    with suppress(psutil.Error, OSError):
        return process.environ().get("TMPDIR") == directory
    return False


def _kill_each(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
