"""Executors that end with their test, for the conftest of each folder that wants them."""

import pytest

from slipstream import Executor


@pytest.fixture
def executor():
    with Executor(max_workers=2) as executor:
        yield executor


@pytest.fixture
def patient():
    """Does not wait at its end for what a failing test has left waiting."""
    executor = Executor(max_workers=2)
    yield executor
    executor.shutdown(cancel_futures=True)


@pytest.fixture
def single():
    """One worker, so that whatever is submitted behind a task has to wait for it."""
    with Executor(max_workers=1) as executor:
        yield executor
