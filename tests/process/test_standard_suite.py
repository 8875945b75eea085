"""The standard library's own tests of executors, `wait`, `as_completed`, shutdown and futures, with ours in their
place.

They are subclassed, not copied. What cannot hold for us is left out by name, in the one table below; what is written
for ProcessPoolExecutor's insides is tested anew in the other modules of this folder and in tests/faults.
"""

import logging
from types import FunctionType
from unittest import mock

import pytest
from standard_suite import Suite, find, names_of_tests

import slipstream

pytestmark = pytest.mark.long
suite = find()
if isinstance(suite, str):
    pytest.skip(f"the standard tests cannot be had: {suite}", allow_module_level=True)
assert isinstance(suite, Suite)

#: Left out: "class.test" -> why. Each is also told in docs/decisions/0005-deviations-from-the-standard-executor.md.
DEVIATIONS = {
    "ExecutorShutdownTest.test_interpreter_shutdown": (
        "its script imports the executor from concurrent.futures by name; anew in test_exit.py"
    ),
    "ExecutorShutdownTest.test_submit_after_interpreter_shutdown": (
        "the same, and our message says what to do; anew in test_exit.py"
    ),
    "ExecutorShutdownTest.test_hang_gh83386": (
        "its script imports the executor from concurrent.futures by name; anew in test_exit.py"
    ),
    "FutureTests.test_repr": "ours names the task and its callable; anew in test_futures.py",
    "FutureTests.test_multiple_set_result": "it looks for the standard repr in the message; anew in test_futures.py",
    "FutureTests.test_multiple_set_exception": "the same",
}


def left_out(cls):
    """Class attributes that take the deviations out of a subclass: what is not callable is no test."""
    return {name.removeprefix(f"{cls.__name__}."): None for name in DEVIATIONS if name.startswith(f"{cls.__name__}.")}


class ExecutorCase(suite.ExecutorMixin):
    executor_type = slipstream.Executor
    # Two processors: the standard 5 would spend their time starting. Three is what `wait` needs at once.
    worker_count = 3


class FuturesCase:
    """Futures that the tests make themselves are ours."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        create = with_our_future(suite.create_future)
        constants = {name: value for name, value in vars(suite.modules[0]).items() if name.endswith("_FUTURE")}
        ours = {
            "Future": slipstream.Future,
            "create_future": create,
            **{name: create(future._state, future._exception, future._result) for name, future in constants.items()},
        }
        for module in suite.modules:
            present = {name: value for name, value in ours.items() if name in vars(module)}
            if present:
                cls.enterClassContext(mock.patch.multiple(module, **present))

    def setUp(self):
        super().setUp()
        # They read on stderr what is logged. Not earlier: pytest looks for loggers that do not propagate before each
        # test.
        self.enterContext(mock.patch.object(logging.getLogger("concurrent.futures"), "propagate", False))


def with_our_future(function):
    return FunctionType(
        function.__code__,
        {**function.__globals__, "Future": slipstream.Future},
        function.__name__,
        function.__defaults__,
    )


class TestExecutor(ExecutorCase, suite.ExecutorTest, suite.BaseTestCase):
    locals().update(left_out(suite.ExecutorTest))


class TestWait(ExecutorCase, suite.WaitTests, suite.BaseTestCase):
    locals().update(left_out(suite.WaitTests))


class TestAsCompleted(FuturesCase, ExecutorCase, suite.AsCompletedTests, suite.BaseTestCase):
    locals().update(left_out(suite.AsCompletedTests))


class TestShutdown(ExecutorCase, suite.ExecutorShutdownTest, suite.BaseTestCase):
    locals().update(left_out(suite.ExecutorShutdownTest))

    def setUp(self):
        super().setUp()
        # The standard executor has put its first task beyond `cancel` when submit returns; ours only when a worker is
        # up.
        self.executor.submit(int).result()


class TestFutures(FuturesCase, suite.FutureTests):
    locals().update(left_out(suite.FutureTests))


@pytest.mark.parametrize("deviation", DEVIATIONS)
def test_what_is_left_out_exists_and_is_left_out(deviation):
    cls, name = deviation.split(".")
    ours = {
        "ExecutorTest": TestExecutor,
        "WaitTests": TestWait,
        "AsCompletedTests": TestAsCompleted,
        "ExecutorShutdownTest": TestShutdown,
        "FutureTests": TestFutures,
    }[cls]
    assert name in names_of_tests(getattr(suite, cls))
    assert name not in names_of_tests(ours)
