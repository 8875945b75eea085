"""What a function captures: one digest for the same, another for any change, and state that is sent each time.

Functions here are made by `made`, in globals of their own, as a script's or a notebook's are.
"""

import functools
import gc
import math
import os
import subprocess
import sys
import textwrap
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.serde import captures, definitions, guards, kept
from slipstream.serde.definitions import Definition
from slipstream.serde.tasks import encode_task
from slipstream.serde.values import decode_call


def made(source, name="f", **there):
    """A function from source, in a namespace that no module has."""
    namespace = {"__name__": "__main__", **there}
    exec(compile(textwrap.dedent(source), "<a cell>", "exec"), namespace)
    return namespace[name]


def digest(fn):
    return captures.capture(fn).digest


def ran(fn, *args, **kwargs):
    """The result of the call as a worker runs it."""
    encoded = encode_task(fn, args, kwargs)
    assert encoded.definition
    return decode_and_run(encoded)


def decode_and_run(encoded):
    definition = Definition(encoded.definition) if encoded.definition else None
    classes = Definition(encoded.classes) if encoded.classes else None
    function, args, kwargs = decode_call(encoded.payload, definition, classes)
    return function(*args, **kwargs)


# --- one digest for the same ------------------------------------------------------------------------------------------

PLAIN = """
    LIMIT = 3
    NAMES = ("a", 1.5, None, frozenset({"x", "y"}), b"z")
    import math
    def inner(x, *, scale=2): return x * scale + LIMIT
    def f(x, y=(1, 2)): return inner(x), NAMES, math.floor(x), [inner(v) for v in y]
"""


def test_the_same_text_at_the_same_place_has_the_same_digest():
    first, second = made(PLAIN), made(PLAIN)
    assert first is not second
    assert digest(first) == digest(second)
    assert ran(first, 2) == first(2)


def test_a_digest_does_not_depend_on_the_process():
    script = f"""
        import sys
        sys.path.insert(0, {str(__file__).rpartition("/")[0]!r})
        from test_captures import PLAIN, digest, made
        print(digest(made(PLAIN)).hex())
    """
    run = [sys.executable, "-c", textwrap.dedent(script)]
    digests = {
        subprocess.run(
            run, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, check=True, text=True
        ).stdout.strip()
        for seed in ("0", "1", "2")
    }
    assert digests == {digest(made(PLAIN)).hex()}


@pytest.mark.parametrize(
    "change",
    [
        lambda there: there.update(g7=-7),
        lambda there: there.update(g7=True),  # equal to what was there
        lambda there: there.pop("g39"),
        lambda there: there.pop("len"),
        lambda there: there.update(abs=max),
        lambda there: there.update({"é": 2}),
    ],
)
def test_many_guards_that_were_proven_often_see_each_change(change):
    names = [f"g{n}" for n in range(40)]
    fn = made(f"len = max\né = 1\ndef f(): return len, abs, é, {', '.join(names)}", **dict.fromkeys(names, 1))
    for _ in range(guards.PROOFS_TO_COMPILE + 1):
        before = captures.capture(fn)
    assert before.compiled is not None
    change(fn.__globals__)
    assert captures.capture(fn).digest != before.digest


def test_running_a_function_does_not_change_its_digest(monkeypatch):
    """Its code specializes itself, and its constants get other counts of references."""
    fn = made(PLAIN)
    before = digest(fn)
    results = [fn(2) for _ in range(200)]
    monkeypatch.setattr(kept, "capture_at", lambda place: None)
    assert digest(fn) == before
    assert len(results) == 200


def test_partials_and_decorated_functions_share_what_they_wrap():
    base = made("def f(x, y=0): return x + y")
    wrap = made("def f(fn):\n    def wrapper(*args): return fn(*args)\n    return wrapper")
    assert len({encode_task(functools.partial(base, n), (1,), {}).digest for n in range(100)}) == 1
    assert len({digest(wrap(base)) for _ in range(100)}) == 1
    assert ran(functools.partial(base, 1), y=5) == 6
    assert ran(functools.partial(functools.partial(base, 1), y=2), y=3) == 4
    assert ran(wrap(base), 7) == 7


