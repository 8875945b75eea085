"""Random graphs of tasks: every future ends as sequential evaluation says, or by the failure that it depends on."""

import concurrent.futures
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import calls
from slipstream import DependencyError, Executor, WorkerLost

pytestmark = pytest.mark.long
LIMIT_S = 8
CONTAINERS = ("plain", "list", "dict", "tuple", "deque", "keyword", "twice")
#: What tasks do, most often what gives a value. Those of strangers are ended by the test.
KINDS = ("sum",) * 10 + ("fail", "stranger", "stranger fails", "stranger is cancelled", "cancel", "item", "elsewhere")


@dataclass(frozen=True)
class Step:
    """One task: what it does, the numbers of earlier tasks whose results it takes, and in what."""

    kind: str
    inputs: tuple[int, ...]
    container: str


def flat(value):
    if isinstance(value, dict):
        return sum(map(flat, value.values()))
    return sum(map(flat, value)) if isinstance(value, list | tuple | deque) else value


def total(number, *args, **kwargs):
    """What every task makes of its inputs: [a number]."""
    return [number + flat(args) + flat(kwargs)]


def fail(number, *args, **kwargs):
    raise ValueError(number)


def die(number, *args, **kwargs):
    calls.die()


def arguments(step, values):
    values = list(values)
    match step.container:
        case "list" | "tuple" | "deque":
            return ({"list": list, "tuple": tuple, "deque": deque}[step.container](values),), {}
        case "dict":
            return ({str(i): [value] for i, value in enumerate(values)},), {}
        case "keyword":
            return (), {f"k{i}": value for i, value in enumerate(values)}
        case "twice":
            return (*values, values), {}
    return values, {}


@st.composite
def graphs(draw, kinds=KINDS):
    steps = []
    for number in range(draw(st.integers(1, 30))):
        inputs = draw(st.lists(st.integers(0, number - 1), max_size=3, unique=True)) if number else []
        steps.append(Step(draw(st.sampled_from(kinds)), tuple(inputs), draw(st.sampled_from(CONTAINERS))))
    return steps


def evaluate(steps):
    """In order: a value, or the numbers of the failures of which one must be the root."""
    ends: list[Any] = []
    for number, step in enumerate(steps):
        values = [ends[i] for i in step.inputs]
        roots = [value for value in values if isinstance(value, frozenset)]
        if step.kind in ("stranger", "item") and not (step.kind == "item" and step.inputs):
            ends.append([number])
        elif step.kind in ("stranger fails", "stranger is cancelled", "cancel"):
            ends.append(frozenset({number}))
        elif step.kind == "item":
            ends.append(values[0] if isinstance(values[0], frozenset) else values[0][0:])
        elif roots:
            ends.append(frozenset.union(*roots))
        elif step.kind in ("fail", "die"):
            ends.append(frozenset({number}))
        else:
            args, kwargs = arguments(step, values)
            ends.append(total(number, *args, **kwargs))
    return ends


class Run:
    """A graph on executors."""

    def __init__(self, executor, other):
        self.executor, self.other = executor, other
        #: Ends of strangers and of tasks to be cancelled; these wait for a stranger that does not end.
        self.later = []
        self.never = concurrent.futures.Future()

    def submit(self, steps):
        futures = []
        for number, step in enumerate(steps):
            futures.append(self._submit_one(number, step, [futures[i] for i in step.inputs]))
        return futures

    def _submit_one(self, number, step, inputs):
        args, kwargs = arguments(step, inputs)
        match step.kind:
            case "fail" | "die":
                return self.executor.submit(fail if step.kind == "fail" else die, number, *args, **kwargs)
            case "cancel":
                future = self.executor.submit(total, self.never)
                self.later.append(future.cancel)
                return future
            case "item" if inputs:
                # Of a stranger, which has no items itself, by a task.
                return inputs[0][0:] if hasattr(inputs[0], "attr") else self.executor.submit(calls.echo, inputs[0])
            case "item" | "stranger":
                future = concurrent.futures.Future()
                self.later.append(lambda: future.set_result([number]))
                return future
            case "stranger fails":
                future = concurrent.futures.Future()
                self.later.append(lambda: future.set_exception(KeyError(number)))
                return future
            case "stranger is cancelled":
                future = concurrent.futures.Future()
                self.later.append(future.cancel)
                return future
        executor = self.other if step.kind == "elsewhere" else self.executor
        return executor.submit(total, number, *args, **kwargs)


def check(steps, futures):
    for number, (future, expected) in enumerate(zip(futures, evaluate(steps), strict=True)):
        if not isinstance(expected, frozenset):
            assert future.result(LIMIT_S) == expected, (number, steps)
            continue
        try:
            error = future.exception(LIMIT_S)
        except concurrent.futures.CancelledError:
            assert number in expected, (number, steps)
            continue
        if expected == {number}:
            assert type(error) in (ValueError, KeyError, WorkerLost), (number, error, steps)
            continue
        assert type(error) is DependencyError, (number, error, steps)
        assert error.__cause__ is not None
        causes = [cause_of(futures[root]) for root in expected]
        assert any(error.__cause__ is cause or type(cause) is type(error.__cause__) is CANCELLED for cause in causes)


CANCELLED = concurrent.futures.CancelledError


def cause_of(root):
    try:
        return root.exception(0)
    except CANCELLED as cancelled:
        return cancelled


@pytest.fixture
def two():
    executors = Executor(max_workers=2), Executor(max_workers=1)
    for executor in executors:
        executor.submit(calls.add, 1, 1).result()
    yield executors
    for executor in executors:
        executor.shutdown(cancel_futures=True)  # a failing test leaves tasks that wait


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(graphs(), st.booleans(), st.randoms(use_true_random=False))
def test_random_graphs(two, steps, in_thread, rng):
    run = Run(*two)
    futures = run.submit(steps)
    rng.shuffle(run.later)
    if in_thread:
        thread = threading.Thread(target=lambda: [end() for end in run.later])
        thread.start()
    else:
        for end in run.later:
            end()
    check(steps, futures)
    if in_thread:
        thread.join()


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(graphs(("sum",) * 12 + ("fail", "stranger", "item", "die")), st.booleans())
def test_random_graphs_with_deaths(two, steps, first):
    """A task that kills its worker is lost; of what else that worker had, nothing is."""
    run = Run(*two)
    if first:
        steps = [*steps, Step("die", (), "plain"), Step("sum", (len(steps),), "list")]
    futures = run.submit(steps)
    for end in run.later:
        end()
    check(steps, futures)
