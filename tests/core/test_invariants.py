"""`check_invariants` finds what it is there to find: each invariant, broken by hand, is named."""

from collections.abc import Callable

import pytest
from turns import MS, Turns, submit

from slipstream.core.invariants import check_invariants
from slipstream.core.scheduler import Scheduler
from slipstream.core.states import State
from slipstream.core.tasks import NOWHERE, Worker
from slipstream.errors import InternalError
from slipstream.protocol.ids import WorkerId
from slipstream.protocol.messages import Blocked, Cancel, Expect, Started

#: In the scheduler that `populated` makes.
RUNNING, ASSIGNED, LATER, READY, WAITING, SUCCEEDED, CANCELLED = range(7)
BUSY, SPARE = WorkerId(7), WorkerId(8)
OTHERS = (9, 10)


def populated() -> Scheduler:
    """A task in each state, a worker in a long task, and one that idles since it has just lost what it had."""
    turns = Turns()
    turns.learn(b"f", MS)
    turns.join(BUSY)
    turns.submit(SUCCEEDED, keep=True)
    turns.done(BUSY, SUCCEEDED)
    turns.submit(RUNNING, ASSIGNED, LATER, keep=True)
    turns.worker(BUSY, Started(RUNNING, 1))
    turns.client(submit(READY), submit(CANCELLED, keep=True), Cancel(CANCELLED))
    turns.submit(WAITING, inputs=(READY, SUCCEEDED))
    return turns.scheduler


def worker(scheduler: Scheduler) -> Worker:
    return scheduler.placement.workers[BUSY]


def break_filing(s: Scheduler) -> None:
    s.tasks[99] = s.tasks[READY]


def break_bucket_state(s: Scheduler) -> None:
    worker(s).long = None
    s.tasks[RUNNING].state = State.ASSIGNED
    s.placement.single[BUSY] = worker(s)


def break_two_buckets(s: Scheduler) -> None:
    s.placement.single[BUSY] = s.placement.roomy[BUSY] = worker(s)


def break_room(s: Scheduler) -> None:
    s.placement.roomy[BUSY] = worker(s)


def break_idleness(s: Scheduler) -> None:
    spare = Worker(SPARE)
    s.placement.workers[SPARE] = s.placement.idle[SPARE] = spare
    s.placement.deadline = None


def break_prefetch(s: Scheduler) -> None:
    worker(s).tasks |= dict.fromkeys(range(100, 400), s.tasks[ASSIGNED])


def set_task(task: int, **fields: object) -> Callable[[Scheduler], None]:
    def break_it(s: Scheduler) -> None:
        for name, value in fields.items():
            setattr(s.tasks[task], name, value)

    return break_it


def set_worker(**fields: object) -> Callable[[Scheduler], None]:
    def break_it(s: Scheduler) -> None:
        for name, value in fields.items():
            setattr(worker(s), name, value)

    return break_it


BROKEN: dict[str, Callable[[Scheduler], object]] = {
    "task 3 is filed under 99": break_filing,
    "not at its worker": set_task(ASSIGNED, worker=SPARE),
    "placed without an attempt": set_task(ASSIGNED, attempt=0),
    "at a worker in the wrong state: .*task=3": set_task(READY, worker=BUSY),
    "at a worker in the wrong state: .*task=6": set_task(CANCELLED, retracting=True),
    "waits for 1 inputs": set_task(WAITING, missing=2),
    "waits in the wrong state": set_task(WAITING, state=State.READY),
    "takes what is forgotten": lambda s: s.tasks.pop(SUCCEEDED),
    "outlived its losses": set_task(READY, losses=1),
    "unknown to 5": set_task(SUCCEEDED, dependents=None),
    "holds its payload or inputs after its end: .*payload=b'p'": set_task(SUCCEEDED, payload=b"p"),
    "holds its payload or inputs after its end: .*payload=b''": set_task(SUCCEEDED, inputs=(b"i",)),
    "depends on other tasks than its inputs": set_task(WAITING, inputs=(b"i", READY)),
    "a worker that is gone has followers": lambda s: s.placement.followed.update({SPARE: Worker(SPARE)}),
    "followers are due, and there are none": lambda s: setattr(s.placement, "follow_deadline", 1),
    "not forgotten": set_task(CANCELLED, kept=False),
    "4 waits for it, and it has ended": set_task(CANCELLED, dependents={WAITING: True}),
    "has a recipe for nothing": set_task(CANCELLED, depth=0),
    "its recipe lacks another": set_task(SUCCEEDED, depth=0, dependencies=(CANCELLED,)),
    "has a result already": set_task(READY, result=b"r"),
    "has a result already: .*depth=0": set_task(READY, depth=0),
    "outlived the losses of its value": set_task(READY, value_losses=1),
    "lacks an input and does not know": set_task(SUCCEEDED, state=State.FAILED, result=None),
    "result in the wrong state": set_task(SUCCEEDED, result=None),
    "6 depends on it and is over": set_task(READY, dependents={WAITING: True, CANCELLED: True}),
    "worker 7 has 303 tasks": break_prefetch,
    "worker 7 has foreign tasks": lambda s: worker(s).tasks.update({READY: s.tasks[READY]}),
    "worker 7: backlog is off": set_worker(backlog_ns=1),
    "worker 7: retractions are off": set_worker(retracting=1),
    r"worker 7 runs \[0\], not 1": set_worker(long=ASSIGNED),
    "worker 7: asked or not": lambda s: s.placement.asked.add(BUSY),
    "5 tasks are live, not 8": lambda s: setattr(s, "live", 8),
    "1 READY, 0 queued": lambda s: s.ready.take(),
    "the queue holds other tasks": lambda s: (s.ready.take(), s.ready.add(other_ready())),
    "a task is READY and a worker idle, and nothing will change that": break_idleness,
    "workers were touched and not placed": lambda s: s.placement.touched.update({BUSY: worker(s)}),
    "a worker is in two buckets": break_two_buckets,
    "worker 8: idle or not": lambda s: s.placement.workers.update({SPARE: Worker(SPARE)}),
    "worker 7: not single": break_bucket_state,
    "worker 7: not roomy": break_room,
    "0 workers are blocked, not 1": lambda s: setattr(s.slots, "blocked", 1),
    "1 workers are active, not 2": lambda s: setattr(s.slots, "active", 2),
    "a worker is parked and does not know": lambda s: s.slots.parked.update({SPARE: Worker(SPARE)}),
    "how many workers there should be was not told": lambda s: setattr(s.slots, "changed", True),
    "a bucket holds a worker that is gone": lambda s: s.placement.loaded.update({SPARE: Worker(SPARE)}),
}


