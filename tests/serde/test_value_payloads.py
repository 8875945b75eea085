"""Values there and back through another interpreter."""

import array
import collections
import math
import sys
import threading
from datetime import UTC, datetime

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import PayloadError
from slipstream.serde import values
from slipstream.serde.values import SCALAR_LENGTH_LIMIT, decode_value, encode_value, is_scalar

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary()
HASHABLE = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3), max_leaves=5)
TREES = st.recursive(
    SCALARS | st.complex_numbers() | st.datetimes() | st.fractions() | st.builds(bytearray, st.binary()),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(HASHABLE, inner, max_size=3)
        | st.sets(HASHABLE, max_size=3)
        | st.builds(collections.deque, st.lists(inner, max_size=3))
    ),
    max_leaves=10,
)


def identity(value):
    return value


def canonical(value):
    """A text that is equal for equal values of the same types all through, whatever the order in a set."""
    name = type(value).__name__
    if isinstance(value, list | tuple | collections.deque):
        return name + repr([canonical(each) for each in value])
    if isinstance(value, set | frozenset):
        return name + repr(sorted(canonical(each) for each in value))
    if isinstance(value, dict):
        return name + repr([(canonical(k), canonical(v)) for k, v in value.items()])
    return f"{name} {value!r}"


@given(SCALARS)
def test_scalars_keep_type_and_value(value):
    payload = encode_value(value)
    assert canonical(decode_value(payload)) == canonical(value)
    short = not isinstance(value, str | bytes) or len(value) <= SCALAR_LENGTH_LIMIT
    assert is_scalar(payload) == short
    assert (payload[0] < 0x80) == short


@given(TREES)
def test_any_tree_of_values_goes_there_and_back(other, value):
    assert canonical(other.run(identity, value)) == canonical(value)


@pytest.mark.parametrize(
    "value", [1j, [], (1,), {}, "x" * (SCALAR_LENGTH_LIMIT + 1), b"x" * (SCALAR_LENGTH_LIMIT + 1), bytearray(b"x"), int]
)
def test_what_is_no_scalar_is_said_to_be_none(value):
    payload = encode_value(value)
    assert not is_scalar(payload)
    assert decode_value(payload) == value


def test_instances_of_subclasses_of_scalars_are_no_scalars(other):
    import enum

    class Level(enum.IntEnum):
        LOW = 1

    class Text(str):
        __slots__ = ()

    for value in (Level.LOW, Text("t")):
        assert not is_scalar(encode_value(value))
        assert type(other.run(identity, value)) is type(value)


def test_integers_of_any_size_and_special_floats():
    for value in (2**63, -(2**64), 10**400, math.inf, -0.0):
        assert is_scalar(encode_value(value))
        assert repr(decode_value(encode_value(value))) == repr(value)
    assert math.isnan(decode_value(encode_value(math.nan)))


def measure(buffer):
    data = bytes(buffer)
    return type(buffer).__name__, buffer.readonly, buffer.format, buffer.shape, data


RAW = bytes(range(200)) * 50


@pytest.mark.parametrize(
    "view",
    [
        memoryview(RAW),
        memoryview(RAW)[::2],
        memoryview(RAW)[::-3],
        memoryview(bytearray(RAW))[10:-10],
        memoryview(b""),
        memoryview(bytearray(b"")),
        memoryview(bytearray(RAW)).toreadonly(),
        memoryview(array.array("d", [1.5, 2.5])),
        memoryview(RAW).cast("B", (100, 100)),
        memoryview(numpy.arange(12, dtype="int32").reshape(3, 4)),
    ],
)
def test_a_memoryview_arrives_as_one(view, other):
    assert other.run(measure, view) == ("memoryview", view.readonly, view.format, view.shape, bytes(view))
    assert decode_value(encode_value(view)) == view


def test_a_memoryview_whose_format_cannot_be_made_arrives_as_its_bytes():
    structured = numpy.zeros(2, dtype=[("a", "i4"), ("b", "f8")])
    got = decode_value(encode_value(memoryview(structured)))
    assert (got.format, bytes(got)) == ("B", bytes(structured))


def scribble(buffer):
    buffer[0] = 99
    return type(buffer).__name__, bytes(buffer[:2])


def test_mutable_buffers_are_independent_and_writable(other):
    mine = bytearray(b"abc")
    assert other.run(scribble, mine) == ("bytearray", b"cb")
    assert mine == b"abc"
    assert other.run(scribble, memoryview(mine)) == ("memoryview", b"cb")
    assert mine == b"abc"


def bump(a):
    a.flat[0] = 7
    return float(a.flat[0] + a.flat[-1])


@pytest.mark.parametrize("size", [1_000, 200_000, 2_000_000])
@pytest.mark.parametrize("form", [lambda a: a, lambda a: a.reshape(2, -1).T, lambda a: a[::2]])
def test_arrays_arrive_writable_at_every_size(size, form, other):
    sent = form(numpy.zeros(size))
    sent.flat[-1] = 2
    assert other.run(bump, sent) == 9.0
    assert sent.flat[0] == 0
    got = other.run(numpy.zeros, size)
    got[0] = 1
    assert got.shape == (size,)


def test_a_read_only_array_stays_one(other):
    sent = numpy.arange(3)
    sent.flags.writeable = False
    assert other.run(identity, sent).flags.writeable is False


def test_shared_and_cyclic_structure_is_kept(other):
    shared = [1]
    cycle = {"shared": shared}
    cycle["me"] = cycle
    got = other.run(identity, ([shared, shared], cycle))
    assert got[0][0] is got[0][1] is got[1]["shared"]
    assert got[1]["me"] is got[1]


def test_aware_datetimes_and_types(other):
    for value in (datetime(2020, 1, 1, tzinfo=UTC), int, type(None), type(...), type(measure), dict[str, int]):
        assert other.run(identity, value) == value


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: (i for i in range(3)), "generator"),
        (threading.Lock, "lock"),
        (lambda: {"deep": [threading.RLock()]}, "RLock"),
        (lambda: sys._getframe(), "frame"),
        (lambda: type(iter(())), "tuple_iterator"),
    ],
)
def test_a_value_that_cannot_be_sent_names_its_type(make, word):
    with pytest.raises(PayloadError, match=word) as caught:
        encode_value(make())
    assert caught.value.__cause__ is not None


def test_an_open_file_cannot_be_sent():
    with open(__file__, "rb") as file, pytest.raises(PayloadError, match="BufferedReader"):
        encode_value(file)


def test_a_released_view_cannot_be_sent():
    view = memoryview(b"x")
    view.release()
    with pytest.raises(PayloadError, match=r"'memoryview' cannot be pickled: ValueError: .*released"):
        encode_value(view)


def test_a_value_over_the_limit_says_its_size(monkeypatch):
    monkeypatch.setattr(values, "PAYLOAD_LIMIT", 5_000)
    assert len(encode_value([b"x" * 4_000])) < 5_000
    with pytest.raises(PayloadError, match=r"a value of type 'list' takes 6,0\d\d bytes .* the limit is 5,000"):
        encode_value([b"x" * 6_000])


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\x80\x05", b"\x85", b"s\xff\xff\xff\x7f", b"?"])
def test_damaged_values_are_payload_errors(payload):
    with pytest.raises(PayloadError, match="the value cannot be loaded"):
        decode_value(payload)
