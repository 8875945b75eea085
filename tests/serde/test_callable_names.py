"""Labels and digests of whatever can be called, and of what only claims to be."""

import functools
import operator
import subprocess
import sys

import numpy
from hypothesis import given
from hypothesis import strategies as st

from slipstream.serde import callables
from slipstream.serde.callables import callable_digest, callable_label


def plain():
    pass


class Scale:
    def __call__(self):
        pass

    def method(self):
        pass

    @classmethod
    def made(cls):
        pass


class Raising:
    def __getattribute__(self, name):
        raise RuntimeError(name)


class Answering:
    def __getattr__(self, name):
        return 7


class Loop(functools.partial):
    func = property(lambda self: self)


def test_labels():
    expected = {
        plain: "plain",
        len: "len",
        Scale: "Scale",
        Scale().method: "Scale.method",
        Scale.made: "Scale.made",
        functools.partial(plain): "plain",
        functools.partial(functools.partial(Scale(), 1), 2): "Scale",
        functools.lru_cache(plain): "plain",
        str.join: "str.join",
        "-".join: "str.join",
        operator.itemgetter(1): "itemgetter",
        numpy.add: "add",
    }
    assert {fn: callable_label(fn) for fn in expected} == expected
    assert callable_label(lambda: 0) == "test_labels.<locals>.<lambda>"
    assert callable_label(Scale()) == "Scale"


def test_neither_ever_fails():
    named = types_with_strange_names()
    for strange in (Raising(), Answering(), Loop(plain), None, 3, *named):
        assert isinstance(callable_label(strange), str)
        assert callable_label(strange)
        assert len(callable_digest(strange)) == 17


def types_with_strange_names():
    def f():
        pass

    for module in ([], None, 3):
        f.__module__ = module
        yield f
    f.__qualname__ = "x" * 10_000
    assert len(callable_label(f)) == 200
    f.__qualname__ = "\ud800"
    yield f


def test_a_digest_identifies_by_module_and_name():
    assert callable_digest(plain) == callable_digest(plain)
    assert callable_digest(functools.partial(plain, 1)) == callable_digest(plain)
    assert callable_digest(functools.partial(functools.partial(plain), 1)) == callable_digest(plain)
    distinct = [plain, Scale, Scale().method, Scale.made, len, max, str.join, operator.itemgetter(1), lambda: 0]
    assert len({callable_digest(fn) for fn in distinct}) == len(distinct)
    other = type("Scale", (), {"__module__": "elsewhere"})
    assert callable_digest(other) != callable_digest(Scale)


def test_a_digest_is_the_same_in_every_process():
    source = (
        "import json; from slipstream.serde.callables import callable_digest; print(callable_digest(json.dumps).hex())"
    )
    command = [sys.executable, "-c", source]
    import json

    assert (
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
        == callable_digest(json.dumps).hex()
    )


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_different_names_have_different_digests(one, two):
    digests = []
    for module, name in (one, two):
        fn = lambda: 0  # noqa: E731 - a new function each time
        fn.__module__, fn.__qualname__ = module, name
        digests.append(callable_digest(fn))
    # A zero byte, which no Python name has, is the only thing that could mix them up.
    assert (digests[0] == digests[1]) == (one == two) or any("\0" in part for part in one + two)


def test_digests_kept_are_bounded(monkeypatch):
    monkeypatch.setattr(callables, "_identified", {})
    monkeypatch.setattr(callables, "_IDENTIFIED_KEPT", 10)
    for i in range(100):
        plain.__qualname__ = f"plain_{i}"
        callable_digest(plain)
    plain.__qualname__ = "plain"
    assert 0 < len(callables._identified) <= 10
