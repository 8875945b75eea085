"""Futures as arguments of tasks: where they may stand, what the task finds there, and what runs ahead."""

import asyncio
import concurrent.futures
import functools
import operator
import re
import threading
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import pytest

import calls
from slipstream import DependencyError, Executor, Future, PayloadError

#: A limit for what never comes.
LIMIT_S = 20


class Named(NamedTuple):
    a: Any
    b: Any = 0


@dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    a: Any
    b: Any = None


class Record(msgspec.Struct, frozen=True):
    a: Any
    b: Any = None


class LikeAttrs:
    """What attrs makes, as far as it matters here."""

    __attrs_attrs__ = (SimpleNamespace(name="a"), SimpleNamespace(name="b"))

    def __init__(self, a, b=None):
        self.a, self.b = a, b

    def __eq__(self, other):
        return (self.a, self.b) == (other.a, other.b)

    __hash__ = None


class Secretive:
    def __init__(self, value):
        self.value = value

    def method(self, *args):
        return self.value

    __call__ = method


def identities(*values):
    return [id(value) for value in values]


def append(values, value):
    values.append(value)
    return values


def shape(cyclic):
    return cyclic[0] is cyclic, cyclic[1]["self"] is cyclic, cyclic[2]


WAYS = {
    "list": lambda x: [x, 1],
    "tuple": lambda x: (x, 1),
    "set": lambda x: {x, "other"},
    "frozenset": lambda x: frozenset({x, "other"}),
    "dict value": lambda x: {"a": x},
    "dict key": lambda x: {x: "a"},
    "deque": lambda x: deque([x, 1], maxlen=2),
    "ordered dict": lambda x: OrderedDict(a=x, b=x),
    "default dict": lambda x: defaultdict(list, a=x),
    "named tuple": lambda x: Named(x, (x,)),
    "frozen dataclass": lambda x: Frozen(x, [x]),
    "dataclass with slots": lambda x: Slotted({"a": x}, x),
    "msgspec struct": lambda x: Record(x, [x]),
    "attrs": lambda x: LikeAttrs(x, [x]),
    "nested": lambda x: [{"a": ({1: deque([Named(Frozen(x))])},)}],
    "deep": lambda x: functools.reduce(lambda inner, _: [inner], range(100), x),
}


@pytest.mark.parametrize("ended", [True, False])
def test_a_future_in_containers(executor, ended):
    future = executor.submit(calls.nap, 0 if ended else 0.2, 7)
    if ended:
        future.result()
    found = {name: executor.submit(calls.echo, way(future)) for name, way in WAYS.items()}
    for name, way in WAYS.items():
        assert (name, found[name].result()) == (name, way(7))
        assert type(found[name].result()) is type(way(7))


def test_results_of_every_kind_at_the_top(executor):
    for value in (7, "text", b"", None, [1, [2]], {"a": (1,)}, (), Named(1), b"x" * 5000):
        future = executor.submit(calls.echo, value)
        plain = executor.submit(calls.everything, future, 1, key=future)
        other = executor.submit(calls.everything, future, [1], key=future)
        partial = executor.submit(functools.partial(calls.everything, future, k=future), 2)
        assert plain.result() == ((value, 1), {"key": value})
        assert other.result() == ((value, [1]), {"key": value})
        assert partial.result() == ((value, 2), {"k": value})


def test_functions_by_value_and_with_state_take_futures(executor):
    base = [10]
    future = executor.submit(calls.add, 1, 2)
    assert executor.submit(lambda x, y: (x + 1, y), future, y=future).result() == (4, 3)
    assert executor.submit(lambda x, y: (x[0] + base[0], y), [future], 5).result() == (13, 5)
    assert executor.submit(lambda x: x + base[0], future).result() == 13
    assert executor.submit(Secretive([1]).method, future).result() == [1]


def test_one_future_is_one_object_wherever_it_stands(executor):
    future = executor.submit(calls.echo, [1])
    assert len(set(executor.submit(identities, future, future).result())) == 1
    first, second, third = executor.submit(calls.everything, [future], {"a": (future,)}, future).result()[0]
    assert first[0] is second["a"][0] is third
    other = executor.submit(calls.echo, [1])
    assert len(set(executor.submit(identities, future, other).result())) == 2


