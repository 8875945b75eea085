"""The client is killed while it holds large values: the keeper removes them, or else the next start of an executor."""

import contextlib
import os
import random
import signal
import threading
from dataclasses import dataclass

import psutil
import pytest
from processes import all_gone, keepers, processes_of, until

import scripts

#: Has one value of each kind from a task, one that was put, and one that was an argument.
CLIENT = """
    import large, os, slipstream, sys, time
    from slipstream.store import directory
    {patch}
    executor = slipstream.Executor(max_workers=2)
    kept = [executor.submit(large.make, kind, n) for n, kind in enumerate(large.KINDS)]
    argument = large.make("mapped", 8)
    kept += [executor.put(large.make("huge", 7)), executor.submit(large.held, argument, {note!r}, {gate!r})]
    [future.result() for future in kept[:-1]]
    run = executor._values.run()
    print(run.path, run.spill, flush=True)
    {then}
    time.sleep(600)
"""
#: Those of `large.KINDS` that are stored, the one that was put, and the argument.
STORED = 9
#: A budget below nothing, so that no value fits into shared memory.
ON_DISK = """
    import warnings
    warnings.simplefilter("ignore", RuntimeWarning)
    make = directory.RunDirectory.make
    directory.RunDirectory.make = classmethod(lambda cls, budget=None: make(-1 << 60))
"""
#: Two folders of the test's own in the place of shared memory and disk, so that no other start clears it up.
ALONE = """
    import tempfile
    directory.SHARED_MEMORY, tempfile.tempdir = {memory!r}, {disk!r}
    directory._is_shared_memory = lambda path: True
"""
#: One worker is in the middle of a file, which the other does not wait for.
WRITES = "executor.submit(large.half_written, {half!r})"
#: What follows needs no more values in the end, but makes and drops them all the time.
CHURN = """
    import random
    rng = random.Random(SEED)
    while True:
        futures = [executor.submit(large.make, rng.choice(large.KINDS), n) for n in range(8)]
        taken = [executor.submit(large.built, rng.choice(large.KINDS), 0, future, argument) for future in futures]
        del futures
        taken[rng.randrange(8)].result()
"""


@pytest.fixture
def alone(tmp_path):
    for name in ("memory", "disk"):
        (tmp_path / name).mkdir()
    return ALONE.format(memory=str(tmp_path / "memory"), disk=str(tmp_path / "disk"))


@dataclass
class Client:
    """A client that has its values, and where they are."""

    process: object
    path: str
    spill: str

    @property
    def name(self):
        return os.path.basename(self.path)

    def files(self):
        """In shared memory and on disk; None where there is no directory."""
        return [sorted(os.listdir(path)) if os.path.exists(path) else None for path in (self.path, self.spill)]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def kill_with_keeper(self):
        """Both; the client cannot start another keeper meanwhile."""
        self.process.send_signal(signal.SIGSTOP)
        (keeper,) = keepers(self.process.pid)
        keeper.kill()
        until(lambda: all_gone([keeper]))
        self.kill()


@contextlib.contextmanager
def client(folder, patch, then=""):
    paths = {name: str(folder / name) for name in ("note", "gate", "half")}
    script = CLIENT.format(patch=patch, then=then.format(**paths), **paths)
    with scripts.started(script) as process:
        path, spill = process.stdout.readline().split() or pytest.fail(process.communicate()[1])
        yield Client(process, path, spill)


def assert_nothing_stays(client, started):
    until(lambda: all_gone(started))
    until(lambda: client.files() == [None, None])


# --- by the keeper ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("patch", ["", ON_DISK], ids=["in memory", "on disk"])
def test_the_keeper_removes_what_was_held(tmp_path, alone, patch):
    with client(tmp_path, patch + alone) as killed:
        started = processes_of(killed.process)
        in_memory, on_disk = killed.files()
        assert [len(in_memory), len(on_disk or ())] == ([0, STORED] if patch else [STORED, 0])
        killed.kill()
        assert_nothing_stays(killed, started)


@pytest.mark.parametrize("patch", ["", ON_DISK], ids=["in memory", "on disk"])
def test_the_keeper_removes_what_a_worker_was_just_writing(tmp_path, alone, patch):
    with client(tmp_path, patch + alone, WRITES) as killed:
        started = processes_of(killed.process)
        until((tmp_path / "half").exists)
        assert len(killed.files()[bool(patch)]) == STORED + 1
        killed.kill()
        assert_nothing_stays(killed, started)


def test_the_keeper_removes_what_is_made_at_any_moment(tmp_path, alone):
    rng = random.Random(23)
    (tmp_path / "gate").touch()
    for seed in range(3):
        with client(tmp_path, alone, CHURN.replace("SEED", str(seed))) as killed:
            started = processes_of(killed.process)
            threading.Event().wait(rng.uniform(0, 0.3))
            assert killed.process.poll() is None, killed.process.communicate()
            killed.kill()
            assert_nothing_stays(killed, started)


# --- by the next start ------------------------------------------------------------------------------------------------

NEXT = """
    import calls, os, slipstream
    from slipstream.store import directory
    {patch}
    with slipstream.Executor(max_workers=1) as executor:
        print(executor.submit(calls.add, 1, 1).result())
        print(*os.listdir(directory.SHARED_MEMORY), *os.listdir(tempfile.gettempdir()))
"""


def names_after_next_start(patch):
    """Names of the directories that there are while the next executor runs."""
    result, names = scripts.run(NEXT.format(patch=patch)).lines()
    assert result == "2"
    return set(names.split())


def assert_the_next_start_clears_up(client, alone):
    (name,) = names_after_next_start(alone)
    assert name != client.name
    assert client.files() == [None, None]


@pytest.mark.parametrize("patch", ["", ON_DISK], ids=["in memory", "on disk"])
def test_the_next_start_removes_what_the_keeper_could_not(tmp_path, alone, patch):
    with client(tmp_path, patch + alone, WRITES) as killed:
        started = processes_of(killed.process)
        until((tmp_path / "half").exists)
        assert killed.name in names_after_next_start(alone), "its client lives"
        before = killed.files()
        assert len(before[bool(patch)]) == STORED + 1
        killed.kill_with_keeper()
        until(lambda: all_gone(started))
        assert killed.files() == before, "there is nobody to remove it"
        assert_the_next_start_clears_up(killed, alone)


def test_the_next_start_removes_what_was_held_after_the_end_of_its_executor(tmp_path, alone):
    """The keeper has ended with the executor."""
    with client(tmp_path, alone, "open({gate!r}, 'x'); executor.shutdown()") as killed:
        until(lambda: not psutil.Process(killed.process.pid).children())
        killed.kill()
        assert len(killed.files()[0]) == STORED - 1, "all but the argument"
        assert_the_next_start_clears_up(killed, alone)