def test_small_and_large_numbers_are_told_apart_by_value_and_type():
    sources = [
        "1",
        "True",
        "1.0",
        "1 + 0j",
        "'1'",
        "b'1'",
        "(1,)",
        "frozenset((1,))",
        "None",
        "...",
        "-0.0",
        "0.0",
        "10**40",
    ]
    functions = [made(f"value = {source}\ndef f(): return value") for source in sources]
    assert len({digest(fn) for fn in functions}) == len(sources)


# --- another for any change -------------------------------------------------------------------------------------------


def rebind_global(space):
    space["limit"] = 4


def redefine_called(space):
    space["called"] = made("def called(x): return -x", "called")


def change_code_in_place(space):
    space["called"].__code__ = (lambda x: x * 100).__code__


def change_default(space):
    space["f"].__defaults__ = (5,)


def change_default_of_called(space):
    space["called"].__defaults__ = (5,)


def change_keyword_default(space):
    space["f"].__kwdefaults__["z"] = 6


def change_keyword_default_of_called(space):
    space["called"].__kwdefaults__["k"] = 6


def hide_builtin(space):
    space["abs"] = made("def f(x): return 1000 + x")


def change_cell(space):
    space["set_cell"](9)


def change_class(space):
    space["C"].factor = 11


def change_method(space):
    space["C"].times = made("def times(self, x): return x - 1", "times")


def add_attribute_of_class(space):
    space["C"].offset = 100


CHANGING = """
    limit = 3
    def called(x, d=0, *, k=1): return x + limit + d + k
    class C:
        factor = 2
        offset = property(lambda self: 0)
        def times(self, x): return x * self.factor
    def make():
        cell = 1
        def set_cell(value):
            nonlocal cell
            cell = value
        def get(x): return x * cell
        return set_cell, get
    set_cell, get = make()
    def f(x, y=1, *, z=2): return called(x), abs(y), z, get(x), C().times(x), C().offset
"""
CHANGES = [
    *(rebind_global, redefine_called, change_code_in_place, change_default, change_default_of_called),
    *(change_keyword_default, change_keyword_default_of_called, hide_builtin, change_cell),
    *(change_class, change_method, add_attribute_of_class),
]


#: A class goes along with each task.
CHANGES_OF_STATE = (change_class, change_method, add_attribute_of_class)


@pytest.mark.parametrize("change", CHANGES)
def test_the_next_capture_has_every_change(change):
    fn = made(CHANGING)
    space = fn.__globals__
    before, known = digest(fn), captures.capture(fn)
    assert captures.capture(fn) is known  # it was proven that nothing has changed
    assert ran(fn, 7) == fn(7)
    was = fn(7)
    change(space)
    assert (digest(fn) != before) == (change not in CHANGES_OF_STATE)
    assert ran(fn, 7) == fn(7)
    assert fn(7) != was


CLASSES = """
    import abc
    K = 1
    class M(type):
        def who(cls): return 1
    class Base(metaclass=M):
        def m(self): return K
    class C(Base):
        x = 1
        name = []
        __registry__ = []
        value = property(lambda self: K)
        def __init_subclass__(cls): cls.seen = K
        def m(self): return 10 + K
    class A(abc.ABC):
        pass
    def f():
        class Inner(C):
            y = K
        return getattr(C, "x", None), C.name, C.__registry__, C().value, C().m(), C.who(), Inner.y, Inner.seen
    def g(): return C.x, C().m(), isinstance(5, A)
"""


