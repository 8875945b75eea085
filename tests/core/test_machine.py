"""Any order of legal events: the invariants hold after each, and every promise of the scheduler is kept.

The machine plays the clients and the workers, and knows the truth about both. What the scheduler says is held against
it: a task is run only where nobody runs it, with its inputs or where these come about, an attempt is never used twice,
and every task of a client that is there ends exactly once, with what its worker said, or for a reason that has
happened. Values in files get lost at any time, and workers or clients say so when they come to it: then a task that has
succeeded may run again, as often as it may. Tasks wait for others, in workers that leave their slot meanwhile.
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
from slipstream.protocol.ids import STORED
from slipstream.protocol.messages import (
    Blocked,
    Cancel,
    CannotWait,
    Done,
    Expect,
    Failed,
    Gave,
    Gone,
    InputFailed,
    Kept,
    Lacks,
    Message,
    Missed,
    Provide,
    Release,
    Resumed,
    Retract,
    Run,
    Started,
    Submit,
    TaskCancelled,
    TaskFailed,
    TaskLost,
    TaskRunning,
    TaskSucceeded,
    ValueLost,
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
    value_retries: int = 0
    released: bool = False
    #: What it returned, each time.
    payloads: list[bytes] = field(default_factory=list)
    #: Its client has said that its value is gone, and has not been told what becomes of it.
    missed: bool = False
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
    #: Of what it holds: the tasks whose results it is to have by itself, and the results that came with it.
    needs: dict[int, set[int]] = field(default_factory=dict)
    given: dict[int, list[bytes]] = field(default_factory=dict)
    #: Results of tasks that it has run, as long as it has them.
    results: dict[int, bytes] = field(default_factory=dict)
    started: int | None = None
    #: What it has started waits for other tasks.
    blocked: bool = False
    dismissed: bool = False
    asked: list[Attempt] = field(default_factory=list)

    def could_have_run(self) -> list[int]:
        """What it can come to in its order, if all before goes well."""
        results, possible = set(self.results), list[int]()
        for task in self.held:
            if self.needs[task] <= results:
                possible.append(task)
                results.add(task)
        return possible

    def inputs_of(self, task: int) -> list[bytes]:
        """What a task takes that this worker is to have."""
        return [*self.given[task], *[self.results[value] for value in sorted(self.needs[task])]]


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
        #: Workers have other numbers than clients, whose numbers those of their tasks' clients are too.
        self.joined = 100
        self.slots = self.most = self.wanted = 0
        #: Values in files that there are, that are gone, and of which somebody said so.
        self.files: list[bytes] = []
        self.lost: set[bytes] = set()
        self.reported: set[bytes] = set()
        #: Workers that must be told that their tasks cannot wait.
        self.too_many: list[int] = []
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
        if told.wanted is not None:
            self.wanted = told.wanted
        for identity in told.dismissed:
            assert not self.workers[identity].held
            assert not self.workers[identity].dismissed
            self.workers[identity].dismissed = True
        self.check_commands(told)
        self.check_refusals(told)
        for client, notices in told.clients.items():
            assert notices
            assert client in self.clients or client > 100
            for notice in notices:
                if isinstance(notice, CannotWait):
                    self.too_many.remove(client)
                    assert notice == CannotWait(notice.task, self.most)
                else:
                    self.check_notice(client, notice)
        assert not self.too_many
        assert all(task.said is None for task in self.tasks.values() if task.client in self.clients)

    def check_refusals(self, told: Told) -> None:
        for client, message in told.refused:
            task = self.tasks[message.task]
            assert task.client == client
            inputs = [self.tasks[identity] for identity in task.dependencies]
            assert any(one.expected or one.refused for one in inputs), "refused without a reason"
            task.refused, task.kept = True, False

    def check_commands(self, told: Told) -> None:
        for identity, commands in told.workers.items():
            assert commands
            worker = self.workers[identity]
            assert not worker.dismissed
            for command in commands:
                if isinstance(command, Run):
                    self.check_run(command, worker)
                    worker.held[command.task] = command.attempt
                    worker.needs[command.task] = {value for value in command.inputs if isinstance(value, int)}
                    worker.given[command.task] = [value for value in command.inputs if isinstance(value, bytes)]
                else:
                    assert isinstance(command, Retract)
                    assert not worker.asked, "asked again before the answer"
                    worker.asked = list(command.tasks)

    def check_run(self, command: Run, worker: Staff) -> None:
        task = self.tasks[command.task]
        if task.payloads:
            assert task.payloads[-1] in self.reported, "run again, and nobody said that its value is gone"
            assert len(task.payloads) <= task.value_retries
        assert task.outcome is None or isinstance(task.outcome, TaskSucceeded)
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
        return self.tasks[task].payloads[-1]

    def check_notice(self, client: int, notice: Any) -> None:
        task = self.tasks[notice.task]
        assert task.client == client
        assert not task.refused
        if isinstance(notice, ValueLost):
            self.check_loss(task)
        elif task.outcome is not None:
            assert isinstance(task.outcome, TaskSucceeded), "told after its end"
            assert task.outcome.payload in self.reported, "told after its end"
        assert not task.expected or isinstance(notice, ValueLost), "a value is told of"
        if isinstance(notice, TaskRunning):
            return
        said, task.said, task.outcome, task.missed = task.said, None, notice, False
        if isinstance(notice, TaskSucceeded):
            assert isinstance(said, Done)
            assert (notice.payload, notice.duration_ns) == (said.payload, said.duration_ns)
            task.kept = task.kept or (notice.payload[:1] == STORED and not task.released)
        elif isinstance(notice, TaskFailed):
            assert isinstance(said, Failed)
            assert notice.payload == said.payload
        elif not isinstance(notice, ValueLost):
            assert said is None
            self.check_ending_without_report(task, notice)

    def check_loss(self, task: Played) -> None:
        """A value that is gone for good was reported to be; or one that the task takes."""
        if task.expected:
            assert task.value in self.reported
        elif isinstance(task.outcome, TaskSucceeded) and task.outcome.payload in self.reported:
            assert len(task.payloads) > task.value_retries or self.may_lack_inputs(task)
        else:
            assert self.may_lack_inputs(task) or not self.reported.isdisjoint(task.payloads)

    def may_lack_inputs(self, task: Played) -> bool:
        """Whether it may take a value in a file that is gone and that nobody makes."""
        there = [value for value in task.inputs if isinstance(value, bytes)]
        others = [self.tasks[identity] for identity in task.dependencies]
        values = [payload for one in others for payload in (*one.payloads, one.value) if payload is not None]
        return not self.reported.isdisjoint([*there, *values])

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
            assert notice.input not in worker.results or worker.results[notice.input] in self.reported
            self.past.append((task.task, worker.held.pop(task.task)))

    def check_input_of(self, notice: InputFailed) -> None:
        """What happened to the input was told before, unless it is a value or was that of a client that has left."""
        cause = self.tasks[notice.input]
        if isinstance(cause.outcome, InputFailed):
            assert notice.root == cause.outcome.root
        elif cause.client in self.clients:
            assert cause.expected or isinstance(cause.outcome, TaskFailed | TaskLost | TaskCancelled | ValueLost)
            assert notice.root == notice.input

    def roots_of(self, task: Played) -> set[int]:
        """Tasks at the root of a failure that this one may be told of."""
        roots: set[int] = set()
        for identity in task.dependencies:
            outcome = self.tasks[identity].outcome
            if self.tasks[identity].expected:
                value = self.tasks[identity].value
                roots |= {identity} if value is None or value in self.reported else set()
            elif isinstance(outcome, InputFailed):
                roots.add(outcome.root)
            elif isinstance(outcome, TaskFailed | TaskLost | TaskCancelled | ValueLost):
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
        for task in others:
            again = bool(task.payloads) and task.payloads[-1] in self.reported
            assert task.client not in self.clients or task.expected or again
        for task in self.values():
            if scheduler.tasks[task.task].dependents is not None:
                assert scheduler.tasks[task.task].dependents, "not dropped with its last dependent"
        at_workers = {
            (task.worker, identity, task.attempt) for identity, task in scheduler.tasks.items() if task.state in PLACED
        }
        held = {
            (name, identity, attempt)
            for name, worker in self.workers.items()
            for identity, attempt in worker.held.items()
        }
        assert at_workers <= held
        # Of those that failed with an input nobody is told whose client has left.
        assert all(self.tasks[identity].client not in self.clients for _, identity, _ in held - at_workers)

    @invariant()
    def there_are_workers_for_what_others_wait_for(self) -> None:
        """Perhaps once those are there that should be: as many as there are slots, beside those that wait."""
        if self.pending or not self.slots:
            return
        present = [worker for worker in self.workers.values() if not worker.dismissed]
        blocked = sum(worker.blocked for worker in present)
        able = max(len(present), self.wanted) - blocked
        assert able >= (min(self.slots, self.most - blocked) if self.most else self.slots) >= 1
        assert not self.most or self.wanted <= self.most

    # --- clients ----------------------------------------------------------------------------------------------------

    @initialize(
        workers=st.integers(0, 2),
        pace_ns=st.sampled_from([500 * US, 500 * US, 20 * US]),
        measured_ns=st.sampled_from([US, None, US, 2 * MS]),
        numbers=st.sampled_from([(0, 0), (1, 0), (1, 2), (2, 3), (1, 1), (0, 2)]),
    )
    def begin(self, workers: int, pace_ns: int, measured_ns: int | None, numbers: tuple[int, int]) -> None:
        self.slots, self.most = numbers
        self.wanted = self.slots
        self.turns = Turns(*numbers)
        self.pace_ns = pace_ns  # at leisure, or so fast that all is one stream
        if measured_ns is not None:  # else nothing is sent ahead before the first report
            self.turns.learn(b"f", measured_ns)
        for _ in range(min(workers, self.most or workers)):
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
                inputs = (*self.files[-1:], b"there", *inputs, *inputs)
            retries = data.draw(st.integers(0, 2), "retries")
            messages.append(self.new_task(client, inputs, retries, value_retries=retries))
            known.append(messages[-1].task)
            first = first or known[-1:]
        if dropped:
            released = [message.task for message in messages[:-1] if isinstance(message, Submit)]
            messages += map(Release, released)
            for task in released:
                self.tasks[task].kept, self.tasks[task].released = False, True
        self.happens(FromClient(client, messages), more=more)

    @precondition(lambda self: len(self.tasks) < 300)
    @rule(data=st.data(), count=st.sampled_from([1, 5, 5, 70]), more=MORE)
    def a_client_submits_a_bag(self, data: st.DataObject, count: int, more: bool) -> None:
        client = data.draw(st.sampled_from(sorted(self.clients)), "client")
        priority, digest = data.draw(st.integers(-1, 1), "priority"), data.draw(st.sampled_from([b"f", b"g"]), "digest")
        options = {"priority": priority, "digest": digest, "items": data.draw(st.sampled_from([0, 4]), "items")}
        messages = [self.new_task(client, (), 0, keep=False, **options) for _ in range(count)]
        self.happens(FromClient(client, messages), more=more)

    def new_task(
        self,
        client: int,
        inputs: tuple[int | bytes, ...],
        worker_retries: int,
        *,
        keep: bool = True,
        value_retries: int = 1,
        **options: Any,
    ) -> Submit:
        task = Played(len(self.tasks), client, inputs, worker_retries, keep, value_retries)
        self.tasks[task.task] = task
        retries = {"worker_retries": worker_retries, "value_retries": value_retries}
        return submit(task.task, inputs=inputs, keep=keep, **retries, **options)

    # --- values in files --------------------------------------------------------------------------------------------

    def new_file(self) -> bytes:
        self.files.append(STORED + b"%d" % len(self.files))
        return self.files[-1]

    @precondition(lambda self: self.files)
    @rule(data=st.data())
    def files_are_lost(self, data: st.DataObject) -> None:
        """Nobody knows of it yet."""
        self.lost.update(data.draw(some_of(self.files[-6:]), "files"))

    def stored_values(self) -> list[Played]:
        """Tasks whose client holds a value in a file."""
        kept = [task for task in self.tasks.values() if task.kept and task.client in self.clients]
        return [t for t in kept if isinstance(t.outcome, TaskSucceeded) and t.outcome.payload[:1] == STORED]

    @precondition(lambda self: self.stored_values())
    @rule(data=st.data(), more=MORE)
    def a_client_misses_a_value(self, data: st.DataObject, more: bool) -> None:
        task = data.draw(st.sampled_from(self.stored_values()[-8:]), "task")
        assert isinstance(task.outcome, TaskSucceeded)
        task.missed = True
        self.lost.add(task.outcome.payload)
        self.reported.add(task.outcome.payload)
        self.happens(FromClient(task.client, [Missed(task.task, task.outcome.payload)]), more=more)

    # --- clients, again ---------------------------------------------------------------------------------------------

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
            task.kept, task.released, task.missed = False, True, False
        self.happens(FromClient(client, [Release(task.task) for task in chosen]), more=more)

    @precondition(lambda self: not self.pending and self.values())
    @rule(data=st.data(), value=st.sampled_from([b"v", STORED, None]), more=MORE)
    def a_client_provides(self, data: st.DataObject, value: bytes | None, more: bool) -> None:
        task = data.draw(st.sampled_from(self.values()), "value")
        task.value = value = self.new_file() if value == STORED else value
        self.happens(FromClient(task.client, [Provide(task.task, value)]), more=more)

    @precondition(lambda self: len(self.clients) > 1)
    @rule(data=st.data(), more=MORE)
    def a_client_leaves(self, data: st.DataObject, more: bool) -> None:
        client = data.draw(st.sampled_from(sorted(self.clients)), "client")
        self.clients.remove(client)
        self.happens(ClientLeft(client), more=more)

    # --- workers ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.workers) < (self.most or 3))
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
    @rule(
        data=st.data(),
        failed=st.booleans(),
        stored=st.sampled_from([True, True, False]),
        lost=st.sampled_from([None, True, None, False]),
        duration_ns=DURATIONS_NS,
        more=MORE,
    )
    def a_worker_reports_ends(
        self, data: st.DataObject, failed: bool, stored: bool, lost: bool | None, duration_ns: int, more: bool
    ) -> None:
        """Perhaps inputs in files were lost just before, or the worker has all of them mapped."""
        identity, worker = self.any_worker(data, busy=True)
        held = list(worker.held)
        # All of many, or some of the first few: a worker goes through its tasks in order.
        chosen = data.draw(st.sampled_from([held[:1], held]) | some_of(held[:4]), "tasks")
        failing = chosen[-1] if failed and chosen else None
        if lost:
            self.lost.update(value for task in chosen for value in worker.given[task] if value[:1] == STORED)
        messages = self.run_through(worker, chosen, failing, duration_ns, stored=stored, mapped=lost is False)
        self.happens(FromWorker(identity, messages), more=more)

    def run_through(
        self,
        worker: Staff,
        chosen: Sequence[int],
        failing: int | None,
        duration_ns: int,
        *,
        stored: bool = False,
        mapped: bool = False,
    ) -> list[Any]:
        """What a worker says that comes to these tasks, in this order: one whose inputs it does not have, it lacks.

        Results go to files if they are to be stored; files that are gone do no harm where they are still mapped.
        """
        messages: list[Any] = []
        for task in chosen:
            attempt = worker.held.pop(task)
            self.past.append((task, attempt))
            if worker.started == task:
                worker.started, worker.blocked = None, False
            if not worker.needs[task] <= set(worker.results):
                messages.append(Lacks(((task, attempt),)))
                continue
            gone = [value for value in worker.inputs_of(task) if value in self.lost]
            if gone and not mapped:
                self.reported.update(gone)
                messages.append(Gone(task, attempt, tuple(gone)))
                continue
            kind = Failed if task == failing else Done
            payload = self.new_file() if stored and kind is Done else b"of %d" % task
            message = kind(task, attempt, duration_ns, payload)
            if kind is Done:
                worker.results[task] = payload
                self.tasks[task].payloads.append(payload)
            self.tasks[task].said = message
            messages.append(message)
        return messages

    @precondition(lambda self: any(worker.results for worker in self.workers.values()))
    @rule(data=st.data())
    def a_worker_drops_results(self, data: st.DataObject) -> None:
        """It says nothing of it."""
        having = [identity for identity, worker in self.workers.items() if worker.results]
        worker = self.workers[data.draw(st.sampled_from(having), "worker")]
        for task in data.draw(some_of(sorted(worker.results)[-3:]), "results"):
            del worker.results[task]

    @precondition(lambda self: any(worker.held for worker in self.workers.values()))
    @rule(data=st.data(), more=MORE)
    def a_worker_says_that_it_started(self, data: st.DataObject, more: bool) -> None:
        identity, worker = self.any_worker(data, busy=True)
        if self.starts(worker, data):
            self.happens(FromWorker(identity, [Started(*self.running_at(worker))]), more=more)

    @staticmethod
    def starts(worker: Staff, data: st.DataObject) -> bool:
        """A worker begins with something, if it can."""
        possible = [task for task in worker.held if worker.needs[task] <= set(worker.results)]
        if worker.started is not None or not possible:
            return False
        worker.started = data.draw(st.sampled_from(possible), "task")
        return True

    @staticmethod
    def running_at(worker: Staff) -> Attempt:
        assert worker.started is not None
        return worker.started, worker.held[worker.started]

    @precondition(lambda self: any(worker.held for worker in self.workers.values()))
    @rule(data=st.data(), more=MORE)
    def a_task_waits(self, data: st.DataObject, more: bool) -> None:
        """Perhaps one that waits already, and whose worker says so again."""
        identity, worker = self.any_worker(data, busy=True)
        if worker.started is None and not self.starts(worker, data):
            return
        if not worker.blocked:
            worker.blocked = not self.most or sum(one.blocked for one in self.workers.values()) + 1 < self.most
            self.too_many += [] if worker.blocked else [identity]
        self.happens(FromWorker(identity, [Blocked(*self.running_at(worker))]), more=more)

    @precondition(lambda self: any(worker.started is not None for worker in self.workers.values()))
    @rule(data=st.data(), more=MORE)
    def a_task_goes_on(self, data: st.DataObject, more: bool) -> None:
        """Perhaps one that was not allowed to wait, or has never done so."""
        running = [name for name, worker in self.workers.items() if worker.started is not None]
        identity = data.draw(st.sampled_from(running), "worker")
        worker = self.workers[identity]
        if self.turns.state(self.running_at(worker)[0]) is State.RUNNING:
            worker.blocked = False
            self.happens(FromWorker(identity, [Resumed(*self.running_at(worker))]), more=more)

    @precondition(lambda self: any(worker.dismissed for worker in self.workers.values()))
    @rule(more=MORE)
    def those_who_are_to_leave_do(self, more: bool) -> None:
        for identity in [name for name, worker in self.workers.items() if worker.dismissed]:
            del self.workers[identity]
            self.lost_workers.append(identity)
            self.happens(WorkerLeft(identity, WorkerEnd("dismissed")), more=more)

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
        kinds: list[Any] = [Started, Done, Failed, Gave, Kept, Lacks, Gone, Blocked, Resumed]
        kind = data.draw(st.sampled_from(kinds), "message")
        if kind in (Gave, Kept, Lacks):
            message = kind(((task, attempt),))
        elif kind is Gone:
            message = Gone(task, attempt, tuple(self.tasks[task].payloads))
        else:
            message = kind(task, attempt, *([US, b"over"] if kind in (Done, Failed) else []))
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
        self.those_who_are_to_leave_do(more=False)
        if len(self.workers) < (self.most or 3) or not self.workers:
            self.a_worker_joins(more=False)
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
        assert not any(task.missed for task in present)
        placement = self.turns.scheduler.placement
        assert not any(worker.followers for worker in placement.workers.values())
        assert placement.wake_at is None
        for client in sorted(self.clients):
            self.happens(FromClient(client, [Release(task.task) for task in self.own(client)]), more=False)
        assert self.turns.scheduler.tasks == {}


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=50, stateful_step_count=60)
