"""The engine is entered again from within itself: by finalizers, which the collector runs anywhere, and near limits.

What could deadlock runs in an interpreter of its own, or in a thread that the test does not depend on.
"""

import gc
from pathlib import Path

import pytest
from fake_pool import LIMIT_S, FakePool, InThread, eventually, executor_over, workers_up

import scripts
from slipstream import InternalError


class Cyclic:
    """Garbage that only the collector finds; says goodbye by a call."""

    def __init__(self, last_words):
        self.me = self
        self.last_words = last_words

    def __del__(self):
        self.last_words()


def collecting_once(call, last_words):
    """The call, which on its first use has the collector find garbage whose finalizer calls `last_words`."""
    left = [last_words]

    def collecting(*args, **kwargs):
        if left:
            Cyclic(left.pop())
            gc.collect()
        return call(*args, **kwargs)

    return collecting


@pytest.fixture
def engine():
    pool = FakePool(held=True)
    with executor_over(pool) as executor:
        workers_up(executor, pool)
        yield pool, executor


def test_a_finalizer_inside_a_turn_cancels_and_submits(engine):
    pool, executor = engine
    first = executor.submit(abs, -1)
    queued = executor.submit(divmod, 7, 2)  # not measured yet: it waits for an idle worker
    made = []

    def last_words():
        queued.cancel()
        made.append(executor.submit(abs, -2))

    scheduler = executor._engine._scheduler
    scheduler.handle = collecting_once(scheduler.handle, last_words)
    outer = InThread(executor.submit, abs, -3).end()
    assert len(made) == 1
    eventually(queued.cancelled)
    pool.release()
    assert [future.result(LIMIT_S) for future in (first, made[0], outer)] == [1, 2, 3]
    assert queued._task not in pool.runs


def test_a_finalizer_inside_the_turn_of_the_reading_thread(engine):
    pool, executor = engine
    first = executor.submit(abs, -1)
    made = []
    scheduler = executor._engine._scheduler
    eventually(lambda: executor._engine._reactor._armed)
    eventually(lambda: executor._engine._wake_at is None)
    scheduler.handle = collecting_once(scheduler.handle, lambda: made.append(executor.submit(abs, -2)))
    pool.run(first)
    eventually(lambda: made)
    pool.release()
    assert (first.result(LIMIT_S), made[0].result(LIMIT_S)) == (1, 2)


def test_finalizers_inside_finalizers(engine):
    pool, executor = engine
    made = []
    scheduler = executor._engine._scheduler
    handle = scheduler.handle

    def again(depth):
        made.append(executor.submit(abs, -depth))
        if depth:
            scheduler.handle = collecting_once(handle, lambda: again(depth - 1))

    scheduler.handle = collecting_once(handle, lambda: again(3))
    assert InThread(executor.submit, abs, -9).end() is not None
    pool.release()
    assert [future.result(LIMIT_S) for future in made] == [3, 2, 1, 0]


def test_a_finalizer_while_results_are_written(engine, monkeypatch):
    """The lock of all futures is held there."""
    from slipstream import client

    pool, executor = engine
    first, second = executor.submit(abs, -1), executor.submit(abs, -2)
    seen = []

    def last_words():
        second.cancel()
        second.add_done_callback(lambda future: seen.append(future.result()))
        seen.append(executor.submit(abs, -3))

    monkeypatch.setattr(client, "decode_value", collecting_once(client.decode_value, last_words))
    pool.run(first)
    eventually(lambda: seen)
    pool.release()
    assert (first.result(LIMIT_S), seen[0].result(LIMIT_S), second.result(LIMIT_S)) == (1, 3, 2)
    eventually(lambda: seen[1:] == [2])


def test_a_finalizer_while_a_frame_is_sent(engine, monkeypatch):
    """The outbox is taken there: what the finalizer submits goes with the next look of the same sender."""
    from slipstream.runtime import outbox

    _, executor = engine
    made = []
    send = collecting_once(outbox.encode_commands, lambda: made.append(executor.submit(abs, -2)))
    monkeypatch.setattr(outbox, "encode_commands", send)
    future = InThread(executor.submit, abs, -1).end()
    pool, _ = engine
    pool.release()
    assert (future.result(LIMIT_S), made[0].result(LIMIT_S)) == (1, 2)


