"""Futures in containers: which are found, in which order, and what is put in their place."""

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from slipstream.serde.nested import futures_in, replace_futures


class Named(NamedTuple):
    a: Any


@dataclass(frozen=True)
class Frozen:
    a: Any
    b: Any = 0


class Record(msgspec.Struct, frozen=True):
    a: Any


class Other:
    def __init__(self, a):
        self.a = a


def test_futures_are_found_once_and_in_order():
    first, second, third = Future(), Future(), Future()
    values = [{second: [first]}, deque([Named(Frozen(first, third))]), (second,), Record(third)]
    assert list(futures_in(values)) == [second, first, third]


def test_containers_in_themselves_and_deep_ones():
    future = Future()
    cyclic: list[Any] = [1]
    cyclic += [cyclic, {"a": cyclic}]
    assert list(futures_in(cyclic)) == []
    cyclic[2]["b"] = future
    assert list(futures_in(cyclic)) == [future]
    deep: Any = future
    for _ in range(50_000):
        deep = [deep]
    assert list(futures_in([deep])) == [future]


def test_other_objects_keep_their_secrets():
    assert list(futures_in([Other(Future()), [Other([Future()])], lambda: 0])) == []


def test_an_empty_field_is_passed_over():
    half = object.__new__(Frozen)
    object.__setattr__(half, "a", future := Future())
    assert list(futures_in([half])) == [future]


def test_what_is_replaced_is_new_and_the_rest_is_the_same():
    future, untouched = Future(), [1]
    value = {"a": [future, untouched], "b": Frozen(Record(Named(future))), "c": {future}, "d": frozenset([future])}
    new = replace_futures(value, lambda _: 5)
    assert new == {"a": [5, [1]], "b": Frozen(Record(Named(5))), "c": {5}, "d": frozenset([5])}
    assert new["a"][1] is untouched
    assert value["a"][0] is future
    assert type(new["b"].a.a) is Named


def test_a_container_in_itself_is_replaced_by_one_in_itself():
    cyclic: list[Any] = [Future()]
    cyclic.append(cyclic)
    new = replace_futures(cyclic, lambda _: 5)
    assert new[0] == 5
    assert new[1] is new
    assert new is not cyclic
