"""What a task finds around itself: import path, working directory, arguments, streams, interpreter flags, modules."""

import itertools
import os
import sys
import threading

import pytest

import calls
import scripts
from slipstream import Executor


def where():
    return {
        "cwd": os.getcwd(),
        "argv": sys.argv,
        "pid": os.getpid(),
        "parent": os.getppid(),
        "group": os.getpgrp(),
        "stdin": sys.stdin.read(),
    }


def test_cwd_argv_and_stdin(executor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["program", "--flag", "ä"])
    found = executor.submit(where).result()
    assert found["cwd"] == str(tmp_path)
    assert found["argv"] == ["program", "--flag", "ä"]
    assert found["stdin"] == "", "/dev/null, not what the client reads"
    assert found["parent"] == os.getpid()
    assert found["group"] == found["pid"], "a group of its own: Ctrl-C in a terminal is the client's"


def test_a_task_that_asks_for_input_gets_the_end_of_file(executor):
    assert isinstance(executor.submit(input).exception(), EOFError)


def test_a_working_directory_that_is_gone(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with Executor(max_workers=1) as executor:
        assert executor.submit(calls.add, 1, 1).result() == 2
    monkeypatch.chdir(tmp_path)


def test_environment_variables_and_interpreter_flags():
    script = """
        import os, slipstream
        os.environ["SET_LATER"] = "seen"
        def look():
            import sys
            return tuple(sys.flags), sys._xoptions, sys.warnoptions, __debug__, os.environ["SET_LATER"]
        with slipstream.Executor(max_workers=1) as executor:
            there, here = executor.submit(look).result(), look()
        print(there == here, there[3])
    """
    assert scripts.run(script, "-O", "-X", "utf8", "-W", "ignore::UserWarning", "-B").lines() == ["True False"]


def test_the_import_path_is_the_clients_also_when_it_changes(executor, tmp_path, monkeypatch):
    assert executor.submit(calls.add, 1, 1).result() == 2
    for number in range(3):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"late_module_{number}.py").write_text(f"def answer(): return {number}")
        monkeypatch.syspath_prepend(str(folder))
        module = __import__(f"late_module_{number}")
        futures = [executor.submit(module.answer) for _ in range(20)]
        assert [future.result() for future in futures] == [number] * 20


def test_a_path_that_is_no_string_does_no_harm(executor, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path, None])
    assert executor.submit(calls.add, 1, 1).result() == 2
    found = executor.submit(lambda: sys.path).result()
    assert all(isinstance(entry, str) for entry in found)


def test_signals_have_their_default_dispositions_and_the_clients_mask():
    script = """
        import signal, slipstream
        signal.signal(signal.SIGUSR1, lambda *_: None)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
        def look():
            import signal
            names = "SIGUSR1", "SIGTERM", "SIGINT", "SIGPIPE"
            return [signal.getsignal(getattr(signal, n)) for n in names], signal.pthread_sigmask(signal.SIG_BLOCK, ())
        with slipstream.Executor(max_workers=1) as executor:
            dispositions, mask = executor.submit(look).result()
        usr1, term, interrupt, pipe = dispositions
        print(usr1 == signal.SIG_DFL, interrupt == signal.default_int_handler, pipe == signal.SIG_IGN, mask)
        print(term == signal.SIG_DFL)
    """
    assert scripts.run(script).lines()[0] == f"True True True {{{__import__('signal').SIGUSR2!r}}}"


def test_a_task_may_use_threads_subprocesses_and_signals(executor):
    def use():
        import signal
        import subprocess

        rung = threading.Event()
        signal.signal(signal.SIGALRM, lambda *_: rung.set())
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        said = subprocess.run(["echo", "hello"], capture_output=True, text=True, check=True).stdout
        thread = threading.Thread(target=rung.wait)
        thread.start()
        while not rung.is_set():
            pass
        thread.join()
        return said, threading.current_thread() is threading.main_thread()

    assert executor.submit(use).result() == ("hello\n", True)


def test_a_worker_is_warm(single):
    """What one task leaves in a module, the next finds."""
    first = single.submit(calls.pid).result()
    single.submit(setattr, calls.add, "seen", 1)
    assert single.submit(getattr, calls.add, "seen").result() == 1
    assert single.submit(calls.pid).result() == first


