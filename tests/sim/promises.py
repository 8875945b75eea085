"""What must be true of a simulated cluster when nothing more is to happen, whatever died on the way."""

from collections import Counter, defaultdict

from cluster import Cluster, Start
from simulated_client import SimulatedClient, Submitted
from work import value_of

from slipstream.protocol.ids import STORED
from slipstream.protocol.messages import InputFailed, TaskCancelled, TaskFailed, TaskLost, TaskSucceeded, ValueLost


def check_promises(cluster: Cluster) -> None:
    """Every promise about every task. A broken one is an AssertionError that names the task."""
    assert cluster.faults == []
    check_starts(cluster)
    clients = [*cluster.clients.values(), *[worker.client for worker in cluster.workers.values()]]
    for client in clients:
        if client.present:
            check_outcomes(cluster, client)
    assert cluster.scheduler.live == 0
    assert not cluster.scheduler.ready
    assert cluster.scheduler.placement.wake_at is None
    check_followers(cluster)
    released = {task for client in clients for task, t in client.tasks.items() if t.released or not client.present}
    assert not released & set(cluster.scheduler.tasks), "released, and not forgotten"
    held = [task for client in clients for task in client.tasks if task not in released]
    assert held or not cluster.scheduler.tasks, "nobody holds anything, and something is left"


def check_followers(cluster: Cluster) -> None:
    """Nothing that ended is kept for the sake of a worker that might have run it: a few, until it says something."""
    for worker in cluster.scheduler.placement.workers.values():
        assert len(worker.followers) <= 64, f"{len(worker.followers)} tasks are followers of {worker.worker}"


def check_starts(cluster: Cluster) -> None:
    """No attempt starts twice, and no task does unless the worker where it ran before, or its value, was lost."""
    attempts = Counter((start.task, start.attempt) for start in cluster.starts)
    assert [attempt for attempt, count in attempts.items() if count > 1] == []
    last: dict[int, Start] = {}
    for start in cluster.starts:
        before = last.get(start.task)
        if before is not None:
            death = cluster.deaths.get(before.worker)
            dead = death is not None and death.at <= start.at
            lost = cluster.made.get((before.task, before.attempt)) in cluster.gone
            assert dead or lost, f"{start} without cause after {before}"
        last[start.task] = start


def check_outcomes(cluster: Cluster, client: SimulatedClient) -> None:
    """Every task has ended, and as it should: once is what the client itself has checked."""
    missing = [task for task in client.tasks if task not in client.outcomes]
    assert missing == [], "never ended"
    started = {start.task for start in cluster.starts}
    charged = Counter(death.running[0] for death in cluster.deaths.values() if death.running is not None)
    # Of a worker that died between two tasks, any that it had not reported may be to blame.
    suspected = Counter(start.task for start in cluster.starts if start.worker in cluster.deaths)
    results: dict[int, bytes] = {}
    roots: dict[int, set[int]] = defaultdict(set)
    for value, promised in client.values.items():
        if promised.value is None or promised.value in cluster.gone:
            roots[value] = {value}
        if promised.value is not None:
            results[value] = promised.value
    for message in client.refused.values():
        gone = [value for value in message.message.inputs if value in client.values or value in client.refused]
        assert gone, f"{message} was refused, although all that it takes was kept"
    for task, submitted in client.tasks.items():  # dependencies come before dependents
        outcome, inputs = client.outcomes[task], submitted.message.inputs
        assert outcome.task == task
        survivable = submitted.message.worker_retries
        assert charged[task] <= survivable + isinstance(outcome, TaskLost), f"{task} was charged {charged[task]} times"
        payloads = [notice.payload for notice in client.history[task] if isinstance(notice, TaskSucceeded)]
        if payloads:
            assert not submitted.work.raises
            values = [value if isinstance(value, bytes) else results[value] for value in inputs]
            results[task] = submitted.work.result(values)
            assert {value_of(payload) for payload in payloads} == {results[task]}, f"{outcome}, not {results[task]!r}"
            assert all((payload[:1] == STORED) == submitted.work.stored for payload in payloads)
            assert all(payload in cluster.gone for payload in payloads[:-1]), "made again, and it was there"
            assert len(payloads) <= 1 + submitted.message.value_retries
        if isinstance(outcome, TaskSucceeded):
            continue
        lost = client.has_lost(task) or any(
            value in cluster.gone if isinstance(value, bytes) else loses(cluster, client, value) for value in inputs
        )
        roots[task] = {task}
        if isinstance(outcome, TaskFailed):
            check_error(cluster, submitted, outcome.payload)
        elif isinstance(outcome, ValueLost):
            assert lost
        elif isinstance(outcome, TaskLost):
            assert suspected[task] >= survivable + 1
            death = cluster.deaths[last_worker(cluster, task)]
            assert death.running is None or death.running == (task, outcome.attempt)
        else:
            assert lost or task not in started or charged_elsewhere(cluster, task), f"{outcome}, but it has started"
            if isinstance(outcome, InputFailed):
                dependencies = [value for value in inputs if isinstance(value, int)]
                roots[task] = set().union(*(roots[dependency] for dependency in dependencies))
                assert outcome.root in roots[task], f"{outcome}, not one of {roots[task]}"
                assert outcome.input in dependencies
                assert outcome.root in roots[outcome.input]
            else:
                assert isinstance(outcome, TaskCancelled)
                assert submitted.cancel_wanted


def loses(cluster: Cluster, client: SimulatedClient, task: int) -> bool:
    """Whether a task, or a value that was promised, has lost its value."""
    return client.has_lost(task) or (task in client.values and client.values[task].value in cluster.gone)


def check_error(cluster: Cluster, submitted: Submitted, error: bytes) -> None:
    """What a task raised: its own error, or the reason why it has no result of the tasks that it waited for."""
    if not error.startswith(b"because of "):
        assert submitted.work.raises
        assert error == submitted.work.error()
        return
    assert submitted.work.children
    possible = {
        b"CannotWait": cluster.most > 0,
        b"TaskLost": bool(cluster.deaths),
        b"ValueLost": bool(cluster.gone),
        b"InputFailed": True,
        b"TaskFailed": submitted.work.levels > 1,
    }
    assert possible[error.removeprefix(b"because of ")]


def last_worker(cluster: Cluster, task: int) -> int:
    return [start.worker for start in cluster.starts if start.task == task][-1]


def charged_elsewhere(cluster: Cluster, task: int) -> bool:
    """Whether the task is READY again after it had started, since its worker was lost: then it may be cancelled."""
    return all(start.worker in cluster.deaths for start in cluster.starts if start.task == task)
