"""The exception tree: what is what, and that each survives pickle and copy."""

import concurrent.futures
import copy
import pickle

import pytest

from slipstream import errors

CLASSES = [each for each in vars(errors).values() if isinstance(each, type) and each.__module__ == errors.__name__]
CARRIED = {
    errors.DependencyError: {"path": ("load", "plot")},
    errors.WorkerLost: {"reason": "r", "signal": 9, "exit_status": 1, "last_output": "o", "item": 3},
    errors.RemoteError: {"type_name": "a.B", "remote_traceback": "text"},
}


def test_the_tree():
    assert {each.__name__ for each in CLASSES} == {
        "SlipstreamError",
        "PayloadError",
        "PayloadWarning",
        "RemoteError",
        "DependencyError",
        "InfeasibleTask",
        "WorkerLost",
        "InternalError",
    }
    assert all(issubclass(each, errors.SlipstreamError | errors.PayloadWarning) for each in CLASSES)
    assert all(each.__name__ in errors.__doc__ for each in CLASSES)
    assert issubclass(errors.WorkerLost, concurrent.futures.BrokenExecutor)


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("again", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy])
def test_each_survives_pickle_and_copy(cls, again):
    carried = CARRIED.get(cls, {})
    error = cls("what happened", **carried)
    got = again(error)
    assert type(got) is cls
    assert (got.args, str(got), vars(got)) == (("what happened",), "what happened", carried)
    assert str(cls()) == ""
