"""Classes of `__main__`: one identity in each process, and only the owner changes them."""

import dataclasses

import pydantic
import pytest

from slipstream.errors import PayloadError
from slipstream.serde import classes
from slipstream.serde.tasks import encode_task
from slipstream.serde.values import decode_value, encode_value

ENUMS = """
import enum

class Phase(enum.Enum):
    DRAFT = "d"
    FINAL = "f"

    def other(self):
        return Phase.FINAL if self is Phase.DRAFT else Phase.DRAFT

class Colour(enum.Flag):
    RED = enum.auto()
    BLUE = enum.auto()

class Level(enum.IntEnum):
    LOW = 1

NAMES = {Phase.DRAFT: "first", Phase.FINAL: "last"}

def pick(flag):
    return Phase.FINAL if flag else Phase.DRAFT

def check(c):
    return c is Phase.FINAL, NAMES[c], c.other().name

def nest(c):
    return {"k": [c, (c.other(),)], c: 1}

def purple(level):
    return Colour.RED | Colour.BLUE, level is Level.LOW, level
"""


def test_members_of_an_enum_keep_their_identity(main, other):
    scope = main(ENUMS)
    phase = scope["Phase"]
    for _ in range(3):
        assert other.run(scope["pick"], True) is phase.FINAL
        assert other.run(scope["check"], phase.FINAL) == (True, "last", "DRAFT")
    got = other.run(scope["nest"], phase.DRAFT)
    assert got["k"][0] is phase.DRAFT
    assert got["k"][1][0] is phase.FINAL
    assert got[phase.DRAFT] == 1
    colour, level = scope["Colour"], scope["Level"]
    assert other.run(scope["purple"], level.LOW) == (colour.RED | colour.BLUE, True, level.LOW)


TYPES = """
import abc
import collections
import dataclasses
import functools
import typing

T = typing.TypeVar("T", bound=object)
N = typing.TypeVar("N", int, float)
P = typing.ParamSpec("P")
Ts = typing.TypeVarTuple("Ts")
UserId = typing.NewType("UserId", int)

class Rec(typing.NamedTuple):
    left: float
    tag: str = "x"

Pair = collections.namedtuple("Pair", "a b")

@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Conf:
    n: int
    opts: dict = dataclasses.field(default_factory=dict)

@dataclasses.dataclass(order=True)
class Point:
    x: int = 0
    owner: UserId = 3

    @functools.cached_property
    def double(self):
        return 2 * self.x

    @property
    def next(self):
        return Point(self.x + 1)

class Slotted:
    __slots__ = ("a", "_Slotted__hidden", "__weakref__")

    def __init__(self, a):
        self.a = a
        self.__hidden = a + 1

    def hidden(self):
        return self.__hidden

@functools.singledispatch
def kind(x):
    return "other"

@kind.register
def _(x: int):
    return "int"

@kind.register
def _(x: Point):
    return "point"

class Shape(abc.ABC):
    sides: int

    @abc.abstractmethod
    def area(self): ...

class Square(Shape):
    sides = 4

    def __init__(self, s):
        super().__init__()
        self.s = s

    def area(self):
        return self.s ** 2

class Other:
    pass

Shape.register(Other)

class Box(typing.Generic[T]):
    def __init__(self, item: T):
        self.item = item

class Outer:
    class Inner:
        def __init__(self, n):
            self.n = n

def kept(fn: typing.Callable[P, T]) -> typing.Callable[P, T]:
    @functools.wraps(fn)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return fn(*args, **kwargs)
    return wrapper

@kept
def who(user: UserId, many: "tuple[typing.Unpack[Ts]]" = (), number: N = 0) -> UserId:
    return user

def echo(x):
    return x

def inner(n):
    made = Outer.Inner(n)
    made.seen = repr(Outer.Inner), repr(Point(1)), Conf.__qualname__
    return made

def facts(s):
    return isinstance(s, Shape), s.area(), s.sides, isinstance(Other(), Shape), issubclass(int, Shape)

def doubled(p):
    return p.double, p.next
"""


