"""Deaths of workers at moments and in ways that are easily forgotten, by tasks or by what the client's process does."""

import ctypes
import os
import signal
import sys
import threading

import pytest
from processes import LIMIT_S, until

import calls
import scripts
from slipstream import Executor, WorkerLost


def segfault():
    ctypes.string_at(0)


def die_soon_after(delay_s):
    """Return, and have the worker die before or after the result is on its way."""

    def die():
        threading.Event().wait(delay_s)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=die, daemon=True).start()
    return "returned"


def daemonize():
    """The process that the client knows exits well; what it forked holds a copy of the socket."""
    if os.fork():
        os._exit(0)
    os.setsid()
    threading.Event().wait(0.3)
    os._exit(0)


# --- payloads and results in the middle of which a worker dies --------------------------------------------------------


def test_a_large_argument_on_its_way_to_a_dying_worker(single):
    pid = single.submit(calls.pid).result()
    running = single.submit(calls.nap, 600)
    until(running.running)
    large = single.submit(len, bytes(30_000_000))
    os.kill(pid, signal.SIGKILL)
    assert isinstance(running.exception(), WorkerLost)
    assert large.result() == 30_000_000


def test_a_worker_that_dies_while_its_result_is_encoded(single):
    class DiesWhenSent:
        def __reduce__(self):
            os.kill(os.getpid(), signal.SIGKILL)

    error = single.submit(lambda: [bytes(10_000_000), DiesWhenSent()]).exception()
    assert isinstance(error, WorkerLost)
    assert error.signal == signal.SIGKILL
    assert single.submit(calls.add, 1, 1).result() == 2


@pytest.mark.parametrize(("crash", "args"), [(calls.die, ()), (segfault, ()), (os._exit, (0,))])
def test_arguments_that_end_the_worker_when_they_are_loaded(single, crash, args):
    class Fatal:
        def __reduce__(self):
            return crash, args

    assert isinstance(single.submit(calls.echo, Fatal()).exception(), WorkerLost)
    assert single.submit(calls.add, 1, 1).result() == 2


@pytest.mark.parametrize("delay_s", [0, 0.0005, 0.002, 0.05])
def test_a_worker_that_dies_just_after_its_task_has_returned(executor, delay_s):
    """Whether the result made it home or not: the task ends, and does not run for ever."""
    executor.submit(calls.square, 1).result()
    before = [executor.submit(calls.square, i) for i in range(50)]
    odd = executor.submit(die_soon_after, delay_s)
    after = [executor.submit(calls.square, i) for i in range(50)]
    assert type(odd.exception(LIMIT_S)) in (type(None), WorkerLost)
    # What else ran there at that moment is charged, as nobody can know whose thread it was.
    outcomes = [future.exception(LIMIT_S) or future.result() for future in before + after]
    assert sum(isinstance(outcome, WorkerLost) for outcome in outcomes) <= 1
    assert all(outcome == i % 50 * (i % 50) or isinstance(outcome, WorkerLost) for i, outcome in enumerate(outcomes))


def test_a_task_that_daemonizes(executor):
    futures = [executor.submit(calls.square, i) for i in range(50)]
    error = executor.submit(daemonize).exception(LIMIT_S)
    assert isinstance(error, WorkerLost)
    assert error.exit_status == 0
    assert [future.result() for future in futures] == [i * i for i in range(50)]


def test_a_forked_child_of_a_task_that_returns_into_the_worker():
    """Two processes then answer on one socket. Whatever comes of it, every future ends, and so does the executor."""
    script = """
        import calls, logging, os, slipstream
        logging.disable()
        with slipstream.Executor(max_workers=2) as executor:
            before = [executor.submit(calls.square, i) for i in range(50)]
            odd = executor.submit(os.fork)
            after = [executor.submit(calls.square, i) for i in range(50)]
            outcomes = [future.exception(20) for future in (*before, odd, *after)]
            print(executor.submit(calls.add, 1, 1).result(20))
    """
    assert scripts.run(script).lines()[-1] == "2"


# --- at the end -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "status", "said"),
    [
        (lambda: None, 0, ""),
        (lambda: sys.exit(4), 4, ""),
        (lambda: sys.exit("that is why"), 1, "that is why\n"),
        (lambda: 1 / 0, 1, "ZeroDivisionError: division by zero\n"),
    ],
)
def test_a_forked_child_ends_as_its_program_would(capfd, end, status, said):
    def task():
        child = os.fork()
        if child == 0:
            return end()
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    with Executor(max_workers=1) as executor:
        assert executor.submit(task).result() == status
    err = capfd.readouterr().err
    assert err.endswith(said)
    assert bool(err) == bool(said)


def test_a_child_forked_by_an_item_of_a_map_leaves_the_others_to_its_parent(single, tmp_path):
    log = tmp_path / "log"

    def item(number):
        calls.note(str(log))
        if number == 1:
            child = os.fork()
            if child:
                os.waitpid(child, 0)
        return number

    assert list(single.map(item, range(5), chunksize=5)) == list(range(5))
    assert log.read_text() == "x" * 5


