"""One worker process of this machine: how it starts, its socket, its output and its end."""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from typing import TYPE_CHECKING

from slipstream.core.events import WorkerEnd
from slipstream.pools.output import OutputPipe, away_from_standard
from slipstream.protocol.frames import FrameReader, frame_header
from slipstream.protocol.ids import SlotId
from slipstream.worker.main import BOOT
from slipstream.worker.page import SharedPage

if TYPE_CHECKING:
    from slipstream.worker.main import Config

#: A frame up to this size goes out in one call together with its header.
_JOIN_BYTES = 65_536
#: A dying process closes its descriptors some microseconds before its death can be seen.
_DYING_MS = 100


class WorkerProcess:
    """A running worker process. Made by the reading thread only, since the kernel kills it when that thread ends.

    Args:
        slot: its name.
        config: what it is told first.
        epoll: where its socket is polled; for writing too while something waits to be sent.

    Raises:
        OSError: If it cannot be started.
    """

    def __init__(self, slot: SlotId, config: Config, epoll: select.epoll) -> None:
        self.slot = slot
        #: It has said that it is up.
        self.greeted = False
        #: It has said something about a task.
        self.reported = False
        #: It was told to leave.
        self.told_to_stop = False
        #: Its end of the socket is closed.
        self.hung_up = False
        #: What it did that only a task can have caused, if it did.
        self.misbehaved = ""
        self._epoll = epoll
        self._sending = threading.Lock()
        self._blocked = False
        #: What the socket did not take yet. Appended to by any thread; taken from by the one that holds `_sending`,
        #: which is only ever tried: the collector may run a finalizer in there that sends.
        self._unsent: deque[bytes | memoryview] = deque()
        self._reader = FrameReader()
        page = away_from_standard(SharedPage.create())
        try:
            with contextlib.ExitStack() as undo:
                self.page = SharedPage(page)
                undo.callback(self.page.close)
                self.stream, theirs = (
                    socket.socket(fileno=away_from_standard(end.detach())) for end in socket.socketpair()
                )
                undo.callback(self.stream.close)
                with theirs:
                    self._process = _spawn(theirs.fileno(), page)
                undo.callback(_undo_spawn, self._process)
                self.pid = self._process.pid
                self.pidfd = away_from_standard(os.pidfd_open(self.pid))
                undo.pop_all()
        finally:
            os.close(page)
        self.stream.setblocking(False)
        epoll.register(self.stream, select.EPOLLIN)
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None and stderr is not None
        self.outputs = [OutputPipe(stdout.fileno(), 1), OutputPipe(stderr.fileno(), 2)]
        self.send(marshal.dumps(dict(config)))

    # --- frames -------------------------------------------------------------------------------------------------------

    def send(self, body: bytes) -> None:
        """Send a frame, now or as soon as the socket takes it."""
        if len(body) > _JOIN_BYTES:
            self._unsent.extend((frame_header(len(body)), body))
        else:
            self._unsent.append(frame_header(len(body)) + body)
        self.send_rest()

    def send_rest(self) -> None:
        """Send what waits, as far as the socket takes it, unless another thread does; that one looks again."""
        unsent, sending = self._unsent, self._sending
        while unsent and sending.acquire(False):
            blocked = False
            try:
                while unsent and not blocked:
                    first = unsent[0]
                    try:
                        count = self.stream.send(first)
                    except BlockingIOError:
                        blocked = True
                    except OSError:
                        unsent.clear()  # the worker is gone, or going: its end is told by `pidfd`
                    else:
                        if count == len(first):
                            unsent.popleft()
                        else:
                            unsent[0] = memoryview(first)[count:]
                if blocked is not self._blocked:
                    self._blocked = blocked
                    self._poll_for_room(blocked)
            finally:
                sending.release()
            if blocked:
                return

    def _poll_for_room(self, wanted: bool) -> None:
        with contextlib.suppress(OSError):  # it has hung up just now
            self._epoll.modify(self.stream, select.EPOLLIN | select.EPOLLOUT if wanted else select.EPOLLIN)

    def receive(self) -> list[bytes] | None:
        """Frame bodies that are complete after one read; None at the end of the stream."""
        try:
            count = self.stream.recv_into(self._reader.target())
        except BlockingIOError:
            return []
        except OSError:
            return None
        return self._reader.received(count) if count else None

    def receive_rest(self) -> list[bytes]:
        """All that is left in the socket of an ended worker."""
        bodies: list[bytes] = []
        while not self.hung_up:
            try:
                count = self.stream.recv_into(self._reader.target())
            except OSError:
                break
            if not count:
                break
            bodies += self._reader.received(count)
        return bodies

    def hang_up(self) -> None:
        """The socket has ended: the process has died, or a task has closed it, and nothing else can come."""
        self.hung_up = True
        self._epoll.unregister(self.stream)
        death = select.poll()
        death.register(self.pidfd, select.POLLIN)
        if not death.poll(_DYING_MS):
            self.punish("the worker process closed its connection to the client, and was killed")

    # --- the end ------------------------------------------------------------------------------------------------------

    def punish(self, reason: str) -> None:
        """End a worker that does what it must not; a task has done something to its connection."""
        self.misbehaved = reason
        self.kill()

    def kill(self) -> None:
        """End the worker and whatever it started in its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> WorkerEnd:
        """Collect the exit status of an ended worker, after its group was ended too."""
        self.kill()  # while the dead leader keeps its number from being used again
        status: int | None = None
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
            status = self._process.wait()
        self._process.returncode = self._process.returncode or 0
        page = self.page
        running, last = page.running(), page.last()
        return WorkerEnd(
            reason=self.misbehaved or _describe(status),
            signal=-status if status is not None and status < 0 else None,
            exit_status=status if status is not None and status >= 0 else None,
            last_output=b"".join(output.tail for output in self.outputs),
            running=running and (running.task, running.attempt),
            last=last and (last.task, last.attempt),
            by_task=page.broken or bool(self.misbehaved),
            item=last.item if last else -1,
        )

    def close(self) -> None:
        """Close descriptors only."""
        if not self.hung_up:
            self._epoll.unregister(self.stream)
        self.abandon()

    def abandon(self) -> None:
        """Close descriptors without touching the epoll, which a forked child shares with its parent."""
        if self._process.returncode is None:
            self._process.returncode = 0  # in a forked child it is not ours to wait for
        self.stream.close()
        os.close(self.pidfd)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        self.page.close()


def _spawn(link: int, page: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *_interpreter_flags(), "-c", BOOT, str(link), str(page)],
        pass_fds=[link, page],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        process_group=0,
    )


def _undo_spawn(process: subprocess.Popen[bytes]) -> None:
    with process:
        process.kill()


def _interpreter_flags() -> list[str]:
    return subprocess._args_from_interpreter_flags()  # pyright: ignore  # as multiprocessing does


def _describe(status: int | None) -> str:
    if status is None:
        return "the worker process ended; how is not known, since this process ignores SIGCHLD or reaps all children"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"
        return f"the worker process was killed by {name}"
    return f"the worker process ended with exit status {status}"
