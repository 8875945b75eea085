"""Workers die while tasks wait for what they make: it is lost, what depends on it does not run, and nothing hangs."""

import concurrent.futures
import os
import random
import signal
import threading

import pytest
from processes import gate_in, until, workers

import calls
from slipstream import DependencyError, WorkerLost

LIMIT_S = 25


def is_lost(future):
    return type(future.exception(LIMIT_S)) is WorkerLost


def missed(future, root):
    error = future.exception(LIMIT_S)
    assert type(error) is DependencyError, error
    return error.__cause__ is root.exception()


@pytest.mark.parametrize("way", ["killed", "left"])
def test_what_depends_on_a_lost_task_fails_by_it(patient, way):
    root = patient.submit(calls.die) if way == "killed" else patient.submit(calls.leave, 3)
    before = [patient.submit(calls.add, root, i) for i in range(5)]
    far = before[0]
    for _ in range(100):
        far = patient.submit(calls.everything, [far], 1)
    assert is_lost(root)
    after = [patient.submit(calls.everything, {"a": root}), root[0], patient.submit(calls.add, before[0], 1)]
    assert all(missed(future, root) for future in (*before, far, *after))
    assert "was running when its worker was lost" in str(far.exception())
    assert patient.submit(calls.add, 1, 1).result(LIMIT_S) == 2


def test_a_task_in_the_middle_of_a_chain_kills_its_worker(patient):
    first = future = patient.submit(calls.add, 0, 0)
    for _ in range(50):
        future = patient.submit(calls.add, future, 1)
    fatal = patient.submit(calls.die_at, future, 50)
    end = fatal
    for _ in range(50):
        end = patient.submit(calls.add, end, 1)
    assert is_lost(fatal)
    assert missed(end, fatal)
    assert (first.result(0), future.result(0)) == (0, 50), "what has ended stays"


def test_a_chain_whose_worker_is_killed_between_goes_on_elsewhere(single, tmp_path):
    """The one that runs is lost; what was sent ahead, and does not depend on it, runs on the new worker."""
    with gate_in(tmp_path) as gate:
        started = tmp_path / "started"
        base = single.submit(list, "abc")
        running = single.submit(calls.note_and_wait, str(started), str(gate))
        chain = [single.submit(calls.echo, base)]
        for _ in range(30):
            chain.append(single.submit(calls.echo, chain[-1]))
        ends = [single.submit(calls.everything, chain[-1], running), single.submit(calls.echo, [running])]
        until(started.exists)
        (worker,) = workers()
        os.kill(worker.pid, signal.SIGKILL)
        assert is_lost(running)
        assert all(missed(end, running) for end in ends)
        assert [future.result(LIMIT_S) for future in chain] == [["a", "b", "c"]] * len(chain)


def test_an_input_that_is_made_while_its_worker_dies_is_not_made_twice(single, tmp_path):
    note = tmp_path / "note"
    first = single.submit(calls.note, str(note), "1")
    second = single.submit(calls.everything, first, 2)
    assert second.result(LIMIT_S) == ((None, 2), {})
    (worker,) = workers()
    os.kill(worker.pid, signal.SIGKILL)
    assert single.submit(calls.everything, first, second).result(LIMIT_S) == ((None, ((None, 2), {})), {})
    assert note.read_text() == "1"


def test_workers_are_killed_at_random_in_chains(patient):
    """Every future ends: with its value, as lost, or by the one that was lost."""
    rng = random.Random(5)
    patient.submit(calls.add, 1, 1).result()
    over = threading.Event()
    killed = []

    def kill():
        while len(killed) < 12 and not over.wait(rng.uniform(0, 0.03)):
            stats = patient.stats()
            if stats.workers == 2 and stats.workers_lost == len(killed):  # all are up: one that starts says no word
                victim = rng.choice(workers())
                victim.kill()
                killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    chains = []
    try:
        for _ in range(40):
            outside = concurrent.futures.Future()
            chain = [patient.submit(calls.add, outside, 0)]
            for _ in range(25):
                chain.append(patient.submit(calls.nap, 0.001, patient.submit(calls.add, chain[-1], 1)))
            outside.set_result(0)
            chains.append(chain)
        for chain in chains:
            concurrent.futures.wait(chain, LIMIT_S)
    finally:
        over.set()
        killer.join()
    for chain in chains:
        root = None
        for i, future in enumerate(chain):
            error = future.exception(LIMIT_S)
            if error is None:
                assert root is None
                assert future.result() == i
            elif root is None:
                root = error if type(error) is WorkerLost else error.__cause__
                assert type(root) is WorkerLost, error
            else:
                assert error.__cause__ is root
    assert killed
    assert patient.submit(calls.add, 1, 1).result(LIMIT_S) == 2
    assert not patient._engine._scheduler.tasks