def test_containers_that_contain_themselves(executor):
    cyclic: list[Any] = []
    cyclic += [cyclic, {"self": cyclic}, executor.submit(calls.add, 1, 1)]
    assert executor.submit(shape, cyclic).result() == (True, True, 2)


def test_empty_containers_beside_a_future(executor):
    future = executor.submit(calls.add, 1, 1)
    for empty in ([], (), set(), {}, deque(), frozenset()):
        assert executor.submit(calls.everything, empty, future).result() == ((empty, 2), {})
        assert executor.submit(calls.echo, empty).result() == empty


def test_many_futures_of_one_task(executor):
    futures = [executor.submit(calls.square, i) for i in range(2000)]
    assert executor.submit(sum, futures).result() == sum(i * i for i in range(2000))
    total = functools.reduce(functools.partial(executor.submit, calls.add), futures[:200])
    assert total.result() == sum(i * i for i in range(200))


def test_what_does_not_fit_where_it_stands_fails_its_task_alone(executor):
    future = executor.submit(calls.echo, [1])
    with pytest.raises(PayloadError, match="unhashable"):
        executor.submit(calls.echo, {future}).result()
    assert executor.submit(calls.echo, [future]).result() == [[1]]


# --- futures out of sight ---------------------------------------------------------------------------------------------


def hidden(executor, future):
    local = [future]
    return {
        "attribute": ((calls.echo, Secretive(future)), r"args\[0\]\.value"),
        "deep": ((calls.echo, [{"a": Secretive(future)}]), r"args\[0\].*'a'.*\.value"),
        "method": ((Secretive(future).method, 1), r"callable.*value"),
        "method, no scalar": ((Secretive(future).method, [1]), r"callable.*value"),
        "object": ((Secretive(future),), r"callable.*value"),
        "closure": ((lambda: local,), r"local"),
        "default": ((lambda x=future: x,), r"'x'"),
        "partial": ((calls.echo, functools.partial(calls.add, future)), r"args\[0\]\.args\[0\]"),
    }


@pytest.mark.parametrize("make", ["own", "standard"])
def test_a_future_out_of_sight_is_named(executor, make):
    future = executor.submit(calls.add, 1, 1) if make == "own" else concurrent.futures.Future()
    if make == "standard":
        future.set_result(2)
    wrong = {}
    for where, (call, place) in hidden(executor, future).items():
        error = executor.submit(*call).exception(LIMIT_S)
        text = str(error)
        said = type(error) is PayloadError and "future" in text.lower() and "as an argument" in text
        if not (said and re.search(place, text)):
            wrong[where] = error
    assert wrong == {}


def test_a_tuple_with_a_constructor_of_its_own(executor):
    class Pair(tuple):
        __slots__ = ()

        def __new__(cls, a, b):
            return tuple.__new__(cls, (a, b))

        def __getnewargs__(self):
            return tuple(self)

    future, other = executor.submit(calls.add, 1, 1), executor.submit(calls.add, 2, 2)
    assert executor.submit(calls.echo, Pair(future, 1)).result() == (2, 1)
    error = executor.submit(calls.everything, Pair(future, 1), Secretive(other)).exception(LIMIT_S)
    assert type(error) is PayloadError


# --- isolation --------------------------------------------------------------------------------------------------------


def test_each_dependent_has_its_own_copy(single):
    future = single.submit(list, "ab")
    dependents = [single.submit(append, future, i) for i in range(20)]
    assert [dependent.result() for dependent in dependents] == [["a", "b", i] for i in range(20)]
    assert future.result() == ["a", "b"]


def test_what_is_passed_on_is_what_the_task_returned(executor):
    future = executor.submit(list, "ab")
    future.result().append("spoilt")
    assert executor.submit(calls.echo, future).result() == ["a", "b"]
    first = executor.submit(append, future, "c")
    first.result().clear()
    assert executor.submit(calls.everything, first, [future]).result() == ((["a", "b", "c"], [["a", "b"]]), {})


# --- running ahead ----------------------------------------------------------------------------------------------------


def warm(executor):
    for _ in range(30):
        executor.submit(calls.add, 1, 1).result()
    return executor.stats().frames_sent


