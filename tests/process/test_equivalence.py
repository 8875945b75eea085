"""Running through the engine gives what running in place gives, for generated programs, changes and arguments.

Each program is run twice: one copy here, in place; the other is changed step by step and submitted after each step. A
task has what its program was at its submit, and what it changes stays in the worker: so the copy here is made anew for
each step.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream import Executor

pytestmark = pytest.mark.long

PROGRAM = """
import dataclasses, enum, functools, math

K = 1
TABLE = [1, {"a": 2}]
NAMES = frozenset(("x", "y"))
count = 0

class Colour(enum.Enum):
    RED = 1
    BLUE = 2

@dataclasses.dataclass
class Point:
    x: object
    y: int = K
    def total(self): return (self.x, self.y + K, helper(self.y))

class Meta(type):
    def __len__(cls): return K

class Base(metaclass=Meta):
    limit = 3
    seen = []
    def __init__(self, x): self.x = x
    def __call__(self, x): self.seen.append(x); return len(self.seen), self.limit, len(type(self)), self.x, x
    @classmethod
    def made(cls, x): return cls(x)(x)
    @staticmethod
    def bare(x): return helper(x), K
    @property
    def wide(self): return (self.limit, TABLE, self.x)

class Derived(Base):
    limit = 4
    def __call__(self, x): return ("derived", *super().__call__(x))

def helper(x, y=2): return (x, y, K, math.pi)

def tick():
    global count
    count += 1
    return count

def outer(n, *more):
    total = [n]
    def inner(x, *, plus=K):
        nonlocal n
        n = (n, plus)
        total.append(x)
        return n, total, more, TABLE
    return inner

def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs): return fn.__name__, fn(*args, **kwargs), tick()
    return wrapper

@functools.lru_cache
def cached(x): return tick(), repr(x), K

@logged
def even(n): return n <= 0 or odd(n - 1)
def odd(n): return n > 0 and even(n - 1)

def plain(x): return helper(x), [helper(v) for v in (1, 2)], NAMES == {"x", "y"}, TABLE
def classes(x):
    class Local(Derived):
        limit = K
    return Point(x).total(), Local(x)(x), Derived.made(x), Colour(1) is Colour.RED, Derived(x).wide, tick()
def raises(x): raise ValueError(K, helper(x))
def changes(x): TABLE.append(x); TABLE[1]["b"] = tick(); return TABLE, tick(), Base.seen
def text(x): return repr(x), str(type(x).__name__)
"""
CALLABLES = {
    "plain": "plain",
    "classes": "classes",
    "raises": "raises",
    "changes": "changes",
    "text": "text",
    "closure": "outer(K, TABLE)",
    "cached": "cached",
    "recursive": "lambda x: (even(5), x)",
    "decorated": "logged(plain)",
    "instance": "Derived(TABLE)",
    "method": "Point(TABLE).__eq__",
    "class method": "Derived.made",
    "static method": "Base.bare",
    "bound": "Base(K).__call__",
    "class": "lambda x, made=Point: dataclasses.astuple(made(x))",
    "partial": "functools.partial(helper, y=TABLE)",
    "shared": "lambda x: (x is TABLE, Base.seen is x, Base(x).seen, x)",
}
CHANGES = [
    "K = {n}",
    "TABLE.append({n})",
    "TABLE[1]['a'] = {n}",
    "TABLE = [{n}, {{}}]",
    "Base.limit = {n}",
    "Base.seen.append({n})",
    "Derived.limit = Base",
    "Derived.__call__ = lambda self, x: ('changed', {n}, K)",
    "del Derived.limit",
    "Meta.__len__ = lambda cls: {n} + K",
    "def helper(x, y={n}): return (y, K)",
    "helper.__defaults__ = ({n},)",
    "helper.extra = {n}",
    "count = {n}",
    "NAMES = frozenset(('x',))",
    "def odd(n): return {n}",
    "Point.total = lambda self: helper(self.x)",
]
ARGUMENTS = {
    "a tree": None,
    "the table": "TABLE",
    "what a class has": "Base.seen",
    "a point": "Point(TABLE)",
    "a member": "Colour.BLUE",
}
TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
    ),
    max_leaves=6,
)
STEPS = st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 99)), max_size=5)


def program() -> dict[str, Any]:
    """The globals of a copy of the program."""
    there: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(PROGRAM, "<program>", "exec"), there)
    return there


def change_it(there: dict[str, Any], change: str) -> None:
    """Change it; nothing where an attribute is gone already."""
    try:
        exec(compile(change, "<change>", "exec"), there)
    except AttributeError:
        assert change.startswith("del ")


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    """What a call gives, in a form that is equal for both copies, whose classes are not the same objects."""
    try:
        return "returned", as_data(call(*args))
    except Exception as error:  # whatever the program raises
        return "raised", type(error).__name__, as_data(error.args)


def as_data(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [as_data(item) for item in value]
    if isinstance(value, dict):
        return {name: as_data(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__, as_data(vars(value))
    return (
        (type(value).__name__, value) if type(value).__module__ == "builtins" and not callable(value) else repr(value)
    )


@pytest.mark.parametrize("name", CALLABLES)
def test_a_task_gives_what_its_call_gives_here(name: str, single: Executor) -> None:
    @settings(max_examples=25)
    @given(steps=STEPS, tree=TREES, argument=st.sampled_from([*ARGUMENTS]))
    def same(steps: list[tuple[str, int]], tree: Any, argument: str) -> None:
        source = ARGUMENTS[argument]
        sent, changes = program(), []
        call = eval(CALLABLES[name], sent)
        for change, n in [("pass", 0), *steps]:
            changes.append(change.format(n=n))
            change_it(sent, changes[-1])
            future = single.submit(call, tree if source is None else eval(source, sent))
            here = program()
            call_here = eval(CALLABLES[name], here)
            for earlier in changes:
                change_it(here, earlier)
            expected = outcome(call_here, tree if source is None else eval(source, here))
            assert outcome(future.result) == expected

    same()