def test_instances_come_back_as_the_client_s_own_class(main, other):
    scope = main(TYPES)

    def back(value):
        got = other.run(scope["echo"], value)
        assert type(got) is type(value)
        return got

    for _ in range(3):
        assert back(scope["Rec"](2.5)) == (2.5, "x")
        assert back(scope["Pair"](1, 2)).b == 2
        conf = back(scope["Conf"](n=3, opts={"k": [1]}))
        assert conf == scope["Conf"](n=3, opts={"k": [1]})
        with pytest.raises(dataclasses.FrozenInstanceError):
            conf.n = 4
        assert back(scope["Square"](3)).area() == 9
        assert other.run(scope["facts"], scope["Square"](3)) == (True, 9, 4, True, False)
        assert back(scope["Box"]("i")).item == "i"
        assert other.run(scope["echo"], scope["Box"][int]) == scope["Box"][int]
        assert other.run(scope["doubled"], scope["Point"](4)) == (8, scope["Point"](5))
        assert back(scope["Slotted"](3)).hidden() == 4
        assert other.run(hasattr, scope["Slotted"](3), "__dict__") is False
        got = other.run(scope["inner"], 6)
        assert type(got) is scope["Outer"].Inner
        assert got.n == 6
        assert got.seen == ("<class '__main__.Outer.Inner'>", "Point(x=1, owner=3)", "Conf")


def test_type_parameters_and_new_types_keep_their_identity(main, other):
    scope = main(TYPES)
    for _ in range(2):
        for name in ("T", "N", "P", "Ts", "UserId"):
            assert other.run(scope["echo"], scope[name]) is scope[name]
        assert other.run(scope["who"], 7) == 7


def test_functions_that_dispatch_on_a_class_of_the_script(main, other):
    scope = main(TYPES)
    for value, want in ((3, "int"), (scope["Point"](), "point"), ("x", "other")):
        assert other.run(scope["kind"], value) == want


MODELS = """
import pydantic

class Part(pydantic.BaseModel):
    n: int = 1

class Model(pydantic.BaseModel):
    name: str = "x"
    parts: list[Part] = []

    @pydantic.field_validator("name")
    @classmethod
    def shout(cls, name):
        return name.upper()

def rename(m, name):
    return Model(name=name, parts=m.parts + [Part(n=5)])

def wrong():
    return Part(n="not a number")
"""


def test_pydantic_models(main, other):
    scope = main(MODELS)
    for _ in range(3):
        got = other.run(scope["rename"], scope["Model"](parts=[scope["Part"](n=2)]), "renamed")
        assert type(got) is scope["Model"]
        assert type(got.parts[1]) is scope["Part"]
        assert (got.name, [part.n for part in got.parts]) == ("RENAMED", [2, 5])
    error = other.failure(scope["wrong"])
    assert isinstance(error, pydantic.ValidationError)
    assert error.errors()[0]["loc"] == ("n",)


OWNED = """
class Base:
    seen = []

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Base.seen.append(cls.__name__)

class Child(Base):
    rate = 1

    def price(self):
        return self.rate

def price(child):
    return child.price(), type(child)

def change(child):
    type(child).rate = 99
    return child

def kind():
    return Child
"""


def test_a_result_never_changes_a_class_of_the_client(main, other):
    scope = main(OWNED)
    child = scope["Child"]
    encode_value(child())  # copyreg notes the names of slots in the class
    before = dict(vars(child))
    got = other.run(scope["change"], child())
    assert type(got) is child
    assert dict(vars(child)) == before
    assert child.rate == 1
    assert scope["Base"].seen == ["Child"]


def test_loading_one_s_own_payload_changes_nothing(main):
    child = main(OWNED)["Child"]
    payload = encode_value(child())
    child.rate = 5
    price = child.price
    assert type(decode_value(payload)) is child
    assert (child.rate, child.price) == (5, price)


def test_class_methods_of_a_class_of_the_script(main, other):
    scope = main(
        "class Made:\n    def __init__(self, n):\n        self.n = n\n\n"
        "    @classmethod\n    def make(cls, n):\n        return cls(n)\n\n"
        "Made.alias = Made.make\n"
    )
    for fn in (scope["Made"].make, scope["Made"].alias):
        got = other.run(fn, 3)
        assert type(got) is scope["Made"]
        assert got.n == 3