def test_a_chain_runs_ahead_in_its_worker(single):
    before = warm(single)
    future = single.submit(calls.add, 0, 1)
    for _ in range(1000):
        future = single.submit(calls.add, future, 1)
    assert future.result() == 1001
    assert single.stats().frames_sent - before < 250, "a round trip a link would be 1,000"


def test_results_of_every_size_go_down_a_chain(executor):
    for size in (1000, 300_000, 5 << 20):
        future = executor.submit(bytes, size)
        for _ in range(6):
            future = executor.submit(calls.echo, future)
        assert len(future.result()) == size


# --- parts of results -------------------------------------------------------------------------------------------------


def test_items_and_attributes_are_futures(executor):
    future = executor.submit(calls.echo, {"a": [1, (2, 3)], "z": 3 + 4j})
    assert isinstance(future["a"], Future)
    assert future["a"][1][0].result() == 2
    assert future["z"].attr("imag").result() == 4.0
    assert executor.submit(calls.echo, list("abc"))[1:].result() == ["b", "c"]
    assert executor.submit(calls.echo, list("abc"))[executor.submit(calls.echo, 2)].result() == "c"


def test_items_and_attributes_that_are_not_there(executor):
    future = executor.submit(calls.echo, [1])
    assert isinstance(future[5].exception(), IndexError)
    assert isinstance(future.attr("absent").exception(), AttributeError)


def test_a_future_is_no_sequence(single):
    future = single.submit(calls.echo, [1])
    for use in (iter, list, tuple, dict, reversed, lambda f: 1 in f, lambda f: [*f], lambda f: operator.contains(f, 1)):
        with pytest.raises(TypeError):
            use(future)


def test_items_of_a_future_whose_executor_is_gone():
    with Executor(max_workers=1) as executor:
        future = executor.submit(calls.echo, [1])
    with pytest.raises(RuntimeError, match="shutdown"):
        future[0]
    del executor
    with pytest.raises(RuntimeError, match="gone"):
        future[0]


# --- the standard ways to wait ----------------------------------------------------------------------------------------


def test_asyncio_awaits_futures_of_dependent_tasks(executor):
    async def use():
        first = executor.submit(calls.nap, 0.01, 2)
        chain = executor.submit(calls.add, first, 1)
        failed = executor.submit(calls.echo, executor.submit(divmod, 1, 0))
        with pytest.raises(Exception, match="ZeroDivisionError"):
            await failed
        return await chain, await asyncio.gather(asyncio.wrap_future(first), asyncio.wrap_future(chain))

    assert asyncio.run(use()) == (3, [2, 3])


def test_wait_and_as_completed_over_dependents(executor):
    root = concurrent.futures.Future()
    dependents = [executor.submit(calls.add, root, i) for i in range(20)]
    assert concurrent.futures.wait(dependents, timeout=0).done == set()
    threading.Timer(0.01, root.set_result, (1,)).start()
    results = [future.result() for future in concurrent.futures.as_completed(dependents, LIMIT_S)]
    assert sorted(results) == list(range(1, 21))


# --- map --------------------------------------------------------------------------------------------------------------


def test_map_over_futures(executor):
    root = executor.submit(calls.nap, 0.01, 3)
    futures = [executor.submit(calls.add, root, i) for i in range(50)]
    assert list(executor.map(calls.square, futures)) == [(3 + i) ** 2 for i in range(50)]
    assert list(executor.map(calls.add, futures, range(50), chunksize=7)) == [3 + 2 * i for i in range(50)]
    assert list(executor.map(calls.everything, [{"a": f} for f in futures[:3]])) == [
        (({"a": 3 + i},), {}) for i in range(3)
    ]


def test_map_over_futures_gives_the_good_ones_before_a_failed_one(executor):
    futures = [executor.submit(calls.add, i, 0) for i in range(4)]
    futures.insert(2, executor.submit(calls.raise_, ValueError("bad")))
    concurrent.futures.wait(futures)
    results = []
    with pytest.raises(DependencyError, match="bad"):
        results.extend(executor.map(calls.echo, futures, chunksize=5))
    assert results == [0, 1]
