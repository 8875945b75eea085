"""Who removes a file: the client, with the last payload that stands for it."""

import copy
import gc
import os
import pickle
import sys
import threading

import numpy
import pytest

import scripts
from slipstream.serde.pickler import dumps_apart
from slipstream.serde.values import encode_value
from slipstream.store import owned
from slipstream.store.owned import Reference, Stored, remove_orphans
from slipstream.store.payload import path_of
from slipstream.store.reading import load_stored
from slipstream.store.sent import LARGE_BYTES, MAX_KEYS, MAX_PER_KEY, Sent
from slipstream.store.writing import store_value


@pytest.fixture(autouse=True)
def nothing_is_owned():
    yield
    gc.collect()
    assert owned._links == {}


def test_a_file_goes_with_the_last_payload(store):
    stored = Stored(store([1]))
    path = path_of(stored)
    again = Stored(stored)
    assert stored == again == bytes(stored)
    assert load_stored(stored) == [1]
    del stored
    assert os.path.exists(path)
    del again
    assert not os.path.exists(path)


def test_only_a_payload_of_a_file_can_be_owned():
    with pytest.raises(ValueError, match="stands for no stored value"):
        Stored(encode_value([1]))


def test_copies_for_other_processes_own_nothing(store):
    stored = Stored(store([1]))
    path = path_of(stored)
    for other in (pickle.loads(pickle.dumps(stored)), copy.copy(stored), copy.deepcopy(stored)):
        assert type(other) is bytes
        assert other == stored
    assert os.path.exists(path)
    del stored
    assert not os.path.exists(path)


def test_the_collector_and_other_threads_may_remove_it(store):
    cycle = [Stored(store([1]))]
    path = path_of(cycle[0])
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert not os.path.exists(path)
    handed = [Stored(store([1]))]
    path = path_of(handed[0])
    thread = threading.Thread(target=handed.clear)
    thread.start()
    thread.join()
    assert not os.path.exists(path)


def test_a_file_that_is_gone_already(store):
    stored = Stored(store([1]))
    path = path_of(stored)
    os.unlink(path)
    assert path in owned._links
    del stored  # a complaint would be an unraisable exception, which fails the test
    assert path not in owned._links


def test_a_forked_child_removes_nothing(store, run):
    stored = Stored(store([1]))
    script = """
        import os, sys
        from slipstream.serde.pickler import dumps_apart
        from slipstream.store.directory import RunDirectory
        from slipstream.store.owned import Stored
        from slipstream.store.payload import path_of
        from slipstream.store.writing import store_value
        run = RunDirectory.make()
        place = run.place("c")
        stored = Stored(store_value(*dumps_apart([1]), place))
        path = path_of(stored)
        child = os.fork()
        if not child:
            mine = Stored(store_value(*dumps_apart([2]), place))
            other = path_of(mine)
            del stored, mine
            run.remove()
            os._exit(os.path.exists(other))
        print(os.waitpid(child, 0)[1], os.path.exists(path))
        del stored
        print(os.path.exists(path))
        run.remove()
        print(os.path.exists(run.path))
    """
    assert scripts.run(script).lines() == ["0 True", "False", "False"]
    assert stored


def test_the_end_of_the_interpreter_is_silent():
    script = """
        import sys
        from slipstream.serde.pickler import dumps_apart
        from slipstream.store.directory import RunDirectory
        from slipstream.store.owned import Stored
        from slipstream.store.sent import Sent
        from slipstream.store.writing import store_value
        run = RunDirectory.make()
        pickled = dumps_apart(memoryview(bytes(2_000_000)))
        sent = Sent()
        sys.kept = [Stored(store_value(*pickled, run.place("c"))) for _ in range(3)]
        sent.remember(sys.kept[0], *pickled)
        cycle = [Stored(store_value(*pickled, run.place("c")))]
        cycle.append(cycle)
        import atexit
        atexit.register(run.remove)
    """
    assert scripts.run(script).lines() == []


def test_a_reference_finds_a_payload_while_there_is_one(store):
    stored = Stored(store([1]))
    path = path_of(stored)
    reference = Reference(stored)
    again = reference.get()
    del stored
    assert load_stored(again) == [1]
    del again
    assert reference.get() is None
    assert not os.path.exists(path)


