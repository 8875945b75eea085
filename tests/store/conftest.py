"""A run directory for each test, and values that go into it and come back."""

import pytest

from slipstream.serde.pickler import dumps_apart
from slipstream.store.directory import RunDirectory
from slipstream.store.reading import load_stored
from slipstream.store.writing import store_value


@pytest.fixture
def run():
    run = RunDirectory.make()
    yield run
    run.remove()


@pytest.fixture
def place(run):
    return run.place("c")


@pytest.fixture
def store(place):
    """Write a value; the payload."""
    return lambda value: store_value(*dumps_apart(value), place)


@pytest.fixture
def there_and_back(store):
    return lambda value: load_stored(store(value))
