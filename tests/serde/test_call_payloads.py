"""Every kind of callable, decoded and run by another interpreter."""

import functools
import operator
import os
import subprocess
import sys
import threading
import types

import numpy
import pytest

from slipstream.errors import PayloadError
from slipstream.serde import values
from slipstream.serde.values import decode_call, encode_call

# Loaded from a folder on the path, so that it goes by reference whatever way pytest imports test files.
MODULE = """
import functools

def add(a, b, c=0):
    return a + b + c

@functools.lru_cache(maxsize=8)
def cached(n):
    return n + 1

class Scale:
    __slots__ = ("k",)

    def __init__(self, k):
        self.k = k

    def __call__(self, x):
        return self.k * x

    def times(self, x):
        return self.k * x

    @classmethod
    def one(cls, x):
        return cls(1)(x)

    @staticmethod
    def neg(x):
        return -x

nameless = lambda x: x + 100
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    folder = tmp_path_factory.mktemp("on_path")
    (folder / "serde_test_tools.py").write_text(MODULE)
    sys.path.insert(0, str(folder))
    import serde_test_tools

    yield serde_test_tools
    sys.path.remove(str(folder))
    del sys.modules["serde_test_tools"]


@pytest.fixture(scope="module")
def other(tools, other):
    """Started when the folder is on the path."""
    return other


def test_forms_without_a_name_of_their_own(tools, other):
    forms = [
        (functools.partial(tools.add, 4), (2,), 6),
        (functools.partial(functools.partial(tools.add, 1), c=10), (2,), 13),
        (tools.Scale(3), (4,), 12),
        (tools.Scale(3).times, (5,), 15),
        (tools.Scale.one, (6,), 6),
        (tools.Scale.neg, (7,), -7),
        (tools.nameless, (1,), 101),
        (tools.cached, (1,), 2),
        (operator.itemgetter(1), ([8, 9],), 9),
        (operator.methodcaller("upper"), ("ab",), "AB"),
        (str.join, ("-", ["x", "y"]), "x-y"),
        ("-".join, (["x", "y"],), "x-y"),
        (dict, ([("k", 1)],), {"k": 1}),
        (dict.fromkeys, ("ab",), {"a": None, "b": None}),
        (numpy.add, (1, 2), 3),
    ]
    for fn, args, want in forms:
        assert other.run(fn, *args) == want, fn


def test_a_function_of_an_importable_module_goes_by_name(tools):
    # A budget in bytes: a function that starts to go by value is found by it.
    assert len(encode_call(tools.add, (1, 2), {})) < 60
    assert len(encode_call(tools.add, ([1], [2]), {})) < 80
    assert len(encode_call(tools.Scale.one, (1,), {})) < 90
    assert len(encode_call(tools.Scale.neg, (1,), {})) < 80
    assert len(encode_call(tools.cached, (1,), {})) < 80
    assert len(encode_call(functools.partial(tools.add, 1), (1,), {})) < 120
    assert decode_call(encode_call(tools.add, (1,), {"b": 2})) == (tools.add, (1,), {"b": 2})


def test_scalar_arguments_keep_their_exact_type(other):
    class Text(str):
        __slots__ = ()

    for value in (True, 1, 1.0, None, "t", b"b", Text("sub")):
        assert decode_call(encode_call(max, (value,), {"default": value})) == (max, (value,), {"default": value})
        assert type(decode_call(encode_call(max, (value,), {}))[1][0]) is type(value)
        assert other.run(isinstance, value, type(value))


def test_lambda_nested_and_exec_ed_functions(main, other):
    scope = main("def twice(x, *, by=2):\n    return x * by\n")
    factor = 3

    def outer(x):
        def inner(y):
            return y * factor

        return inner(x)

    assert other.run(lambda x: x + 1, 1) == 2
    assert other.run(outer, 2) == 6
    assert other.run(scope["twice"], 2) == 4
    assert other.run(scope["twice"], 2, by=5) == 10


def test_functions_that_refer_to_themselves_and_to_one_another(other):
    def climb(k):
        memo = climb.__dict__.setdefault("memo", {0: 1, 1: 1})
        if k not in memo:
            memo[k] = climb(k - 1) + climb(k - 2)
        return memo[k]

    def even(k):
        return True if k == 0 else odd(k - 1)

    def odd(k):
        return False if k == 0 else even(k - 1)

    def factorial(k):
        return 1 if k < 2 else k * factorial(k - 1)

    factorial.table = {"me": factorial, "also": [factorial, even]}
    climb(3)
    assert other.run(climb, 30) == 1346269
    assert other.run(even, 10) is True
    assert other.run(odd, 10) is False
    assert other.run(factorial, 10) == 3628800
    assert sorted(climb.memo) == [0, 1, 2, 3]


CACHED = """
import functools

