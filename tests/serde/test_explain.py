"""What `doctor` finds out about a call: by reference or by value, captures, culprits, imports."""

import functools
import json
import subprocess
import sys
import threading
from fractions import Fraction

import msgspec
import pytest

import slipstream
from slipstream.serde.explain.advice import LARGE_ARGUMENT, SLOW_IMPORT_S
from slipstream.serde.explain.call import explain
from slipstream.serde.explain.reasons import how_and_why
from slipstream.serde.pickler import dumps
from slipstream.serde.tasks import encode_task

LOCK = threading.Lock()
REASON = "TypeError: cannot pickle '_thread.lock' object"


def quick(fn, *args, **kwargs):
    """Without imports in another process."""
    return explain(fn, args, kwargs, timeout_s=0)


def only(found):
    [culprit] = found
    return culprit.path, culprit.reason


# --- sizes and reasons ------------------------------------------------------------------------------------------------


def test_a_function_by_reference():
    report = quick(json.dumps, [1, 2], indent=3)
    assert report.ok
    assert (report.callable.how, report.callable.why) == ("by reference", "workers import json.dumps")
    assert [piece.path for piece in report.arguments] == ["args[0]", "argument 'indent'"]
    assert report.task_bytes == len(encode_task(json.dumps, ([1, 2],), {"indent": 3}).payload)
    assert (report.definition_bytes, report.state_bytes, report.captures) == (0, 0, ())
    assert report.arguments[0].bytes == len(dumps([1, 2]))
    assert "json" in [found.module for found in report.imports]


def test_the_other_way_takes_what_the_module_defines_along(file_module, monkeypatch, tmp_path):
    source = "import threading\nTABLE = [0] * 5000\nclass Kind:\n    blob = b'x' * 50_000\n"
    source += "def inner(): return TABLE, Kind()\n"
    source += "def outer(): return inner()\nlock = threading.Lock()\ndef locked():\n    with lock: pass\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    module = file_module("serde_test_other_way", source)
    other = quick(module.outer).other_way
    assert other.module == "serde_test_other_way"
    assert other.bytes_by_reference == len(dumps(module.outer))
    assert other.bytes_by_value > 60_000, "the table, and what the class holds"
    other = quick(module.locked).other_way
    assert other.bytes_by_value is None
    assert only(other.culprits) == ("the global 'lock'", REASON)
    assert quick(module.locked).ok, "by reference it can be sent"
    assert quick(len).other_way is None


def test_a_function_by_value_and_its_captures(main):
    source = "TABLE = [0] * 1000\nNAMES = ('a', [1])\nWORD = 'w' * 300\nimport json\n"
    source += "def inner(x): return WORD\ndef f(x, by=4): return TABLE, NAMES, json, inner, len\n"
    report = quick(main(source)["f"], 1)
    assert report.ok
    assert (report.callable.how, report.callable.why) == ("by value", "defined in __main__, which no worker can import")
    kinds = {found.path: found.kind for found in report.captures}
    assert kinds == {
        "the global 'TABLE'": "state",
        "the global 'NAMES'[1]": "state",
        "the global 'NAMES'": "constant",
        "the global 'inner'": "constant",
        "inner: the global 'WORD'": "constant",
        "the default of 'by'": "constant",
        "the global 'json'": "by reference",
    }
    sizes = {found.path: found.bytes for found in report.captures}
    assert sizes["the global 'TABLE'"] == len(dumps([0] * 1000))
    assert [found.bytes for found in report.captures] == sorted(sizes.values(), reverse=True)
    encoded = encode_task(main("")["f"], (1,), {})
    assert report.callable.bytes == report.definition_bytes == len(encoded.definition)
    assert (report.task_bytes, report.state_bytes) == (len(encoded.payload), encoded.state_bytes)
    assert report.state_bytes >= sizes["the global 'TABLE'"]


def test_what_a_constant_takes_is_without_the_state_in_it(main):
    report = quick(main("PAIR = ('a', [0] * 5000)\ndef f(): return PAIR")["f"])
    sizes = {found.path: found.bytes for found in report.captures}
    assert sizes["the global 'PAIR'[1]"] > 10_000
    assert sizes["the global 'PAIR'"] < 100


def test_a_partial_is_its_function_and_arguments():
    report = quick(functools.partial(functools.partial(json.dumps, [1]), indent=2), sort_keys=True)
    assert report.callable.why == "workers import json.dumps"
    assert [piece.path for piece in report.arguments] == ["args[0]", "argument 'indent'", "argument 'sort_keys'"]


def test_reasons(file_module, monkeypatch, main):
    class Local:
        def method(self):
            pass

    def nested():
        pass

    def renamed():
        pass

    renamed.__module__, renamed.__qualname__ = "json", "dumps"
    lost = file_module("serde_test_lost", "def f(): pass\nclass C: pass")
    in_main = main("class C: pass\ndef f(): pass")
    reasons = {
        nested: "a nested function: no module has it under a name",
        Local: "a nested class: no module has it under a name",
        Local().method: "a bound method: its object goes with each task",
        renamed: "json.dumps is another object now: wrapped, or defined again",
        lost.f: "workers do not find this module serde_test_lost on sys.path",
        lost: "workers do not find this module serde_test_lost on sys.path",
        in_main["f"]: "defined in __main__, which no worker can import",
        (lambda: 0): "a lambda: no module has it under a name",
        Fraction(1, 3): "data; workers import fractions.Fraction",
        in_main["C"](): "data; its class C too: defined in __main__, which no worker can import",
        "text": "data",
    }
    for value, reason in reasons.items():
        assert how_and_why(value) == ("by value", reason)
    assert how_and_why(json) == ("by reference", "workers import json")


