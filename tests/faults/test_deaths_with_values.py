"""Workers are killed while they make, write and hold large values: what is there at the end is right, nothing stays.

A task that runs when its worker is killed is lost, and what depends on it is not run: that much is allowed.
"""

import gc
import os
import random
import threading

from processes import LIMIT_S, all_gone, gate_in, until, workers

import calls
import large
from slipstream import DependencyError, Executor, WorkerLost

ROUNDS = 12
KILLS = 2
END_S = 25
STORED = tuple(kind for kind in large.KINDS if kind != "small")


# --- graphs: for each task the numbers of those whose results it takes ------------------------------------------------


def diamonds(count):
    inputs = [()]
    for top in range(0, 4 * count, 4):
        inputs += [(top,), (top,), (top,), (top + 1, top + 2, top + 3)]
    return inputs


def reduction(leaves):
    """A binary tree; a number of leaves that is a power of two."""
    inputs = [()] * leaves
    return inputs + [(2 * i, 2 * i + 1) for i in range(leaves - 1)]


def chain(links):
    return [(), *[(i,) for i in range(links)]]


def graphs(rng):
    """Each task has a kind of value that it makes, and inputs."""
    shapes = diamonds(4), reduction(8), chain(14)
    return [[(rng.choice(STORED), inputs) for inputs in shape] for shape in shapes]


def submitted(executor, graph):
    futures = []
    for number, (kind, inputs) in enumerate(graph):
        futures.append(executor.submit(large.built, kind, number, *[futures[i] for i in inputs]))
    return futures


def evaluated(graph):
    values = []
    for number, (kind, inputs) in enumerate(graph):
        values.append(large.built(kind, number, *[values[i] for i in inputs]))
    return [large.fingerprint(value) for value in values]


def lost_in(graph, futures):
    """How many tasks were lost; all others have their value, or failed by one of those."""
    lost = set()
    roots = []
    for (_, inputs), future, expected in zip(graph, futures, evaluated(graph), strict=True):
        error = future.exception(END_S)
        causes = set().union(*[roots[i] for i in inputs])
        roots.append({future} if type(error) is WorkerLost else causes)
        if type(error) is WorkerLost:
            lost.add(future)
            assert not causes, "it ran although an input is lost"
        elif causes:
            assert type(error) is DependencyError, error
            assert error.__cause__ in [cause.exception() for cause in causes]
        else:
            assert error is None
            assert large.fingerprint(future.result()) == expected
    return len(lost)


# --- whoever kills ----------------------------------------------------------------------------------------------------


class Killer(threading.Thread):
    """Kills workers one after the other, each when all are up: at a random moment, or as soon as one makes a file."""

    def __init__(self, executor, rng, over):
        super().__init__(daemon=True)
        self.executor, self.rng, self.over = executor, rng, over
        self.before = executor.stats().workers_lost
        self.killed = []

    def run(self):
        while len(self.killed) < KILLS:
            until(self.all_up)
            if self.rng.random() < 0.5:
                self.over.wait(self.rng.uniform(0, 0.15))
                victim = self.rng.choice(workers())
            else:
                victim = self.writer()
            victim.kill()
            self.killed.append(victim)

    def all_up(self):
        stats = self.executor.stats()
        return (stats.workers, stats.workers_lost) == (2, self.before + len(self.killed))

    def writer(self):
        """The worker of the next file, which is perhaps not whole yet; any, once nothing more is made."""
        known = set(large.files_of(self.executor))
        while not self.over.is_set():
            new = {int(name.split("-")[1]) for name in set(large.files_of(self.executor)) - known}
            for worker in workers() if new else ():
                if worker.pid in new:
                    self.over.wait(self.rng.uniform(0, 0.002))
                    return worker
        return self.rng.choice(workers())


