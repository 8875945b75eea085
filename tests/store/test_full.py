"""Where values go when shared memory is full, or is not there at all."""

import errno
import os
import subprocess
from types import SimpleNamespace

import numpy
import pytest

import scripts
from slipstream.serde.pickler import dumps_apart
from slipstream.store import directory, writing
from slipstream.store.directory import RunDirectory
from slipstream.store.payload import path_of
from slipstream.store.place import Place
from slipstream.store.reading import load_stored
from slipstream.store.writing import store_value

VALUE = numpy.arange(100_000)


def files_in(path):
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


@pytest.fixture
def full(monkeypatch):
    """Files in directories that `full` names cannot be written to the end."""
    directories = []
    real = os.writev

    def write(descriptor, pieces):
        if os.path.dirname(os.readlink(f"/proc/self/fd/{descriptor}")) not in directories:
            return real(descriptor, pieces)
        if os.fstat(descriptor).st_size:
            raise OSError(write.number, os.strerror(write.number))
        return real(descriptor, [pieces[0][:50]])

    write.number = errno.ENOSPC
    monkeypatch.setattr(writing.os, "writev", write)
    directories.append(write)
    return directories


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.ENOMEM])
def test_shared_memory_that_is_full(number, full, run, place):
    full[0].number = number
    full.append(run.path)
    payload = store_value(*dumps_apart(VALUE), place)
    assert os.path.dirname(path_of(payload)) == run.spill
    assert files_in(run.path) == [], "what was begun is removed"
    assert numpy.array_equal(load_stored(payload), VALUE)
    warning = place.take_warning()
    assert run.spill in warning
    assert os.strerror(number) in warning
    store_value(*dumps_apart(VALUE), place)
    assert place.take_warning() is None, "said once"
    assert os.stat(run.spill).st_mode & 0o777 == 0o700
    run.remove()
    assert not os.path.exists(run.path)
    assert not os.path.exists(run.spill)


def test_both_are_full(full, run, place):
    full += [run.path, run.spill]
    with pytest.raises(OSError, match="bytes cannot be stored") as caught:
        store_value(*dumps_apart(VALUE), place)
    assert caught.value.errno == errno.ENOSPC
    for said in (run.path, run.spill, "No space left on device", "TMPDIR", f"{len(VALUE) * 8 // 1000}"):
        assert said in str(caught.value)
    assert files_in(run.path) == files_in(run.spill) == []
    assert place.take_warning() is None


def test_the_budget(run, monkeypatch):
    """It is kept as what must stay free, so other writers and unlinked files count."""
    free = 10_000_000
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_blocks=9999, f_bavail=free // 4096, f_frsize=4096))
    place = Place(run.path, run.spill, "c", free - 900_000)
    assert os.path.dirname(path_of(store_value(*dumps_apart(VALUE), place))) == run.path
    assert place.take_warning() is None
    free -= 200_000
    assert os.path.dirname(path_of(store_value(*dumps_apart(VALUE), place))) == run.spill
    assert "its budget is used up" in place.take_warning()
    free += 200_000
    assert os.path.dirname(path_of(store_value(*dumps_apart(VALUE), place))) == run.path


def test_a_tmpfs_without_limit_has_room(run, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_blocks=0, f_bavail=0, f_frsize=4096))
    assert Place(run.path, run.spill, "c", 1000).has_room(1 << 40)


def test_the_budget_becomes_what_must_stay_free():
    run = RunDirectory.make(budget=1_000_000)
    try:
        found = os.statvfs(run.path)
        assert abs(found.f_bavail * found.f_frsize - 1_000_000 - run.floor) < 1_000_000_000
        assert run.floor > 0
    finally:
        run.remove()


def test_a_run_directory_that_somebody_removed(run, place):
    os.rmdir(run.path)
    payload = store_value(*dumps_apart(VALUE), place)
    assert numpy.array_equal(load_stored(payload), VALUE)
    assert "No such file or directory" in place.take_warning()


@pytest.mark.parametrize("kind", ["link", "open to others", "file"])
def test_a_spill_directory_of_somebody_else_is_not_used(kind, full, run, place, tmp_path):
    full.append(run.path)
    if kind == "link":
        os.symlink(tmp_path, run.spill)
    elif kind == "file":
        open(run.spill, "x").close()
    else:
        os.mkdir(run.spill)
        os.chmod(run.spill, 0o777)
    try:
        with pytest.raises(OSError, match="is not ours, or open to others"):
            store_value(*dumps_apart(VALUE), place)
        assert list(tmp_path.iterdir()) == []
    finally:
        if kind != "open to others":
            os.unlink(run.spill)


