"""Directories of clients that died, and of those that live."""

import fcntl
import os
import signal

import pytest

import scripts
from slipstream.store import directory
from slipstream.store.directory import RunDirectory, sweep

CLIENT = """
    import os, sys
    from slipstream.serde.pickler import dumps_apart
    from slipstream.store.directory import RunDirectory
    from slipstream.store.writing import store_value
    run = RunDirectory.make()
    place = run.place("c")
    store_value(*dumps_apart([1]), place)
    open(place.make_spill() + "/c-1-1", "x").close()
    print(run.path, run.spill, flush=True)
    sys.stdin.read()
    {after}
"""


def paths_of(process):
    return process.stdout.readline().split()


def test_a_client_that_was_killed():
    with scripts.started(CLIENT.format(after=""), stdin=-1) as client:
        paths = paths_of(client)
        assert all(map(os.path.isdir, paths))
        assert not set(paths) & set(sweep()), "it is alive"
        assert all(map(os.path.isdir, paths))
        client.send_signal(signal.SIGKILL)
        client.wait()
        run = RunDirectory.make()
        assert not any(map(os.path.exists, paths))
        run.remove()


def test_a_client_that_is_not_reaped_yet_is_dead():
    with scripts.started(CLIENT.format(after=""), stdin=-1) as client:
        paths = paths_of(client)
        client.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOWAIT)
        assert set(paths) <= set(sweep())


@pytest.fixture
def two_places(tmp_path, monkeypatch):
    """Two folders of the test's own in the place of shared memory and disk."""
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    monkeypatch.setattr(directory, "SHARED_MEMORY", str(memory))
    monkeypatch.setattr(directory.tempfile, "tempdir", str(disk))
    return memory, disk


def made(folder, name):
    (folder / name).mkdir()
    (folder / name / "c-1-1").touch()
    return folder / name


ENDING = "0123456789abcdef"


def test_which_names_are_swept(two_places):
    memory, disk = two_places
    start = directory._start_of(os.getpid())
    dead = [f"slipstream-{os.getpid()}-{start + 1}-{ENDING}", f"slipstream-4194304-5-{ENDING}"]
    others = [
        f"slipstream-{os.getpid()}-{start}-{ENDING}",
        f"slipstream-4194304-5-{ENDING}0",
        f"slipstream-4194304-{ENDING}",
        "slipstream-page",
        f"someone-4194304-5-{ENDING}",
    ]
    gone = [made(folder, name) for folder in two_places for name in dead]
    stay = [made(folder, name) for folder in two_places for name in others]
    (memory / f"slipstream-4194304-6-{ENDING}").touch()
    (disk / f"slipstream-4194304-7-{ENDING}").symlink_to(memory)
    assert sorted(sweep()) == sorted(map(str, gone))
    assert not any(path.exists() for path in gone)
    assert all((path / "c-1-1").exists() for path in stay)
    assert (memory / f"slipstream-4194304-6-{ENDING}").exists()
    assert (disk / f"slipstream-4194304-7-{ENDING}").is_symlink()


def test_a_directory_of_another_user_is_left_alone(two_places, monkeypatch):
    path = made(two_places[0], f"slipstream-4194304-5-{ENDING}")
    monkeypatch.setattr(directory.os, "getuid", lambda: os.geteuid() + 1)
    assert sweep() == []
    assert path.exists()


def test_a_client_in_a_container_with_process_ids_of_its_own_is_alive(two_places):
    """Its id says nothing here; its lock does, as long as it lives."""
    script = f"""
        import tempfile
        from slipstream.store import directory
        directory.SHARED_MEMORY, tempfile.tempdir = {str(two_places[0])!r}, {str(two_places[1])!r}
        directory._is_alive = lambda name: False
        print(directory.sweep())
    """
    run = RunDirectory.make()
    assert scripts.run(script).lines() == ["[]"]
    assert os.path.isdir(run.path)
    fcntl.flock(run._lock, fcntl.LOCK_UN)  # as its death would
    assert scripts.run(script).lines() == [str([run.path])]


def test_a_client_removes_its_own_and_may_do_so_twice(run):
    os.mkdir(run.spill)
    descriptors = len(os.listdir("/proc/self/fd"))
    run.remove()
    run.remove()
    assert not os.path.exists(run.path)
    assert not os.path.exists(run.spill)
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1
