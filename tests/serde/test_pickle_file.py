"""Pickles by their opcodes: nothing is loaded or imported, and nothing that loading would find is missed."""

import contextlib
import copyreg
import datetime
import decimal
import io
import pickle
import struct
import sys
import tracemalloc
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.serde.explain import pickle_file
from slipstream.serde.explain.pickle_file import Outline, outline, outline_file
from slipstream.serde.pickler import dumps

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)
VALUES = [
    Fraction(1, 3),
    datetime.date(2020, 1, 1),
    decimal.Decimal("1.5"),
    {3, 4},
    b"bytes",
    bytearray(b"x"),
    "é" * 300,
]


class Stub:
    """Takes the place of whatever a pickle names, and lets everything be done to it."""

    def __new__(cls, *args, **kwargs):
        return object.__new__(cls)

    def __init__(self, *args, **kwargs):
        pass

    def __call__(self, *args, **kwargs):
        return self

    append = extend = add = update = __setitem__ = __setstate__ = lambda self, *args: None


class Recorder(pickle._Unpickler):  # the one in Python: that in C makes room for any number that a pickle says
    def __init__(self, data):
        super().__init__(io.BytesIO(data))
        self.names = []

    def find_class(self, module, name):
        self.names.append(f"{module}.{name}")
        return Stub

    def persistent_load(self, pid):
        return Stub()


def named_by_loading(data):
    recorder = Recorder(data)
    with contextlib.suppress(Exception):
        recorder.load()
    return recorder.names


def test_data_of_every_protocol_is_complete_and_harmless():
    for protocol in PROTOCOLS:
        found = outline(pickle.dumps({"a": [1, 2.5, "x", None, (True, 2**80)]}, protocol))
        assert (found.problem, found.globals, found.calls, found.trailing_bytes) == ("", (), {}, 0)
        assert found.protocol == protocol


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_global_is_found(protocol):
    data = pickle.dumps(VALUES, protocol)
    found = outline(data)
    assert found.ok
    assert {"fractions.Fraction", "datetime.date", "decimal.Decimal"} <= set(found.globals)
    names = {name.replace("__builtin__", "builtins") for name in named_by_loading(data)}
    assert names == set(found.globals)
    assert found.calls["fractions.Fraction"] == 1
    assert found.counts["REDUCE"] == sum(found.calls.values())


def test_globals_by_memo_extension_and_old_opcodes():
    assert outline(pickle.dumps([Fraction, Fraction, datetime.date], 4)).globals == (
        "fractions.Fraction",
        "datetime.date",
    )
    assert outline(b"(S'a'\nios\nsystem\n.").calls == {"os.system": 1}
    assert outline(b"(cos\nsystem\nS'a'\no.").calls == {"os.system": 1}
    assert outline(b"\x80\x02\x82\xf1.").globals == ("extension 241.not registered here",)
    copyreg.add_extension("shutil", "rmtree", 241)
    try:
        assert outline(b"\x80\x02\x82\xf1)R.").calls == {"shutil.rmtree": 1}
    finally:
        copyreg.remove_extension("shutil", "rmtree", 241)


@pytest.mark.parametrize(
    "program",
    [
        b"\x8c\x02os2\x93",  # DUP
        b"(\x8c\x02os(0\x8c\x02os\x93",  # POP of a MARK
        b"\x8c\x02os(NN1\x8c\x02os\x93",  # POP_MARK
        b"\x8c\x02osq\5h\5\x93",  # BINPUT, BINGET
        b"\x8c\x01xq\0\x8c\x02osq\0h\0\x93",  # a memo written twice
        b"\x8c\x02os\x94Nq\1\x8c\x01z\x940h\0h\0\x93",  # MEMOIZE counts what is there
    ],
)
def test_names_are_followed_through_stack_and_memo(program):
    data = b"\x80\4" + program + b"."
    assert named_by_loading(data) == ["os.os"]
    assert outline(data).globals == ("os.os",)


def test_a_memo_that_no_longer_holds_a_name_does_not_give_it():
    data = b"\x80\4\x8c\x02osq\0Nq\0h\0\x8c\x01x\x93."
    assert outline(data).globals == ("?.x",)


def test_names_of_python_2_are_what_would_be_imported():
    assert outline(b"c__builtin__\neval\n.").globals == ("builtins.eval",)
    assert outline(b"\x80\x03c__builtin__\neval\n.").globals == ("__builtin__.eval",)


def test_a_name_that_is_computed_is_not_guessed():
    found = outline(b"\x80\x04\x8c\x02osc_codecs\nencode\n\x8c\x06system\x85R\x93.")
    assert found.globals == ("_codecs.encode", "os.?")


def test_what_another_call_made_is_called():
    assert outline(b"cbuiltins\ngetattr\n)R)R.").calls == {"builtins.getattr": 1, "what another call made": 1}


def test_modules_that_cloudpickle_imports_are_found():
    assert "colorsys" in outline(dumps(__import__("colorsys"))).modules


def test_nothing_is_run_or_imported(tmp_path):
    target = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return open, (str(target), "w")

    data = pickle.dumps(Evil())
    assert outline(data).calls == {f"{open.__module__}.open": 1}  # io, or _io from Python 3.13 on
    assert not target.exists()
    pickle.loads(data).close()
    assert target.exists(), "the pickle would not have shown anything"
    sys.modules.pop("this", None)
    assert outline(b"cthis\ns\n.").globals == ("this.s",)
    assert "this" not in sys.modules