def test_ctrl_c_in_the_middle_leaves_no_file(run, place, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(writing.os, "writev", interrupt)
    with pytest.raises(KeyboardInterrupt):
        store_value(*dumps_apart(VALUE), place)
    assert files_in(run.path) == []
    assert not os.path.exists(run.spill)


def test_without_shared_memory(monkeypatch, tmp_path):
    for missing in (str(tmp_path / "missing"), str(tmp_path)):  # the second is no tmpfs
        monkeypatch.setattr(directory, "SHARED_MEMORY", missing)
        run = RunDirectory.make()
        try:
            assert run.spill == ""
            assert not run.path.startswith(missing)
            payload = store_value(*dumps_apart(VALUE), run.place("c"))
            assert os.path.dirname(path_of(payload)) == run.path
            assert numpy.array_equal(load_stored(payload), VALUE)
        finally:
            run.remove()
        assert not os.path.exists(run.path)


def test_a_disk_that_is_full_without_shared_memory(monkeypatch, full):
    monkeypatch.setattr(directory, "SHARED_MEMORY", "/missing")
    run = RunDirectory.make()
    try:
        full.append(run.path)
        with pytest.raises(OSError, match="No space left on device") as caught:
            store_value(*dumps_apart(VALUE), run.place("c"))
        assert run.path in str(caught.value)
    finally:
        run.remove()


def test_no_directory_anywhere(monkeypatch):
    monkeypatch.setattr(directory, "SHARED_MEMORY", "/missing")
    monkeypatch.setattr(directory.tempfile, "gettempdir", lambda: "/missing too")
    with pytest.raises(OSError, match="no directory for large values can be made, neither in /missing nor as"):
        RunDirectory.make()


def test_no_descriptor_for_the_lock_leaves_no_directory(monkeypatch):
    directory.tempfile.gettempdir()
    real = os.open

    def fail(path, *rest):
        if "/slipstream-" in path:
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *rest)

    monkeypatch.setattr(directory.os, "open", fail)
    with pytest.raises(OSError, match="Too many open files"):
        RunDirectory.make()  # that nothing is left is what the fixture of every test here looks for


def can_mount():
    try:
        return subprocess.run(["unshare", "-rm", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not can_mount(), reason="no user and mount namespaces here, so no small tmpfs can be mounted")
def test_a_real_tmpfs_that_is_full(tmp_path):
    script = """
        import os, sys
        from slipstream.serde.pickler import dumps_apart
        from slipstream.store.payload import path_of
        from slipstream.store.place import Place
        from slipstream.store.reading import load_stored
        from slipstream.store.writing import store_value
        shm, spill = sys.argv[1:]
        value = memoryview(os.urandom(3_000_000))
        class Unaware(Place):
            def has_room(self, size):
                return True
        place = Unaware(shm, spill, "w", 0)
        payloads = [store_value(*dumps_apart(value), place) for _ in range(4)]
        print(*(os.path.dirname(path_of(payload)) == shm for payload in payloads))
        print(all(load_stored(payload) == value for payload in payloads), len(os.listdir(shm)))
        print("No space left on device" in place.take_warning())
    """
    shm, spill = tmp_path / "shm", tmp_path / "spill"
    shm.mkdir()
    mount = f'mount -t tmpfs -o size=8m tmpfs {shm} && exec "$@"'
    inner = [*scripts.command_of(script), str(shm), str(spill)]
    command = ["unshare", "-rm", "sh", "-c", mount, "sh", *inner]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=scripts.LIMIT_S)
    assert ended.stderr == ""
    assert ended.stdout.splitlines() == ["True True False False", "True 2", "True"]


def test_a_limit_for_files(run):
    """RLIMIT_FSIZE holds for both directories: an error that says so, and SIGXFSZ does not kill."""
    script = """
        import resource, sys
        from slipstream.serde.pickler import dumps_apart
        from slipstream.store.place import Place
        from slipstream.store.writing import store_value
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try:
            store_value(*dumps_apart(memoryview(bytes(1_000_000))), Place(*sys.argv[1:], "w", 0))
        except OSError as error:
            print(error)
    """
    command = [*scripts.command_of(script), run.path, run.spill]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=scripts.LIMIT_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.count("File too large") == 2
    assert files_in(run.path) == files_in(run.spill) == []
