"""What must be true of a simulated cluster when nothing more is to happen, whatever died on the way."""

from collections import Counter, defaultdict

from cluster import Cluster, Start
from simulated_client import SimulatedClient

from slipstream.protocol.messages import InputFailed, TaskCancelled, TaskFailed, TaskLost, TaskSucceeded


def check_promises(cluster: Cluster) -> None:
    """Every promise about every task. A broken one is an AssertionError that names the task."""
    assert cluster.faults == []
    check_starts(cluster)
    for client in cluster.clients.values():
        if client.present:
            check_outcomes(cluster, client)
    assert cluster.scheduler.live == 0
    assert not cluster.scheduler.ready
    assert cluster.scheduler.placement.wake_at is None
    check_followers(cluster)
    released = {task for client in cluster.clients.values() for task, t in client.tasks.items() if t.released}
    assert not released & set(cluster.scheduler.tasks), "released, and not forgotten"


def check_followers(cluster: Cluster) -> None:
    """Nothing that ended is kept for the sake of a worker that might have run it: a few, until it says something."""
    for worker in cluster.scheduler.placement.workers.values():
        assert len(worker.followers) <= 64, f"{len(worker.followers)} tasks are followers of {worker.worker}"


def check_starts(cluster: Cluster) -> None:
    """No attempt starts twice, and no task does unless the worker where it started before was dead by then."""
    attempts = Counter((start.task, start.attempt) for start in cluster.starts)
    assert [attempt for attempt, count in attempts.items() if count > 1] == []
    last: dict[int, Start] = {}
    for start in cluster.starts:
        before = last.get(start.task)
        if before is not None:
            death = cluster.deaths.get(before.worker)
            dead = death is not None and death.at <= start.at
            assert dead, f"{start} without cause after {before}"
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
        if promised.value is None:
            roots[value] = {value}
        else:
            results[value] = promised.value
    for message in client.refused.values():
        gone = [value for value in message.message.inputs if value in client.values or value in client.refused]
        assert gone, f"{message} was refused, although all that it takes was kept"
    for task, submitted in client.tasks.items():  # dependencies come before dependents
        outcome, inputs = client.outcomes[task], submitted.message.inputs
        assert outcome.task == task
        survivable = submitted.message.worker_retries
        assert charged[task] <= survivable + isinstance(outcome, TaskLost), f"{task} was charged {charged[task]} times"
        if isinstance(outcome, TaskSucceeded):
            assert not submitted.work.raises
            values = [value if isinstance(value, bytes) else results[value] for value in inputs]
            results[task] = submitted.work.result(values)
            assert outcome.payload == results[task], f"{outcome}, not {results[task]!r}"
            continue
        roots[task] = {task}
        if isinstance(outcome, TaskFailed):
            assert submitted.work.raises
            assert outcome.payload == submitted.work.error()
        elif isinstance(outcome, TaskLost):
            assert suspected[task] >= survivable + 1
            death = cluster.deaths[last_worker(cluster, task)]
            assert death.running is None or death.running == (task, outcome.attempt)
        else:
            assert task not in started or charged_elsewhere(cluster, task), f"{outcome}, but it has started"
            if isinstance(outcome, InputFailed):
                dependencies = [value for value in inputs if isinstance(value, int)]
                roots[task] = set().union(*(roots[dependency] for dependency in dependencies))
                assert outcome.root in roots[task], f"{outcome}, not one of {roots[task]}"
                assert outcome.input in dependencies
                assert outcome.root in roots[outcome.input]
            else:
                assert isinstance(outcome, TaskCancelled)
                assert submitted.cancel_wanted


def last_worker(cluster: Cluster, task: int) -> int:
    return [start.worker for start in cluster.starts if start.task == task][-1]


def charged_elsewhere(cluster: Cluster, task: int) -> bool:
    """Whether the task is READY again after it had started, since its worker was lost: then it may be cancelled."""
    return all(start.worker in cluster.deaths for start in cluster.starts if start.task == task)
