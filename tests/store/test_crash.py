"""An exception on the way leaves its frames to the collector; up to Python 3.12.6 that crashed (CPython #77894)."""

import scripts

FAIL = """
    import gc, os
    from slipstream.serde.pickler import dumps_apart
    from slipstream.store import writing
    from slipstream.store.sent import Sent
    from slipstream.store.owned import Stored
    from slipstream.store.directory import RunDirectory

    class Refuses:
        def __reduce__(self):
            raise ValueError("refused")

    def interrupt(*_):
        raise KeyboardInterrupt

    run = RunDirectory.make()
    view = memoryview(bytearray(3_000_000))

    def pickling():
        dumps_apart([view, view[5:], Refuses()])

    def writing_fails():
        pickled, buffers = dumps_apart([view, view[5:]])
        real, os.writev = os.writev, interrupt
        try:
            writing.store_value(pickled, buffers, run.place("c"))
        finally:
            os.writev = real
            for buffer in buffers:
                buffer.release()

    def comparing():
        sent = Sent()
        pickled, buffers = dumps_apart([view, view[5:]])
        try:
            stored = Stored(writing.store_value(pickled, buffers, run.place("c")))
            sent.remember(stored, pickled, buffers)
            os.preadv = interrupt
            sent.find(pickled, buffers)
        finally:
            for buffer in buffers:
                buffer.release()

    kept = []
    for fail in (pickling, writing_fails, comparing):
        try:
            fail()
        except BaseException as error:
            cycle = [error]
            cycle.append(cycle)
            kept.append(type(error).__name__)
            del cycle
        gc.collect()
    print(*kept)
    run.remove()
"""


def test_exceptions_that_the_collector_takes():
    assert scripts.run(FAIL).lines() == ["ValueError KeyboardInterrupt KeyboardInterrupt"]
