"""What tasks print reaches the client's own descriptors, as bytes; and nobody who does not read can stop the engine."""

import os
import subprocess
import sys

import pytest

import calls
import scripts
from slipstream import Executor


def test_stdout_and_stderr_reach_the_clients_descriptors(capfd):
    with Executor(max_workers=1) as executor:
        executor.submit(calls.say, "to out").result()
        executor.submit(calls.say, "to err", "stderr").result()
    out, err = capfd.readouterr()
    assert (out, err) == ("to out\n", "to err\n")


def test_what_is_printed_without_a_lines_end_is_seen_too(capfd):
    def half():
        sys.stdout.write("half a line")
        sys.stderr.write("half an error")

    with Executor(max_workers=1) as executor:
        executor.submit(half).result()
    out, err = capfd.readouterr()
    assert (out, err) == ("half a line", "half an error")


def test_bytes_that_are_no_text_arrive_as_they_are(capfdbinary):
    data = bytes(range(256)) * 40

    def write():
        os.write(1, data)

    with Executor(max_workers=1) as executor:
        executor.submit(write).result()
    assert capfdbinary.readouterr().out == data


def test_text_that_the_encoding_lacks_is_escaped_and_fails_no_task(capfd):
    with Executor(max_workers=1) as executor:
        assert executor.submit(calls.say, "lone \ud800 surrogate").result() is None
    assert "surrogate" in capfd.readouterr().out


def test_twenty_megabytes_arrive_whole_and_in_order():
    script = """
        import slipstream, sys
        def write(count):
            import os
            for i in range(count):
                os.write(1, b"%07d\\n" % i * 128)
        with slipstream.Executor(max_workers=1) as executor:
            executor.submit(write, 20_000).result()
    """
    ended = scripts.run(script)
    assert (ended.status, ended.err) == (0, "")
    assert len(ended.out) == 20_000 * 1024
    assert ended.out == "".join(f"{i:07d}\n" * 128 for i in range(20_000))


def test_output_of_subprocesses_of_tasks_arrives(capfd):
    with Executor(max_workers=1) as executor:
        executor.submit(subprocess.call, ["echo", "from a child"]).result()
    assert capfd.readouterr().out == "from a child\n"


def test_the_engine_goes_on_when_nobody_reads_the_clients_stdout():
    """Both pipes fill; then the task that prints waits, as it would in the client itself, and no other does."""
    script = """
        import calls, slipstream, sys
        def flood():
            import os
            for _ in range(3_000):
                os.write(1, b"x" * 1000)
            return "written"
        executor = slipstream.Executor(max_workers=2)
        flooding = executor.submit(flood)
        results = [executor.submit(calls.add, i, 1).result() for i in range(300)]
        print(results == list(range(1, 301)), flooding.done(), file=sys.stderr, flush=True)
        sys.stdin.readline()  # until the test has begun to read
        print(flooding.result(), file=sys.stderr)
    """
    with scripts.started(script, stdin=subprocess.PIPE) as process:
        assert process.stderr.readline() == "True False\n"
        ended = scripts.end_of(process, "go\n")
    assert ended.out == "x" * 3_000_000
    assert (ended.status, ended.err) == (0, "written\n")


def test_shutdown_ends_although_nobody_reads(tmp_path):
    script = """
        import calls, slipstream, sys
        import slipstream.pools.local as local
        local.STOP_GRACE_S = 0.3
        def flood():
            import os
            os.write(1, b"x" * 60_000)
            os.write(1, b"x" * 60_000)
        executor = slipstream.Executor(max_workers=2)
        executor.submit(flood).result()
        executor.submit(flood)
        executor.submit(flood)
        executor.shutdown(wait=False, cancel_futures=True)
        print("asked", file=sys.stderr, flush=True)
    """
    with scripts.started(script) as process:
        assert process.stderr.readline() == "asked\n"
        # The floods themselves wait for a reader: that is a task's own affair, so read, late.
        ended = scripts.end_of(process)
    assert (ended.status, ended.err) == (0, "")
    assert set(ended.out) == {"x"}


@pytest.mark.parametrize("closed", ["1", "2", "0, 1, 2"])
def test_a_client_without_its_streams(closed, tmp_path):
    """Descriptors 0 to 2 are free then, and what the engine opens may get these numbers."""
    script = f"""
        import os
        for number in ({closed},):
            os.close(number)
        import calls, slipstream
        with slipstream.Executor(max_workers=2) as executor:
            futures = [executor.submit(calls.say, "x" * 1000, s) for s in ("stdout", "stderr") * 200]
            total = sum(future.result() is None for future in futures)
            last = executor.submit(calls.add, 1, 1).result()
        with open({str(tmp_path / "seen")!r}, "w") as file:
            file.write(f"{{total}} {{last}} {{executor.stats().workers_lost}}")
    """
    ended = scripts.run(script)
    assert ended.status == 0, ended
    assert (tmp_path / "seen").read_text() == "400 2 0"


def test_a_client_that_closes_its_stdout_while_tasks_print(tmp_path):
    script = f"""
        import os, calls, slipstream
        executor = slipstream.Executor(max_workers=1)
        executor.submit(calls.say, "before").result()
        os.close(1)
        futures = [executor.submit(calls.say, "x" * 1000) for _ in range(200)]
        done = [future.result() for future in futures]
        executor.shutdown()
        with open({str(tmp_path / "seen")!r}, "w") as file:
            file.write(str(len(done)))
    """
    ended = scripts.run(script)
    assert (ended.status, ended.out) == (0, "before\n"), ended
    assert (tmp_path / "seen").read_text() == "200"


@pytest.mark.parametrize("nonblocking", [True, False])
def test_a_client_whose_stdout_is_a_closed_pipe(nonblocking, tmp_path):
    script = f"""
        import os, signal, calls, slipstream, sys
        reading, writing = os.pipe()
        os.set_blocking(writing, {not nonblocking})
        os.dup2(writing, 1)
        os.close(reading)
        with slipstream.Executor(max_workers=1) as executor:
            futures = [executor.submit(calls.say, "x" * 1000) for _ in range(100)]
            print([future.result() for future in futures].count(None), file=sys.stderr)
    """
    ended = scripts.run(script)
    assert (ended.status, ended.err) == (0, "100\n")


def test_tasks_may_close_or_replace_their_streams(capfd):
    def close():
        sys.stdout.close()
        sys.stderr = None
        os.close(1)

    with Executor(max_workers=1) as executor:
        worker = executor.submit(calls.pid).result()
        executor.submit(close).result()
        assert executor.submit(calls.add, 1, 1).result() == 2
        assert executor.submit(calls.pid).result() == worker
        assert isinstance(executor.submit(calls.say, "x").exception(), ValueError)
        with pytest.raises(ZeroDivisionError):
            executor.submit(divmod, 1, 0).result()
    assert executor.stats().workers_lost == 0
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
