"""The life of a worker process, from the boot line to its exit.

`BOOT` is all that is on the command line. It uses builtin modules only until it has the client's import path, which
comes first over the socket; then everything else can be imported as the client would import it. No `__main__` of the
client is run, so no guard is needed.

Rules of this package, for the sake of a worker's start: what every interpreter has loaded anyway may be imported at the
top of a module, what costs a millisecond may not (`typing` takes 10, `contextlib` and `collections` 4, `threading` 2,
`signal` 3); what comes later, for the first exception, say, is imported then.
"""

from __future__ import annotations

import os
import sys
from _socket import socket

from slipstream.protocol import worker_codec
from slipstream.protocol.version import __version__
from slipstream.serde.values import decode_call
from slipstream.worker import loop as worker_loop
from slipstream.worker.link import Link
from slipstream.worker.page import SharedPage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from signal import SIG_SETMASK, SIGKILL, pthread_sigmask
    from typing import Any, TypedDict

    class Config(TypedDict):
        """What a worker is told before its first frame, as a marshalled dict."""

        sys_path: list[str]
        argv: list[str]
        cwd: str
        #: Process id of the client.
        client: int
        #: Signals that the client's main thread blocks.
        blocked_signals: list[int]
        #: An encoded call, or empty.
        initializer: bytes
        #: The worker's number, how many workers there are, and how often a task runs again whose result was lost.
        settings: tuple[int, int, int]
else:
    from _signal import SIG_SETMASK, SIGKILL, pthread_sigmask


#: The source of a worker's `__main__`: descriptors of the socket and of the shared page are its arguments.
BOOT = """\
def boot():
    import marshal, os, sys
    import mmap, select, struct, types  # what the worker needs of the standard library: a script may lie beside its own
    link, page = int(sys.argv[1]), int(sys.argv[2])
    def read(size):
        data = b""
        while len(data) < size:
            piece = os.read(link, size - len(data))
            if not piece:
                os._exit(1)
            data += piece
        return data
    config = marshal.loads(read(int.from_bytes(read(8), "little")))
    sys.path[:] = config["sys_path"]
    sys.argv[:] = config["argv"]
    from slipstream.worker.main import main
    main(link, page, config)
boot()
"""

_PR_SET_PDEATHSIG = 1
#: Characters of a traceback that the client is told: its last ones.
_TEXT_LIMIT = 20_000


def main(link_descriptor: int, page_descriptor: int, config: Config) -> None:
    """Run the worker until it is told to stop.

    Args:
        link_descriptor: the worker's end of the socket pair.
        page_descriptor: the page shared with the client.
        config: what came first over the socket.
    """
    del sys.modules["__main__"].__dict__["boot"]
    pthread_sigmask(SIG_SETMASK, config["blocked_signals"])
    try:
        os.chdir(config["cwd"])
    except OSError:
        pass  # it is gone: the worker stays where it was started
    for stream in (sys.stdout, sys.stderr):
        _by_line(stream)
    page = SharedPage(page_descriptor)
    os.close(page_descriptor)
    link = Link(socket(fileno=link_descriptor))
    loop = worker_loop.current = worker_loop.Loop(link, page)
    loop.settings = config["settings"]
    if config["initializer"]:
        _follow_client(config["client"])  # it may take long, and leave too few rights to import anything
        if not _initialize(loop, config["initializer"]):
            return
    link.send([worker_codec.hello(os.getpid(), sys.version.split()[0], __version__)])
    if not config["initializer"]:
        _follow_client(config["client"])  # now, since the import of ctypes takes as long as the client's answer
    try:
        loop.run()
    except BaseException:
        page.report_broken()
        raise


def _follow_client(client: int) -> None:
    """Die with the client. Beside the keeper, since that one may be starting, or be killed itself."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
    if os.getppid() != client:
        os._exit(1)


def _by_line(stream: Any) -> None:
    """Let each line be seen when it is printed, although the stream is a pipe."""
    try:
        stream.reconfigure(line_buffering=True, errors="backslashreplace")
    except (AttributeError, ValueError):
        pass


def _initialize(loop: worker_loop.Loop, initializer: bytes) -> bool:
    try:
        function, args, kwargs = decode_call(initializer)
        function(*args, **kwargs)
    except BaseException as error:  # noqa: BLE001  # the client reports whatever it was, with the text
        loop.leave_if_forked(error)
        import traceback

        loop.link.send([worker_codec.start_failed(traceback.format_exc()[-_TEXT_LIMIT:])])
        return False
    loop.leave_if_forked(None)
    return True
