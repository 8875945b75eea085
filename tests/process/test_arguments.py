"""What an Executor is made with."""

import os

import pytest

import calls
import slipstream
from slipstream import Executor


@pytest.mark.parametrize("wrong", [0, -1, -100])
def test_max_workers_must_be_positive(wrong):
    with pytest.raises(ValueError, match="max_workers must be greater than 0"):
        Executor(max_workers=wrong)


@pytest.mark.parametrize("wrong", ["two", [2]])
def test_max_workers_must_be_a_number_of_workers(wrong):
    with pytest.raises((TypeError, ValueError)):
        Executor(max_workers=wrong)


def workers_of(executor):
    return int(repr(executor).split()[1])


def test_the_default_is_the_processors_that_this_process_may_use(monkeypatch):
    monkeypatch.delenv("SLIPSTREAM_WORKERS", raising=False)
    assert workers_of(Executor()) == len(os.sched_getaffinity(0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert workers_of(Executor()) == 3


def test_the_variable_sets_the_default_and_only_the_default(monkeypatch):
    monkeypatch.setenv("SLIPSTREAM_WORKERS", "3")
    assert workers_of(Executor()) == 3
    assert workers_of(Executor(max_workers=1)) == 1
    monkeypatch.setenv("SLIPSTREAM_WORKERS", "")
    assert workers_of(Executor()) == len(os.sched_getaffinity(0))


@pytest.mark.parametrize("wrong", ["many", "1.5", "0", "-2"])
def test_a_variable_that_is_no_number_of_workers_is_said_at_once(monkeypatch, wrong):
    monkeypatch.setenv("SLIPSTREAM_WORKERS", wrong)
    with pytest.raises(ValueError, match=r"SLIPSTREAM_WORKERS|max_workers"):
        Executor()
    assert workers_of(Executor(max_workers=1)) == 1


@pytest.mark.parametrize("name", ["inline_bytes", "store_bytes"])
@pytest.mark.parametrize(
    ("wrong", "error", "text"),
    [
        (-1, ValueError, "must be 0 or more bytes, not -1"),
        ("1 MB", TypeError, "must be an integer number of bytes, not '1 MB'"),
        (1e6, TypeError, "must be an integer number of bytes, not 1000000.0"),
        (True, TypeError, "must be an integer number of bytes, not True"),
    ],
)
def test_numbers_of_bytes(name, wrong, error, text):
    with pytest.raises(error, match=f"{name} {text}"):
        Executor(**{name: wrong})


@pytest.mark.parametrize("where", [4, "dask://host:1", "ray://auto"])
def test_where_is_this_machine(where):
    with pytest.raises(ValueError, match="this machine only"):
        Executor(where)


def test_what_the_standard_executors_take_and_ours_does_not_is_a_type_error():
    with pytest.raises(TypeError):
        Executor(max_workers=1, mp_context=None)
    with pytest.raises(TypeError):
        Executor(max_workers=1, max_tasks_per_child=1)


def test_more_workers_than_processors(tmp_path):
    with Executor(max_workers=6) as executor:
        futures = [executor.submit(calls.nap, 0.01, i) for i in range(60)]
        assert [future.result() for future in futures] == list(range(60))


def test_public_names():
    assert sorted(slipstream.__all__) == slipstream.__all__
    for name in slipstream.__all__:
        assert getattr(slipstream, name) is not None
    assert set(slipstream.__all__) <= set(dir(slipstream))
    with pytest.raises(AttributeError, match="no attribute 'Manager'"):
        _ = slipstream.Manager
