"""How an executor ends with its program: nobody calls `shutdown`, and what was submitted runs all the same."""

import scripts


def test_what_is_pending_at_the_end_of_the_program_still_runs():
    script = """
        import calls, slipstream
        executor = slipstream.Executor(max_workers=2)
        executor.submit(calls.nap, 0.2)
        for word in ("one", "two", "three"):
            executor.submit(calls.say, word)
    """
    assert sorted(scripts.run(script).lines()) == ["one", "three", "two"]


def test_it_runs_after_a_shutdown_that_did_not_wait():
    script = """
        import calls, slipstream
        executor = slipstream.Executor(max_workers=3)
        executor.submit(calls.nap, 0.2)
        executor.submit(calls.say, "apple")
        executor.shutdown(wait=False)
    """
    assert scripts.run(script).lines() == ["apple"]


def test_what_was_cancelled_in_that_shutdown_does_not():
    script = """
        import calls, slipstream
        executor = slipstream.Executor(max_workers=1)
        running = executor.submit(calls.nap, 0.2)
        while not running.running():
            pass
        executor.submit(calls.say, "apple")
        executor.shutdown(wait=False, cancel_futures=True)
        print("end")
    """
    assert scripts.run(script).lines() == ["end"]


def test_a_map_that_nobody_reads_is_run_to_its_end():
    script = """
        import calls, slipstream, sys
        executor = slipstream.Executor(max_workers=1)
        executor.map(calls.say, [f"item {i}" for i in range(200)], chunksize=1)
    """
    assert scripts.run(script).lines() == [f"item {i}" for i in range(200)]


def test_callbacks_run_before_the_program_ends():
    script = """
        import calls, slipstream
        executor = slipstream.Executor(max_workers=1)
        executor.submit(calls.nap, 0.2, "late").add_done_callback(lambda future: print(future.result(), flush=True))
    """
    assert scripts.run(script).lines() == ["late"]


def test_a_program_that_ends_by_an_exception_ends_with_its_tasks_done():
    script = """
        import calls, slipstream
        executor = slipstream.Executor(max_workers=1)
        executor.submit(calls.nap, 0.1)
        executor.submit(calls.say, "done")
        raise SystemExit(7)
    """
    ended = scripts.run(script)
    assert (ended.status, ended.out, ended.err) == (7, "done\n", "")


def test_submit_while_the_interpreter_exits_is_refused():
    script = """
        import atexit, calls, slipstream
        executor = slipstream.Executor(max_workers=1)
        executor.submit(calls.add, 1, 1).result()

        @atexit.register
        def late():
            try:
                executor.submit(calls.add, 1, 1)
            except RuntimeError as error:
                print(error)
    """
    assert scripts.run(script).lines() == ["cannot submit a task while the interpreter ends"]


def test_results_can_be_asked_for_while_the_interpreter_exits():
    script = """
        import atexit, calls, slipstream
        executor = slipstream.Executor(max_workers=1)
        future = executor.submit(calls.echo, [1, 2])
        atexit.register(lambda: print(future.result()))
    """
    assert scripts.run(script).lines() == ["[1, 2]"]


def test_a_new_executor_made_while_the_interpreter_exits_works_or_says_why_not():
    script = """
        import atexit, calls, slipstream

        @atexit.register
        def late():
            try:
                with slipstream.Executor(max_workers=1) as executor:
                    print(executor.submit(calls.add, 1, 1).result())
            except RuntimeError as error:
                print("RuntimeError")
    """
    assert scripts.run(script).lines() in (["2"], ["RuntimeError"])


def test_other_threads_may_still_submit_until_the_main_thread_has_ended():
    script = """
        import calls, slipstream, threading
        executor = slipstream.Executor(max_workers=1)

        def use():
            try:
                while True:
                    assert executor.submit(calls.add, 1, 1).result() == 2
            except RuntimeError as error:
                print(f"{error}\\n", end="", flush=True)

        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads:
            thread.start()
        executor.submit(calls.nap, 0.1).result()
    """
    assert scripts.run(script).lines() == ["cannot submit a task while the interpreter ends"] * 3


def test_many_executors_in_every_state_at_the_end_of_the_program():
    script = """
        import calls, slipstream
        unused = slipstream.Executor(max_workers=1)
        idle = slipstream.Executor(max_workers=1)
        idle.submit(calls.add, 1, 1).result()
        busy = slipstream.Executor(max_workers=1)
        busy.submit(calls.nap, 0.1)
        just_started = slipstream.Executor(max_workers=1)
        just_started.submit(calls.say, "last")
        ended = slipstream.Executor(max_workers=1)
        ended.submit(calls.add, 1, 1).result()
        ended.shutdown()
        broken = slipstream.Executor(max_workers=1, initializer=calls.raise_, initargs=(ValueError(),))
        broken.submit(calls.add, 1, 1)
    """
    assert scripts.run(script).lines() == ["last"]


def test_an_executor_in_a_global_that_is_torn_down_late():
    script = """
        import calls, slipstream, sys
        sys.late = slipstream.Executor(max_workers=1)
        sys.late.me = sys.late
        sys.results = sys.late.map(calls.square, range(100))
        assert next(sys.results) == 0
    """
    assert scripts.run(script).lines() == []


def test_no_main_guard_is_needed(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        "print('run', __name__)\n"
        "import slipstream\n"
        "OFFSET = 10\n"
        "class Point:\n"
        "    def __init__(self, x): self.x = x\n"
        "def shift(point): return Point(point.x + OFFSET)\n"
        "executor = slipstream.Executor(max_workers=1)\n"
        "shifted = executor.submit(shift, Point(1)).result()\n"
        "print(type(shifted) is Point, shifted.x)\n"
        "print(list(executor.map(lambda x: x * OFFSET, range(3))))\n"
    )
    runner = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    assert scripts.run(runner).lines() == ["run __main__", "True 11", "[0, 10, 20]"]


def test_a_script_from_stdin():
    script = "import slipstream\nwith slipstream.Executor(max_workers=1) as e: print(e.submit(lambda: 3).result())\n"
    with scripts.started("exec(sys.stdin.read())", stdin=-1) as process:
        assert scripts.end_of(process, script).lines() == ["3"]
