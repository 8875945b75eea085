"""What must hold between any two turns, re-derived from scratch.

Tests call `check_invariants` after each step; it walks over everything, so the engine itself never does.
"""

from slipstream.core.placement import MAX_PREFETCH, Placement
from slipstream.core.scheduler import Scheduler
from slipstream.core.states import LIVE, PLACED, State
from slipstream.core.tasks import NOWHERE, Task, Worker
from slipstream.errors import InternalError


def check_invariants(scheduler: Scheduler) -> None:
    """Check every container of the scheduler against every other.

    Raises:
        InternalError: Naming the first thing that does not hold.
    """
    for identity, task in scheduler.tasks.items():
        _require(identity == task.task, f"task {task.task} is filed under {identity}")
    for task in scheduler.tasks.values():
        _check_task(scheduler, task)
    for worker in scheduler.placement.workers.values():
        _check_worker(scheduler, worker)
    _check_counts(scheduler)
    _check_buckets(scheduler.placement)
    _check_slots(scheduler)
    _check_followers(scheduler.placement)


def _require(holds: bool, otherwise: str, task: Task | None = None) -> None:
    if not holds:
        raise InternalError(otherwise if task is None else f"{otherwise}: {task!r}")


def _check_task(scheduler: Scheduler, task: Task) -> None:
    tasks, workers = scheduler.tasks, scheduler.placement.workers
    if task.state in PLACED:
        _require(
            task.worker in workers and workers[task.worker].tasks.get(task.task) is task, "not at its worker", task
        )
        _require(task.attempt > 0, "placed without an attempt", task)
    else:
        _require(task.worker == NOWHERE and not task.retracting, "at a worker in the wrong state", task)
    if task.state in LIVE:
        _require(all(dependency in tasks for dependency in task.dependencies), "takes what is forgotten", task)
        waits = sum(bool((tasks[dependency].dependents or {}).get(task.task)) for dependency in task.dependencies)
        _require(task.missing == waits, f"waits for {waits} inputs", task)
        _require(waits > 0 or task.state is not State.WAITING, "waits for nothing", task)
        _require(waits == 0 or task.state in (State.WAITING, State.ASSIGNED), "waits in the wrong state", task)
        _require(not waits or not task.retracting, "asked back ahead of its inputs", task)
        _require(task.state in PLACED or _has_the_rest(scheduler, task), "lacks an input and does not know", task)
        taken = tuple(dict.fromkeys(value for value in task.inputs if not isinstance(value, bytes)))
        _require(taken == task.dependencies, "depends on other tasks than its inputs", task)
        dropped = task.state is State.EXPECTED and task.dependents == {}
        _require(not dropped, "not dropped with its last dependent", task)
        _require(task.losses <= task.worker_retries, "outlived its losses", task)
        _require(task.value_losses <= task.value_retries, "outlived the losses of its value", task)
        _require(task.result is None and not task.recipe, "has a result already", task)
        for dependency in task.dependencies:
            _require(task.task in (tasks[dependency].dependents or ()), f"unknown to {dependency}", task)
    else:
        bare = task.payload == b"" and not task.inputs and not task.dependencies
        _require(task.recipe or bare, "holds its payload or inputs after its end", task)
        _require(not task.recipe or task.state is State.SUCCEEDED, "has a recipe for nothing", task)
        parts = all(task.task in (tasks[d].dependents or ()) for d in task.dependencies if d in tasks)
        _require(parts and all(d in tasks for d in task.dependencies), "its recipe lacks another", task)
        _require(task.kept or bool(task.dependents), "not forgotten", task)
        _require((task.state is State.SUCCEEDED) == (task.result is not None), "result in the wrong state", task)
    for dependent, missing in (task.dependents or {}).items():
        _require(dependent in tasks, f"{dependent} depends on it and is forgotten", task)
        over = tasks[dependent].state not in LIVE and not tasks[dependent].recipe
        _require(not over, f"{dependent} depends on it and is over", task)
        _require(not missing or task.state in LIVE, f"{dependent} waits for it, and it has ended", task)


def _has_the_rest(scheduler: Scheduler, task: Task) -> bool:
    """Whether what a task does not wait for is there."""
    dependencies = [scheduler.tasks[dependency] for dependency in task.dependencies]
    return all((d.dependents or {}).get(task.task) or d.state is State.SUCCEEDED for d in dependencies)


