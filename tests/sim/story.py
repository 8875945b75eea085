"""Stories made up from a seed: who submits what and when, who dies, who changes his mind."""

import random
from functools import partial

from cluster import Cluster
from simulated_client import SimulatedClient
from simulated_worker import SimulatedWorker, Work
from timeline import MS, US

#: Durations of the calls of each callable, in ns: no-ops, short, around the tick, long, and now and then very long.
CALLABLES: dict[bytes, tuple[int, ...]] = {
    b"no-op": (2 * US,),
    b"short": (100 * US, 400 * US, 900 * US),
    b"ticking": (3 * MS, 5 * MS, 8 * MS),
    b"long": (30 * MS, 80 * MS),
    b"skewed": (*[50 * US] * 30, 60 * MS),
}


class Storyteller:
    """Plays the clients, and fate."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster(
            self.dice,
            delay_ns=self.dice.choice((20 * US, 200 * US, 3 * MS)),
            silence_ns=self.dice.choice((10 * US, 2 * MS, 20 * MS)),
        )
        self.span_ns = self.dice.choice((1 * MS, 30 * MS, 200 * MS))
        self.worker_retries = self.dice.choice((0, 0, 2))
        self.callables = self.dice.sample(sorted(CALLABLES), self.dice.randint(1, len(CALLABLES)))
        self.linked = self.dice.choice((0.0, 0.3, 0.9))
        self.deaths_left = self.dice.choice((0, 1, 4, 12))

    def tell(self) -> Cluster:
        """Tell the whole story, and return the cluster after its end."""
        cluster, dice = self.cluster, self.dice
        for _ in range(dice.randint(1, 4)):
            cluster.start_worker(cluster.some(5 * MS))
        for _ in range(self.deaths_left // 2):
            cluster.timeline.after(dice.randrange(self.span_ns), self.kill_any)
        cluster.on_start = self.perhaps_kill
        for _ in range(dice.choice((1, 1, 2, 3))):
            self.enter_client(cluster.add_client())
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
        for n in range(count):
            self.cluster.timeline.after(n * pace_ns, partial(self.submit_one, client))
        if self.dice.random() < 0.5:
            self.cluster.timeline.after(count * pace_ns, client.wait)

    def submit_one(self, client: SimulatedClient) -> None:
        dice = self.dice
        if not client.present:
            return
        digest = dice.choice(self.callables)
        work = Work(
            duration_ns=dice.choice(CALLABLES[digest]),
            salt=len(client.tasks),
            raises=dice.random() < 0.03,
            blocks=dice.random() < 0.05,
        )
        available = [task for task, submitted in client.tasks.items() if not submitted.released][-6:]
        linked = available and dice.random() < self.linked
        client.submit(
            work,
            digest=digest,
            dependencies=dice.sample(available, min(len(available), dice.choice((1, 1, 2, 4)))) if linked else (),
            priority=dice.choice((0, 0, 0, 5, -5)),
            worker_retries=self.worker_retries,
        )

    def cancel_some(self, client: SimulatedClient) -> None:
        if client.present and client.tasks:
            client.cancel(*self.dice.sample(sorted(client.tasks), min(len(client.tasks), 3)))

    def after_outcome(self, client: SimulatedClient, task: int) -> None:
        """Drop the future that has ended, or one that has not."""
        if self.dice.random() < 0.5:
            chosen = self.dice.choice((task, self.dice.choice(sorted(client.tasks))))
            if not client.tasks[chosen].released:
                client.release(chosen)
