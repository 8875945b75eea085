"""Prints a digest of all effects of one event log. Run by the test of determinism, in interpreters of its own.

The log is made up on the way from a seed: its events depend on the seed and on earlier effects only.
"""

import random
import sys
from collections.abc import Iterator
from hashlib import blake2b

from msgspec.msgpack import encode

from slipstream.core.effects import Effects
from slipstream.core.events import ClientLeft, Event, FromClient, FromWorker, WorkerEnd, WorkerJoined, WorkerLeft
from slipstream.core.scheduler import Scheduler
from slipstream.protocol.messages import Cancel, Done, Failed, Gave, Kept, Message, Release, Started, Submit

TURNS = 3000
CALLABLES = [bytes([n]) * 16 for n in range(20)]


def submission(dice: random.Random, task: int) -> Submit:
    inputs = tuple(dice.sample(range(max(0, task - 20), task), min(task, dice.choice((0, 0, 0, 1, 3)))))
    return Submit(
        task,
        dice.choice(CALLABLES),
        dice.randbytes(5),
        items=dice.choice((0, 0, 0, 10)),
        priority=dice.choice((0, 0, 1, -1)),
        worker_retries=dice.choice((0, 2)),
        inputs=inputs,
        keep=dice.random() < 0.9,
    )


def report(dice: random.Random, task: int, attempt: int) -> Message:
    duration_ns = int(dice.expovariate(1 / dice.choice((2_000, 500_000, 20_000_000))))
    return dice.choice(
        [
            *[Done(task, attempt, duration_ns, b"r%d" % task)] * 12,
            Failed(task, attempt, duration_ns, b"e%d" % task),
            Started(task, attempt),
            Gave(((task, attempt),)),
            Kept(((task, attempt),)),
        ]
    )


def events(dice: random.Random, scheduler: Scheduler) -> Iterator[list[Event]]:
    task = 0
    workers = list(range(1, 9))
    yield [WorkerJoined(worker) for worker in workers]
    for turn in range(TURNS):
        if turn % 3 == 0:
            count = dice.choice((1, 1, 5, 30))
            submissions = [submission(dice, task + n) for n in range(count)]
            task += count
            known = list(scheduler.tasks)[-200:] or [0]
            others = [dice.choice((Cancel, Release))(dice.choice(known)) for _ in range(count // 3)]
            yield [FromClient(turn % 4, [*submissions, *others])]
        elif turn % 50 == 1:
            gone = workers.pop(dice.randrange(len(workers)))
            workers.append(100 + turn)
            held = [(t.task, t.attempt) for t in scheduler.placement.workers[gone].tasks.values()]
            end = WorkerEnd("lost", running=dice.choice(held) if held else None)
            yield [WorkerLeft(gone, end), WorkerJoined(100 + turn)]
        elif turn % 400 == 2:
            yield [ClientLeft(turn % 4)]
        else:
            worker = dice.choice(workers)
            held = [(t.task, t.attempt) for t in scheduler.placement.workers[worker].tasks.values()]
            yield [FromWorker(worker, [report(dice, *attempt) for attempt in held[: dice.randrange(1, 40)]])]


def encoded(effects: Effects) -> bytes:
    parts = [repr((effects.wake_at, effects.faulty_clients, effects.faulty_workers)).encode()]
    for endpoint, messages in (*effects.workers.items(), *effects.clients.items()):
        parts += [b"%d" % endpoint, encode(messages)]
    return b"\n".join(parts)


def main(seed: int) -> None:
    scheduler, digest, size = Scheduler(), blake2b(), 0
    for turn, batch in enumerate(events(random.Random(seed), scheduler)):
        frame = encoded(scheduler.handle(batch, now=turn * 300_000))
        digest.update(frame)
        size += len(frame)
    print(digest.hexdigest(), size)


if __name__ == "__main__":
    main(int(sys.argv[1]))
