"""Calls with futures among their arguments, encoded and loaded again with other values in their places."""

from concurrent.futures import Future
from functools import partial

import pytest

import calls
from slipstream.errors import PayloadError
from slipstream.serde.tasks import encode_chunk, encode_task
from slipstream.serde.values import decode_call


class Box:
    def __init__(self, value):
        self.value = value


def loaded(encoded, *inputs):
    return decode_call(encoded.payload, None, None, inputs)[1:]


def test_inputs_are_counted_in_the_order_in_which_they_stand():
    first, second = Future(), Future()
    encoded = encode_task(calls.everything, (second, 1, first, second), {"key": first})
    assert encoded.inputs == (second, first)
    assert loaded(encoded, "s", "f") == (("s", 1, "f", "s"), {"key": "f"})


@pytest.mark.parametrize("other", [1, [1]])
def test_one_input_is_one_object(other):
    future, value = Future(), [1]
    encoded = encode_task(calls.everything, (future, other), {"a": future})
    (first, _), keywords = loaded(encoded, value)
    assert encoded.inputs == (future,)
    assert first is keywords["a"] is value


def test_a_partial_binds_futures_too():
    first, second = Future(), Future()
    encoded = encode_task(partial(calls.everything, first, key=second), (2,), {})
    assert loaded(encoded, "f", "s") == (("f", 2), {"key": "s"})


def test_the_items_of_a_chunk_may_be_futures():
    futures = [Future() for _ in range(3)]
    encoded = encode_chunk(calls.echo, [futures[2], 7, [futures[0]]], spread=False)
    assert encoded.inputs == (futures[2], futures[0])


def test_calls_without_futures_have_no_inputs():
    for args in ((1, "a"), ([1], {}), ()):
        assert encode_task(calls.everything, args, {}).inputs == ()


@pytest.mark.parametrize("args", [(Box(Future()),), ([Box(Future())], 1), ({"a": Box([Future()])},)])
def test_a_future_in_another_object_is_refused(args):
    with pytest.raises(PayloadError, match=r"args\[0\].*value.*future.*argument"):
        encode_task(calls.everything, args, {})


def test_a_callable_that_holds_a_future_is_refused_whatever_its_arguments():
    for args in ((), (1,), ([1],), (Future(),)):
        with pytest.raises(PayloadError, match="future"):
            encode_task(partial(Box(Future()).__eq__), args, {})