@pytest.mark.parametrize("workers", [1, 3])
def test_all_workers_are_used(workers, tmp_path):
    with Executor(max_workers=workers) as executor:
        gate = tmp_path / "gate"
        futures = [executor.submit(calls.note_and_wait, str(tmp_path / "runs"), str(gate)) for _ in range(workers)]
        executor_pids = set()
        while not (tmp_path / "runs").exists() or len((tmp_path / "runs").read_text()) < workers:
            assert not any(future.done() for future in futures)
            threading.Event().wait(0.005)
        gate.touch()
        executor_pids = {future.result() for future in futures}
    assert len(executor_pids) == workers


# --- locks ------------------------------------------------------------------------------------------------------------


def test_locks_that_other_threads_of_the_client_hold_do_not_stop_workers():
    """A forked worker would inherit them locked. Ours are fresh interpreters."""
    script = """
        import logging, threading, slipstream
        from importlib import _bootstrap
        held = threading.Event()
        let_go = threading.Event()

        def hold():
            import_lock = _bootstrap._get_module_lock("json")
            import_lock.acquire()
            logging.lastResort.acquire()
            held.set()
            let_go.wait()
            logging.lastResort.release()
            import_lock.release()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()

        def log():
            import json, logging
            logging.getLogger("a").warning("from a task")
            return json.dumps([1])

        with slipstream.Executor(max_workers=2) as executor:
            futures = [executor.submit(log) for _ in range(4)]
            print([future.result() for future in futures])
        let_go.set()
        thread.join()
    """
    ended = scripts.run(script)
    assert (ended.status, ended.out) == (0, "['[1]', '[1]', '[1]', '[1]']\n")
    assert ended.err == "from a task\n" * 4


# --- what a worker imports --------------------------------------------------------------------------------------------

#: What a worker has loaded of ours after a task whose callable is found by name, and nothing of what others wrote.
#: Whoever makes the list longer makes every start of a worker longer.
OURS = {
    "slipstream",
    "slipstream.protocol",
    "slipstream.protocol.frames",
    "slipstream.protocol.version",
    "slipstream.protocol.worker_codec",
    "slipstream.serde",
    "slipstream.serde.callables",
    "slipstream.serde.definitions",
    "slipstream.serde.imports",
    "slipstream.serde.plain_exceptions",
    "slipstream.serde.values",
    "slipstream.worker",
    "slipstream.worker.link",
    "slipstream.worker.loop",
    "slipstream.worker.main",
    "slipstream.worker.page",
    "slipstream.worker.results",
    "slipstream.worker.runner",
    "slipstream.worker.sentry",
    "slipstream.worker.storing",
}
#: Expensive ones of the standard library that a worker can do without.
NOT_NEEDED = {
    *("asyncio", "concurrent.futures", "dataclasses", "inspect", "json", "logging", "multiprocessing", "selectors"),
    *("socket", "subprocess", "tempfile", "traceback", "unittest"),
    *("collections", "contextlib", "enum", "functools", "pickle", "re", "signal", "threading", "typing"),
}

IMPORTS = """
    import slipstream, subprocess, sys
    bare = subprocess.run([sys.executable, "-c", "import sys; print(*sys.modules)"], capture_output=True, text=True)
    with slipstream.Executor(max_workers=1) as executor:
        names = executor.submit(eval, "' '.join(__import__('sys').modules)").result()
    print(*set(names.split()) - set(bare.stdout.split()))
"""


def test_a_worker_imports_next_to_nothing():
    (line,) = scripts.run(IMPORTS).lines()
    names = set(line.split())
    assert {name for name in names if name.partition(".")[0] == "slipstream"} == OURS
    roots = {name.partition(".")[0] for name in names}
    assert roots - sys.stdlib_module_names == {"slipstream"}
    assert names & NOT_NEEDED == set()


def test_numbers_cross_without_the_pickler(single):
    assert single.submit(calls.add, 1, 1).result() == 2
    loaded = single.submit(eval, "'slipstream.serde.pickler' in __import__('sys').modules").result()
    assert loaded is False


def test_tasks_with_objects_work_although_the_pickler_is_imported_late(single):
    values = list(itertools.islice(itertools.count(), 5))
    assert single.submit(calls.echo, values).result() == values
