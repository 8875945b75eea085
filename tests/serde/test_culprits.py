"""Where the thing stands that cannot be pickled, in whatever holds it; and that the search ends."""

import functools
import threading

import pytest

from slipstream.serde.explain import culprits as culprits_module
from slipstream.serde.explain.culprits import culprits, pickled_bytes
from slipstream.serde.pickler import dumps

LOCK = threading.Lock()
REASON = "TypeError: cannot pickle '_thread.lock' object"


def only(found):
    [culprit] = found
    return culprit.path, culprit.reason


class Holder:
    def __init__(self, inside):
        self.inside = inside


class Slotted:
    __slots__ = ("inside", "unset")

    def __init__(self, inside):
        self.inside = inside


class Careful(Holder):
    def __getstate__(self):
        return {}


class Refusing:
    def __reduce__(self):
        raise ValueError("not me")


class Rebuilt(Holder):
    def __reduce__(self):
        return Rebuilt, (self.inside,)


class Items(list):
    pass


def closure(inside):
    return lambda: inside


def default(inside):
    def function(by=inside):
        return by

    return function


def attribute(inside):
    def function():
        pass

    function.extra = inside
    return function


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (lambda lock: lock, "x"),
        (lambda lock: [1, [lock]], "x[1][0]"),
        (lambda lock: ("a", {"b": lock}), "x[1]['b']"),
        (lambda lock: {lock: 1}, "a key of x"),
        (lambda lock: {lock}, "an item of x"),
        (lambda lock: frozenset({(1, lock)}), "an item of x[1]"),
        (Holder, "x.inside"),
        (lambda lock: Holder(Slotted([lock])), "x.inside.inside[0]"),
        (Rebuilt, "what x is made from"),
        (lambda lock: Items([1, lock]), "x[1]"),
        (lambda lock: Holder(lock).__init__, "x.__self__.inside"),
        (lambda lock: functools.partial(max, 1, key=lock), "x.keywords['key']"),
        (closure, "x: the variable 'inside' of an enclosing function"),
        (lambda lock: closure(closure([lock])), "x: the variable 'inside' of an enclosing function: the variable"),
        (default, "x: the default of 'by'"),
        (attribute, "x: the attribute function.extra"),
        (lambda lock: functools.lru_cache(closure(lock)), "the variable 'inside' of an enclosing function"),
        (lambda lock: type("Made", (), {"lock": lock}), "x.lock"),
        (lambda lock: type("Made", (), {"lock": lock})(), ".lock"),
        (lambda lock: lambda: LOCK, "x: the global 'LOCK'"),
    ],
)
def test_where_a_lock_stands(make, path):
    found, reason = only(culprits(make(threading.Lock()), "x"))
    assert path in found
    assert (found == path) or path.startswith((".", "the", "x: the variable"))
    assert reason == REASON


def test_what_does_not_travel_is_no_culprit():
    assert culprits(Careful(LOCK), "x") == ()
    assert culprits([1, "two", {3: (4.0, None)}], "x") == ()


def test_an_object_that_refuses_is_the_culprit_itself():
    assert only(culprits([Refusing()], "x")) == ("x[0]", "ValueError: not me")


def test_circles_and_shared_objects_end():
    first, second = Holder(None), Holder(None)
    first.inside, second.inside = [second, LOCK], first
    assert only(culprits(first, "x")) == ("x.inside[1]", REASON)
    assert only(culprits([LOCK, LOCK], "x")) == ("x[0]", REASON)


def test_the_search_is_bounded(monkeypatch):
    deep = LOCK
    for _ in range(culprits_module.MAX_DEPTH + 5):
        deep = [deep]
    [found] = culprits(deep, "x")
    assert (found.path, found.exact) == ("x" + "[0]" * culprits_module.MAX_DEPTH, False)
    locks = [threading.Lock() for _ in range(50)]
    assert len(culprits(locks, "x")) == culprits_module.MAX_CULPRITS
    monkeypatch.setattr(culprits_module, "MAX_TRIALS", 10)
    [found] = culprits([*[[]] * 50, LOCK], "x")
    assert (found.path, found.exact) == ("x", False)
    assert only(culprits([*range(5000), LOCK], "x")) == ("x[5000]", REASON), "numbers need no trial"


def test_objects_that_fight_back():
    class Endless(list):
        def __reduce__(self):
            return list, (), None, iter(int, 1)

    class Raising:
        def __reduce__(self):
            def items():
                yield 1
                raise ZeroDivisionError

            return list, (), None, items()

    assert [found.path for found in culprits([Raising()], "x")] == ["x[0]"]
    pieces = culprits_module._pieces(Endless(), "x")
    assert sum(1 for _ in pieces) == culprits_module.MAX_PIECES


def test_sizes_are_those_of_the_pickle():
    for value in ([1, 2], b"x" * 200_000, {"a": "é" * 70_000}, closure):
        assert pickled_bytes(value) == len(dumps(value))