def other_ready():
    turns = Turns()
    turns.submit(77)
    return turns.scheduler.tasks[77]


def test_nothing_is_wrong_with_what_is_broken_below() -> None:
    scheduler = populated()
    check_invariants(scheduler)
    assert [scheduler.tasks[n].state for n in range(7)] == [
        State.RUNNING,
        State.ASSIGNED,
        State.ASSIGNED,
        State.READY,
        State.WAITING,
        State.SUCCEEDED,
        State.CANCELLED,
    ]
    assert scheduler.tasks[READY].worker == NOWHERE


@pytest.mark.parametrize(("complaint", "break_it"), BROKEN.items(), ids=BROKEN)
def test_a_broken_invariant_is_named(complaint: str, break_it: Callable[[Scheduler], object]) -> None:
    scheduler = populated()
    break_it(scheduler)
    with pytest.raises(InternalError, match=complaint):
        check_invariants(scheduler)


def test_a_held_worker_must_have_something_to_complete() -> None:
    turns = Turns()
    turns.join(BUSY)
    turns.scheduler.placement.idle.clear()
    worker(turns.scheduler).held = True
    with pytest.raises(InternalError, match="worker 7 is held with nothing to complete"):
        check_invariants(turns.scheduler)


def three_slots() -> Turns:
    """One worker waits in its task, another has its slot and a task, and one more is parked."""
    turns = Turns(slots=1)
    turns.learn(b"f", MS)
    turns.join(BUSY)
    turns.submit(RUNNING)
    turns.worker(BUSY, Blocked(RUNNING, 1))
    turns.join(*OTHERS)
    turns.submit(READY)
    return turns


def break_slots(**fields: object) -> Callable[[Scheduler], None]:
    def break_it(s: Scheduler) -> None:
        for name, value in fields.items():
            setattr(s.slots, name, value)

    return break_it


def break_blocking(s: Scheduler) -> None:
    worker(s).long = None
    s.tasks[RUNNING].state = State.ASSIGNED


def break_dismissal(s: Scheduler) -> None:
    active, parked = (s.placement.workers[WorkerId(n)] for n in OTHERS)
    active.parked, parked.parked = True, False
    s.placement.single.clear()
    s.placement.idle[parked.worker] = parked
    s.slots.parked.clear()


def break_parking(s: Scheduler) -> None:
    parked = s.slots.parked.pop(WorkerId(OTHERS[1]))
    parked.parked = False
    s.placement.idle[parked.worker] = parked
    s.slots.active += 1


SLOTS_BROKEN: dict[str, Callable[[Scheduler], object]] = {
    "a worker is blocked that runs nothing": break_blocking,
    "worker 10: parked, and in a bucket": lambda s: s.placement.roomy.update({10: s.placement.workers[10]}),
    "a worker is dismissed that has tasks": break_dismissal,
    "a worker is parked, and a slot is free": break_slots(_slots=2),
    "a worker idles that has no slot": break_parking,
    "a worker is blocked and parked": lambda s: (break_slots(active=0)(s), set_worker(parked=True)(s)),
}


@pytest.mark.parametrize(("complaint", "break_it"), SLOTS_BROKEN.items(), ids=SLOTS_BROKEN)
def test_a_broken_count_of_slots_is_named(complaint: str, break_it: Callable[[Scheduler], object]) -> None:
    turns = three_slots()
    assert list(turns.scheduler.slots.parked) == [10]
    break_it(turns.scheduler)
    with pytest.raises(InternalError, match=complaint):
        check_invariants(turns.scheduler)


def test_what_misses_an_input_must_not_be_asked_back() -> None:
    turns = Turns()
    turns.learn(b"f", MS)
    turns.join(BUSY)
    turns.submit(READY)
    turns.submit(WAITING, inputs=(READY,))
    assert turns.state(WAITING) is State.ASSIGNED
    turns.scheduler.tasks[WAITING].retracting = True
    with pytest.raises(InternalError, match=r"asked back ahead of its inputs: .*task=4"):
        check_invariants(turns.scheduler)


def test_a_value_must_not_outlive_its_dependents() -> None:
    turns = Turns()
    turns.client(Expect(READY))
    check_invariants(turns.scheduler)
    turns.scheduler.tasks[READY].dependents = {}
    with pytest.raises(InternalError, match="not dropped with its last dependent"):
        check_invariants(turns.scheduler)
