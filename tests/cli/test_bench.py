"""`slipstream bench`: its figures are those that it measured, and nothing of it stays, however it ends."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace

import psutil
import pytest
from click.testing import CliRunner

from slipstream.cli.bench import measure, patterns
from slipstream.cli.bench.floors import FLOORS
from slipstream.cli.bench.patterns import Load
from slipstream.cli.bench.results import PatternResult, Series, Spread
from slipstream.cli.bench.session import ClientFailed, Session
from slipstream.cli.bench.systems import CANDIDATES, OURSELVES
from slipstream.cli.group import group

COMMAND = [sys.executable, "-c", "from slipstream.cli import main; main()", "bench"]
SMALL = ["--workers", "1", "--tasks", "20", "--rounds", "2"]


def bench(*args):
    return CliRunner().invoke(group, ["bench", *SMALL, *args])


def words(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


def children():
    return psutil.Process().children(recursive=True)


def test_all_patterns_with_figures_to_parse(tmp_path):
    file = tmp_path / "figures.json"
    shown = bench("--peers", "ppe,pool", "--json", str(file))
    assert shown.exit_code == 0, shown.output
    figures = json.loads(file.read_text())
    assert list(figures["patterns"]) == ["chain", "bag", "map", "payload", "payload-each", "start"]
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