@pytest.mark.parametrize(
    "change",
    [
        lambda there: there["C"].name.append(1),
        lambda there: there["C"].__registry__.append(1),
        lambda there: there.__setitem__("K", 2),
        lambda there: setattr(there["M"], "who", lambda cls: 2),
        lambda there: delattr(there["C"], "m"),
        lambda there: delattr(there["C"], "x"),
        lambda there: there["A"].register(int),
    ],
)
def test_every_change_of_a_class_reaches_a_process_that_has_it(change, other):
    """And so does the change back: both functions refer to the one copy that the process has."""
    fn = made(CLASSES)
    there = fn.__globals__
    g = there["g"]
    assert other.run(fn) == fn()
    change(there)
    assert other.run(fn) == fn()
    if "x" in vars(there["C"]):
        for x in (1, 2, 1):
            there["C"].x = x
            for task in (fn, g, fn):
                assert other.run(task) == task()


def test_one_class_and_two_functions_one_of_which_is_sent_before_and_after(other):
    fn = made("class C:\n    limit = 1\ndef f(): return C.limit\ndef g(): return C.limit + 0")
    there = fn.__globals__
    for limit, name in ((1, "f"), (2, "g"), (1, "f")):
        there["C"].limit = limit
        assert other.run(there[name]) == limit


def test_functions_that_share_globals_are_not_those_that_do_not():
    code = compile("n = 0\ndef inc():\n    global n\n    n += 1\ndef get(): return n\n", "<shared>", "exec")

    def make(shared):
        first, second = {"__name__": "q"}, {"__name__": "q"}
        exec(code, first)
        exec(code, second)
        return made("def make(i, g):\n    def r():\n        i()\n        return g()\n    return r", "make")(
            first["inc"], (first if shared else second)["get"]
        )

    assert [ran(make(True)), ran(make(False))] == [1, 0]


def test_functions_beside_the_task_s_own_share_its_globals():
    source = """
        n = 0
        def inc():
            global n
            n += 1
        table = {"inc": inc}
        def f():
            table["inc"]()
            return n
        def g(call):
            call()
            return n
    """
    f = made(source)
    assert decode_and_run(encode_task(f, (), {})) == 1
    g = made(source, "g")
    assert decode_and_run(encode_task(g, (g.__globals__["inc"],), {})) == 1


def test_a_submodule_that_is_imported_later_is_imported_there_too(monkeypatch):
    monkeypatch.delitem(sys.modules, "xml.dom.minidom", raising=False)
    fn = made("import xml\ndef f(): return xml.dom.minidom.__name__")
    before = digest(fn)
    import xml.dom.minidom  # noqa: F401

    assert digest(fn) != before
    assert ran(fn) == "xml.dom.minidom"


def test_what_is_added_to_a_wrapper_or_to_keyword_defaults_is_seen():
    fn = made(
        """
        import functools
        @functools.cache
        def cached(): return 1
        def called(*, a=1, b): return a, b
        def f(): return getattr(cached, "limit", None), called(a=1, b=1) if called.__kwdefaults__ else None
        """
    )
    assert ran(fn) == fn()
    there = fn.__globals__
    before = digest(fn)
    there["cached"].limit = 5
    assert digest(fn) != before
    assert ran(fn) == fn()
    before = digest(fn)
    there["called"].__kwdefaults__["b"] = 3
    assert digest(fn) != before


def test_equal_code_under_another_name_has_its_own_label():
    make = made("def make(name):\n    def f(): return 1\n    f.__name__ = f.__qualname__ = name\n    return f", "make")
    assert [encode_task(make(name), (), {}).label for name in ("one", "two", "one")] == ["one", "two", "one"]


def test_a_change_of_the_import_path_is_another_decision(monkeypatch, tmp_path):
    """A module that can be imported now is sent by name from now on."""
    fn = made("def f(): return 1")
    known = captures.capture(fn)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert captures.capture(fn) is not known


# --- state ------------------------------------------------------------------------------------------------------------


