"""Any order of legal events: the invariants hold after each, and every promise of the scheduler is kept.

The machine plays the clients and the workers, and knows the truth about both. What the scheduler says is held against
it: a task is run only where nobody runs it, with its inputs or where these come about, an attempt is never used twice,
and every task of a client that is there ends exactly once, with what its worker said, or for a reason that has
happened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from turns import MS, US, Told, Turns, submit

from slipstream.core.charges import MAX_SUSPICIONS
from slipstream.core.events import (
    ClientLeft,
    ClientWaits,
    Event,
    FromClient,
    FromWorker,
    WorkerEnd,
    WorkerJoined,
    WorkerLeft,
)
from slipstream.core.states import LIVE, PLACED, State
from slipstream.protocol.messages import (
    Cancel,
    Done,
    Expect,
    Failed,
    Gave,
    InputFailed,
    Kept,
    Lacks,
    Message,
    Provide,
    Release,
    Retract,
    Run,
    Started,
    Submit,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
)

CLIENTS = (0, 1, 2)
#: Whether another event is to share the turn.
MORE = st.sampled_from([False, False, True])
DURATIONS_NS = st.sampled_from([0, US, 800 * US, 3 * MS, 20 * MS, 10**9])
Attempt = tuple[int, int]


def some_of(things: list[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Some of a few things, in order; drawn as one number, since draws are what costs."""
    chosen = st.integers(0, (1 << len(things)) - 1)
    return chosen.map(lambda bits: tuple(thing for n, thing in enumerate(things) if bits >> n & 1))


@dataclass
class Played:
    """A task as its client and its workers know it; or a value that its client promised."""

    task: int
    client: int
    #: Numbers of tasks and values, and results that were there.
    inputs: tuple[int | bytes, ...]
    worker_retries: int
    #: Whether its client holds a reference to it.
    kept: bool
    last_attempt: int = 0
    #: How often a worker's death is charged to this one.
    losses: int = 0
    suspicions: int = 0
    cancel_wanted: bool = False
    #: What a worker said of its end, and has not been told to the client yet.
    said: Message | None = None
    outcome: Message | None = None
    #: It is no task, but a value; and that value, when it was provided.
    expected: bool = False
    value: bytes | None = None
    #: The scheduler would not have it.
    refused: bool = False

    @property
    def dependencies(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(value for value in self.inputs if isinstance(value, int)))