def test_what_the_client_changes_in_place_is_what_the_next_task_sees(main, other):
    scope = main(OWNED)
    child = scope["Child"]
    assert other.run(scope["price"], child()) == (1, child)
    child.rate = 2
    assert other.run(scope["price"], child()) == (2, child)
    child.price = lambda self: self.rate + 40
    assert other.run(scope["price"], child()) == (42, child)


def test_a_class_that_is_defined_again_is_another_class(main, other):
    scope = main(OWNED)
    first = scope["Child"]
    assert other.run(scope["kind"]) is first
    main(OWNED.replace("rate = 1", "rate = 3"))
    assert scope["Child"] is not first
    assert other.run(scope["price"], scope["Child"]()) == (3, scope["Child"])
    assert other.run(scope["price"], first()) == (1, first)


def test_a_copy_is_not_changed_by_another_copy(main, other):
    def remember(cls):
        import sys

        sys.kept = cls  # so that the copy lives on
        return cls

    class Made:
        rate = 1

    assert other.run(remember, Made) is Made
    # What a process sends that has itself a copy only.
    classes._copies.add(Made)
    Made.rate = 2
    assert other.run(lambda cls: cls.rate, Made) == 1
    classes._copies.discard(Made)
    assert other.run(lambda cls: cls.rate, Made) == 2


def test_a_class_made_by_a_task_is_one_class_in_the_client(other):
    def make():
        import sys

        class Made:
            rate = 1

            def price(self):
                return self.rate

        sys.made = Made
        return Made()

    def again():
        import sys

        return sys.made()

    first = other.run(make)
    assert type(other.run(again)) is type(first)
    assert first.price() == 1
    assert other.run(lambda thing: type(thing) is __import__("sys").made, first)


def test_a_load_that_failed_half_way_is_mended_by_the_next(main, other):
    scope = main(
        "class Part:\n    pass\n\nclass Whole:\n    part = Part()\n    n = 3\n\ndef n(cls):\n    return cls.n\n"
    )
    part = scope["Part"]

    def refuse(self):
        return eval, ("1/0",)

    part.__reduce__ = refuse
    assert isinstance(other.failure(scope["n"], scope["Whole"]), PayloadError)
    del part.__reduce__
    assert other.run(scope["n"], scope["Whole"]) == 3


def test_an_instance_comes_back_though_its_class_is_gone_here(main, other):
    scope = main(
        "class Thing:\n    def __init__(self, n):\n        self.n = n\n\ndef make(cls, n):\n    return cls(n)\n"
    )
    returned, payload = other.call(scope["make"], (scope["Thing"], 3), {})
    assert returned
    assert type(decode_value(payload)) is scope["Thing"]
    classes.borrowed.TRACKED.pop(classes.borrowed.tracker_id(scope["Thing"]))
    there = decode_value(payload)
    assert (type(there).__name__, there.n) == ("Thing", 3)


def test_what_a_task_puts_into_its_copy_of_a_class_does_not_keep_results_from_coming(main, other):
    scope = main(
        "import threading\nclass Thing:\n    pass\ndef make():\n    Thing.lock = threading.Lock()\n    return Thing()\n"
    )
    assert type(other.run(scope["make"])) is scope["Thing"]
    assert not hasattr(scope["Thing"], "lock")