@functools.lru_cache(maxsize=7, typed=True)
def square(n):
    return n * n

def total(n):
    return sum(square(i) for i in range(n)), square.cache_parameters(), square.cache_info().currsize

@functools.cache
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)

fib.unit = "rabbits"

def facts():
    return fib.__name__, fib.unit, fib is fib.__wrapped__.__globals__["fib"], fib.cache_info().currsize
"""


def test_lru_cache_wrappers_are_rebuilt_with_an_empty_cache(main, other):
    scope = main(CACHED)
    scope["square"](99)
    assert other.run(scope["total"], 5) == (30, {"maxsize": 7, "typed": True}, 5)
    assert other.run(scope["square"], 7) == 49
    assert other.run(scope["fib"], 30) == 832040
    assert other.run(scope["facts"]) == ("fib", "rabbits", True, 0)
    assert scope["square"].cache_info().currsize == 1


IMPORTING = """
import os
import time as clock
import xml.dom.minidom
from collections import OrderedDict as Ordered
from math import *

def use():
    clock.sleep(0.001)
    tag = xml.dom.minidom.parseString("<a/>").documentElement.tagName
    return os.sep, tag, type(Ordered(a=1)).__name__, floor(2.5)

def outer():
    def deeper():
        return [clock.gmtime(0).tm_year for _ in range(1)]
    return deeper()
