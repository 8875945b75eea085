"""Workers lost although none of their tasks ran: which task is charged, and what becomes of its neighbours."""

from turns import Turns, given

from slipstream.core.events import WorkerEnd, WorkerLeft
from slipstream.core.states import State
from slipstream.protocol.messages import TaskLost


def holding(*tasks: int) -> Turns:
    """Worker 7 with these tasks, in this order."""
    turns = given(7)
    turns.submit(*tasks)
    assert turns.held_by(7) == list(tasks)
    return turns


def lose(
    turns: Turns, worker: int, last: int | None, *, by_task: bool = False, running: int | None = None
) -> list[int]:
    """Lose a worker; the tasks that fail for it."""

    def attempt(task: int | None) -> tuple[int, int] | None:
        return None if task is None else (task, turns.attempt(task))

    end = WorkerEnd("lost", last=attempt(last), running=attempt(running), by_task=by_task)
    return [notice.task for notice in turns.turn(WorkerLeft(worker, end)).notices() if isinstance(notice, TaskLost)]


def test_what_had_started_and_was_not_reported_is_suspected_once_and_nothing_fails() -> None:
    turns = holding(1, 2, 3)
    assert lose(turns, 7, last=2) == []
    assert [turns.scheduler.tasks[task].suspicions for task in (1, 2, 3)] == [1, 1, 0]
    assert turns.waiting_room() == [1, 2, 3]


def test_a_suspected_task_runs_alone() -> None:
    turns = holding(1, 2, 3)
    lose(turns, 7, last=2)
    assert turns.join(8).sent_to(8) == [1]
    assert turns.done(8, 1).sent_to(8) == [2]
    assert turns.done(8, 2).sent_to(8) == [3]


def test_the_second_suspicion_is_a_proof() -> None:
    turns = holding(1, 2)
    lose(turns, 7, last=2)
    turns.join(8)
    assert lose(turns, 8, last=1) == [1]
    assert turns.states(1, 2) == [None, State.READY]
    turns.join(9)
    assert turns.done(9, 2).notices()[0].task == 2


def test_where_only_a_task_can_have_caused_it_the_only_suspect_is_charged_at_once() -> None:
    turns = holding(1, 2)
    assert lose(turns, 7, last=1, by_task=True) == [1]
    assert turns.states(1, 2) == [None, State.READY]


def test_of_several_suspects_none_is_charged_at_once_not_even_the_one_that_runs() -> None:
    turns = holding(1, 2, 3)
    assert lose(turns, 7, last=2, running=2, by_task=True) == []
    assert [turns.scheduler.tasks[task].suspicions for task in (1, 2, 3)] == [1, 1, 0]


def test_a_task_that_ran_when_its_worker_died_is_the_only_one_to_blame() -> None:
    turns = holding(1, 2, 3)
    assert lose(turns, 7, last=2, running=2) == [2]
    assert [turns.scheduler.tasks[task].suspicions for task in (1, 3)] == [0, 0]


def test_nothing_is_suspected_where_all_that_had_started_was_reported() -> None:
    turns = holding(1, 2)
    turns.done(7, 1)
    turns.turn(WorkerLeft(7, WorkerEnd("lost", last=(1, 1))))
    assert turns.scheduler.tasks[2].suspicions == 0


def test_an_earlier_attempt_of_a_task_says_nothing_about_this_one() -> None:
    turns = holding(1)
    turns.turn(WorkerLeft(7, WorkerEnd("lost", last=(1, 0))))
    assert turns.scheduler.tasks[1].suspicions == 0