def test_the_first_exception_arrives_though_nothing_can_be_imported_any_more(single):
    def use_up_descriptors():
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
        kept = []
        while True:
            kept.append(os.dup(0))

    error = single.submit(use_up_descriptors).exception()
    assert isinstance(error, OSError)
    assert error.errno == 24
    assert "Its traceback could not be sent: " in error.__notes__[0]
    assert single.stats().workers_lost == 0


def test_workers_die_while_the_executor_shuts_down(executor):
    futures = [executor.submit(calls.die) for _ in range(2)] + [executor.submit(calls.square, i) for i in range(20)]
    executor.shutdown()
    assert all(future.done() for future in futures)
    assert [future.result() for future in futures[2:]] == [i * i for i in range(20)]


def test_a_worker_that_dies_after_it_was_told_to_stop():
    """At its exit, when its tasks are done: nobody is to be told."""

    def die_at_exit():
        import atexit

        atexit.register(os.kill, os.getpid(), signal.SIGKILL)

    executor = Executor(max_workers=1)
    executor.submit(die_at_exit).result()
    executor.shutdown()
    assert executor.stats().workers_lost == 0


def test_a_pool_that_breaks_while_it_closes_hangs_nobody():
    script = """
        import calls, logging, slipstream, threading
        from slipstream.pools.local import LocalPool
        logging.disable()
        close = LocalPool.close
        def close_and_raise(self, *, kill=False):
            close(self, kill=kill)
            raise OSError("in close")
        LocalPool.close = close_and_raise
        executor = slipstream.Executor(max_workers=1)
        assert executor.submit(calls.add, 1, 1).result() == 2
        executor.shutdown()
        print([thread.name for thread in threading.enumerate() if thread.name.startswith("slipstream")])
    """
    assert scripts.run(script).lines() == ["[]"]


# --- at the start -----------------------------------------------------------------------------------------------------


def test_a_module_of_the_users_that_hides_one_that_workers_need_is_told(tmp_path, monkeypatch, capfd):
    """It is found first on the import path that the client sends."""
    (tmp_path / "slipstream.py").write_text("raise ImportError('the wrong slipstream')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with (
        Executor(max_workers=1) as executor,
        pytest.raises(WorkerLost, match=r"(?s)died at their start.*ImportError: the wrong slipstream"),
    ):
        executor.submit(calls.add, 1, 1).result()
    assert "the wrong slipstream" in capfd.readouterr().err


def test_deaths_at_the_start_count_in_a_row_only(tmp_path):
    """Every second worker fails to start. That is slow, and no reason to give up."""
    starts = tmp_path / "starts"

    def sometimes():
        calls.note(str(starts))
        if os.stat(starts).st_size % 2:
            os._exit(1)

    with Executor(max_workers=1, initializer=sometimes) as executor:
        for _ in range(3):
            assert executor.submit(calls.add, 1, 1).result() == 2
            assert isinstance(executor.submit(calls.die).exception(), WorkerLost)
        assert executor.submit(calls.add, 1, 1).result() == 2
    assert starts.read_text() == "x" * 8


def test_executors_that_could_not_start_leave_no_descriptor_open():
    """The limit on open files is moved over all that an executor opens, one by one."""
    script = """
        import calls, gc, logging, os, resource, slipstream
        logging.disable()
        with slipstream.Executor(max_workers=1) as executor:  # imports what it needs
            executor.submit(calls.echo, [1]).result()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        before, outcomes = len(os.listdir("/proc/self/fd")), []
        for limit in range(before, before + 30):
            executor = slipstream.Executor(max_workers=1)
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            try:
                outcome = executor.submit(calls.add, 1, 1).exception(timeout=20)
            except Exception as error:
                outcome = error
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            outcomes.append(type(outcome).__name__)
            executor.shutdown()
        del executor, outcome
        gc.collect()
        print(*outcomes)
        print(len(os.listdir("/proc/self/fd")) - before)
        with slipstream.Executor(max_workers=1) as executor:
            print(executor.submit(calls.add, 1, 1).result())
    """
    outcomes, stay_open, result = scripts.run(script).lines()
    assert set(outcomes.split()) <= {"OSError", "WorkerLost", "NoneType"}
    assert outcomes.split()[0] == "OSError"
    assert result == "2"
    assert stay_open == "0"


# --- what the client's own process does -------------------------------------------------------------------------------


def answers_around_a_death(handler):
    """Of a task, of one that kills its worker, and of the next, with this handler of SIGCHLD."""
    previous = signal.signal(signal.SIGCHLD, handler)
    try:
        with Executor(max_workers=1) as executor:
            before = executor.submit(calls.add, 1, 1).result()
            lost = executor.submit(calls.die).exception()
            return before, type(lost), executor.submit(calls.add, 2, 1).result()
    finally:
        signal.signal(signal.SIGCHLD, previous)


def test_sigchld_ignored_by_the_client():
    """The kernel then reaps children itself and their exit status is lost; their death is not."""
    assert answers_around_a_death(signal.SIG_IGN) == (2, WorkerLost, 3)


def test_somebody_else_in_the_client_reaps_all_children():
    reaped = []

    def reap(*_):
        try:
            while (child := os.waitpid(-1, os.WNOHANG))[0]:
                reaped.append(child)
        except ChildProcessError:
            pass

    assert answers_around_a_death(reap) == (2, WorkerLost, 3)