def test_every_truncation_is_refused():
    for protocol in PROTOCOLS:
        data = pickle.dumps(VALUES, protocol)
        assert outline(data).ok
        for length in range(len(data)):
            assert outline(data[:length]).problem.startswith("malformed at byte ")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "exhausted before seeing STOP"),
        (b"\x80\x05", "exhausted before seeing STOP"),
        (b"\x80\x63.", "protocol 99"),
        (b".", "more from the stack than is there"),
        (b"\xff", "unknown"),
        (b"(.", "a mark for an object"),
        (b"t.", "a mark that is not there"),
        (b"h\x05.", "object 5 of the memo"),
        (b"\x80\x05\x95" + struct.pack("<Q", 100) + b"N.", "a frame of 100 bytes should follow, and 2 are left"),
        (b"\x8e" + struct.pack("<Q", 2**62) + b"x", "4,611,686,018,427,387,904 bytes should follow, and 1 are left"),
        (b"\x8d" + struct.pack("<Q", 2**62) + b"x", "4,611,686,018,427,387,904 bytes should follow"),
        (b"\x96" + struct.pack("<Q", 2**62) + b"x", "4,611,686,018,427,387,904 bytes should follow"),
        (b"\x8b" + struct.pack("<i", 2**31 - 1) + b"x", "2,147,483,647 bytes should follow"),
        (b"\x8b" + struct.pack("<i", -1) + b"x", "long4 byte count < 0"),
        (b"I" + b"9" * 10_000 + b"\n.", "4300 digits"),
        (b"S'\\d'\n.", ""),
        (b"not a pickle", "malformed at byte"),
    ],
)
def test_what_is_wrong_is_said(data, said):
    found = outline(data)
    assert said in found.problem
    assert bool(found.problem) == bool(said)


def test_lengths_that_lie_take_no_memory(tmp_path):
    path = tmp_path / "lies.pkl"
    for opcode in (b"\x8e", b"\x8d", b"\x96"):
        path.write_bytes(opcode + struct.pack("<Q", 1 << 30) + b"x")
        tracemalloc.start()
        try:
            with open(path, "rb") as file:
                assert not outline_file(file, path.stat().st_size).ok
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


def test_what_has_too_many_opcodes_or_globals_is_not_called_complete(monkeypatch):
    monkeypatch.setattr(pickle_file, "MAX_OPCODES", 50)
    assert "only 50 opcodes" in outline(b"N0" * 25 + b"N.").problem
    assert outline(b"N0" * 24 + b"N.").ok
    monkeypatch.setattr(pickle_file, "LISTED_GLOBALS", 3)
    found = outline(b"".join(b"cm\nn%d\n0" % number for number in range(4)) + b"N.")
    assert "more than 3 globals" in found.problem
    assert len(found.globals) == 3
    assert outline(b"cm\nn\n0" * 9 + b"N.").ok


def test_largest_constants_and_what_follows_the_end():
    found = outline(pickle.dumps([b"x" * size for size in range(100, 1000, 100)], 4) + b"rest")
    assert [constant.bytes for constant in found.constants] == [905, 805, 705, 605, 505]
    assert {constant.type for constant in found.constants} == {"bytes"}
    assert found.trailing_bytes == 4


def test_names_cannot_act_on_a_terminal():
    found = outline(b"\x80\x04\x8c\x05\x1b[2Jm\x8c\x01n\x93.")
    assert found.globals == ("\\x1b[2Jm.n",)


@given(DATA, st.sampled_from(PROTOCOLS))
def test_any_data_is_complete(value, protocol):
    found = outline(pickle.dumps(value, protocol))
    assert found.ok
    assert set(found.globals) <= {"_codecs.encode", "builtins.bytes"}  # how old protocols write bytes


@given(st.binary())
def test_any_bytes_have_an_outline(data):
    found = outline(data)
    assert found.ok == (found.problem == "")
    msgspec.json.encode(found)
    assert found.problem.isprintable()


@given(DATA, st.data())
def test_a_pickle_with_one_byte_changed_has_an_outline(value, data):
    pickled = bytearray(pickle.dumps([value, Fraction(1, 3)], data.draw(st.sampled_from(PROTOCOLS))))
    pickled[data.draw(st.integers(0, len(pickled) - 1))] = data.draw(st.integers(0, 255))
    assert outline(bytes(pickled)).problem.isprintable()


#: Opcodes that work on names, the stack and the memo, in any order.
STEPS = [
    *(b"N", b"(", b"t", b"l", b"d", b"0", b"1", b"2", b")", b"]", b"}", b"R", b"o", b"b", b"a", b"e", b"s", b"u"),
    *(b"\x81", b"\x85", b"\x86", b"\x87", b"\x8f", b"\x90", b"\x91", b"\x92", b"\x93", b"\x94", b"Q"),
    *(b"ca\nb\n", b"ia\nc\n", b"\x8c\x01a", b"\x8c\x01b", b"\x8c\x01z", b"S'a'\n", b"U\x01b", b"Va\n"),
    *(b"h\0", b"h\1", b"h\2", b"q\0", b"q\1", b"q\2", b"r\5\0\0\0", b"g1\n", b"p1\n", b"\x80\4", b"\x80\2"),
]


#: Names to begin with, so that most programs get somewhere: a and b in the memo, and four of them on the stack.
START = b"\x80\4\x8c\1a\x94\x8c\1b\x94h\0h\1"


@given(st.lists(st.sampled_from(STEPS), max_size=40).map(lambda steps: START + b"".join(steps) + b"."))
def test_whatever_loading_would_name_is_named_even_if_it_fails_later(data):
    found = outline(data)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Outline) == found
    for name in named_by_loading(data):
        module, _, attribute = name.partition(".")
        near = {name, f"?.{attribute}", f"{module}.?", "?.?"}
        assert near & set(found.globals), "it was lost, or the outline ended before it"
