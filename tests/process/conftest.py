"""An executor for a test, ended with it."""

import pytest

from slipstream import Executor


@pytest.fixture
def executor():
    with Executor(max_workers=2) as executor:
        yield executor


@pytest.fixture
def single():
    """One worker, so that whatever is submitted behind a task has to wait for it."""
    with Executor(max_workers=1) as executor:
        yield executor
