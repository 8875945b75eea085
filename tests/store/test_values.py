"""Values that are written and loaded again: equal, in place, and nobody else's to change."""

import array
import gc
import io
import os
import pickle
import tracemalloc

import numpy
import pytest

import scripts
from slipstream.serde.pickler import APART_BYTES, dumps_apart
from slipstream.serde.values import encode_value
from slipstream.store import reading, writing
from slipstream.store.payload import is_stored, size_of, unpack
from slipstream.store.reading import MAPPED_BYTES, ValueGoneError, live_mappings, load_stored
from slipstream.store.writing import ALIGNMENT, store_value

SMALL, LARGE = 20_000, 300_000  # of 8 bytes each: read, and mapped

NUMBERS = numpy.arange(2 * LARGE, dtype="float64")
ARRAYS = {
    "plain": NUMBERS[:LARGE],
    "small": NUMBERS[:SMALL],
    "strided": NUMBERS[::2],
    "reversed": NUMBERS[::-1],
    "fortran": numpy.asfortranarray(NUMBERS.reshape(1000, -1)),
    "transposed": NUMBERS.reshape(1000, -1).T,
    "inner part": NUMBERS.reshape(1000, -1)[10:-10, 10:-10],
    "structured": numpy.zeros(LARGE, dtype=[("a", "i4"), ("b", "f8")]),
    "empty": NUMBERS[:0],
    "no dimensions": numpy.array(3.5),
    "objects": numpy.array([{"a": 1}, None, "x"] * 1000, dtype=object),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays(name, there_and_back):
    got = there_and_back(ARRAYS[name])
    assert got.dtype == ARRAYS[name].dtype
    assert got.shape == ARRAYS[name].shape
    assert numpy.array_equal(got, ARRAYS[name])
    assert got.flags.writeable


def test_a_fortran_array_stays_one_and_is_not_copied(store):
    payload = store(ARRAYS["fortran"])
    assert size_of(payload) < ARRAYS["fortran"].nbytes + 1000
    assert load_stored(payload).flags.f_contiguous


VALUES = [
    {"a": [1, (2, None)], "b": "text" * 100_000},
    bytes(3_000_000),
    bytearray(b"abc" * 1_000_000),
    array.array("d", range(LARGE)),
    [NUMBERS[:SMALL].tobytes(), NUMBERS[:SMALL].tobytes()],
    io.BytesIO(bytes(100)).getvalue(),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_other_values(value, there_and_back):
    got = there_and_back(value)
    assert type(got) is type(value)
    assert got == value


@pytest.mark.parametrize("length", [0, 1, APART_BYTES - 1, APART_BYTES, MAPPED_BYTES - 1, MAPPED_BYTES, 3 << 20])
@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_views_of_any_length(length, kind, there_and_back):
    view = memoryview(kind(os.urandom(length)))
    got = there_and_back(["before", view, "after"])[1]
    assert type(got) is memoryview
    assert got == view
    assert got.readonly == view.readonly


@pytest.mark.parametrize(
    "view",
    [
        memoryview(NUMBERS),
        memoryview(NUMBERS.reshape(1000, -1)),
        memoryview(NUMBERS.reshape(1000, -1).T),
        memoryview(NUMBERS)[::3],
        memoryview(bytes(APART_BYTES)).cast("B", (256, APART_BYTES // 256)),
    ],
)
def test_views_of_any_shape(view, there_and_back):
    got = there_and_back(view)
    assert (got.format, got.shape, got.readonly) == (view.format, view.shape, view.readonly)
    assert got.tobytes() == view.tobytes()


def test_a_large_view_is_not_copied_when_it_is_pickled():
    data = bytearray(10_000_000)
    for view in (memoryview(data), memoryview(data).toreadonly(), memoryview(data).cast("d")):
        pickled, (buffer,) = dumps_apart(view)
        assert len(pickled) < 300
        with buffer.raw() as raw:
            data[0] = data[0] + 1
            assert raw[0] == data[0], "the buffer is the memory itself"


def test_small_buffers_stay_in_the_pickle():
    assert dumps_apart(numpy.zeros(APART_BYTES - 8, dtype="u1"))[1] == []
    assert len(dumps_apart(numpy.zeros(APART_BYTES, dtype="u1"))[1]) == 1


def test_a_class_of_the_client_goes_by_reference_in_a_reply():
    made = type("Made", (), {"__module__": "__main__"})
    assert dumps_apart(made, reply=True)[0].size() <= dumps_apart(made)[0].size()


@pytest.mark.parametrize("value", [bytes(1_000_000), bytearray(1_000_000)])
def test_large_bytes_are_pieces_of_their_pickle(value):
    pieces, _ = dumps_apart({"a": [value], "b": 1})
    assert any(piece is value for piece in pieces)
    assert pickle.loads(pieces.join()) == {"a": [value], "b": 1}
    assert pieces.size() == len(pieces.join())


def test_read_only_stays_read_only(there_and_back):
    for count in (SMALL, LARGE):
        frozen = NUMBERS[:count].copy()
        frozen.flags.writeable = False
        got, other = there_and_back((frozen, NUMBERS[:count]))
        assert not got.flags.writeable
        assert other.flags.writeable
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            got.flags.writeable = True


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_what_is_written_into_a_value_is_seen_by_nobody_else(count, store):
    payload = store(NUMBERS[:count])
    first, second = load_stored(payload), load_stored(payload)
    first += 1
    assert numpy.array_equal(first, NUMBERS[:count] + 1)
    assert numpy.array_equal(second, NUMBERS[:count])
    assert numpy.array_equal(load_stored(payload), NUMBERS[:count])


def test_buffers_are_aligned_and_shared_objects_stay_shared(store):
    array_of_bytes = numpy.ones(APART_BYTES + 1, dtype="u1")
    payload = store([array_of_bytes, array_of_bytes, numpy.ones(APART_BYTES + 3, dtype="u1")])
    _, size, pickle_size, extents = unpack(payload)
    assert [length for _, length, _ in extents] == [APART_BYTES + 1, APART_BYTES + 3]
    assert all(offset % ALIGNMENT == 0 for offset, _, _ in extents)
    assert size == extents[-1][0] + extents[-1][1]
    assert pickle_size <= extents[0][0]
    first, same, _ = load_stored(payload)
    assert first is same


def test_the_payload_is_short_and_known_by_its_first_byte(store):
    payload = store(NUMBERS)
    assert is_stored(payload)
    assert len(payload) < 200
    assert not any(is_stored(encode_value(value)) for value in (None, 1, "x", b"\x82", [1], NUMBERS))
    with pytest.raises(ValueError, match="begins with byte 0x80, so it stands for no stored value"):
        load_stored(encode_value([1]))


def test_a_thousand_pieces_and_partial_writes(store, monkeypatch):
    values = [numpy.full(APART_BYTES, number % 251, dtype="u1") for number in range(700)]
    real = os.writev
    taken = []

    def some(descriptor, pieces):
        taken.append(len(pieces))
        return real(descriptor, [pieces[0][: 1 + len(pieces[0]) // 2]])

    assert all(map(numpy.array_equal, load_stored(store(values)), values))
    monkeypatch.setattr(writing.os, "writev", some)
    assert all(map(numpy.array_equal, load_stored(store(values[:5])), values))
    assert len(taken) > 5


def test_a_value_in_use_outlives_its_file(store):
    payload = store(NUMBERS)
    got = load_stored(payload)
    os.unlink(unpack(payload)[0])
    assert numpy.array_equal(got, NUMBERS)


def test_a_file_that_is_gone_or_cut_short(store):
    for damage in (os.unlink, lambda path: os.truncate(path, 100)):
        payload = store(NUMBERS)
        path = unpack(payload)[0]
        damage(path)
        with pytest.raises(ValueGoneError, match="is gone: its file was removed or cut short") as caught:
            load_stored(payload)
        assert isinstance(caught.value, LookupError)
        assert caught.value.path == path
        assert type(caught.value)(*caught.value.args).path == path, "it survives a pickle"


def test_the_files_are_readable_by_their_owner_only(store, run):
    path = unpack(store(NUMBERS))[0]
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert os.stat(run.path).st_mode & 0o777 == 0o700


def test_writing_takes_no_memory(place):
    data = bytearray(200_000_000)
    pickled, buffers = dumps_apart(memoryview(data))
    tracemalloc.start()
    try:
        payload = store_value(pickled, buffers, place)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size_of(payload) > 200_000_000
    assert peak < 1_000_000


def test_loading_takes_no_memory_and_no_descriptor(store):
    payload = store(NUMBERS)
    load_stored(payload)
    before = os.listdir("/proc/self/fd")
    tracemalloc.start()
    try:
        load_stored(payload)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000
    assert os.listdir("/proc/self/fd") == before


def test_mappings_end_with_their_arrays(store, monkeypatch):
    gc.collect()
    assert live_mappings() == 0
    payload = store(NUMBERS)
    monkeypatch.setattr(reading, "MAX_MAPPINGS", 3)
    held = [load_stored(payload) for _ in range(5)]
    assert live_mappings() == 3
    assert all(numpy.array_equal(got, NUMBERS) for got in held)
    del held[0]
    assert live_mappings() == 2
    part = held[0][5:6]
    del held
    gc.collect()
    assert live_mappings() == 1, "a slice keeps its mapping"
    del part
    assert live_mappings() == 0


def test_where_nothing_can_be_mapped_it_is_read(store, monkeypatch):
    import mmap

    def fail(*_, **__):
        raise OSError(24, "Too many open files")

    payload = store(NUMBERS)
    monkeypatch.setattr(mmap, "mmap", fail)
    assert numpy.array_equal(load_stored(payload), NUMBERS)
    assert live_mappings() == 0


LIMITS = """
    import os, resource
    resource.setrlimit(resource.RLIMIT_NOFILE, ({limit}, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    from slipstream.serde.pickler import dumps_apart
    from slipstream.store.directory import RunDirectory
    from slipstream.store.reading import live_mappings, load_stored
    from slipstream.store.writing import store_value
    run = RunDirectory.make()
    place = run.place("c")
    payloads = [store_value(*dumps_apart(memoryview(bytes([n % 256]) * {size})), place) for n in range({count})]
    views = [load_stored(payload) for payload in payloads]
    print(live_mappings(), len(os.listdir("/proc/self/fd")) < {limit} // 2 + 50)
    print(all(view[0] == view[-1] == n % 256 for n, view in enumerate(views)))
    run.remove()
"""


@pytest.mark.parametrize(
    ("limit", "size", "count", "mapped"),
    [(1024, 1 << 20, 700, 512), (200, 1 << 20, 300, 100), (1024, 100_000, 2000, 0)],
)
def test_many_values_in_few_descriptors(limit, size, count, mapped):
    lines = scripts.run(LIMITS.format(limit=limit, size=size, count=count)).lines()
    assert lines == [f"{mapped} True", "True"]


def test_what_a_worker_needs_of_it_imports_next_to_nothing():
    script = """
        import sys
        before = set(sys.modules)
        from slipstream.store import payload, place, reading, writing
        print(*sorted(set(sys.modules) - before))
    """
    (line,) = scripts.run(script).lines()
    names = set(line.split())
    assert not names & {
        "typing",
        "contextlib",
        "msgspec",
        "threading",
        "mmap",
        "tempfile",
        "pickle",
        "cloudpickle",
        "re",
    }
    assert {name for name in names if name.startswith("slipstream.")} == {
        "slipstream.store",
        *(f"slipstream.store.{name}" for name in ("payload", "place", "reading", "writing")),
    }
