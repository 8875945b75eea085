"""Signals reach the client's main thread while it is in the engine: their handlers run, and tear nothing."""

import os
import signal
import threading

import pytest
from processes import LIMIT_S, gate_in, until, workers

import calls
import scripts
from slipstream import Executor
from slipstream.runtime import signals

pytestmark = pytest.mark.long

#: How long the storms last.
STORM_S = 10

STORM = """
    import calls, os, random, signal, slipstream, threading, time, traceback
    class Struck({base}):
        pass
    armed = False  # a handler that raises within `except` could not be survived by any code
    struck = 0
    def strike(*_):
        global armed
        if armed:
            armed = False
            raise Struck
    executor = slipstream.Executor(max_workers=2)
    executor.submit(calls.add, 1, 1).result()
    kept = []
    end = time.monotonic() + {storm_s}
    def one_round():
        for n in range(5):
            kept.append((n, executor.submit(calls.square, n)))
        for n, future in kept[-5:]:
            assert future.result() == n * n
        kept.append((3, executor.submit(calls.nap, 0.002, 9)))
        kept[-1][1].exception()
        kept.append((0, executor.submit(calls.echo, 0)))
        kept[-1][1].cancel()
        assert list(executor.map(calls.square, range(3))) == [0, 1, 4]
        assert slipstream.Future.result(kept[0][1]) == 0
    def storm():
        global armed, struck
        while time.monotonic() < end:
            try:
                armed = True
                one_round()
                armed = False
            except Struck:
                struck += 1
    def account():
        # Also of those whose `submit` was struck at its end, so that nobody has their future.
        while executor._engine.live_tasks():
            time.sleep(0.01)
        stats = executor.stats()
        assert stats.tasks == stats.succeeded + stats.cancelled, stats
        assert not executor._client.futures
        for n, future in kept:
            assert future.cancelled() or future.result(30) == n * n, future
        assert executor.submit(calls.add, 2, 2).result() == 4
        assert stats.workers_lost == 0
"""


def run_storm(begin, end, number, storm_s=STORM_S, base="Exception"):
    head = STORM.replace("{base}", base).replace("{storm_s}", str(storm_s))
    script = f"""
    previous = signal.signal(signal.{number}, strike)
    {begin}
    try:
        storm()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    {end}
    account()
    assert signal.getsignal(signal.{number}) is strike
    executor.shutdown()
    with slipstream.Executor(max_workers=1) as another:
        assert another.submit(calls.add, 1, 2).result() == 3
    print(struck > 100, len(kept) > 100)
    """
    assert scripts.run(head + script).lines() == ["True True"]


def test_a_handler_that_raises_each_millisecond():
    run_storm(
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)", "signal.setitimer(signal.ITIMER_REAL, 0)", "SIGALRM"
    )


def test_interrupts_that_another_thread_sends_again_and_again():
    begin = """
    over = threading.Event()
    def send():
        while not over.wait(0.003):
            os.kill(os.getpid(), signal.SIGINT)
    sender = threading.Thread(target=send)
    sender.start()
    """
    run_storm(begin, "over.set(); sender.join()", "SIGINT", 4)


def test_two_signals_at_once_while_other_threads_use_the_engine_too():
    begin = """
    signal.signal(signal.SIGUSR1, strike)
    over = threading.Event()
    wrong = []
    def send():
        while not over.wait(0.002):
            os.kill(os.getpid(), signal.SIGUSR1)
    def use():
        while not over.is_set():
            if [executor.submit(calls.square, n).result() for n in range(10)] != [n * n for n in range(10)]:
                wrong.append("results")
    threads = [threading.Thread(target=target) for target in (send, use, use)]
    for thread in threads:
        thread.start()
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.0017)
    """
    end = """
    signal.setitimer(signal.ITIMER_REAL, 0)
    over.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert signal.getsignal(signal.SIGUSR1) is strike
    """
    # Not an Exception: so nothing that expects one, such as an encoder, can take it for an error of its own.
    run_storm(begin, end, "SIGALRM", 3, "BaseException")