"""


def test_modules_imported_at_the_top_of_the_script(main, other):
    scope = main(IMPORTING)
    assert other.run(scope["use"]) == ("/", "a", "OrderedDict", 2)
    assert other.run(scope["outer"]) == [1970]


def test_a_new_definition_is_what_runs(main, other):
    scope = main("def rate():\n    return 10\n\ndef total(hours):\n    return rate() * hours\n")
    total = scope["total"]
    assert other.run(total, 2) == 20
    main("def rate():\n    return 12\n")
    assert other.run(total, 2) == 24
    main("def total(hours, fee=40):\n    return rate() * hours + fee\n")
    assert other.run(scope["total"], 2) == 64


def test_a_module_loaded_from_a_file_on_no_path_goes_by_value(file_module, other):
    module = file_module(
        "serde_test_on_no_path",
        "class Thing:\n"
        "    def __init__(self, n):\n        self.n = n\n\n"
        "def make(n):\n    return Thing(n)\n\n"
        "def through_itself(n):\n    import serde_test_on_no_path\n",
    )
    got = other.run(module.make, 4)
    assert type(got) is module.Thing
    assert got.n == 4
    assert isinstance(other.failure(module.through_itself, 1), ModuleNotFoundError)


def test_a_module_object_that_no_worker_can_import_goes_by_value(main, other, monkeypatch):
    made = types.ModuleType("serde_test_made")
    monkeypatch.setitem(sys.modules, "serde_test_made", made)
    exec("rate = 3\ndef times(n):\n    return n * rate * (self.rate == rate)\n", vars(made))
    made.self = made
    scope = main("def use(n):\n    return made.times(n), made.__name__\n")
    scope["made"] = made
    assert other.run(made.times, 4) == 12
    assert other.run(scope["use"], 5) == (15, "serde_test_made")


def test_tracebacks_keep_the_file_name_of_code_that_goes_by_value(main, other):
    scope = main("def where():\n    return where.__code__.co_filename\n")
    assert other.run(scope["where"]) == "<script>"
    assert other.run(lambda: sys._getframe().f_code.co_filename) == __file__


class Stubborn:
    def __getstate__(self):
        raise TypeError("does not travel, 7")


class Flow:
    def __init__(self):
        self.lock = threading.Lock()

    def step(self, x):
        return x + 1


@pytest.mark.parametrize(
    ("fn", "args", "kwargs", "words"),
    [
        (
            pow,
            (1, {"deep": [Stubborn()]}),
            {},
            ["'pow'", "args[1]['deep'][0], of type 'Stubborn'", "travel, 7"],
        ),
        (print, (1,), {"file": threading.Lock()}, ["'print'", "'file'", "'lock'", "cannot pickle '_thread.lock'"]),
        (Flow().step, (1,), {}, ["'Flow.step'", "the callable.__self__.lock, of type 'lock'", "captures"]),
        (pow, ((i for i in ()),), {}, ["args[0]", "generator"]),
    ],
)
def test_the_culprit_in_a_call_is_named(fn, args, kwargs, words):
    with pytest.raises(PayloadError) as caught:
        encode_call(fn, args, kwargs)
    for word in words:
        assert word in str(caught.value)
    assert isinstance(caught.value.__cause__, TypeError)


def test_a_captured_lock_is_the_callable_s_fault():
    lock = threading.Lock()
    with pytest.raises(PayloadError, match=r"<lambda>' cannot be sent: the variable 'lock' of an enclosing function"):
        encode_call(lambda: lock, (), {})


def test_a_call_that_is_too_deep_only_as_a_whole_is_still_explained():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(PayloadError, match=r"args\[0\].*RecursionError"):
        encode_call(len, (deep,), {})
    while deep:  # freed from the outside in: no recursion
        deep = deep[0]


class Moody:
    """Pickles every other time."""

    times = 0

    def __reduce__(self):
        Moody.times += 1
        if Moody.times % 2:
            raise ValueError("not now")
        return Moody, ()


def test_a_call_that_fails_only_as_a_whole_says_so():
    with pytest.raises(PayloadError, match=r"task 'len' cannot be sent: the call as a whole .*: ValueError: not now"):
        encode_call(len, (Moody(),), {})


def test_code_that_marshal_refuses_goes_by_its_fields(other):
    def three():
        return 3

    class Three(int):
        pass

    three.__code__ = three.__code__.replace(co_consts=(None, Three(3)))
    assert other.run(three) == 3
    assert type(other.run(three)) is Three


def test_a_payload_over_the_limit_says_its_size(monkeypatch):
    monkeypatch.setattr(values, "PAYLOAD_LIMIT", 1_500)
    with pytest.raises(PayloadError, match=r"task 'len' cannot be sent: .* 2,0\d\d bytes, and the limit is 1,500"):
        encode_call(len, (b"x" * 2_000,), {})


def _refuse():
    raise RuntimeError("cannot load 4")


class Fragile:
    def __reduce__(self):
        return _refuse, ()


def test_a_call_that_cannot_be_loaded_fails_by_itself(other):
    error = other.failure(len, [Fragile()])
    assert isinstance(error, PayloadError)
    assert "cannot load 4" in str(error)
    assert isinstance(error.__cause__, RuntimeError)
    assert other.run(pow, 2, 3) == 8


def test_a_module_missing_in_the_worker_is_named(tools, other):
    import importlib
    import pathlib

    folder = pathlib.Path(tools.__file__).parent
    (folder / "serde_test_later.py").write_text("def f():\n    return 1\n")
    importlib.invalidate_caches()
    import serde_test_later

    payload = encode_call(serde_test_later.f, (), {})
    (folder / "serde_test_later.py").unlink()
    del sys.modules["serde_test_later"]
    returned, reply = other.answer(payload)
    assert not returned
    from slipstream.serde.exceptions import decode_exception

    assert "Module 'serde_test_later' must be importable in every worker" in str(decode_exception(reply))


@pytest.mark.parametrize("payload", [b"", b"\x80", b"\x80\x05K\x01.", b"i\x05\x00\x00\x00", b"\xff\xff", b"("])
def test_damaged_calls_are_payload_errors(payload):
    with pytest.raises(PayloadError, match="the call cannot be loaded"):
        decode_call(payload)


SCRIPT = """
import dataclasses
import enum
from other_process import OtherProcess

class Phase(enum.Enum):
    DRAFT = "d"
    FINAL = "f"

@dataclasses.dataclass
class Item:
    phase: Phase = Phase.DRAFT

def finish(item):
    return Item(Phase.FINAL), item.phase is Phase.DRAFT

def fail():
    raise LookupError(Item())

process = OtherProcess()
got, was_draft = process.run(finish, Item())
error = process.failure(fail)
process.close()
assert type(got) is Item and got.phase is Phase.FINAL and was_draft
assert error.args == (Item(),)
assert "in fail" in str(error.__cause__)
print("good")
"""


def test_a_script_without_a_main_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, str(script)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment)
    assert done.stdout == "good\n"