def test_what_is_found_is_never_about_to_go(store):
    """One thread drops the last payload while another looks for it: either it is found and stays, or it is not."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(300):
            held = [Stored(store([1]))]
            reference = Reference(held[0])
            thread = threading.Thread(target=held.clear)
            thread.start()
            found = reference.get()
            thread.join()
            assert found is None or os.path.exists(path_of(found))
            del found
    finally:
        sys.setswitchinterval(interval)


def test_what_a_dead_worker_did_not_announce(run):
    places = [run.place(prefix) for prefix in ("w1", "w10")]
    payloads = [store_value(*dumps_apart([n]), place) for place in places for n in range(3)]
    announced = Stored(payloads[1])
    assert remove_orphans(run.path, "w1") == 2
    assert remove_orphans(run.path, "w1") == 0
    assert remove_orphans(run.spill, "w1") == 0, "which was never made"
    left = [payload for payload in payloads if os.path.exists(path_of(payload))]
    assert left == [announced, *payloads[3:]]


# --- the same content again -------------------------------------------------------------------------------------------


@pytest.fixture
def sent():
    return Sent()


@pytest.fixture
def send(sent, store):
    """Store a value and remember it."""

    def send(value):
        stored = Stored(store(value))
        sent.remember(stored, *dumps_apart(value))
        return stored

    return send


def numbers(length=1_000_003):
    return numpy.random.default_rng(1).integers(0, 256, length, dtype="u1")


@pytest.mark.parametrize("length", [LARGE_BYTES, 1_000_003 + LARGE_BYTES, 3 << 20])
def test_equal_content_is_found(length, sent, send):
    stored = send({"x": numbers(length), "y": [1]})
    found = sent.find(*dumps_apart({"x": numbers(length), "y": [1]}))
    assert found == stored
    assert path_of(found) == path_of(stored)


@pytest.mark.parametrize("where", [0, 1, 64, 300_000, 600_000, 262_144, 262_143, 1_100_000, -65, -2, -1])
def test_one_byte_of_difference_is_seen(where, sent, send):
    stored = send(numbers(1_100_003))
    other = numbers(1_100_003)
    other[where] ^= 1
    assert sent.find(*dumps_apart(other)) is None
    other[where] ^= 1
    assert sent.find(*dumps_apart(other)) == stored


def test_a_difference_in_the_pickle_is_seen(sent, send):
    stored = send({"x": numbers(2_000_000), "y": [1]})
    for other in (
        {"x": numbers(2_000_000), "y": [2]},
        {"x": numbers(2_000_000).reshape(2, -1), "y": [1]},
        {"x": numbers(2_000_000).view("i1"), "y": [1]},
    ):
        assert sent.find(*dumps_apart(other)) is None
    frozen = numbers(2_000_000)
    frozen.flags.writeable = False
    assert sent.find(*dumps_apart({"x": frozen, "y": [1]})) is None
    assert sent.find(*dumps_apart({"x": numbers(2_000_000), "y": [1]})) == stored


def test_large_pickles_without_buffers_are_found_too(sent, send):
    stored = send(bytes(2_000_000))
    assert sent.find(*dumps_apart(bytes(2_000_000))) == stored
    assert sent.find(*dumps_apart(bytes(600_000) + b"x" + bytes(1_399_999))) is None


def test_a_difference_in_any_of_many_pieces_is_seen(sent, send):
    """A list is pickled in pieces of 64 kB, of which some only are looked at before the file is."""
    value = list(range(1_000_000, 1_600_000))
    stored = send(value)
    assert len(dumps_apart(value)[0]) > 40
    for place in (0, 1, 300_000, 555_555, 599_999):
        value[place] += 1
        assert sent.find(*dumps_apart(value)) is None
        value[place] -= 1
    assert sent.find(*dumps_apart([*value, 0])) is None
    assert sent.find(*dumps_apart(value)) == stored


def test_small_arguments_are_not_remembered(sent, send):
    small = numbers(LARGE_BYTES // 2)
    stored = send(small)
    assert sent.find(*dumps_apart(small)) is None
    assert stored


def test_what_is_found_is_owned(sent, send):
    stored = send(numbers(2_000_000))
    path = path_of(stored)
    found = sent.find(*dumps_apart(numbers(2_000_000)))
    del stored
    assert numpy.array_equal(load_stored(found), numbers(2_000_000))
    del found
    assert not os.path.exists(path), "it is remembered weakly"
    assert sent.find(*dumps_apart(numbers(2_000_000))) is None


def test_a_file_that_is_lost_or_cut_short_is_not_found(sent, send):
    for damage in (os.unlink, lambda path: os.truncate(path, 500_000)):
        stored = send(numbers(2_000_000))
        damage(path_of(stored))
        assert sent.find(*dumps_apart(numbers(2_000_000))) is None


def test_what_is_remembered_is_bounded(sent, send):
    held = []
    for middle in range(MAX_PER_KEY + 2):  # all with the same samples
        value = numbers(2_000_000)
        value[500_000] = middle
        held.append((value, send(value)))
    found = [sent.find(*dumps_apart(value)) is not None for value, _ in held]
    assert found == [False] * 2 + [True] * MAX_PER_KEY
    more = [send(numbers(LARGE_BYTES + length)) for length in range(MAX_KEYS)]
    assert sent.find(*dumps_apart(held[-1][0])) is None
    assert sent.find(*dumps_apart(numbers(LARGE_BYTES + 5))) == more[5]