def test_executors_that_come_and_go_under_a_handler_that_raises():
    script = """
    def one_round():
        another = slipstream.Executor(max_workers=1)
        kept.append(another)
        assert another.submit(calls.add, 1, 1).result() == 2
        another.shutdown()
    signal.signal(signal.SIGALRM, strike)
    rounds = random.Random(1)
    for _ in range(25):
        end = time.monotonic() + 0.001
        signal.setitimer(signal.ITIMER_REAL, rounds.uniform(0.0005, 0.25), 0.02)
        storm()
        signal.setitimer(signal.ITIMER_REAL, 0)
        another = kept.pop()
        another.shutdown()
        assert another._engine.live_tasks() == 0
        assert not another._client.futures
    executor.shutdown()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("slipstream")]
    print(struck > 5)
    """
    head = STORM.replace("{base}", "BaseException").replace("{storm_s}", "0")
    assert scripts.run(head + script).lines() == ["True"]


# --- one signal, at one place -------------------------------------------------------------------------------------


class Struck(Exception):
    pass


def strike(*_):
    raise Struck


@pytest.fixture
def handler():
    """Sets a handler for SIGALRM; at the end it must be there still."""
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    installed = []

    def install(function):
        signal.signal(signal.SIGALRM, function)
        installed.append(function)

    yield install
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert signal.getsignal(signal.SIGALRM) is installed[-1]
    signal.signal(signal.SIGALRM, handlers[signal.SIGALRM])
    assert handlers == {number: signal.getsignal(number) for number in signal.valid_signals()}


@pytest.fixture
def gate(tmp_path):
    with gate_in(tmp_path) as gate:
        yield gate


def alarm_in(seconds):
    signal.setitimer(signal.ITIMER_REAL, seconds)


def test_an_interrupt_ends_a_wait_and_not_the_engine(gate):
    before = signal.getsignal(signal.SIGINT)
    with Executor(max_workers=2) as executor:
        future = executor.submit(calls.wait_for, str(gate))
        until(future.running)
        sender = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        sender.start()
        with pytest.raises(KeyboardInterrupt):
            future.result()
        assert not future.done()
        assert executor.submit(calls.add, 1, 1).result() == 2
        gate.touch()
        assert future.result() is None
        sender.join()
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("wait", ["result", "exception", "map", "with a timeout"])
def test_a_handler_that_raises_ends_each_kind_of_wait(handler, gate, wait):
    handler(strike)
    with Executor(max_workers=2) as executor:
        future = executor.submit(calls.wait_for, str(gate))
        ways = {
            "result": future.result,
            "exception": future.exception,
            "map": lambda: list(executor.map(calls.wait_for, [str(gate)])),
            "with a timeout": lambda: future.result(LIMIT_S),
        }
        alarm_in(0.1)
        with pytest.raises(Struck):
            ways[wait]()
        assert not future.done()
        assert executor.submit(calls.add, 1, 1).result() == 2 or wait == "map"
        gate.touch()
        assert future.result() is None


class StrikesWhileItIsEncoded:
    def __reduce__(self):
        signal.raise_signal(signal.SIGALRM)
        return int, ()


@pytest.mark.parametrize("way", ["submit", "map"])
def test_a_handler_that_raises_while_arguments_are_encoded(handler, way):
    """What it raises goes to the caller: it says nothing about the arguments."""
    handler(strike)
    with Executor(max_workers=1) as executor:
        submit = executor.submit if way == "submit" else lambda fn, item: executor.map(fn, [item])
        with pytest.raises(Struck):
            submit(calls.echo, StrikesWhileItIsEncoded())
        assert executor.submit(calls.add, 1, 1).result() == 2


def test_a_handler_that_does_not_raise_and_the_wait_goes_on(handler, gate):
    ran = []
    handler(lambda *_: (ran.append(1), len(ran) == 3 and gate.touch()))
    with Executor(max_workers=1) as executor:
        future = executor.submit(calls.wait_for, str(gate))
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        assert future.result() is None
        signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(ran) >= 3