def _check_worker(scheduler: Scheduler, worker: Worker) -> None:
    tasks = worker.tasks.values()
    name = f"worker {worker.worker}"
    _require(len(tasks) <= MAX_PREFETCH, f"{name} has {len(tasks)} tasks")
    own = all(task.worker == worker.worker and scheduler.tasks.get(task.task) is task for task in tasks)
    _require(own, f"{name} has foreign tasks")
    _require(worker.backlog_ns == sum(t.estimate_ns for t in tasks), f"{name}: backlog is off")
    _require(worker.retracting == sum(t.retracting for t in tasks), f"{name}: retractions are off")
    running = [t.task for t in tasks if t.state is State.RUNNING]
    _require(running == ([] if worker.long is None else [worker.long]), f"{name} runs {running}, not {worker.long}")
    _require((worker.retracting > 0) == (worker.worker in scheduler.placement.asked), f"{name}: asked or not")
    _require(not worker.held or bool(tasks), f"{name} is held with nothing to complete")


def _check_counts(scheduler: Scheduler) -> None:
    live = sum(task.state in LIVE for task in scheduler.tasks.values())
    _require(scheduler.live == live, f"{live} tasks are live, not {scheduler.live}")
    ready = {task.task for task in scheduler.tasks.values() if task.state is State.READY}
    queued = [task.task for task in scheduler.ready.tasks()]
    _require(len(queued) == len(ready) == len(scheduler.ready), f"{len(ready)} READY, {len(queued)} queued")
    _require(set(queued) == ready, "the queue holds other tasks than those that are READY")
    forgotten = ready and scheduler.placement.idle and scheduler.placement.deadline is None
    _require(not forgotten, "a task is READY and a worker idle, and nothing will change that")


def _check_buckets(placement: Placement) -> None:
    _require(not placement.touched, "workers were touched and not placed")
    buckets = (placement.idle, placement.single, placement.roomy)
    seen = [identity for bucket in buckets for identity in bucket]
    _require(len(seen) == len(set(seen)), "a worker is in two buckets")
    for worker in placement.workers.values():
        count, name = len(worker.tasks), f"worker {worker.worker}"
        takes = worker.long is None and not worker.held
        _require(not worker.parked or worker.worker not in seen, f"{name}: parked, and in a bucket")
        _require((worker.worker in placement.idle) == (not count and not worker.parked), f"{name}: idle or not")
        _require(takes or bool(count), f"{name}: takes nothing, and has nothing that could end")
        _require(worker.worker not in placement.single or (takes and count == 1), f"{name}: not single")
        _require(worker.worker not in placement.roomy or (takes and count > 1), f"{name}: not roomy")
    known = set(placement.workers)
    _require(set(seen) | set(placement.loaded) | placement.asked <= known, "a bucket holds a worker that is gone")


def _check_slots(scheduler: Scheduler) -> None:
    slots, workers = scheduler.slots, scheduler.placement.workers.values()
    blocked = [worker for worker in workers if worker.blocked]
    parked = {worker.worker for worker in workers if worker.parked}
    active = len(workers) - len(blocked) - len(parked)
    _require(slots.blocked == len(blocked), f"{len(blocked)} workers are blocked, not {slots.blocked}")
    _require(slots.active == active, f"{active} workers are active, not {slots.active}")
    _require(all(worker.long is not None for worker in blocked), "a worker is blocked that runs nothing")
    _require(not any(worker.parked for worker in blocked), "a worker is blocked and parked")
    _require(set(slots.parked) <= parked, "a worker is parked and does not know")
    dismissed = [worker for worker in workers if worker.parked and worker.worker not in slots.parked]
    _require(not any(worker.tasks for worker in dismissed), "a worker is dismissed that has tasks")
    _require(not slots.parked or not slots.free, "a worker is parked, and a slot is free")
    _require(not slots.over or not scheduler.placement.idle, "a worker idles that has no slot")
    _require(not slots.changed, "how many workers there should be was not told")


def _check_followers(placement: Placement) -> None:
    _require(set(placement.followed) <= set(placement.workers), "a worker that is gone has followers")
    followed = any(worker.followers for worker in placement.workers.values())
    _require(followed or placement.follow_deadline is None, "followers are due, and there are none")
