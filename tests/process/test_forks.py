"""A forked child of the client: it neither disturbs the engine nor keeps it from ending, and says what it cannot do."""

import textwrap

import scripts

#: Runs `in_child` in a forked child that ends in the usual way, and tells how it ended.
FORK = """
    import calls, os, slipstream, sys, threading, time, concurrent.futures
    def fork(in_child):
        child = os.fork()
        if child == 0:
            in_child()
            sys.exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    def slow_down(owner, name):
        # An event for that the method is called, and a list that is filled when it is over.
        called, over, method = threading.Event(), [], getattr(owner, name)
        def slowly(*args):
            called.set()
            time.sleep(0.3)
            method(*args)
            over.append(True)
        setattr(owner, name, slowly)
        return called, over
"""


def run(script):
    # Python 3.12 and later warn of a fork beside other threads, which is what is tried here.
    ignore = "-Wignore::DeprecationWarning"
    return scripts.run(textwrap.dedent(FORK) + textwrap.dedent(script), ignore).lines()


def test_an_inherited_executor_refuses_at_once():
    script = """
        executor = slipstream.Executor(max_workers=1)
        executor.submit(calls.add, 1, 1).result()
        def child():
            for attempt in (lambda: executor.submit(calls.add, 1, 1), lambda: executor.map(calls.square, [1])):
                try:
                    attempt()
                except RuntimeError as error:
                    print(error, flush=True)
            executor.shutdown()
        print(fork(child), executor.submit(calls.add, 2, 2).result())
    """
    told = "this executor belongs to the process that this one was forked from: make a new Executor in the child"
    assert run(script) == [told, told, "0 4"]


def test_pending_futures_fail_in_the_child_and_end_in_the_parent(tmp_path):
    gate = tmp_path / "gate"
    script = f"""
        executor = slipstream.Executor(max_workers=1)
        pending = [executor.submit(calls.wait_for, {str(gate)!r}), executor.submit(calls.add, 1, 1)]
        ended = executor.submit(calls.echo, [5])
        ended.cancel()
        with_condition = executor.submit(calls.add, 2, 2)
        concurrent.futures.wait([with_condition], timeout=0)
        def child():
            for future in [*pending, with_condition]:
                print(type(future.exception()).__name__, future.done(), future.cancel(), flush=True)
            done, not_done = concurrent.futures.wait([*pending, with_condition])
            print(len(done), len(not_done), flush=True)
        print(fork(child))
        open({str(gate)!r}, "w").close()
        print([future.result() for future in pending], with_condition.result())
    """
    assert run(script) == ["RuntimeError True False"] * 3 + ["3 0", "0", "[None, 2] 4"]


def test_ended_futures_keep_their_results_in_the_child():
    script = """
        executor = slipstream.Executor(max_workers=1)
        scalar, other = executor.submit(calls.add, 1, 1), executor.submit(calls.echo, [1])
        concurrent.futures.wait([scalar, other])
        print(fork(lambda: print(scalar.result(), other.result(), flush=True)))
    """
    assert run(script) == ["2 [1]", "0"]


def test_a_child_may_make_an_executor_of_its_own():
    script = """
        executor = slipstream.Executor(max_workers=1)
        parents = executor.submit(calls.pid).result()
        def child():
            with slipstream.Executor(max_workers=1) as own:
                print(own.submit(calls.add, 1, 1).result(), own.submit(calls.pid).result() != parents, flush=True)
        print(fork(child), executor.submit(calls.pid).result() == parents)
    """
    assert run(script) == ["2 True", "0 True"]


def test_a_child_that_lives_on_does_not_keep_the_engine_from_ending():
    script = """
        executor = slipstream.Executor(max_workers=2)
        executor.submit(calls.add, 1, 1).result()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(writing)
            os.read(reading, 1)  # until the parent's executor has ended
            os._exit(0)
        print(list(executor.map(calls.square, range(5))))
        executor.shutdown()
        print(executor.stats().workers, executor.stats().workers_lost)
        os.write(writing, b"x")
        os.waitpid(child, 0)
    """
    assert run(script) == ["[0, 1, 4, 9, 16]", "0 0"]