def test_what_may_change_in_place_is_sent_with_each_task_and_named():
    fn = made("data = [1]\nnames = {'a': 1}\ndef f(x, seen=[]): return sum(data) + x, names, seen")
    encoded = encode_task(fn, (1,), {})
    assert captures.capture(fn).paths == ("the default of 'seen'", "the global 'data'", "the global 'names'")
    assert ran(fn, 1) == (2, {"a": 1}, [])
    fn.__globals__["data"].append(10)
    again = encode_task(fn, (1,), {})
    assert (again.digest, again.definition) == (encoded.digest, encoded.definition)
    assert again.state_bytes > encoded.state_bytes > 0
    assert ran(fn, 1) == (12, {"a": 1}, [])


def test_arguments_and_state_share_what_they_share_here():
    shared = [1]
    fn = made("def f(x):\n    return x is data", data=shared)
    assert ran(fn, shared) is True
    assert ran(fn, [1]) is False


def test_two_functions_that_capture_the_same_list_capture_it_once():
    fn = made("data = []\ndef add(): data.append(1)\ndef f():\n    add()\n    return data")
    assert ran(fn) == [1]
    assert fn.__globals__["data"] == []


@pytest.mark.parametrize(
    "source",
    [
        "count = 0\ndef f():\n    global count\n    count += 1\n    return count",
        "def g():\n  n = 0\n  def f():\n    nonlocal n\n    n += 1\n    return n\n  return f\nf = g()",
        "def f():\n    f.calls += 1\n    return f.calls\nf.calls = 0",
        "count = 0\ndef up():\n    global count\n    count += 1\ndef f():\n    up()\n    return count",
    ],
)
def test_what_a_function_writes_to_is_its_own_in_each_task(source):
    encoded = encode_task(made(source), (), {})
    definition = Definition(encoded.definition)
    results = []
    for _ in range(3):
        function, args, kwargs = decode_call(encoded.payload, definition)
        results.append(function(*args, **kwargs))
    assert results == [1, 1, 1]


def test_a_function_that_writes_nothing_is_loaded_once():
    encoded = encode_task(made(PLAIN), (1,), {})
    definition = Definition(encoded.definition)
    assert decode_call(encoded.payload, definition)[0] is decode_call(encoded.payload, definition)[0]


def test_what_only_a_closure_refers_to_is_not_kept_alive():
    class Large:
        pass

    make = made("def f(large):\n    return lambda: large is None")
    large = Large()
    gone = weakref.ref(large)
    encode_task(make(large), (), {})
    del large
    gc.collect()
    assert gone() is None


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_captures_and_definitions_are_bounded_in_number_and_bytes(monkeypatch):
    monkeypatch.setattr(kept, "MAX_CAPTURES", 10)
    monkeypatch.setattr(kept, "MAX_DEFINITION_BYTES", 50_000)
    known = kept._kept
    for n in range(100):
        encode_task(made(f"text = {'x' * (n * 10)!r}\ndef f{n}(): return text", f"f{n}"), (), {})
        assert len(known.captures) <= 10
        assert known.capture_bytes == sum(len(capture.definition) for capture in known.captures.values()) <= 50_000
        assert known.definition_bytes == sum(
            len(definition) + definitions.OBJECT_BYTES for definition, _ in known.definitions.values()
        )
        assert known.definition_bytes <= 50_000
    assert len(known.definitions) > 10
    encode_task(made(f"text = {'x' * 60_000!r}\ndef large(): return text", "large"), (), {})
    assert len(known.definitions) == 1  # the one that is needed now


class Large:
    pass


@pytest.mark.parametrize(
    ("source", "limit"),
    [("def f(): return large  # {n}", kept.MAX_WITH_STATE), ("def f(): return {n}", kept.MAX_SPACES)],
    ids=["state", "globals"],
)
def test_little_is_kept_alive_by_being_remembered(source, limit):
    gone = []
    for n in range(limit + 10):
        large = Large()
        gone.append(weakref.ref(large))
        encode_task(made(source.format(n=n), large=large), (), {})
    del large
    gc.collect()
    assert 0 < sum(reference() is not None for reference in gone) <= limit