@pytest.mark.parametrize("another_leads", [False, True])
def test_a_handler_that_submits_and_waits(handler, gate, another_leads):
    """While the main thread is blocked in `result()`, whether that reads or waits for a thread that does."""
    told = []
    with Executor(max_workers=2) as executor:

        def use_engine(*_):
            told.append(executor.submit(calls.add, 1, 2).result())
            told.extend(executor.map(calls.square, range(4)))
            told.append(executor.submit(calls.echo, [5]).exception())
            gate.touch()

        handler(use_engine)
        future = executor.submit(calls.wait_for, str(gate))
        until(future.running)
        other = threading.Thread(target=future.result)
        if another_leads:
            other.start()
            until(lambda: future._sleepers)
        alarm_in(0.05)
        assert future.result() is None
        if another_leads:
            other.join()
    assert told == [3, 0, 1, 4, 9, None]


def test_a_handler_that_waits_for_the_same_future(handler, gate):
    told = []
    with Executor(max_workers=1) as executor:
        future = executor.submit(calls.wait_for, str(gate))
        until(future.running)

        def wait_too(*_):
            threading.Timer(0.05, gate.touch).start()
            told.append(future.result())

        handler(wait_too)
        alarm_in(0.05)
        assert future.result() is None
    assert told == [None]


def test_a_handler_that_is_interrupted_by_itself_while_it_waits(handler, gate):
    depth = []
    with Executor(max_workers=2) as executor:
        future = executor.submit(calls.wait_for, str(gate))
        until(future.running)

        def wait_too(*_):
            depth.append(len(depth))
            if len(depth) < 4:
                alarm_in(0.03)
                future.result()
            else:
                gate.touch()
                assert executor.submit(calls.add, 1, 1).result() == 2

        handler(wait_too)
        alarm_in(0.03)
        assert future.result() is None
    assert depth == [0, 1, 2, 3]


def test_a_handler_that_cancels_what_is_waited_for(handler, gate):
    with Executor(max_workers=1) as executor:
        first = executor.submit(calls.wait_for, str(gate))
        until(first.running)
        future = executor.submit(calls.add, 1, 1)
        handler(lambda *_: future.cancel())
        alarm_in(0.05)
        assert type(future_error(future)).__name__ == "CancelledError"
        gate.touch()


def future_error(future):
    try:
        return future.result()
    except BaseException as error:
        return error


def test_a_handler_that_raises_in_shutdown(handler, gate):
    handler(strike)
    executor = Executor(max_workers=1)
    futures = [executor.submit(calls.wait_for, str(gate)), executor.submit(calls.square, 3)]
    alarm_in(0.1)
    with pytest.raises(Struck):
        executor.shutdown()
    assert not futures[0].done()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(calls.add, 1, 1)
    gate.touch()
    executor.shutdown()
    assert [future.result() for future in futures] == [None, 9]
    assert not workers()


def test_a_handler_that_shuts_the_executor_down(gate):
    """As one for SIGTERM may well do, while the main thread is blocked in `result()`. In a script: it must not hang."""
    script = f"""
        import calls, signal, slipstream, threading
        executor = slipstream.Executor(max_workers=1)
        future = executor.submit(calls.wait_for, {str(gate)!r})
        def shut_down(*_):
            open({str(gate)!r}, "w").close()
            executor.shutdown()
        signal.signal(signal.SIGALRM, shut_down)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        print(future.result())
        print([thread.name for thread in threading.enumerate()])
    """
    assert scripts.run(script).lines() == ["None", "['MainThread']"]


def test_a_signal_that_comes_while_the_handler_of_another_runs(gate):
    """Both handlers run at once, although the main thread stays blocked. In a script: it must not hang."""
    script = f"""
        import calls, signal, slipstream, time
        def first(*_):
            signal.raise_signal(signal.SIGUSR1)
        def second(*_):
            open({str(gate)!r}, "w").close()
        signal.signal(signal.SIGALRM, first)
        signal.signal(signal.SIGUSR1, second)
        executor = slipstream.Executor(max_workers=1)
        future = executor.submit(calls.wait_for, {str(gate)!r})
        while not future.running():
            time.sleep(0.01)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        print(future.result())
    """
    assert scripts.run(script).lines() == ["None"]


