"""The local pool: worker processes on this machine, each on a socket pair of its own. No port is ever opened.

All descriptors are in one epoll, which is what `fileno` gives to the engine's reader. Processes are started in
`tend`, so by the I/O thread: the kernel would kill a worker when the thread that started it ends.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import logging
import os
import platform
import select
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from slipstream.core.events import WorkerEnd
from slipstream.pools.base import Capabilities, EventSink, WorkerInfo
from slipstream.pools.keeper import Keeper
from slipstream.pools.output import OutputPipe, occupy_standard_descriptors
from slipstream.pools.process import WorkerProcess
from slipstream.pools.wakeup import Wakeup
from slipstream.protocol.codec import decode_greeting, encode_commands
from slipstream.protocol.frames import ProtocolError
from slipstream.protocol.ids import FrameId, SlotId
from slipstream.protocol.messages import StartFailed, Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from slipstream.worker.main import Config
    from slipstream.worker.page import Running

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: So many workers in a row that die without having run anything break the pool: else it would start more for ever.
MAX_FAILED_STARTS = 3
#: Signals that somebody else sent: they say nothing about the worker.
_BY_OTHERS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
#: A keeper that dies so soon is not worth another one.
_KEEPER_TRIAL_S = 1.0
#: A worker that was told to stop is killed after this time, whatever a stray thread of a task still does.
STOP_GRACE_S = 5.0


#: Held while processes and descriptors come and go. A fork of the client waits for that. The child of one that did not
#: would hold the ends of pipes that `Popen` is about to close, and `Popen` would wait for the child's end; or it would
#: close a descriptor again that was closed just now, and is perhaps the program's own since.
_changing = threading.RLock()
os.register_at_fork(before=_changing.acquire, after_in_parent=_changing.release, after_in_child=_changing.release)


def _forks_wait(method: Callable[P, T]) -> Callable[P, T]:
    """Nothing is forked while this method runs."""

    @functools.wraps(method)
    def held(*args: P.args, **kwargs: P.kwargs) -> T:
        with _changing:
            return method(*args, **kwargs)

    return held


class LocalPool:
    """Worker processes on this machine.

    Args:
        initializer: an encoded call that each worker runs before it takes tasks; empty for none.
        settings: what tasks that submit tasks have to know of their executor: the number of workers, and retries.
    """

    capabilities = Capabilities("local", addressable=True, ordered=True, can_stop=True, may_rerun=False)

    def __init__(self, initializer: bytes = b"", settings: tuple[int, int] = (1, 0)) -> None:
        self._initializer = initializer
        self._settings = settings
        #: Before anything else is opened.
        self._occupied = occupy_standard_descriptors()
        self._epoll = select.epoll()
        #: What the last `wait` found and `read_ready` has not handled.
        self._ready: list[tuple[int, int]] = []
        #: None once the pool is closed.
        self._wakeup: Wakeup | None = Wakeup()
        self._handlers: dict[int, Callable[[int], None]] = {}
        self._workers: dict[SlotId, WorkerProcess] = {}
        self._keeper = Keeper()
        #: A worker has reported something. Before, the keeper's start would take 10 ms from the first result, and there
        #: is nothing to keep that PR_SET_PDEATHSIG does not end; but an initializer may take long, and start processes.
        self._reported = bool(initializer)
        #: One runs, or one more is not worth it.
        self._keeper_settled = False
        self._keeper_started_s = 0.0
        self._sink: EventSink
        self._wanted = 0
        self._next_slot = 1
        self._failed_starts = 0
        self._closing = False
        #: Outputs that the client's own stream does not take now, by the descriptor that tells when it does.
        self._stuck: dict[int, OutputPipe] = {}
        self._watch(self._wakeup.descriptor, self._woken)
        self._blocked_signals = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, ())]

    # --- the Pool protocol --------------------------------------------------------------------------------------------

    def start(self, workers: int, sink: EventSink) -> None:
        """Begin to start so many workers, and keep so many."""
        self._sink = sink
        self._wanted = workers

    def keep(self, workers: int) -> None:
        """Keep so many workers from now on."""
        self._wanted = workers

    def guard(self, directories: Sequence[str]) -> None:
        """Have these directories removed should the client die."""
        self._keeper.guard(directories)

    def send(self, slot: SlotId, frame: FrameId, body: bytes) -> None:
        """Send a frame to a worker."""
        worker = self._workers.get(slot)
        if worker is not None:
            worker.send(body)

    def running(self, slot: SlotId) -> Running | None:
        """What that worker runs now."""
        worker = self._workers.get(slot)
        return None if worker is None else worker.page.running()

    def fileno(self) -> int:
        """The descriptor of the epoll that holds all others."""
        return self._epoll.fileno()

    def wait(self, timeout_s: float) -> None:
        """Block until something is ready; `read_ready` need not ask the kernel again."""
        self._ready = self._epoll.poll(timeout_s)

    def wake(self) -> None:
        """Have `wait` return."""
        wakeup = self._wakeup
        if wakeup is not None:
            wakeup.set()

    def read_ready(self) -> None:
        """Handle whatever is ready, without waiting."""
        ready, self._ready = self._ready, []
        self._handle(ready or self._epoll.poll(0))

    @property
    def untended(self) -> bool:
        """Whether a process is to be started."""
        lacks_keeper = self._reported and not self._keeper_settled
        return not self._closing and (lacks_keeper or len(self._workers) < self._wanted)

    @_forks_wait
    def tend(self) -> None:
        """Start workers up to the number wanted, and then a keeper if there is none."""
        while len(self._workers) < self._wanted and not self._closing:
            try:
                self._start_worker()
            except OSError as error:
                advice = ""
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    advice = (
                        f". Each of the {len(self._workers)} workers takes some files: allow for more (ulimit -n), or "
                        "have fewer of them (max_workers, or max_processes where tasks wait for tasks)"
                    )
                self._break(f"a worker process cannot be started with {sys.executable!r}: {error}{advice}")
        if self._reported and not self._keeper_settled and not self._closing:
            self._start_keeper()

    def stop(self, slot: SlotId, *, kill: bool, reason: str = "") -> bool:
        """End one worker, by asking or by force."""
        worker = self._workers.get(slot)
        if worker is not None:
            if not kill:
                worker.told_to_stop = True
                worker.send(encode_commands([Stop()], {}))
            elif reason:
                worker.punish(f"the worker process sent what it must not, and was killed: {reason}")
            else:
                worker.kill()
        return True

    def close(self, *, kill: bool = False) -> None:
        """End all workers, those that do not leave in time by force, and release every descriptor."""
        self._closing = True
        for worker in self._workers.values():
            if kill or not worker.greeted:
                worker.kill()
            else:
                worker.send(encode_commands([Stop()], {}))
        if not self._read_until_ended(STOP_GRACE_S):
            for worker in self._workers.values():
                worker.kill()
            self._read_until_ended(STOP_GRACE_S)
        with _changing:
            self._keeper.leave_directories()
            self._keeper.abandon()
        self._keeper.wait()
        self._close_own()

    def abandon(self) -> None:
        """In a forked child: close descriptors only. The epoll is shared, so nothing is unregistered from it."""
        for worker in self._workers.values():
            worker.abandon()
        self._keeper.abandon()
        self._close_own()

    @_forks_wait
    def _close_own(self) -> None:
        self._wakeup = None
        for descriptor in (*self._stuck, *self._occupied):
            os.close(descriptor)
        self._epoll.close()

    def _read_until_ended(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while self._workers:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(InterruptedError):
                self._handle(self._epoll.poll(left))
        return True

    # --- what happens to descriptors ----------------------------------------------------------------------------------

    def _handle(self, ready: list[tuple[int, int]]) -> None:
        for descriptor, what in ready:
            handler = self._handlers.get(descriptor)
            if handler is not None:
                handler(what)

    def _watch(self, descriptor: int, handler: Callable[[int], None], mask: int = select.EPOLLIN) -> None:
        self._epoll.register(descriptor, mask)
        self._handlers[descriptor] = handler

    def _unwatch(self, descriptor: int) -> None:
        if self._handlers.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def _woken(self, what: int) -> None:
        if self._wakeup is not None:
            self._wakeup.clear()

    def _start_keeper(self) -> None:
        self._keeper_settled = True
        self._occupied += occupy_standard_descriptors()
        try:
            self._keeper.start()
        except OSError as error:
            logger.error("no keeper can be started (%s): if this process is killed, its workers may stay", error)
            return
        self._keeper_started_s = time.monotonic()
        self._watch(self._keeper.pidfd, self._keeper_died)

    @_forks_wait
    def _keeper_died(self, what: int) -> None:
        self._unwatch(self._keeper.pidfd)
        self._keeper.abandon()
        self._keeper.wait()
        if time.monotonic() - self._keeper_started_s >= _KEEPER_TRIAL_S:
            self._keeper_settled = False
        else:
            logger.error("the keeper died at its start: if this process is killed, children of its workers may stay")

    # --- workers ------------------------------------------------------------------------------------------------------

    def _start_worker(self) -> None:
        self._occupied += occupy_standard_descriptors()
        slot = SlotId(self._next_slot)
        self._next_slot += 1
        worker = WorkerProcess(slot, self._config(slot), self._epoll)
        self._workers[slot] = worker
        self._keeper.add(worker.pid)
        self._handlers[worker.stream.fileno()] = functools.partial(self._stream_ready, worker)
        self._watch(worker.pidfd, functools.partial(self._died, worker))
        for output in worker.outputs:
            self._watch(output.source, functools.partial(self._output_ready, output))

    def _config(self, slot: SlotId) -> Config:
        try:
            cwd = os.getcwd()
        except OSError:
            cwd = "/"
        return {
            "sys_path": [entry for entry in sys.path if type(entry) is str],
            "argv": [str(argument) for argument in sys.argv],
            "cwd": cwd,
            "client": os.getpid(),
            "blocked_signals": self._blocked_signals,
            "initializer": self._initializer,
            "settings": (slot, *self._settings),
        }

    def _stream_ready(self, worker: WorkerProcess, what: int) -> None:
        if what & select.EPOLLOUT:
            worker.send_rest()
        if not what & ~select.EPOLLOUT:
            return
        try:
            bodies = worker.receive()
            if bodies is None:
                del self._handlers[worker.stream.fileno()]
                worker.hang_up()  # of a process that has died, `_died` tells more
            else:
                self._deliver(worker, bodies)
        except ProtocolError as error:
            logger.error("worker %d sent what it must not, and is killed: %s", worker.pid, error)
            self.stop(worker.slot, kill=True, reason=str(error))

    def _deliver(self, worker: WorkerProcess, bodies: list[bytes]) -> None:
        for body in bodies:
            if worker.greeted:
                self._failed_starts = 0
                self._reported = worker.reported = True
                self._sink.received(worker.slot, body)
            else:
                self._greet(worker, body)

    def _greet(self, worker: WorkerProcess, body: bytes) -> None:
        for greeting in decode_greeting(body):
            if isinstance(greeting, StartFailed):
                self._break(f"the initializer failed in a worker:\n{greeting.text}")
                return
            worker.greeted = True
            info = WorkerInfo(platform.node(), greeting.pid, greeting.python, greeting.slipstream)
            self._sink.joined(worker.slot, info)

    @_forks_wait
    def _died(self, worker: WorkerProcess, what: int) -> None:
        with contextlib.suppress(ProtocolError):  # a frame cut short by the death
            self._deliver(worker, worker.receive_rest())
        self._unwatch(worker.pidfd)
        self._handlers.pop(worker.stream.fileno(), None)
        for output in worker.outputs:
            output.drain()
            self._unwatch(output.source)
        end = worker.reap()
        worker.close()
        self._keeper.remove(worker.pid)
        del self._workers[worker.slot]
        if worker.greeted:
            self._sink.left(worker.slot, end)
        if (
            not (worker.reported or worker.told_to_stop)
            and end.running is None
            and not (worker.greeted and end.signal in _BY_OTHERS)
        ):
            self._count_failed_start(end)

    def _count_failed_start(self, end: WorkerEnd) -> None:
        """A worker died that ran nothing. Reports of others start the count anew."""
        self._failed_starts += 1
        if self._failed_starts >= MAX_FAILED_STARTS and not self._closing:
            said = end.last_output.decode("utf-8", "backslashreplace").strip()
            said = f". The last one said: {said}" if said else ", without a word"
            self._break(f"{self._failed_starts} workers in a row died at their start: {end.reason}{said}")

    def _break(self, reason: str) -> None:
        self._closing = True
        self._sink.broken(reason)

    # --- output -------------------------------------------------------------------------------------------------------

    def _output_ready(self, output: OutputPipe, what: int) -> None:
        if output.stuck:
            self._unwatch(output.source)
            self._await_target(output)
        elif not output.forward():
            self._unwatch(output.source)

    @_forks_wait
    def _await_target(self, output: OutputPipe) -> None:
        """Read on when the client's own stream takes something again."""
        try:
            copy = os.dup(output.target)  # the same descriptor may be waited for on behalf of several workers
        except OSError:
            return

        self._stuck[copy] = output
        self._watch(copy, functools.partial(self._target_ready, copy), select.EPOLLOUT)

    @_forks_wait
    def _target_ready(self, copy: int, what: int) -> None:
        self._unwatch(copy)
        os.close(copy)
        output = self._stuck.pop(copy)
        if any(output in worker.outputs for worker in self._workers.values()):
            self._watch(output.source, functools.partial(self._output_ready, output))