def test_a_dropped_map_inside_a_turn(engine):
    """Its generator is closed by the collector, and cancels what has not been assigned."""
    pool, executor = engine
    pool.release()
    results = executor.map(abs, iter(range(100)), chunksize=1)
    assert next(results) == 0
    cycle = [results]
    cycle.append(cycle)
    scheduler = executor._engine._scheduler
    handle, left = scheduler.handle, [cycle]
    del results, cycle

    def collecting(events, now):
        if left:
            left.pop()
            gc.collect()
        return handle(events, now)

    scheduler.handle = collecting
    future = InThread(executor.submit, abs, -5).end()
    assert future.result(LIMIT_S) == 5


#: A finalizer runs where the collector finds it. Since Python 3.12 that may be after any call and at the start of any
#: function, as with signals; and in any thread, so inside any lock.
FINALIZER_EVERYWHERE = """
import dis, faulthandler, sys, threading
sys.path.insert(0, {folder!r})
faulthandler.dump_traceback_later(20, exit=True)
from fake_pool import LIMIT_S, FakePool, executor_over, workers_up
from slipstream import client, future
from slipstream.runtime import engine, outbox, reactor

FILES = {{module.__file__ for module in (client, future, engine, outbox, reactor)}}
LOOKS = {{"RESUME", "CALL", "CALL_FUNCTION_EX"}}
made, places = [], set()

def names_of(code, known={{}}):
    if code not in known:
        known[code] = {{instruction.offset: instruction.opname for instruction in dis.get_instructions(code)}}
    return known[code]

class Tracer(threading.local):
    "At each place in these files, the first time it is reached, does what a finalizer might do there."

    def __init__(self):
        self.busy, self.last = False, {{}}

    def __call__(self, frame, event, argument):
        if event == "call":
            self.last[frame.f_back] = ""
            self.last[frame] = "RESUME"
        if frame.f_code.co_filename not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last = self.last.get(frame, "")
            self.last[frame] = names_of(frame.f_code)[frame.f_lasti]
            if last in LOOKS or "JUMP_BACKWARD" in last:
                self.reached(frame, (frame.f_code, frame.f_lasti))
        elif event == "return":
            self.last.pop(frame, None)
        return self

    def reached(self, frame, place):
        if place not in places and not self.busy:
            places.add(place)
            where = (frame.f_code.co_qualname, frame.f_lineno, threading.current_thread().name)
            print(*where, file=sys.stderr, flush=True)
            self.busy = True
            finalize()
            self.busy = False

def finalize():
    {action}

def callback(ended):
    pass

tracer = Tracer()
pool = FakePool()
with executor_over(pool, 2) as executor:
    threading.settrace(tracer)  # for the I/O thread
    workers_up(executor, pool)
    sys.settrace(tracer)
    for number in range(30):
        assert executor.submit(abs, -number).result(LIMIT_S) == number
        last = executor.submit(abs, -number)
        last.add_done_callback(callback)
        last.cancel()
        for bag in [executor.submit(abs, -number) for _ in range(5)]:
            assert bag.result(LIMIT_S) == number
    sys.settrace(None)
    threading.settrace(None)
    for one in made:
        assert one.cancelled() or one.result(LIMIT_S) == 7
assert len(places) > 100, len(places)
print("all")
"""


@pytest.mark.parametrize(
    "action",
    ["made.append(executor.submit(abs, -7))", "made.append(executor.submit(abs, -7)); made[-1].cancel()"],
    ids=["submit", "submit and cancel"],
)
def test_a_finalizer_anywhere_in_the_engine(action):
    ended = scripts.run(FINALIZER_EVERYWHERE.format(folder=str(Path(__file__).parent), action=action))
    assert (ended.status, ended.out) == (0, "all\n"), ended.err[-3000:]


class Injected(BaseException):
    """What another thread may throw into one that waits."""


def test_an_exception_thrown_into_a_thread_that_reads_strands_no_future(engine):
    """By PyThreadState_SetAsyncExc, as time limits of test runners and notebooks do: in the middle of a turn."""
    pool, executor = engine
    futures = [executor.submit(abs, -number) for number in range(2)]
    eventually(lambda: executor._engine._reactor._armed)
    eventually(lambda: executor._engine._wake_at is None)
    leader = InThread(futures[0].result)
    eventually(lambda: executor._engine._reactor._leader == leader.ident)
    scheduler = executor._engine._scheduler
    handle = scheduler.handle

    def interrupted(events, now):
        scheduler.handle = handle
        raise Injected

    scheduler.handle = interrupted
    pool.run(*futures)
    assert isinstance(leader.end(), Injected | InternalError)
    for future in futures:
        assert future.exception(LIMIT_S / 10) is None or isinstance(future.exception(), InternalError)