def test_two_handlers_that_raise_when_a_wait_begins_and_while_it_is_left(gate):
    """The second comes when the thread gives up the reading, which must not be cut. In a script: it must not hang."""
    script = f"""
        import calls, signal, slipstream, time
        from slipstream.runtime import reactor, signals
        class Struck(Exception):
            pass
        def strike(*_):
            raise Struck
        signal.signal(signal.SIGALRM, strike)
        signal.signal(signal.SIGUSR1, strike)
        executor = slipstream.Executor(max_workers=1)
        future = executor.submit(calls.wait_for, {str(gate)!r})
        begin_block, end_leading = signals.begin_block, reactor.Reactor._end_leading
        def begin_and_strike():
            begun = begin_block()
            signal.raise_signal(signal.SIGALRM)
            return begun
        def strike_and_end(self):
            signal.raise_signal(signal.SIGUSR1)
            end_leading(self)
        signals.begin_block = begin_and_strike
        reactor.Reactor._end_leading = strike_and_end
        try:
            future.result()
        except Struck:
            print("struck")
        signals.begin_block, reactor.Reactor._end_leading = begin_block, end_leading
        print(executor._engine._reactor.reading.locked())
        open({str(gate)!r}, "w").close()
        print(future.result())
    """
    assert scripts.run(script).lines() == ["struck", "False", "None"]


def test_a_handler_that_uses_the_engine_just_when_a_call_begins(monkeypatch, handler):
    """Of the handlers that a call swaps, one is swapped already and one not yet, when that one uses the engine."""
    interrupt = signal.getsignal(signal.SIGINT)
    told, struck = [], []
    with Executor(max_workers=1) as executor:
        handler(lambda *_: told.append(executor.submit(calls.add, 1, 2).result()))
        original = signals._signal

        class Striking:
            getsignal = original.getsignal
            raise_signal = original.raise_signal

            @staticmethod
            def signal(number, function):
                original.signal(number, function)
                if number == signal.SIGINT and not struck:
                    struck.append(number)
                    signal.raise_signal(signal.SIGALRM)

        monkeypatch.setattr(signals, "_signal", Striking)
        assert executor.submit(calls.square, 3).result() == 9
        monkeypatch.undo()
        assert told == [3]
        now = signal.getsignal(signal.SIGINT)
        signal.signal(signal.SIGINT, interrupt)  # whatever comes of this test
    assert now is interrupt


def test_a_handler_that_is_replaced_by_a_handler(handler, gate):
    """In a call of the engine the handler is not the user's own, for a while; what is set then must stay."""

    def second(*_):
        gate.touch()

    def first(*_):
        signal.signal(signal.SIGALRM, second)
        alarm_in(0.05)

    handler(first)
    with Executor(max_workers=1) as executor:
        future = executor.submit(calls.wait_for, str(gate))
        until(future.running)
        alarm_in(0.05)
        assert future.result() is None
        assert signal.getsignal(signal.SIGALRM) is second
        handler(second)


def test_a_callback_in_the_engines_thread_does_not_see_signals(handler):
    """All internal threads block them, so they reach the main thread at once."""
    handler(lambda *_: ran_in.append(threading.current_thread()))
    ran_in, masks = [], []
    with Executor(max_workers=1) as executor:
        future = executor.submit(calls.nap, 0.05)
        future.add_done_callback(lambda _: masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
        alarm_in(0.01)
        until(lambda: masks)
    assert signal.SIGALRM in masks[0]
    assert signal.SIGINT in masks[0]
    assert ran_in == [threading.main_thread()]


def test_no_handler_is_touched_by_a_use_of_everything(handler):
    handler(strike)
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with Executor(max_workers=2) as executor:
        futures = [executor.submit(calls.square, n) for n in range(20)]
        assert sum(executor.map(calls.square, range(20))) == sum(future.result() for future in futures)
        cancelled = [executor.submit(calls.nap, 0.01) for _ in range(10)]
        assert cancelled[-1].cancel()
        assert cancelled[0].exception() is None
        with pytest.raises(TimeoutError):
            executor.submit(calls.nap, 0.2).result(0.001)
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before