@dataclass
class Staff:
    """A worker, and what it has: attempts in the order in which they came."""

    held: dict[int, int] = field(default_factory=dict)
    #: Of what it holds: the tasks whose results it is to have by itself.
    needs: dict[int, set[int]] = field(default_factory=dict)
    #: Tasks that it has run, and whose results it still has.
    results: set[int] = field(default_factory=set)
    started: int | None = None
    asked: list[Attempt] = field(default_factory=list)

    def could_have_run(self) -> list[int]:
        """What it can come to in its order, if all before goes well."""
        results, possible = set(self.results), []
        for task in self.held:
            if self.needs[task] <= results:
                possible.append(task)
                results.add(task)
        return possible


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.turns = Turns()
        self.tasks: dict[int, Played] = {}
        self.workers: dict[int, Staff] = {}
        self.lost_workers: list[int] = []
        self.clients = set(CLIENTS)
        self.pending: list[Event] = []
        self.past: list[Attempt] = []
        self.joined = 0
        #: What passes between two turns, in ns.
        self.pace_ns = 0

    # --- turns: several events may share one ------------------------------------------------------------------------

    def happens(self, event: Event, *, more: bool) -> None:
        """An event, and the turn that it is part of unless more is to come."""
        self.pending.append(event)
        if not more:
            self.take_turn()

    def take_turn(self) -> None:
        events, self.pending = self.pending, []
        self.turns.now += self.pace_ns
        told = self.turns.turn(*events)
        assert (told.faulty_workers, told.faulty_clients) == ({}, {})
        self.check_commands(told)
        for client, message in told.refused:
            task = self.tasks[message.task]
            assert task.client == client
            inputs = [self.tasks[identity] for identity in task.dependencies]
            assert any(one.expected or one.refused for one in inputs), "refused without a reason"
            task.refused, task.kept = True, False
        for client, notices in told.clients.items():
            assert notices
            assert client in self.clients
            for notice in notices:
                self.check_notice(client, notice)
        assert all(task.said is None for task in self.tasks.values() if task.client in self.clients)

    def check_commands(self, told: Told) -> None:
        for identity, commands in told.workers.items():
            assert commands
            worker = self.workers[identity]
            for command in commands:
                if isinstance(command, Run):
                    self.check_run(command, worker)
                    worker.held[command.task] = command.attempt
                    worker.needs[command.task] = {value for value in command.inputs if isinstance(value, int)}
                else:
                    assert isinstance(command, Retract)
                    assert not worker.asked, "asked again before the answer"
                    worker.asked = list(command.tasks)

    def check_run(self, command: Run, worker: Staff) -> None:
        task = self.tasks[command.task]
        assert task.outcome is None
        assert not task.expected
        assert not task.refused
        assert not any(command.task in worker.held for worker in self.workers.values()), "run at two places"
        assert command.attempt > task.last_attempt, "an attempt used twice"
        task.last_attempt = command.attempt
        assert len(command.inputs) == len(task.inputs)
        for sent, wanted in zip(command.inputs, task.inputs, strict=True):
            if isinstance(sent, int):
                assert sent == wanted
                assert sent in worker.held, "its worker is not to make the input"
            else:
                assert sent == (wanted if isinstance(wanted, bytes) else self.result_of(wanted))

    def result_of(self, task: int) -> bytes:
        if self.tasks[task].expected:
            value = self.tasks[task].value
            assert value is not None
            return value
        outcome = self.tasks[task].outcome or self.tasks[task].said
        assert isinstance(outcome, Done | TaskSucceeded)
        return outcome.payload

    def check_notice(self, client: int, notice: Any) -> None:
        task = self.tasks[notice.task]
        assert task.client == client
        assert task.outcome is None, "told after its end"
        assert not task.expected, "a value is told of"
        assert not task.refused
        if isinstance(notice, TaskRunning):
            return
        said, task.said, task.outcome = task.said, None, notice
        if isinstance(notice, TaskSucceeded):
            assert isinstance(said, Done)
            assert (notice.payload, notice.duration_ns) == (said.payload, said.duration_ns)
        elif isinstance(notice, TaskFailed):
            assert isinstance(said, Failed)
            assert notice.payload == said.payload
        else:
            assert said is None
            self.check_ending_without_report(task, notice)

    def check_ending_without_report(self, task: Played, notice: Message) -> None:
        if isinstance(notice, TaskLost):
            assert task.losses == task.worker_retries + 1
            assert notice.attempt == task.last_attempt
            return
        having = [worker for worker in self.workers.values() if task.task in worker.held]
        if isinstance(notice, TaskCancelled):
            assert not having, "cancelled while at a worker"
            assert task.cancel_wanted
            return
        assert isinstance(notice, InputFailed)
        assert notice.root in self.roots_of(task)
        assert notice.input in task.dependencies
        self.check_input_of(notice)
        for worker in having:  # it was sent ahead of the input; what the worker will say is stale
            assert notice.input in worker.needs[task.task]
            assert notice.input not in worker.results
            self.past.append((task.task, worker.held.pop(task.task)))

    def check_input_of(self, notice: InputFailed) -> None:
        """What happened to the input was told before, unless it is a value or was that of a client that has left."""
        cause = self.tasks[notice.input]
        if isinstance(cause.outcome, InputFailed):
            assert notice.root == cause.outcome.root
        elif cause.client in self.clients:
            assert cause.expected or isinstance(cause.outcome, TaskFailed | TaskLost | TaskCancelled)
            assert notice.root == notice.input

    def roots_of(self, task: Played) -> set[int]:
        """Tasks at the root of a failure that this one may be told of."""
        roots: set[int] = set()
        for identity in task.dependencies:
            outcome = self.tasks[identity].outcome
            if self.tasks[identity].expected:
                roots |= set() if self.tasks[identity].value is not None else {identity}
            elif isinstance(outcome, InputFailed):
                roots.add(outcome.root)
            elif isinstance(outcome, TaskFailed | TaskLost | TaskCancelled):
                roots.add(identity)
            elif self.tasks[identity].client not in self.clients:
                roots |= {identity, *self.roots_of(self.tasks[identity])}
        return roots

    @invariant()
    def the_same_tasks_live(self) -> None:
        if self.pending:
            return
        scheduler = self.turns.scheduler
        live = {identity for identity, task in scheduler.tasks.items() if task.state in LIVE}
        present = [task for task in self.tasks.values() if task.client in self.clients and not task.refused]
        waited_for = {task.task for task in present if not task.expected and task.outcome is None}
        assert waited_for <= live
        others = [self.tasks[identity] for identity in live - waited_for]
        assert all(task.client not in self.clients or task.expected for task in others)
        for task in self.values():
            if scheduler.tasks[task.task].dependents is not None:
                assert scheduler.tasks[task.task].dependents, "not dropped with its last dependent"
        at_workers = {
            (task.worker, identity, task.attempt) for identity, task in scheduler.tasks.items() if task.state in PLACED
        }
        assert at_workers == {
            (name, identity, attempt)
            for name, worker in self.workers.items()
            for identity, attempt in worker.held.items()
        }

    # --- clients ----------------------------------------------------------------------------------------------------

    @initialize(
        workers=st.integers(0, 2),
        pace_ns=st.sampled_from([500 * US, 500 * US, 20 * US]),
        measured_ns=st.sampled_from([US, None, US, 2 * MS]),
    )
    def begin(self, workers: int, pace_ns: int, measured_ns: int | None) -> None:
        self.pace_ns = pace_ns  # at leisure, or so fast that all is one stream
        if measured_ns is not None:  # else nothing is sent ahead before the first report
            self.turns.learn(b"f", measured_ns)
        for _ in range(workers):
            self.a_worker_joins(more=False)

    def own(self, client: int) -> list[Played]:
        """Tasks that the client may still name."""
        return [task for task in self.tasks.values() if task.client == client and task.kept]

    def values(self) -> list[Played]:
        """Values that were promised, not provided, and are waited for."""
        known = self.turns.scheduler.tasks
        promised = [task for task in self.tasks.values() if task.expected and task.client in self.clients]
        return [task for task in promised if task.task in known and known[task.task].state is State.EXPECTED]

    @rule(data=st.data(), count=st.integers(1, 5), dropped=st.booleans(), more=MORE)
    def a_client_submits_a_graph(self, data: st.DataObject, count: int, dropped: bool, more: bool) -> None:
        """Tasks that may depend on one another and on earlier ones, and all but the last perhaps dropped at once."""
        client = data.draw(st.sampled_from(sorted(self.clients)), "client")
        known = [task.task for task in self.own(client)]
        messages: list[Any] = []
        if data.draw(st.sampled_from([False, False, True]), "with a new value"):
            value = Played(len(self.tasks), client, (), 0, False, expected=True)
            self.tasks[value.task] = value
            messages.append(Expect(value.task))
            known.append(value.task)
        known += [task.task for task in self.tasks.values() if task.expected and task.client == client][-2:]
        shape = data.draw(st.sampled_from(["any", "any", "chain", "fan-out"]), "shape")
        first = known[-1:]
        for _ in range(count):
            if shape == "any":
                inputs = data.draw(some_of(known[-3:]), "inputs")
            else:
                inputs = tuple(known[-1:] if shape == "chain" else first)
            if data.draw(st.sampled_from([False, False, True]), "with others"):
                inputs = (b"there", *inputs, *inputs)
            messages.append(self.new_task(client, inputs, data.draw(st.integers(0, 2), "worker retries")))
            known.append(messages[-1].task)
            first = first or known[-1:]
        if dropped:
            released = [message.task for message in messages[:-1] if isinstance(message, Submit)]
            messages += map(Release, released)
            for task in released:
                self.tasks[task].kept = False
        self.happens(FromClient(client, messages), more=more)

    @precondition(lambda self: len(self.tasks) < 300)
    @rule(data=st.data(), count=st.sampled_from([1, 5, 70]), more=MORE)
    def a_client_submits_a_bag(self, data: st.DataObject, count: int, more: bool) -> None:
        client = data.draw(st.sampled_from(sorted(self.clients)), "client")
        priority, digest = data.draw(st.integers(-1, 1), "priority"), data.draw(st.sampled_from([b"f", b"g"]), "digest")
        options = {"priority": priority, "digest": digest, "items": data.draw(st.sampled_from([0, 4]), "items")}
        messages = [self.new_task(client, (), 0, keep=False, **options) for _ in range(count)]
        self.happens(FromClient(client, messages), more=more)

    def new_task(
        self, client: int, inputs: tuple[int | bytes, ...], worker_retries: int, *, keep: bool = True, **options: Any
    ) -> Submit:
        task = Played(len(self.tasks), client, inputs, worker_retries, keep)
        self.tasks[task.task] = task
        return submit(task.task, inputs=inputs, worker_retries=worker_retries, keep=keep, **options)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), more=MORE)
    def a_client_cancels(self, data: st.DataObject, more: bool) -> None:
        client = data.draw(st.sampled_from(sorted(self.clients)), "client")
        own = [task for task in self.tasks.values() if task.client == client]
        chosen = data.draw(some_of(own[-4:]), "tasks")
        for task in chosen:
            task.cancel_wanted = True
        self.happens(FromClient(client, [Cancel(task.task) for task in chosen]), more=more)

    @precondition(lambda self: self.tasks)
    @rule(data=st.data(), more=MORE)
    def a_client_releases(self, data: st.DataObject, more: bool) -> None:
        client = data.draw(st.sampled_from(sorted(self.clients)), "client")
        chosen = data.draw(some_of(self.own(client)[-5:]), "tasks")
        for task in chosen:
            task.kept = False
        self.happens(FromClient(client, [Release(task.task) for task in chosen]), more=more)

    @precondition(lambda self: not self.pending and self.values())
    @rule(data=st.data(), value=st.sampled_from([b"v", b"v", None]), more=MORE)
    def a_client_provides(self, data: st.DataObject, value: bytes | None, more: bool) -> None:
        task = data.draw(st.sampled_from(self.values()), "value")
        task.value = value
        self.happens(FromClient(task.client, [Provide(task.task, value)]), more=more)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(data=st.data(), more=MORE)
    def a_client_leaves(self, data: st.DataObject, more: bool) -> None:
        client = data.draw(st.sampled_from(sorted(self.clients)), "client")
        self.clients.remove(client)
        self.happens(ClientLeft(client), more=more)

    # --- workers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.workers) < 3)
    @rule(more=MORE)
    def a_worker_joins(self, more: bool) -> None:
        self.joined += 1
        self.workers[self.joined] = Staff()
        self.happens(WorkerJoined(self.joined), more=more)

    @precondition(lambda self: self.workers)
    @rule(data=st.data(), more=MORE)
    def a_worker_is_lost(self, data: st.DataObject, more: bool) -> None:
        identity, worker = self.any_worker(data)
        held = list(worker.held.items())
        possible = [(task, worker.held[task]) for task in worker.could_have_run()]
        last = data.draw(st.none() | st.sampled_from(possible), "ran last") if possible else None
        running = last if data.draw(st.booleans(), "and still runs") else None
        if running is not None:
            self.tasks[running[0]].losses += 1
        elif last is not None:  # any of these may have been the cause
            for task, _ in held[: held.index(last) + 1]:
                self.tasks[task].suspicions += 1
                self.tasks[task].losses += self.tasks[task].suspicions > MAX_SUSPICIONS
        del self.workers[identity]
        self.lost_workers.append(identity)
        self.past += worker.held.items()
        self.happens(WorkerLeft(identity, WorkerEnd("lost", running=running, last=last)), more=more)

    @precondition(lambda self: any(worker.held for worker in self.workers.values()))
    @rule(data=st.data(), failed=st.booleans(), duration_ns=DURATIONS_NS, more=MORE)
    def a_worker_reports_ends(self, data: st.DataObject, failed: bool, duration_ns: int, more: bool) -> None:
        identity, worker = self.any_worker(data, busy=True)
        held = list(worker.held)
        # All of many, or some of the first few: a worker goes through its tasks in order.
        chosen = data.draw(st.sampled_from([held[:1], held]) | some_of(held[:4]), "tasks")
        failing = chosen[-1] if failed and chosen else None
        self.happens(FromWorker(identity, self.run_through(worker, chosen, failing, duration_ns)), more=more)

    def run_through(self, worker: Staff, chosen: Sequence[int], failing: int | None, duration_ns: int) -> list[Any]:
        """What a worker says that comes to these tasks, in this order: one whose inputs it does not have, it lacks."""
        messages: list[Any] = []
        for task in chosen:
            attempt = worker.held.pop(task)
            self.past.append((task, attempt))
            if worker.started == task:
                worker.started = None
            if not worker.needs[task] <= worker.results:
                messages.append(Lacks(((task, attempt),)))
                continue
            kind = Failed if task == failing else Done
            message = kind(task, attempt, duration_ns, b"of %d" % task)
            if kind is Done:
                worker.results.add(task)
            self.tasks[task].said = message
            messages.append(message)
        return messages

    @precondition(lambda self: any(worker.results for worker in self.workers.values()))
    @rule(data=st.data())
    def a_worker_drops_results(self, data: st.DataObject) -> None:
        """It says nothing of it."""
        having = [identity for identity, worker in self.workers.items() if worker.results]
        worker = self.workers[data.draw(st.sampled_from(having), "worker")]
        worker.results -= set(data.draw(some_of(sorted(worker.results)[-3:]), "results"))

    @precondition(lambda self: any(worker.held for worker in self.workers.values()))
    @rule(data=st.data(), more=MORE)
    def a_worker_says_that_it_started(self, data: st.DataObject, more: bool) -> None:
        identity, worker = self.any_worker(data, busy=True)
        possible = [task for task in worker.held if worker.needs[task] <= worker.results]
        if worker.started is None and possible:
            worker.started = data.draw(st.sampled_from(possible), "task")
            self.happens(FromWorker(identity, [Started(worker.started, worker.held[worker.started])]), more=more)

    @precondition(lambda self: any(worker.held for worker in self.workers.values()))
    @rule(data=st.data(), more=MORE)
    def a_worker_gives_back(self, data: st.DataObject, more: bool) -> None:
        identity, worker = self.any_worker(data, busy=True)
        unstarted = [attempt for attempt in worker.held.items() if attempt[0] != worker.started]
        count = data.draw(st.integers(0, len(unstarted)), "how many of the last ones")
        kind = data.draw(st.sampled_from([Gave, Lacks]), "why")
        self.give(identity, unstarted[len(unstarted) - count :], [], kind, more=more)

    @precondition(lambda self: any(worker.asked for worker in self.workers.values()))
    @rule(data=st.data(), more=MORE)
    def a_worker_answers_a_retraction(self, data: st.DataObject, more: bool) -> None:
        identity = data.draw(st.sampled_from([name for name, worker in self.workers.items() if worker.asked]), "worker")
        worker = self.workers[identity]
        gave, kept = [], []
        for task, attempt in worker.asked:
            unstarted = worker.held.get(task) == attempt and task != worker.started
            (gave if unstarted and data.draw(st.booleans(), f"gives {task}") else kept).append((task, attempt))
        worker.asked = []
        self.give(identity, gave, kept, more=more)

    def give(self, identity: int, gave: list[Attempt], kept: list[Attempt], kind: Any = Gave, *, more: bool) -> None:
        for task, _ in gave:
            del self.workers[identity].held[task]
        self.past += gave
        messages = [*([kind(tuple(gave))] if gave else []), *([Kept(tuple(kept))] if kept else [])]
        self.happens(FromWorker(identity, messages), more=more)

    @precondition(lambda self: self.past)
    @rule(data=st.data(), more=MORE)
    def a_worker_repeats_what_is_over(self, data: st.DataObject, more: bool) -> None:
        """Of a past attempt, or from a worker that is gone: nothing may come of it."""
        recent = [attempt for attempt in self.past if self.tasks[attempt[0]].outcome is None] or self.past
        task, attempt = data.draw(st.sampled_from(recent[-8:]), "attempt")
        having = [identity for identity, worker in self.workers.items() if task in worker.held]
        identity = data.draw(st.sampled_from([*having, *self.workers, *self.lost_workers[-2:], 10**6]), "worker")
        kind = data.draw(st.sampled_from([Started, Done, Failed, Gave, Kept, Lacks]), "message")
        if kind in (Gave, Kept, Lacks):
            message = kind(((task, attempt),))
        else:
            message = kind(task, attempt, *([] if kind is Started else [US, b"over"]))
        self.happens(FromWorker(identity, [message]), more=more)

    @rule(step_ns=st.sampled_from([0, US, MS, 100 * MS]))
    def time_passes(self, step_ns: int) -> None:
        self.turns.now += step_ns
        self.take_turn()

    @rule(more=MORE)
    def a_client_waits(self, more: bool) -> None:
        self.happens(ClientWaits(min(self.clients)), more=more)

    def any_worker(self, data: st.DataObject, *, busy: bool = False) -> tuple[int, Staff]:
        names = [identity for identity, worker in self.workers.items() if worker.held or not busy]
        identity = data.draw(st.sampled_from(names), "worker")
        return identity, self.workers[identity]

    # --- the end ----------------------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """With a worker that does all it is given, everything ends, and once all is released nothing is left."""
        self.joined += 1
        self.workers[self.joined] = Staff()
        self.happens(WorkerJoined(self.joined), more=False)
        for task in self.values():
            task.value = b"v"
            self.happens(FromClient(task.client, [Provide(task.task, b"v")]), more=False)
        rounds = 2 * len(self.tasks) + 2
        while self.turns.scheduler.live and rounds:
            rounds -= 1
            self.turns.now += MS  # so that nothing is held back
            for identity, worker in self.workers.items():
                worker.asked = []
                messages = self.run_through(worker, list(worker.held), None, US)
                self.happens(FromWorker(identity, messages), more=False)
        assert self.turns.scheduler.live == len(self.values())
        present = [task for task in self.tasks.values() if task.client in self.clients]
        assert all(task.outcome is not None for task in present if not task.expected and not task.refused)
        placement = self.turns.scheduler.placement
        assert not any(worker.followers for worker in placement.workers.values())
        assert placement.wake_at is None
        for client in sorted(self.clients):
            self.happens(FromClient(client, [Release(task.task) for task in self.own(client)]), more=False)
        assert self.turns.scheduler.tasks == {}


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=50, stateful_step_count=60)