def killed_at_random(executor, rng):
    """One round; the processes that were killed, and how many tasks were lost."""
    over = threading.Event()
    killer = Killer(executor, rng, over)
    killer.start()
    try:
        work = [(graph, submitted(executor, graph)) for graph in graphs(rng)]
        lost = sum(lost_in(graph, futures) for graph, futures in work)
    finally:
        over.set()
        killer.join(END_S)
    assert len(killer.killed) == KILLS
    return killer.killed, lost


def test_workers_are_killed_at_random_among_large_values(patient):
    rng = random.Random(17)
    patient.submit(large.make, "read", 1).result()
    gone = []
    for _ in range(ROUNDS):
        killed, lost = killed_at_random(patient, rng)
        assert lost <= len(killed), "more was lost than ran"
        gone += killed
        gc.collect()
        until(lambda: large.files_of(patient) == [])
    assert all_gone(gone)
    patient.shutdown()
    assert workers() == []
    assert not os.path.exists(patient._values._run.path)


# --- in known states --------------------------------------------------------------------------------------------------


def test_a_worker_that_is_killed_half_way_through_a_file(single, tmp_path):
    note = tmp_path / "note"
    held = single.submit(large.make, "huge", 5)
    held.result()
    running = single.submit(large.half_written, str(note))
    until(note.exists)
    assert len(large.files_of(single)) == 2
    workers()[0].kill()
    assert type(running.exception(LIMIT_S)) is WorkerLost
    until(lambda: len(large.files_of(single)) == 1)
    assert single.submit(large.fingerprint, held).result(LIMIT_S) == large.fingerprint(large.make("huge", 5))


def test_results_outlive_the_workers_that_made_them(executor):
    """They have been told of: whoever takes them needs no worker but its own."""
    made = [executor.submit(large.make, kind, n) for n, kind in enumerate(STORED)]
    expected = [large.fingerprint(large.make(kind, n)) for n, kind in enumerate(STORED)]
    for future in made:
        future.exception(LIMIT_S)
    until(lambda: executor.stats().workers == 2)
    for worker in workers():
        worker.kill()
    taken = [executor.submit(large.fingerprint, future) for future in made]
    assert [future.result(LIMIT_S) for future in taken] == expected
    assert [large.fingerprint(future.result()) for future in made] == expected


def test_a_value_that_was_written_and_not_told_of_is_made_again(single, tmp_path):
    """What the dead worker had written goes, and what depends on it takes the new one."""
    for n in range(50):
        single.submit(large.built, "read", n).result()  # known to be short: its report is not sent at once
    with gate_in(tmp_path) as gate:
        waiting = single.submit(calls.wait_for, str(gate))
        made = [single.submit(large.built, "read", n) for n in range(20)]
        fatal = single.submit(calls.die)
        taken = [single.submit(large.built, "mapped", 0, future) for future in made]
        gate.touch()
        assert waiting.exception(LIMIT_S) is None
    assert type(fatal.exception(LIMIT_S)) is WorkerLost
    for n, future in enumerate(taken):
        expected = large.built("mapped", 0, large.built("read", n))
        assert large.fingerprint(future.result(LIMIT_S)) == large.fingerprint(expected)
    until(lambda: len(large.files_of(single)) == len(made) + len(taken))


def test_what_a_killed_worker_had_mapped_stays_for_the_others(tmp_path):
    """Two workers have one file mapped; one is killed, and the other goes on with it."""
    with gate_in(tmp_path) as gate, Executor(max_workers=2) as executor:
        value = executor.submit(large.make, "huge", 3)
        notes = [tmp_path / "a", tmp_path / "b"]
        running = [executor.submit(large.held, value, str(note), str(gate)) for note in notes]
        until(lambda: all(note.exists() for note in notes))
        victim = int(notes[0].read_text())
        next(worker for worker in workers() if worker.pid == victim).kill()
        assert type(running[0].exception(LIMIT_S)) is WorkerLost
        del value
        gate.touch()
        assert running[1].result(LIMIT_S) == large.fingerprint(large.make("huge", 3))
        until(lambda: large.files_of(executor) == [])
