"""What scheduling costs, counted and not timed: workers looked at, tasks taken, bytes held."""

import gc
import itertools
import sys
import tracemalloc
from collections import deque

import pytest
from turns import MS, US, Turns, submit

from slipstream.core.events import ClientWaits, FromClient, FromWorker, WorkerJoined
from slipstream.core.ready import ReadyQueue
from slipstream.core.scheduler import Scheduler
from slipstream.core.states import State
from slipstream.core.tasks import Task, Worker
from slipstream.protocol.messages import Cancel, Done, Started

WORKERS = 1000


class Effort:
    """Counts how often placement puts a worker into its bucket, and how often it takes a READY task."""

    def __init__(self, turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workers = self.tasks = 0
        placement = turns.scheduler.placement
        put, take = placement._put, ReadyQueue.take

        def counted_put(worker: Worker) -> None:
            self.workers += 1
            put(worker)

        def counted_take(queue: ReadyQueue) -> Task:
            self.tasks += 1
            return take(queue)

        monkeypatch.setattr(placement, "_put", counted_put)
        monkeypatch.setattr(ReadyQueue, "take", counted_take)

    def of_turn(self) -> tuple[int, int]:
        """Workers put and tasks taken since the last call."""
        effort, self.workers, self.tasks = (self.workers, self.tasks), 0, 0
        return effort


def many_workers(duration_ns: int) -> Turns:
    turns = Turns()
    turns.checked = False
    turns.learn(b"f", duration_ns)
    turns.join(*range(WORKERS))
    return turns


def test_a_submit_turn_looks_at_the_worker_that_it_serves_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(US)
    effort = Effort(turns, monkeypatch)
    for task in range(2 * WORKERS):  # each worker is hungry until it has two
        turns.submit(task)
        assert effort.of_turn() == (1, 1)
    turns.submit(2 * WORKERS)
    assert effort.of_turn() == (0, 0)


def test_a_report_turn_looks_at_the_reporter_and_at_the_worker_that_it_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(US)
    turns.submit(*range(2 * WORKERS))
    turns.submit(2 * WORKERS)
    effort = Effort(turns, monkeypatch)
    turns.done(WORKERS // 2, turns.held_by(WORKERS // 2)[0])
    assert effort.of_turn() == (2, 1)


def test_a_report_turn_that_places_nothing_looks_at_the_reporter_only(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(US)
    turns.submit(*range(2 * WORKERS))
    effort = Effort(turns, monkeypatch)
    turns.done(5, *turns.held_by(5))
    assert effort.of_turn() == (1, 0)


def test_tasks_that_do_not_fit_cost_one_look_however_many_workers_have_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every worker has 6 ms of work, and what waits takes 10 ms."""
    turns = many_workers(3 * MS)
    turns.learn(b"long", 10 * MS)
    turns.submit(*range(2 * WORKERS))
    effort = Effort(turns, monkeypatch)
    turns.client(*[submit(task, b"long") for task in range(10_000, 20_000)])
    assert effort.of_turn() == (1, 1)
    turns.pace_ns = 300 * US
    for task in range(20_000, 20_003):  # and no second look until there is reason for it
        turns.submit(task)
    assert effort.of_turn() == (0, 0)


def test_a_full_cluster_costs_nothing_however_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(10 * MS)
    turns.submit(*range(WORKERS))
    effort = Effort(turns, monkeypatch)
    turns.submit(*range(10_000, 20_000))
    for task in range(20_000, 20_200):
        turns.submit(task)
    assert effort.of_turn() == (0, 0)


def test_a_turn_that_holds_its_task_back_for_a_fuller_frame_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(US)
    turns.submit(*range(2 * WORKERS))
    turns.submit(2 * WORKERS)
    turns.pace_ns = 10 * US
    effort = Effort(turns, monkeypatch)
    for task in range(10_000, 10_010):
        assert turns.submit(task).workers == {}
        assert effort.of_turn() == (0, 0)


def test_a_whole_bag_costs_about_one_look_per_frame_and_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns = many_workers(US)
    effort = Effort(turns, monkeypatch)
    tasks, frames, reports = 20 * WORKERS, 0, 0
    for first in range(0, tasks, 64):
        turns.now += MS
        told = turns.turn(FromClient(0, [submit(task) for task in range(first, min(first + 64, tasks))]))
        frames += len(told.workers)
    while turns.scheduler.live:
        turns.now += MS
        for worker in range(WORKERS):
            frames += len(turns.done(worker, *turns.held_by(worker)).workers)
            reports += 1
    looked, taken = effort.of_turn()
    assert taken == tasks
    assert looked <= frames + reports + 10  # a worker that idled may be served twice in a turn


def test_balancing_looks_at_the_workers_that_it_asks_only(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(2 * MS)
    turns.submit(*range(5 * WORKERS))
    effort = Effort(turns, monkeypatch)
    assert len(turns.join(WORKERS, WORKERS + 1).workers) == 2
    assert effort.of_turn() == (2, 0)


class Looks:
    """Counts how often anyone looks at the followers of a worker, and how often a task's home is looked for."""

    def __init__(self, turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workers = self.homes = 0
        looks, slot, home_of = self, Worker.followers, turns.scheduler.placement._home_of

        class Followers:
            def __get__(self, worker: Worker, kind: type) -> deque[Task]:
                looks.workers += 1
                return slot.__get__(worker, kind)

            def __set__(self, worker: Worker, followers: deque[Task]) -> None:
                slot.__set__(worker, followers)

        def counted_home_of(task: Task) -> Worker | None:
            self.homes += 1
            return home_of(task)

        monkeypatch.setattr(Worker, "followers", Followers())
        for owner in (turns.scheduler, turns.scheduler.placement):
            monkeypatch.setattr(owner, "_home_of", counted_home_of)

    def of_turn(self) -> tuple[int, int]:
        """Followers looked at and homes looked for since the last call."""
        looks, self.workers, self.homes = (self.workers, self.homes), 0, 0
        return looks


def followed_workers(duration_ns: int) -> Turns:
    """Each of many workers has two tasks, and one that follows."""
    turns = many_workers(duration_ns)
    turns.submit(*range(2 * WORKERS))
    turns.turn(ClientWaits(0))
    turns.client(*[submit(10_000 + w, inputs=(turns.held_by(w)[-1],)) for w in range(WORKERS)])
    return turns


def test_followers_that_gather_cost_a_submit_turn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = followed_workers(US)
    assert turns.state(10_000) is State.WAITING
    turns.pace_ns = 1
    looks = Looks(turns, monkeypatch)
    for n in range(10):
        turns.submit(20_000 + n, inputs=(turns.held_by(5)[-1],))
        workers, homes = looks.of_turn()
        assert workers <= 5
        assert homes <= 2


@pytest.mark.parametrize("duration_ns", [6 * MS, 14 * MS])
def test_followers_of_full_workers_cost_a_report_turn_nothing(
    duration_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = followed_workers(duration_ns)
    turns.turn(ClientWaits(0))
    assert turns.state(10_000) is State.WAITING
    looks, effort = Looks(turns, monkeypatch), Effort(turns, monkeypatch)
    for worker in range(10):
        turns.done(worker, turns.held_by(worker)[0], duration_ns=duration_ns)
        workers, homes = looks.of_turn()
        assert workers <= 5
        assert homes <= 4
        assert effort.of_turn()[0] <= 4


def test_followers_of_workers_in_long_tasks_cost_a_report_turn_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(US)
    turns.submit(*range(WORKERS))
    for worker in range(1, WORKERS):
        turns.worker(worker, Started(turns.held_by(worker)[0], 1))
    turns.client(*[submit(10_000 + w, inputs=(turns.held_by(w)[-1],)) for w in range(1, WORKERS)])
    looks, effort = Looks(turns, monkeypatch), Effort(turns, monkeypatch)
    turns.done(0, *turns.held_by(0))
    looks.of_turn(), effort.of_turn()
    for task in range(50_000, 50_010):
        turns.submit(task)
        turns.done(0, task)
        assert looks.of_turn()[0] <= 5
        assert effort.of_turn()[0] <= 4


def test_a_chain_costs_the_same_however_long_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(US)
    looks = Looks(turns, monkeypatch)
    length = 5_000
    turns.client(submit(0), *[submit(n, inputs=(n - 1,)) for n in range(1, length)])
    worker = next(w for w in turns.scheduler.placement.workers if turns.held_by(w))
    while turns.scheduler.live:
        turns.done(worker, *turns.held_by(worker)[:100])
    assert looks.of_turn()[1] <= 4 * length


def test_a_fan_out_costs_its_root_no_more_than_a_few_hundred_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = many_workers(US)
    turns.client(submit(0), *[submit(n, inputs=(0,)) for n in range(1, 1000)])
    turns.lose(next(w for w in turns.scheduler.placement.workers if turns.held_by(w)))
    looks = Looks(turns, monkeypatch)
    for _ in range(3):  # it is sent again and again
        turns.lose(next(w for w in turns.scheduler.placement.workers if turns.held_by(w)))
        assert looks.of_turn()[1] <= 1000


def test_a_pending_task_is_small() -> None:
    task = Scheduler()
    task.handle([FromClient(0, [submit(1, payload=b"")])], 0)
    assert sys.getsizeof(task.tasks[1]) <= 256
    assert not gc.is_tracked(task.tasks[1])


def test_memory_per_pending_task_is_bounded_with_all_that_belongs_to_it() -> None:
    """The structure, its id, its places in the table of tasks and among the READY ones; not its payload."""
    count = 20_000
    messages = [submit(1_000_000 + n) for n in range(count)]
    scheduler = Scheduler()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        scheduler.handle([FromClient(0, messages)], 0)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert held / count <= 352


def test_memory_follows_live_tasks() -> None:
    """After thousands of tasks, of which some were cancelled and some failed with them, nothing of them is left."""
    scheduler, clock = Scheduler(), itertools.count(0, MS)
    scheduler.handle([WorkerJoined(7)], next(clock))
    for first in range(0, 30_000, 500):
        tasks = range(first, first + 500)
        messages = [submit(n, inputs=(n - 1,) if n % 500 > 480 else ()) for n in tasks]
        messages += [Cancel(n) for n in tasks if n % 7 == 0]
        scheduler.handle([FromClient(0, messages)], next(clock))
        while scheduler.live:
            held = list(scheduler.placement.workers[7].tasks.values())
            scheduler.handle([FromWorker(7, [Done(t.task, t.attempt, US, b"r") for t in held])], next(clock))
    assert scheduler.tasks == {}
    assert len(scheduler.ready) == 0
    assert sum(map(len, scheduler.ready._by_priority.values())) <= 64
    assert not scheduler.placement.workers[7].tasks