def test_classes_live_as_long_as_what_was_written_of_them_is_kept(monkeypatch):
    """Instances of them may come back."""
    monkeypatch.setattr(kept, "MAX_DEFINITION_BYTES", 100_000)
    gone = []
    for n in range(10):
        cls = type("Local", (), {"__module__": "__main__", "blob": b"x" * 30_000, "n": n})
        gone.append(weakref.ref(cls))
        encode_task(len, ([cls()],), {})
    del cls
    gc.collect()
    assert [reference() is not None for reference in gone] == [False] * 7 + [True] * 3


#: Source; bytes of the definition, of the classes, and of the call. What a callable binds counts as the call.
BUDGET = {
    "a function": ("def f(x): return x", 460, 0, 25),
    "with a constant": ("n = 1\ndef f(x): return x + n", 490, 0, 25),
    "that calls another": ("def g(x): return x\ndef f(x): return g(x)", 680, 0, 25),
    "a closure": ("def make(n):\n    def f(x): return x + n\n    return f\nf = make(1)", 550, 0, 25),
    "a lambda": ("f = lambda x: x", 480, 0, 25),
    "cached": ("import functools\n@functools.lru_cache\ndef f(x): return x", 680, 0, 25),
    "decorated": (
        "import functools\ndef d(g):\n    @functools.wraps(g)\n    def w(*a): return g(*a)\n    return w\n"
        "@d\ndef f(x): return x",
        740,
        0,
        25,
    ),
    "a partial": ("import functools\ndef g(x, y): return x\nf = functools.partial(g, 7)", 480, 0, 25),
    "a partial by name": ("import functools, operator\nf = functools.partial(operator.add, 7)", 0, 0, 60),
    "recursive": ("def f(x): return x and f(x - 1)", 510, 0, 25),
    "with a class": ("class C:\n    def m(self): return 1\ndef f(x): return C().m()", 720, 720, 25),
    "with a module": ("import math\ndef f(x): return math.floor(x)", 530, 0, 25),
    "a class": ("class f:\n    def __init__(self, x): pass", 0, 720, 140),
    "an instance": ("class C:\n    def __call__(self, x): return x\nf = C()\nf.n = 7", 0, 760, 160),
    "a method": ("class C:\n    def m(self, x): return x\nf = C().m", 0, 720, 230),
    "a class method": ("class C:\n    @classmethod\n    def m(cls, x): return x\nf = C.m", 0, 780, 200),
    "a static method": ("class C:\n    @staticmethod\n    def m(x): return x\nf = C.m", 460, 0, 25),
    "a builtin": ("f = abs", 0, 0, 40),
    "a builtin's method": ("f = [1].append", 0, 0, 80),
}


@pytest.mark.parametrize(("source", "definition", "classes", "call"), BUDGET.values(), ids=BUDGET)
def test_definitions_classes_and_calls_stay_small(source, definition, classes, call):
    """What goes by reference today and by value tomorrow shows here."""
    encoded = encode_task(made(source), (1,), {})
    assert definition // 2 <= len(encoded.definition) <= definition
    assert classes // 2 <= len(encoded.classes) <= classes
    assert call // 2 < len(encoded.payload) <= call


CHANGED_BY_BOTH = """
    cache = []
    class C:
        shared = []
        def add(self): cache.append(1); self.shared.append(2); return len(cache)
    class D(C):
        pass
    total = 0
    class Counter:
        def count(self):
            global total
            total += 1
    def f(things): C().add(); things.append(3); return cache, C.shared, things
    def g(things): return D().add(), things is C.shared
    def h(counter):
        counter.count()
        return total
"""


@pytest.mark.parametrize(
    ("name", "argument"), [("f", "C.shared"), ("f", "cache"), ("f", "[]"), ("g", "C.shared"), ("h", "Counter()")]
)
def test_what_a_class_shares_with_the_rest_of_the_call_is_one_thing_there_too(name, argument, other):
    here, sent = made(CHANGED_BY_BOTH, name), made(CHANGED_BY_BOTH, name)
    expected = here(eval(argument, here.__globals__))
    for _ in range(2):  # each task has what is there at its submit
        assert other.run(sent, eval(argument, sent.__globals__)) == expected


