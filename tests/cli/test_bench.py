"""`slipstream bench`: its figures are those that it measured, and nothing of it stays, however it ends."""

import io
import json
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner
from rich.console import Console

from slipstream.cli.bench import arrays, flows, measure, patterns
from slipstream.cli.bench.command import names_of
from slipstream.cli.bench.floors import FLOORS
from slipstream.cli.bench.load import Load
from slipstream.cli.bench.memory import Peak
from slipstream.cli.bench.results import PatternResult, Series, Spread
from slipstream.cli.bench.session import ClientFailed, Session
from slipstream.cli.bench.show import show_pattern
from slipstream.cli.bench.systems import CANDIDATES, OURSELVES
from slipstream.cli.group import group

pytestmark = pytest.mark.long

COMMAND = [sys.executable, "-c", "from slipstream.cli import main; main()", "bench"]
SMALL = ["--workers", "1", "--tasks", "20", "--rounds", "2"]
#: Those whose tasks take neither futures nor arrays.
ALONE = ["chain", "bag", "map", "payload", "payload-each", "start"]


def bench(*args):
    return CliRunner().invoke(group, ["bench", *SMALL, *args])


def words(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def children():
    return psutil.Process().children(recursive=True)


def test_patterns_of_single_tasks_with_figures_to_parse(tmp_path):
    file = tmp_path / "figures.json"
    shown = bench("--peers", "ppe,pool", "--patterns", ",".join(ALONE), "--json", str(file))
    assert shown.exit_code == 0, shown.output
    figures = json.loads(file.read_text())
    assert list(figures["patterns"]) == ALONE
    for name, pattern in figures["patterns"].items():
        others = [] if name.startswith("payload") else ["ppe", "pool"]
        assert list(pattern["systems"]) == [OURSELVES, *others]
        assert pattern["failed"] == {}
        for system in pattern["systems"].values():
            assert system["tasks"] == (1 if name == "start" else 20)
            assert len(system["walls_s"]) == 2
            assert min(system["walls_s"]) > 0
    bag = figures["patterns"]["bag"]["systems"]
    assert [account["tasks"] for account in bag[OURSELVES]["accounts"]] == [20, 20]
    assert bag["ppe"]["accounts"] == []
    assert all(min(floor["samples"]) > 0 and len(floor["samples"]) == 12 for floor in figures["floors"].values())
    assert figures["systems"]["ppe"] in shown.output
    assert max(len(line) for line in shown.output.splitlines()) <= 100
    assert children() == []


def test_figures_alone_on_standard_output():
    command = [*COMMAND, *SMALL, "--peers", "ppe", "--patterns", "chain", "--json", "-"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert list(json.loads(ended.stdout)["patterns"]) == ["chain"]
    assert "ppe" in ended.stderr


@pytest.mark.parametrize("option", ["--peers", "--patterns"])
def test_unknown_names_are_refused_with_the_known_ones(option):
    refused = bench(option, "bag,nonsense")
    assert refused.exit_code == 2
    assert "nonsense" in refused.output
    assert ("ppe" if option == "--peers" else "chain") in refused.output


def test_absent_peer_is_skipped_by_name(monkeypatch):
    monkeypatch.setitem(CANDIDATES, "loky", replace(CANDIDATES["loky"], module="no_module_has_this_name"))
    shown = bench("--peers", "ppe,loky", "--patterns", "chain")
    assert shown.exit_code == 0, shown.output
    assert "not installed, so skipped: loky" in shown.output


def test_peer_that_raises_is_reported_by_name_and_the_run_goes_on(monkeypatch):
    class Failing(Session):
        def __init__(self, system, workers):
            super().__init__(system, workers)
            self.fails = system == "ppe"

        def ask(self, request):
            if self.fails:
                raise ClientFailed("no more paper")
            return super().ask(request)

    monkeypatch.setattr(measure, "Session", Failing)
    shown = bench("--peers", "ppe,pool", "--patterns", "chain,start")
    assert shown.exit_code == 1
    assert "ppe failed in chain: no more paper" in shown.output
    assert "ppe failed in start: no more paper" in shown.output
    assert shown.output.count(" pool ") >= 2


def test_slow_peer_runs_fewer_tasks_with_a_note(monkeypatch):
    class Slow:
        def ask(self, request):
            return {"wall_s": request["tasks"] * 0.01, "account": {}}

    settings = measure.Settings(workers=1, cap_s=2.0)
    chain = patterns.PATTERNS["chain"]
    capped = measure._settle(chain, "pool", Slow(), settings)
    assert capped.load == Load(200)
    assert capped.note == "fewer tasks, since these take 2 s"
    assert measure._settle(chain, OURSELVES, Slow(), settings).load == Load(2_000)
    assert measure._settle(chain, "ppe", Slow(), settings).load == Load(2_000)


def test_peer_whose_map_goes_item_by_item_gets_its_best_chunk():
    class Client:
        def ask(self, request):
            return {"wall_s": {1_000: 3.0, 10_000: 1.0, 50_000: 2.0}[request["chunksize"]], "account": {}}

    series = measure._settle(patterns.PATTERNS["map"], "ppe", Client(), measure.Settings(workers=1))
    assert series.load == Load(1_000_000, 10_000)


def test_every_round_runs_each_system_once_beginning_with_another():
    turns = [measure._turned(["a", "b", "c"], turn) for turn in range(4)]
    assert turns == [["a", "b", "c"], ["b", "c", "a"], ["c", "a", "b"], ["a", "b", "c"]]


def test_ratio_is_of_medians_with_the_range_of_rounds():
    ours = Series(OURSELVES, Load(10), [1.0, 2.0, 3.0])
    theirs = Series("ppe", Load(5), [2.0, 2.0, 1.5])
    result = PatternResult("bag", {OURSELVES: ours, "ppe": theirs})
    assert result.ratio("ppe") == pytest.approx(Spread(median=2.0, least=1.0, greatest=4.0))
    assert result.ratio(OURSELVES) is None


@pytest.mark.parametrize("floor", FLOORS.values(), ids=FLOORS)
def test_floors_are_times_and_leave_nothing(floor):
    assert 0 < floor.measure(50) < 1
    assert children() == []


def test_task_that_did_not_run_is_an_error():
    class Forgetful:
        submit = staticmethod(lambda function, value: 0)
        result = staticmethod(lambda pending: pending)

    with pytest.raises(ArithmeticError, match="20 tasks"):
        patterns.chain(Forgetful(), Load(20))


def test_error_in_a_client_is_said_and_the_next_request_has_a_fresh_one():
    with Session("ppe", 1) as session:
        with pytest.raises(ClientFailed, match="KeyError: 'polish'"):
            session.ask({"pattern": "polish"})
        assert session.ask({"pattern": "chain", "tasks": 5, "chunksize": None})["wall_s"] > 0
    assert children() == []


def test_death_of_a_client_is_said_with_its_status():
    with Session("ppe", 1) as session:
        session.ask({"pattern": "chain", "tasks": 5, "chunksize": None})
        [client] = children()
        client.kill()
        with pytest.raises(ClientFailed, match="status -9"):
            session.ask({"pattern": "chain", "tasks": 5, "chunksize": None})


def test_silent_client_is_ended(monkeypatch):
    monkeypatch.setattr("slipstream.cli.bench.session.ANSWER_TIMEOUT_S", 0.5)
    with Session("ppe", 1) as session:
        with pytest.raises(ClientFailed, match="no answer within"):
            session.ask({"pattern": "chain", "tasks": 10**7, "chunksize": None})
        assert children() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_leaves_no_process(number):
    command = [*COMMAND, "--peers", "ppe", "--patterns", "chain", "--tasks", "10000000", "--rounds", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as run:
        process, family = psutil.Process(run.pid), []
        while not any("ppe" in words(child) for child in family):
            assert run.poll() is None, run.stdout.read()
            time.sleep(0.05)
            family = process.children(recursive=True)
        run.send_signal(number)
        assert run.wait(30) == 1
        _, alive = psutil.wait_procs(family, timeout=10)
        assert alive == []


class InThisProcess:
    """A system that takes futures as arguments: every task runs at once, here; it knows what it was given."""

    takes_futures = True

    def __init__(self):
        self.submitted = []

    def submit(self, function, *args):
        assert all(arg is not None for arg in args)
        future = Future()
        self.submitted.append((function, args))
        future.set_result(function(*map(self.value, args)))
        return future

    def value(self, arg):
        if isinstance(arg, list):
            return [self.value(each) for each in arg]
        return arg.result() if isinstance(arg, Future) else arg

    def fan_in(self, function, waiting):
        return self.submit(function, waiting)

    def large(self, value):
        return value

    def result(self, future):
        return future.result()


def names(system):
    return [function.__name__ for function, _ in system.submitted]


def test_chain_of_futures_hands_each_task_the_future_of_the_one_before():
    system = InThisProcess()
    assert flows.futures_chain(system, Load(20)) > 0
    assert names(system) == ["increment"] * 20
    assert all(isinstance(args[0], Future) for _, args in system.submitted[1:])


@pytest.mark.parametrize("leaves", [1, 2, 3, 10, 16])
def test_reduction_of_n_leaves_makes_2n_minus_1_tasks(leaves):
    system = InThisProcess()
    assert flows.reduce(system, Load(2 * leaves - 1)) > 0
    assert names(system) == ["increment"] * leaves + ["add"] * (leaves - 1)


def test_reduction_runs_an_odd_number_of_tasks_whatever_is_asked():
    pattern = patterns.PATTERNS["reduce"]
    assert [measure.Settings(workers=1, tasks=tasks).tasks_of(pattern) for tasks in (1, 2, 19, 20)] == [1, 1, 19, 19]
    assert measure.Settings(workers=1).tasks_of(pattern) == 2 * 16_384 - 1
    assert measure.Settings(workers=1, quick=True).tasks_of(pattern) == 2 * 1_024 - 1
    assert measure.Settings(workers=1, tasks=20).tasks_of(patterns.PATTERNS["fan-in"]) == 20


def test_fan_in_is_one_task_with_the_list_of_all_others():
    system = InThisProcess()
    assert flows.fan_in(system, Load(20)) > 0
    assert names(system) == ["increment"] * 19 + ["total_of"]
    [waiting] = system.submitted[-1][1]
    assert len(waiting) == 19


@pytest.mark.parametrize("loop", [flows.futures_chain, flows.reduce, flows.fan_in])
def test_dependent_that_got_a_wrong_value_is_an_error(loop):
    class Stale(InThisProcess):
        def value(self, arg):
            return 0 if isinstance(arg, Future) else super().value(arg)

    with pytest.raises(ArithmeticError, match="21 tasks"):
        loop(Stale(), Load(21))


@pytest.mark.parametrize("takes_futures", [True, False])
def test_array_goes_through_dependents_as_future_or_by_hand(takes_futures):
    system = InThisProcess()
    system.takes_futures = takes_futures
    assert arrays.through_dependents(system, Load(5, elements=1_000)) > 0
    assert names(system) == ["make", "double", "double", "double", "total"]
    assert all(isinstance(args[0], Future) is takes_futures for _, args in system.submitted[1:])


@pytest.mark.parametrize("loop", [arrays.as_argument, arrays.as_result, arrays.through_dependents])
def test_array_with_wrong_numbers_is_an_error(loop, monkeypatch):
    monkeypatch.setattr(arrays, "make", lambda elements: arrays.np.zeros(elements))
    with pytest.raises(ArithmeticError, match="5 tasks"):
        loop(InThisProcess(), Load(5, elements=1_000))


def test_array_is_measured_in_bytes_and_in_copies_beyond_those_of_user_code():
    class Client:
        def ask(self, request):
            assert request["elements"] == 250_000
            return {"peak_bytes": 7_000_000} if request.get("memory") else {"wall_s": 0.004, "account": {}}

    settings = measure.Settings(workers=1, array_mb=2)
    pattern = patterns.PATTERNS["array-dependents"]
    series = measure._settle(pattern, "ppe", Client(), settings)
    measure._repeat(pattern, series, Client(), settings)
    assert series.load == Load(5, elements=250_000)
    assert series.copies == pytest.approx(7 / 2 - 2)
    assert series.rates(pattern.array.moves) == pytest.approx([2e6 * 4 / 0.004 / 1e9])


def test_array_of_a_run_is_1_gb_and_64_mb_in_a_quick_one():
    assert measure.Settings(workers=1).elements() * 8 == 10**9
    assert measure.Settings(workers=1, quick=True).elements() * 8 == 64 * 10**6


def test_peak_of_memory_counts_what_a_child_takes_for_a_while():
    taken = "data = bytearray(b'x') * 50_000_000; print(flush=True); input()"
    with Peak() as peak:
        command = [sys.executable, "-c", taken]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            before = peak.looks
            while peak.looks < before + 2:
                time.sleep(0.01)
            child.communicate(b"\n")
    assert 50e6 < peak.growth < 150e6


def test_arrays_of_peers_give_rates_and_copies(tmp_path):
    file = tmp_path / "figures.json"
    shown = bench("--peers", "ppe,pool", "--patterns", "array-argument,array-result", "--array-mb", "2", "--json", file)
    assert shown.exit_code == 0, shown.output
    assert "GB/s" in shown.output
    figures = json.loads(file.read_text())["patterns"]
    assert list(figures) == ["array-argument", "array-result"]
    for pattern in figures.values():
        assert list(pattern["systems"]) == [OURSELVES, "ppe"]
        for system in pattern["systems"].values():
            assert system["elements"] == 250_000
            assert len(system["gb_per_s"]["samples"]) == 2
            assert isinstance(system["copies"], float)
    assert children() == []


def test_one_name_stands_for_all_patterns_with_an_array():
    parse = names_of(tuple(patterns.PATTERNS), patterns.PATTERN_GROUPS)
    assert parse(None, None, "array,bag") == ["bag", "array-argument", "array-result", "array-dependents"]


def test_patterns_with_an_array_are_skipped_by_name_without_numpy(monkeypatch, tmp_path):
    monkeypatch.setattr(patterns, "find_spec", lambda name: None)
    file = tmp_path / "figures.json"
    shown = bench("--peers", "ppe", "--patterns", "chain,array", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    assert "numpy is not installed, so skipped: array-argument, array-result, array-dependents" in shown.output
    figures = json.loads(file.read_text())
    assert list(figures["patterns"]) == ["chain"]
    assert figures["skipped_patterns"]["array-result"] == "numpy"


@pytest.mark.parametrize("name", ["futures-chain", "reduce", "fan-in"])
def test_peers_that_take_no_futures_are_left_out_and_the_table_says_so(name):
    pattern, systems = patterns.PATTERNS[name], [OURSELVES, "ppe", "pool", "dask", "parsl"]
    assert measure._systems_of(pattern, systems) == [OURSELVES, "dask"]
    assert measure._left_out(pattern, systems) == ["ppe", "pool", "parsl"]
    result = PatternResult(name, {OURSELVES: Series(OURSELVES, Load(10), [1.0])}, left_out=["ppe", "pool"])
    console = Console(file=io.StringIO(), width=100)
    show_pattern(console, result)
    assert "left out, without futures as arguments: ppe, pool" in console.file.getvalue()


@pytest.mark.parametrize("name", ["map", "start"])
def test_patterns_for_executors_go_without_dask_and_ray(name):
    assert measure._systems_of(patterns.PATTERNS[name], [OURSELVES, "ppe", "dask", "ray"]) == [OURSELVES, "ppe"]
    assert measure._left_out(patterns.PATTERNS[name], [OURSELVES, "ppe", "dask", "ray"]) == []


def test_patterns_of_futures_by_ourselves(tmp_path):
    asked = ["futures-chain", "reduce", "fan-in", "array-dependents"]
    file = tmp_path / "figures.json"
    shown = bench("--peers", "ppe", "--patterns", ",".join(asked), "--array-mb", "2", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    figures = json.loads(file.read_text())["patterns"]
    assert {name: pattern["systems"][OURSELVES]["tasks"] for name, pattern in figures.items()} == {
        "futures-chain": 20,
        "reduce": 19,
        "fan-in": 20,
        "array-dependents": 5,
    }
    assert all(len(pattern["systems"][OURSELVES]["walls_s"]) == 2 for pattern in figures.values())
    assert figures["reduce"]["left_out"] == ["ppe"]
    assert children() == []


@pytest.mark.parametrize("name", ["dask", "ray"])
@pytest.mark.parametrize("pattern", ["futures-chain", "fan-in", "array-dependents"])
def test_peers_with_futures_run_the_same_loops_and_leave_nothing(name, pattern, monkeypatch):
    if not CANDIDATES[name].installed:
        pytest.skip(f"{name} is not installed: requirements/bench.txt has it")
    # Ray's sockets need a path shorter than that of the tests' own directory.
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    with Session(name, 1) as session:
        answer = session.ask({"pattern": pattern, "tasks": 5, "chunksize": None, "elements": 1_000})
        assert answer["wall_s"] > 0
        family = children()
    assert children() == []
    _, alive = psutil.wait_procs(family, timeout=10)
    assert alive == []


def test_directory_for_temporary_files_goes_with_the_client():
    with Session("ppe", 1) as session:
        session.ask({"pattern": "chain", "tasks": 5, "chunksize": None})
        [client] = [child for child in children() if "ppe" in words(child)]
        directory = Path(client.environ()["TMPDIR"])
        (directory / "left behind").touch()
    assert not directory.exists()


def test_worker_in_a_group_of_its_own_does_not_outlive_a_client_that_was_killed():
    with Session("ppe", 1) as session:
        session.ask({"pattern": "chain", "tasks": 5, "chunksize": None})
        [client] = [child for child in children() if "ppe" in words(child)]
        command = [sys.executable, "-c", "import time; time.sleep(60)"]
        with subprocess.Popen(command, env=client.environ(), start_new_session=True) as worker:
            client.kill()
            with pytest.raises(ClientFailed, match="status -9"):
                session.ask({"pattern": "chain", "tasks": 5, "chunksize": None})
            # Its status is lost: the session's sweep has waited for it.
            worker.wait(10)
