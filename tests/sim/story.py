"""Stories made up from a seed: who submits what and when, who dies, who changes his mind."""

import random
from functools import partial

from cluster import Cluster
from msgspec.structs import replace
from simulated_client import SimulatedClient
from simulated_worker import SimulatedWorker
from timeline import MS, US
from work import Work

#: Durations of the calls of each callable, in ns: no-ops, short, around the tick, long, and now and then very long.
CALLABLES: dict[bytes, tuple[int, ...]] = {
    b"no-op": (2 * US,),
    b"short": (100 * US, 400 * US, 900 * US),
    b"ticking": (3 * MS, 5 * MS, 8 * MS),
    b"long": (30 * MS, 80 * MS),
    b"skewed": (*[50 * US] * 30, 60 * MS),
}


class Storyteller:
    """Plays the clients, and fate.

    Args:
        seed: which story.
        plain: whether all results are small, and no task submits others: dice of their own decide about these, so
            stories without are what they were before these things came about.
    """

    def __init__(self, seed: int, *, plain: bool = False) -> None:
        self.dice = random.Random(seed)
        self.fate = random.Random(-1 - seed)
        self.stored = 0.0 if plain else self.fate.choice((0.0, 0.3, 0.9))
        self.value_retries = self.fate.choice((0, 1, 2, 2))
        self.losses = self.fate.choice((0, 1, 5, 30)) if self.stored else 0
        self.nested = 0.0 if plain else self.fate.choice((0.0, 0.0, 0.0, 0.05, 0.2))
        self.cluster = Cluster(
            self.dice,
            delay_ns=self.dice.choice((20 * US, 200 * US, 3 * MS)),
            silence_ns=self.dice.choice((10 * US, 2 * MS, 20 * MS)),
            results_kept=self.dice.choice((0, 3, 1000)),
        )
        self.span_ns = self.dice.choice((1 * MS, 30 * MS, 200 * MS))
        self.worker_retries = self.dice.choice((0, 0, 2))
        self.callables = self.dice.sample(sorted(CALLABLES), self.dice.randint(1, len(CALLABLES)))
        self.linked = self.dice.choice((0.0, 0.3, 0.9))
        #: How tasks depend on others: on any, each on the one before, all of a burst on one, as a tree.
        self.shapes = self.dice.choice(
            (("any",), ("chain",), ("fan-out", "chain"), ("tree", "any", "chain", "fan-out"))
        )
        self.promises = self.dice.choice((0.0, 0.0, 0.1))
        self.deaths_left = self.dice.choice((0, 1, 4, 12))

    def tell(self) -> Cluster:
        """Tell the whole story, and return the cluster after its end."""
        cluster, dice = self.cluster, self.dice
        workers = dice.randint(1, 4)
        if self.nested:
            cluster.employ(workers, self.fate.choice((0, workers, workers + 1, workers + 3)))
        for _ in range(workers):
            cluster.start_worker(cluster.some(5 * MS))
        for _ in range(self.losses):
            cluster.timeline.after(self.fate.randrange(2 * self.span_ns), self.lose_files)
        for _ in range(self.deaths_left // 2):
            cluster.timeline.after(dice.randrange(self.span_ns), self.kill_any)
        cluster.on_start = self.perhaps_kill
        cluster.on_file = self.perhaps_lose
        for _ in range(dice.choice((1, 1, 2, 3))):
            self.enter_client(cluster.add_client())
        cluster.run()
        for client in cluster.clients.values():
            if client.present:
                client.look_at(*client.tasks)
        cluster.run()
        for client in cluster.clients.values():
            unreleased = [task for task, submitted in client.tasks.items() if not submitted.released]
            if client.present and unreleased:
                client.release(*unreleased)
        cluster.run()
        return cluster

    # --- fate -------------------------------------------------------------------------------------------------------

    def kill_any(self) -> None:
        alive = [worker for worker in self.cluster.workers.values() if worker.alive]
        if alive and self.deaths_left > 0:
            self.deaths_left -= 1
            self.cluster.kill(self.dice.choice(alive))

    def lose_files(self) -> None:
        """One of the last, or all."""
        files = list(self.cluster.files)
        for file in self.fate.choice((files[-1:], files[-8:-7], files)):
            self.cluster.remove_file(file)

    def perhaps_lose(self, payload: bytes) -> None:
        """Soon after it was made: others have it by then, or have still to come to it."""
        if self.losses and self.fate.random() < 0.1:
            delay_ns = self.fate.choice((0, 100 * US, 5 * MS))
            self.cluster.timeline.after(delay_ns, lambda: self.cluster.remove_file(payload))

    def perhaps_kill(self, worker: SimulatedWorker) -> None:
        """Soon after a task began: while it runs, while the next one does, or between the two."""
        if self.deaths_left > 0 and self.dice.random() < 0.03:
            self.deaths_left -= 1
            self.cluster.timeline.after(
                self.cluster.some(10 * MS), lambda: self.cluster.kill(worker) if worker.alive else None
            )

    # --- clients ----------------------------------------------------------------------------------------------------

    def enter_client(self, client: SimulatedClient) -> None:
        client.on_outcome = partial(self.after_outcome, client)
        for _ in range(self.dice.randint(1, 8)):
            self.cluster.timeline.after(self.dice.randrange(self.span_ns), partial(self.submit_burst, client))
        for _ in range(self.dice.choice((0, 0, 3, 10))):
            self.cluster.timeline.after(self.dice.randrange(self.span_ns), partial(self.cancel_some, client))
        if client.identity and self.dice.random() < 0.3:
            self.cluster.timeline.after(self.dice.randrange(self.span_ns), client.leave)

    def submit_burst(self, client: SimulatedClient) -> None:
        """All at once, as a stream, or at leisure; perhaps the client waits for the last one."""
        count, pace_ns = self.dice.choice((1, 1, 5, 25, 60)), self.dice.choice((0, 20 * US, 300 * US))
        shape, burst = self.dice.choice(self.shapes), list[int]()
        for n in range(count):
            self.cluster.timeline.after(n * pace_ns, partial(self.submit_one, client, shape, burst))
        if self.dice.random() < 0.5:
            self.cluster.timeline.after(count * pace_ns, client.wait)

    def submit_one(self, client: SimulatedClient, shape: str, burst: list[int]) -> None:
        """A task of a burst, and perhaps a promise before it."""
        dice = self.dice
        if not client.present:
            return
        digest = dice.choice(self.callables)
        work = Work(
            duration_ns=dice.choice(CALLABLES[digest]),
            salt=len(client.tasks),
            raises=dice.random() < 0.03,
            blocks=dice.random() < 0.05,
            stored=self.stored > 0 and self.fate.random() < self.stored,
            retries=self.value_retries,
        )
        if self.nested and self.fate.random() < self.nested:
            nesting = self.fate.choice(((1, 1), (3, 1), (2, 2)))
            work = replace(work, blocks=False, raises=False, children=nesting[0], levels=nesting[1])
        if dice.random() < self.promises:
            value = client.expect()
            payload = None if dice.random() < 0.1 else b"value %d" % value
            if payload and self.stored and self.fate.random() < self.stored:
                payload = self.cluster.new_file((value, 0), b"%d" % value)
            self.cluster.timeline.after(self.cluster.some(50 * MS), partial(self.keep_promise, client, value, payload))
        burst.append(self.submit_linked(client, shape, burst, digest, work))

    def submit_linked(self, client: SimulatedClient, shape: str, burst: list[int], digest: bytes, work: Work) -> int:
        dice = self.dice
        return client.submit(
            work,
            digest=digest,
            dependencies=self.inputs_for(client, shape, burst) if dice.random() < self.linked else (),
            priority=dice.choice((0, 0, 0, 5, -5)),
            worker_retries=self.worker_retries,
            value_retries=self.value_retries,
        )

    def inputs_for(self, client: SimulatedClient, shape: str, burst: list[int]) -> list[int | bytes]:
        """What the next task of a burst takes: other tasks, values, and results that are there."""
        dice = self.dice
        available = {task for task, submitted in client.tasks.items() if not submitted.released}
        before = [task for task in burst if task in available]
        inputs: list[int | bytes] = []
        if shape == "any" or not before:
            some = sorted(available)[-6:]
            inputs += dice.sample(some, min(len(some), dice.choice((1, 1, 2, 4))))
        elif shape == "chain":
            inputs.append(before[-1])
        elif shape == "fan-out":
            inputs.append(before[0])
        else:
            inputs += before[(len(before) - 1) // 2 :][:2]
        if client.values and dice.random() < 0.3:
            inputs.append(sorted(client.values)[-1])
        if dice.random() < 0.1:
            inputs += [b"there", *inputs[:1]]
        return inputs

    def keep_promise(self, client: SimulatedClient, value: int, payload: bytes | None) -> None:
        if client.present:
            client.provide(value, payload)

    def cancel_some(self, client: SimulatedClient) -> None:
        if client.present and client.tasks:
            client.cancel(*self.dice.sample(sorted(client.tasks), min(len(client.tasks), 3)))

    def after_outcome(self, client: SimulatedClient, task: int) -> None:
        """Drop the future that has ended, or one that has not; or look at what has come of some."""
        if self.losses and self.fate.random() < 0.2:
            client.look_at(*[task for task in [*client.tasks][-5:] if not client.tasks[task].released])
        if self.dice.random() < 0.5:
            chosen = self.dice.choice((task, self.dice.choice(sorted(client.tasks))))
            if not client.tasks[chosen].released:
                client.release(chosen)
