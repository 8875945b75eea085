"""What a test sees of an engine from outside: its worker and keeper processes, and that it is well."""

import contextlib
import threading
import time

import psutil

import calls
from slipstream.pools.keeper import keeper
from slipstream.worker.main import BOOT

#: A limit for what never comes, not an expectation.
LIMIT_S = 8.0


def until(condition):
    """Wait until this holds; what it gave then."""
    deadline = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.002)
    return value


@contextlib.contextmanager
def gate_in(folder):
    """A file for which tasks wait. It comes to be at last in any case, so that a test that fails does not hang too."""
    path = folder / "gate"
    opener = threading.Timer(2 * LIMIT_S, path.touch)
    opener.daemon = True
    opener.start()
    yield path
    path.touch()
    opener.cancel()
    opener.join()


def _children(argument, parent):
    found = []
    for process in psutil.Process(parent).children():
        try:
            if argument in process.cmdline():
                found.append(process)
        except psutil.Error:
            continue
    return found


def workers(parent=None):
    """Worker processes of this process or another, starting ones too; none that has died."""
    return _children(BOOT, parent)


def keepers(parent=None):
    return _children(keeper.__file__, parent)


def processes_of(process):
    """All that a client with two workers has started, at whatever distance: these, a keeper, and what tasks started."""
    until(lambda: len(workers(process.pid)) == 2)
    until(lambda: len(keepers(process.pid)) == 1)
    return psutil.Process(process.pid).children(recursive=True)


def all_gone(processes):
    """Whether none of them runs; who is dead and not reaped is gone."""
    for process in processes:
        try:
            if process.status() != psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            continue
    return True


def assert_goes_on(executor, count, lost=None):
    """It has all its workers (again), has lost so many if that is certain, and runs tasks."""
    until(lambda: executor.stats().workers == count)
    assert [executor.submit(calls.square, n).result() for n in range(20)] == [n * n for n in range(20)]
    assert list(executor.map(calls.square, range(100))) == [n * n for n in range(100)]
    stats = executor.stats()
    assert (stats.workers, stats.workers_lost) == (count, stats.workers_lost if lost is None else lost)
    assert len(workers()) == count