# --- running there is running here ------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)


@given(there=VALUES, cell=VALUES, default=VALUES, keyword=VALUES, args=st.lists(VALUES, max_size=3))
def test_a_generated_function_gives_there_what_it_gives_here(there, cell, default, keyword, args):
    make = made(
        """
        def called(): return there
        def f(cell, default, keyword):
            def g(*args, default=default): return called(), cell, default, args
            g.__kwdefaults__["default"] = keyword
            def h(*args, d=default): return g(*args), d, there
            return h
        """,
        there=there,
    )
    function = make(cell, default, keyword)
    assert ran(function, *args) == function(*args)
    again = make(cell, default, keyword)
    assert ran(again, *args) == function(*args)


def test_classes_by_value_come_back_as_themselves():
    fn = made(
        """
        import dataclasses, enum, typing, abc
        class Color(enum.Enum):
            RED = 1
        @dataclasses.dataclass
        class Point:
            x: int
        class Pair(typing.NamedTuple):
            a: int
        class Base(abc.ABC):
            @abc.abstractmethod
            def m(self): ...
        class Derived(Base):
            seen = []
            def m(self): return len(self.seen)
        def f(): return Color.RED, Point(1), Pair(2), Derived().m()
        """
    )
    color, point, pair, number = ran(fn)
    there = fn.__globals__
    assert color is there["Color"].RED
    assert type(point) is there["Point"]
    assert type(pair) is there["Pair"]
    assert number == 0
    there["Derived"].seen.append(1)
    assert ran(fn)[3] == 1


def test_functions_found_by_name_have_no_definition():
    assert encode_task(math.floor, (1.5,), {}).definition == b""
    assert encode_task(functools.partial(textwrap.dedent, " x"), (), {}).definition == b""
    assert captures.capture(textwrap.dedent) is None


def test_what_changes_while_it_is_written_is_walked_over_again(monkeypatch):
    """Else the definition of a digest would be that of another moment, for all tasks to come."""
    fn = made("def called(): return 1\ndef f(): return called()")
    write, changes = captures.write_definition, iter([2, 3])

    def write_and_change(*args, **kwargs):
        definition = write(*args, **kwargs)
        for value in changes:
            fn.__globals__["called"] = made(f"def called(): return {value}", "called")
            break
        return definition

    monkeypatch.setattr(captures, "write_definition", write_and_change)
    assert ran(fn) == 3
    assert captures.capture(fn) is captures.capture(fn)


def test_what_never_stays_the_same_is_no_other_task_s(monkeypatch):
    fn = made("def called(): return 1\ndef restless(): return called()", "restless")
    write = captures.write_definition

    def write_and_change(*args, **kwargs):
        definition = write(*args, **kwargs)
        fn.__globals__["called"] = made(f"def called(): return {id(definition)}", "called")
        return definition

    monkeypatch.setattr(captures, "write_definition", write_and_change)
    first, second = captures.capture(fn), captures.capture(fn)
    assert first.digest != second.digest
    assert fn.__code__ not in [known.code for known in kept._kept.captures.values()]


@pytest.mark.parametrize("name", ["__new__", "__init_subclass__", "__class_getitem__", "static", "made"])
def test_methods_of_every_kind_follow_what_they_call(name):
    fn = made(
        """
        def called(): return 1
        class C:
            def __new__(cls): cls.seen = called(); return object.__new__(cls)
            def __init_subclass__(cls): cls.n = called()
            def __class_getitem__(cls, x): return called()
            static = staticmethod(lambda: called())
            made = property(lambda self: called())
        def f(name):
            if name == "__new__": return C().seen
            if name == "__init_subclass__": return type("D", (C,), {}).n
            if name == "__class_getitem__": return C[0]
            return getattr(C(), name) if name == "made" else C.static()
        """
    )
    assert ran(fn, name) == fn(name) == 1
    fn.__globals__["called"] = made("def called(): return 2", "called")
    assert ran(fn, name) == fn(name) == 2