PROGRAMS = {
    "a class in an annotation only": (
        "class P: pass\ndef g(n: 'int') -> P | None: return n\ndef f(x: P): return g(x)",
        ["pass", "pass"],
    ),
    "what tasks add to a class": (
        "class C: n = 10\nclass D(C): pass\ndef f(x): D.n = D.n + 1; return D.n",
        ["pass", "pass", "C.n = 100"],
    ),
    "singletons": (
        "class C:\n    def __new__(cls):\n        if not hasattr(cls, 'one'):\n"
        "            cls.one, cls.made = object.__new__(cls), 0\n"
        "        cls.made += 1\n        return cls.one\ndef f(x): return C().made, C().made",
        ["pass", "pass"],
    ),
    "an override that equals what it overrides": (
        "class B: strict = False\nclass S(B): strict = True\nclass L(B): strict = False\nclass M(L, S): pass\n"
        "def f(x): B.strict = 5; return M.strict, L.strict",
        ["pass", "L.strict = 7"],
    ),
    "functions in dicts": (
        "def h(): return 1\nCOST = {h: 3}\nORDER = [h]\nclass A: table = {h: 4}\n"
        "def f(x): return COST[h], ORDER.index(h), A.table[h], h in {h}",
        ["pass", "COST[h] = 5"],
    ),
    "a function as argument": (
        "def h(): return 1\nclass A:\n    table = {h: 4}\n    def m(self, x): return x is h\n"
        "X = h\ndef f(x): return x is h, A.table[x], A().m(x)",
        ["pass"],
    ),
    "attributes of functions": (
        "def h(): pass\nh.n = 0\nX = h\nclass A:\n    def go(self): h.n += 1\ndef f(x): A().go(); return x.n, h.n",
        ["pass", "h.n = 5"],
    ),
    "one cache": (
        "import functools\nclass V: pass\n@functools.cache\ndef c(): return V()\n"
        "class A:\n    def c(self): return c()\ndef f(x): return c() is A().c(), c() is c()",
        ["pass"],
    ),
    "a cache of what a class was": (
        "import functools\nclass V: limit = 1\n@functools.cache\ndef c(): return V.limit\ndef f(x): return c()",
        ["pass", "V.limit = 2", "V.limit = 1"],
    ),
    "caches of ABCs": (
        "import abc\nclass P(abc.ABC):\n    @classmethod\n    def __subclasshook__(cls, c): return hasattr(c, 'go')\n"
        "class X: pass\ndef f(x): return isinstance(X(), P)",
        ["pass", "X.go = 1", "del X.go"],
    ),
    "enums": (
        "import enum\nclass E(enum.Enum):\n    A = 1\n    ALIAS = 1\n"
        "class F(enum.Flag):\n    R = 1\n    W = 2\n    RW = 3\n"
        "class L(enum.Enum):\n    def __new__(cls, v, label):\n        self = object.__new__(cls); self._value_ = v\n"
        "        self.label = label; return self\n    ONE = 1, 'one'\n"
        "def f(x): return E['ALIAS'] is E.A, list(E.__members__), F['RW'] == F.R | F.W, L.ONE.label, L(1) is L.ONE",
        ["pass"],
    ),
    "a shared cell": (
        "def make():\n    n = 0\n    def inc():\n        nonlocal n\n        n += 1\n    def get(): return n\n"
        "    class A:\n        def go(self):\n            nonlocal n\n            n += 10\n"
        "    def both(x): inc(); A().go(); return get(), n\n    return both\nf = make()",
        ["pass", "f = make()"],
    ),
    "its name": ("class C: pass\ndef f(x): return C.__name__, C.__qualname__", ["pass", "C.__name__ = 'D'"]),
}


@pytest.mark.parametrize(("source", "changes"), PROGRAMS.values(), ids=PROGRAMS)
def test_programs_with_classes_give_there_what_they_give_here(source, changes, other):
    def program():
        there = {"__name__": "__main__"}
        exec(source, there)
        return there

    sent, done = program(), []
    for change in changes:
        done.append(change)
        exec(change, sent)
        here = program()
        for earlier in done:
            exec(earlier, here)
        assert other.run(sent["f"], sent.get("X", 1)) == here["f"](here.get("X", 1)), change


def test_a_struct_of_a_script_says_where_it_belongs(main):
    scope = main("import msgspec\nclass S(msgspec.Struct):\n    a: int = 1\ndef f(): return S(2)\n")
    with pytest.raises(PayloadError, match="a msgspec Struct cannot be made again: define it in a module"):
        encode_task(scope["f"], (), {})


def test_a_class_with_a_lock_says_so(main):
    scope = main("import threading\nclass Guarded:\n    lock = threading.Lock()\n")
    with pytest.raises(PayloadError, match=r"the class of the value.lock, of type 'lock', cannot be pickled"):
        encode_value(scope["Guarded"]())


def test_classes_of_a_module_on_no_path_come_back(file_module, other):
    module = file_module(
        "serde_test_types",
        "import dataclasses, enum, typing\nT = typing.TypeVar('T')\n\n"
        "class Kind(enum.Enum):\n    A = 1\n\n"
        "@dataclasses.dataclass\nclass Thing(typing.Generic[T]):\n    kind: Kind = Kind.A\n\n"
        "def same(x):\n    return x\n",
    )
    got = other.run(module.same, module.Thing())
    assert type(got) is module.Thing
    assert got.kind is module.Kind.A