def test_a_fork_waits_while_a_worker_is_started():
    """Else the child holds pipes that the start waits to see closed, and the engine waits for the child's end."""
    script = """
        from slipstream.pools.local import LocalPool
        begun, started = slow_down(LocalPool, "_start_worker")
        executor = slipstream.Executor(max_workers=1)
        future = executor.submit(calls.add, 1, 1)
        begun.wait()
        print(fork(lambda: sys.exit(len(started))), future.result())
    """
    assert run(script) == ["1 2"]


def test_a_fork_waits_while_a_worker_is_taken_away():
    """Else the child closes a descriptor again that is closed just now, and its futures never end."""
    script = """
        from slipstream.pools.process import WorkerProcess
        begun, ended = slow_down(WorkerProcess, "close")
        executor = slipstream.Executor(max_workers=2)
        lost, kept = executor.submit(calls.die), executor.submit(calls.nap, 1.0)
        begun.wait()
        def in_child():
            assert ended
            print(type(kept.exception()).__name__, flush=True)
        print(fork(in_child), type(lost.exception()).__name__, kept.exception())
    """
    assert run(script) == ["RuntimeError", "0 WorkerLost None"]


def test_children_come_and_go_while_results_come():
    script = """
        executor = slipstream.Executor(max_workers=2)
        futures = []
        for i in range(20):
            futures += [executor.submit(calls.square, n) for n in range(50)]
            assert fork(lambda: None) == 0
        print(sum(future.result() for future in futures) == 20 * sum(n * n for n in range(50)))
        print(executor.stats().workers_lost)
    """
    assert run(script) == ["True", "0"]


def test_forks_in_a_thread_while_the_main_thread_is_in_the_engine():
    """The child's only thread is not the one that was in `result()`, and its signals must be its own again."""
    script = """
        import signal
        executor = slipstream.Executor(max_workers=1)
        executor.submit(calls.add, 1, 1).result()
        future = executor.submit(calls.nap, 1.0)
        def child():
            print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)
            with slipstream.Executor(max_workers=1) as own:
                own.submit(calls.add, 1, 1).result()
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                print("interrupted", flush=True)
            os._exit(0)
        statuses = []
        def fork_here():
            time.sleep(0.3)
            statuses.append(fork(child))
        thread = threading.Thread(target=fork_here)
        thread.start()
        future.result()
        thread.join()
        print(statuses)
    """
    assert run(script) == ["True", "interrupted", "[0]"]


def test_multiprocessing_by_fork_beside_an_executor():
    script = """
        import multiprocessing
        executor = slipstream.Executor(max_workers=1)
        executor.submit(calls.add, 1, 1).result()
        futures = [executor.submit(calls.square, n) for n in range(200)]
        with multiprocessing.get_context("fork").Pool(2) as pool:
            print(pool.map(calls.square, range(5)))
        print(sum(future.result() for future in futures) == sum(n * n for n in range(200)))
    """
    assert run(script) == ["[0, 1, 4, 9, 16]", "True"]


def test_a_child_that_was_forked_in_a_callback():
    """That is in the engine's own thread, which the child does not have."""
    script = """
        executor = slipstream.Executor(max_workers=1)
        statuses = []
        def child():
            try:
                executor.submit(calls.add, 1, 1)
            except RuntimeError:
                os._exit(5)
        ended = threading.Event()
        def fork_here(future):
            statuses.append(fork(child))
            ended.set()
        executor.submit(calls.add, 1, 1).add_done_callback(fork_here)
        ended.wait()
        print(statuses, executor.submit(calls.add, 2, 2).result())
    """
    assert run(script) == ["[5] 4"]


def test_a_child_that_drops_the_inherited_executor():
    script = """
        import gc
        executor = slipstream.Executor(max_workers=1)
        futures = [executor.submit(calls.nap, 0.05, n) for n in range(4)]
        results = executor.map(calls.square, range(100), chunksize=1)
        next(results)
        def child():
            global executor, futures, results
            del executor, futures, results
            gc.collect()
        print(fork(child), [future.result() for future in futures], sum(results) == sum(n * n for n in range(100)))
    """
    assert run(script) == ["0 [0, 1, 2, 3] True"]


def test_a_task_may_fork():
    script = """
        def fork_in_task():
            child = os.fork()
            if child == 0:
                os._exit(3)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with slipstream.Executor(max_workers=1) as executor:
            print(executor.submit(fork_in_task).result(), executor.submit(calls.add, 1, 1).result())
            print(executor.stats().workers_lost)
    """
    assert run(script) == ["3 2", "0"]