def test_what_cannot_be_called_is_misuse():
    with pytest.raises(TypeError, match="'int' object cannot be called"):
        slipstream.doctor(3)


def test_nothing_is_called():
    def fail():
        raise AssertionError

    assert quick(fail).ok


class Holder:
    def __init__(self, inside):
        self.inside = inside


class Refusing:
    def __reduce__(self):
        raise ValueError("not me")


def closure(inside):
    return lambda: inside


def test_a_call_with_a_culprit_is_reported_and_not_raised(main):
    function = main("import threading\nlock = threading.Lock()\ndef f(x):\n    with lock: return x")["f"]
    report = slipstream.doctor(function, Holder(LOCK))
    assert not report.ok
    assert report.problem == "cannot be sent: the global 'lock' cannot be pickled"
    assert [found.path for found in report.culprits] == ["the global 'lock'", "args[0].inside"]
    assert (report.task_bytes, report.callable.bytes, report.arguments[0].bytes) == (None, None, None)
    assert report.advice[0] == "Make the global 'lock' inside the task."
    assert "args[0].inside cannot be pickled: " + REASON in str(report)


def test_builtins_need_no_interpreter(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    assert slipstream.doctor(len, [1]).imports == ()


def test_a_function_whose_module_a_worker_cannot_import(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "serde_test_once.py").write_text(
        "import os\nif 'SERDE_TEST_ONCE' in os.environ: raise OSError('no second time')\ndef f(): pass\n"
    )
    from serde_test_once import f

    monkeypatch.setenv("SERDE_TEST_ONCE", "1")
    report = slipstream.doctor(f)
    assert not report.ok
    assert report.problem == "can be sent, and not be loaded: serde_test_once cannot be imported"
    assert any("OSError: no second time" in line for line in report.advice)


def test_modules_of_definitions_and_arguments_are_named(main):
    function = main("import colorsys\nSTATE = [1]\ndef f(x): return colorsys, STATE")["f"]
    modules = [found.module for found in quick(function, Fraction(1, 3)).imports]
    assert {"colorsys", "fractions"} <= set(modules)
    assert not any(module.split(".")[0] in ("slipstream", "builtins", "__main__") for module in modules)


# --- advice and forms -------------------------------------------------------------------------------------------------


def test_advice_is_for_what_is_large_or_slow_only(main):
    function = main("SMALL, LARGE = [1], [0] * 100_000\ndef f(x): return SMALL, LARGE")["f"]
    [line] = quick(function, 1).advice
    assert line.startswith("The global 'LARGE' takes 200.2 kB with each task: pass it as an argument")
    [line] = quick(json.dumps, b"x" * LARGE_ARGUMENT).advice
    assert line.startswith("args[0] takes 1.0 MB")
    [line] = quick(main("BLOB = b'x' * 2_000_000\ndef g(): return BLOB")["g"]).advice
    assert line.startswith("The function takes 2.0 MB with the constants")
    assert quick(json.dumps, [1]).advice == ()


def test_advice_on_slow_imports(monkeypatch):
    from slipstream.serde.explain import call as explain_module
    from slipstream.serde.explain.import_times import ImportTime

    def times(modules, timeout_s):
        return tuple(ImportTime(name, SLOW_IMPORT_S if name == "json" else 0.001) for name in modules)

    monkeypatch.setattr(explain_module, "import_times", times)
    [line] = slipstream.doctor(json.dumps, Fraction(1, 3)).advice
    assert line.startswith("Importing json takes 200 ms in each new worker")


def test_a_report_is_json_and_text():
    report = quick(closure([1, 2]), LOCK)
    document = msgspec.json.decode(msgspec.json.encode(report))
    assert document["culprits"][0]["path"] == "args[0]"
    [found] = document["captures"]
    assert (found["kind"], found["type"], found["bytes"]) == ("state", "list", len(dumps([1, 2])))
    assert str(report).splitlines()[0] == "closure.<locals>.<lambda>: cannot be sent: args[0] cannot be pickled"


def test_names_with_surrogates_are_json_too():
    report = quick(max, {"\ud800": LOCK}, **{"\ud801": 1})
    assert msgspec.json.decode(msgspec.json.encode(report))["culprits"][0]["path"] == "args[0]['\\ud800']"


def test_a_script_is_told_about_its_own_functions(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import slipstream\ndef f(x): return x\nprint(slipstream.doctor(f, 1))\n")
    shown = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True)
    lines = shown.stdout.splitlines()
    assert (lines[0], shown.stderr) == ("f: can be sent", "")
    assert lines[2].endswith("by value, defined in __main__, which no worker can import")


class Loud(Exception):
    pass


class Odd:
    """Answers every attribute that it lacks with a surprise."""

    def __getattr__(self, name):
        raise Loud(name)

    def __call__(self):
        pass


@pytest.mark.parametrize(
    "fn",
    [
        Odd(),
        len,
        [].append,
        int,
        int.from_bytes,
        Fraction(1, 2).limit_denominator,
        functools.lru_cache(lambda: 0),
        functools.partial(closure(3)),
        type("Made", (), {"__call__": lambda self: LOCK})(),
        type("Made", (), {}),
        Refusing,
        closure(LOCK),
        threading.Lock().acquire,
        LOCK.__enter__,
        staticmethod(len),
        functools.singledispatch(closure(1)),
        sys.stdout.write,
    ],
    ids=repr,
)
def test_ok_means_that_the_call_can_be_sent(fn):
    report = quick(fn)
    try:
        encode_task(fn, (), {})
        sent = True
    except slipstream.PayloadError:
        sent = False
    assert report.ok == sent
    assert bool(report.culprits) == (not sent)
    assert str(report)
    msgspec.json.encode(report)
