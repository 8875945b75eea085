"""What holds for every test: hypothesis without a clock, and nothing left behind by tests that start processes.

Nothing here knows the engine. A test's own fixtures belong beside it.
"""

import gc
import os
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

TESTS = Path(__file__).parent
#: Folders whose tests start processes or threads. The others are pure and need no proof.
GUARDED_FOLDERS = frozenset({"cli", "faults", "process", "runtime", "store"})
#: Processes, threads and descriptors end on their own time. This is how long they may take, not how long they should.
LEAVE_TIMEOUT_S = 10.0
#: In the environment of everything that the present test starts, so that orphans are found too.
MARK = "SLIPSTREAM_TEST_MARK"

# A deadline or a slow draw would fail a test because the machine is busy.
settings.register_profile("no clock", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("no clock")
# A shell's background command inherits that Ctrl-C is ignored, and so would all that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What pytest has collected stays: without it, the collection after each test takes 5 ms instead of 100."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True)
class Presence:
    """What exists at one moment and could be left behind by a test."""

    processes: frozenset[psutil.Process]
    threads: frozenset[threading.Thread]
    descriptors: Counter[str]
    files: frozenset[str]

    def left_since(self, before: "Presence") -> list[str]:
        """One line for each thing that is here now and was not here before."""
        return [
            *sorted(f"process {describe(process)}" for process in self.processes - before.processes),
            *sorted(f"thread {thread.name!r}" for thread in self.threads - before.threads),
            *(
                f"{count} more descriptor(s) of {target}"
                for target, count in sorted((self.descriptors - before.descriptors).items())
            ),
            *(f"file {path}" for path in sorted(self.files - before.files)),
        ]


def describe(process: psutil.Process) -> str:
    """Pid, state and command line of a process, as far as it still tells them."""
    try:
        state = process.status()
        command = " ".join(process.cmdline()) if state != psutil.STATUS_ZOMBIE else f"({process.name()}, not reaped)"
    except psutil.Error as error:
        return f"{process.pid} ({error})"
    return f"{process.pid} {state}: {command}"


def carries(process: psutil.Process, mark: str) -> bool:
    """Whether a process was started, at whatever distance, with this mark in its environment."""
    try:
        return process.environ().get(MARK) == mark
    except psutil.Error:
        return False


def present_processes(mark: str) -> frozenset[psutil.Process]:
    """Our descendants, zombies among them, and whatever else carries the mark: orphans have another parent."""
    ourselves = psutil.Process()
    marked = {process for process in psutil.process_iter() if process != ourselves and carries(process, mark)}
    return frozenset(marked.union(ourselves.children(recursive=True)))


def present_descriptors() -> Counter[str]:
    """Our open descriptors, counted by what they point to. Empty where there is no /proc."""
    targets: Counter[str] = Counter()
    folder = Path("/proc/self/fd")
    for descriptor in os.listdir(folder) if folder.is_dir() else ():
        try:
            targets[os.readlink(folder / descriptor)] += 1
        except FileNotFoundError:
            continue  # the descriptor that listed the folder
    return targets


def present_files(temporary: Path) -> frozenset[str]:
    """Files and folders of ours where temporary files and shared memory live."""
    found = [path for folder in (temporary, Path("/dev/shm")) for path in folder.glob("slipstream-*")]
    return frozenset(str(path) for path in found if not of_another_run(path))


def of_another_run(path: Path) -> bool:
    """Whether a run directory is that of a living process that is none of ours."""
    owner = path.name.split("-")[1]
    if not owner.isdigit():
        return False
    try:
        lineage = [psutil.Process(int(owner)), *psutil.Process(int(owner)).parents()]
    except psutil.NoSuchProcess:
        return False
    return os.getpid() not in [process.pid for process in lineage]


def look(mark: str, temporary: Path) -> Presence:
    """See everything that a test could leave behind."""
    return Presence(
        processes=present_processes(mark),
        threads=frozenset(thread for thread in threading.enumerate() if thread.name.startswith("slipstream")),
        descriptors=present_descriptors(),
        files=present_files(temporary),
    )


def is_guarded(test: pytest.Item) -> bool:
    """Whether a test lies in one of the guarded folders."""
    return test.path.is_relative_to(TESTS) and test.path.relative_to(TESTS).parts[0] in GUARDED_FOLDERS


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a guarded test after which a process, thread, descriptor or file of its making is still there."""
    if not is_guarded(request.node):
        yield
        return
    mark = uuid.uuid4().hex
    # A folder of its own, so that what other processes on this machine put beside it is not taken for the test's.
    temporary = tmp_path_factory.mktemp("temporary")
    # Not the test's own monkeypatch, which the test may undo.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MARK, mark)
        patch.setenv("TMPDIR", str(temporary))
        patch.setattr(tempfile, "tempdir", None)
        before = look(mark, temporary)
        yield
        left = what_stays(before, mark, temporary)
    if left:
        pytest.fail(f"still there {LEAVE_TIMEOUT_S:g} s after the test:\n  " + "\n  ".join(left), pytrace=False)


def what_stays(before: Presence, mark: str, temporary: Path) -> list[str]:
    """Wait until nothing new is left, and no longer than the limit; return what is left then."""
    gc.collect()
    deadline = time.monotonic() + LEAVE_TIMEOUT_S
    pause_s = 0.005
    while left := look(mark, temporary).left_since(before):
        if time.monotonic() > deadline:
            break
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.2)
    return left
