"""`slipstream doctor`: what it shows of a call and of a pickle file, its JSON, and its exit status."""

import json
import os
import pickle
import subprocess
import sys
from fractions import Fraction

import pytest
from click.testing import CliRunner

from slipstream.cli.group import group

COMMAND = [sys.executable, "-c", "from slipstream.cli import main; main()", "doctor"]
MODULE = """
import threading
TABLE = [0] * 50_000
lock = threading.Lock()
class Kind:
    def method(self): pass
def plain(x): return x
def make():
    def nested(x): return TABLE
    def locked(x): return lock
    return nested, locked
nested, locked = make()
"""


@pytest.fixture
def doctor(tmp_path):
    """Runs the command in a folder that holds a module `cli_test_tasks`."""
    (tmp_path / "cli_test_tasks.py").write_text(MODULE)

    def run(*args):
        return subprocess.run([*COMMAND, *args], capture_output=True, text=True, cwd=tmp_path, timeout=60)

    return run


def here(*args):
    return CliRunner().invoke(group, ["doctor", *args])


@pytest.fixture
def pickled(tmp_path):
    def write(data, name="file.pkl"):
        path = tmp_path / name
        path.write_bytes(data)
        return str(path)

    return write


def test_a_function_of_a_module_in_the_present_folder(doctor):
    ended = doctor("cli_test_tasks:plain")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[0].split("  ") == ["plain", "✓ can be sent"]
    assert "by reference  workers import cli_test_tasks.plain" in ended.stdout
    assert "cli_test_tasks  " in ended.stdout.partition("a worker imports")[2]


def test_state_is_shown_and_advised_on(doctor):
    ended = doctor("cli_test_tasks:nested")
    assert (ended.returncode, ended.stderr) == (0, "")
    [row] = [line.split() for line in ended.stdout.splitlines() if line.startswith("the global 'TABLE'")]
    assert row == ["the", "global", "'TABLE'", "100.1", "kB", "state", "list"]
    assert "→ The global 'TABLE' takes 100.1 kB with each task" in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 100


def test_what_cannot_be_sent_ends_with_1(doctor):
    ended = doctor("cli_test_tasks:locked", "--import-timeout", "0")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "✗ cannot be sent: the global 'lock' cannot be pickled" in ended.stdout
    assert "TypeError: cannot pickle '_thread.lock' object" in ended.stdout


def test_json_of_a_call(doctor):
    ended = doctor("cli_test_tasks:locked", "--json")
    found = json.loads(ended.stdout)
    assert ended.returncode == 1
    assert (found["ok"], found["culprits"][0]["path"]) == (False, "the global 'lock'")
    found = json.loads(doctor("--json", "cli_test_tasks:Kind.method").stdout)
    assert (found["ok"], found["callable"]["why"]) == (True, "workers import cli_test_tasks.Kind.method")
    assert [item["module"] for item in found["imports"]] == ["cli_test_tasks"]
    assert found["imports"][0]["seconds"] > 0


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("cli_test_none:f", "no module 'cli_test_none'"),
        ("json.none:f", "no module 'json.none'"),
        ("json:none", "module 'json' has no 'none'"),
        ("json:__name__", "is a str, and no function"),
        ("json.py:dumps", "name the module, as in json:dumps"),
        ("none.pkl", "there is no file 'none.pkl'"),
        ("/", "there is no file '/'"),
        ("json:", "there is no file 'json:'"),
        ("a\0b", "there is no file 'a\\x00b'"),
    ],
)
def test_misuse_ends_with_2(target, said):
    ended = here(target)
    assert ended.exit_code == 2
    assert said in " ".join(ended.output.split())


def test_a_module_that_raises_is_reported_without_a_traceback(doctor, tmp_path):
    (tmp_path / "cli_test_broken.py").write_text("import cli_test_not_there")
    ended = doctor("cli_test_broken:f")
    assert ended.returncode == 1
    assert "ModuleNotFoundError: No module named 'cli_test_not_there'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_pickle_file(pickled):
    ended = here(pickled(pickle.dumps({"a": Fraction(1, 3), "b": b"x" * 5000})))
    assert ended.exit_code == 0
    assert "✓ a complete pickle, not loaded" in " ".join(ended.output.split())
    [row] = [line.split() for line in ended.output.splitlines() if line.startswith("fractions.")]
    assert row == ["fractions.Fraction", "1"]
    assert "5,005 B" in ended.output
    assert "only if you trust whoever wrote it" in ended.output


def test_a_hostile_file_does_nothing(pickled, tmp_path):
    target = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {target}",)

    path = pickled(pickle.dumps(Evil()))
    found = json.loads(here(path, "--json").stdout)
    assert (found["ok"], found["calls"]) == (True, {f"{os.system.__module__}.system": 1})
    assert "posix.system" in here(path).output
    assert not target.exists()


def test_a_truncated_file_ends_with_1(pickled):
    path = pickled(pickle.dumps(list(range(1000)))[:700])
    ended = here(path)
    assert ended.exit_code == 1
    assert "✗ malformed at byte 2: it is cut off: a frame of" in ended.output.replace("\n", " ")
    found = json.loads(here(path, "--json").stdout)
    assert (found["ok"], found["bytes"]) == (False, 700)


def test_names_in_a_file_are_no_markup_and_no_terminal_codes(pickled):
    output = here(pickled(b"\x80\x04\x8c\x05[red]\x8c\x04\x1b[2J\x93.")).output
    assert "[red].\\x1b[2J" in output
    assert "\x1b[2J" not in output


def test_a_colon_in_the_name_of_a_file(pickled):
    assert here(pickled(pickle.dumps(1), "a:b")).exit_code == 0


def test_plain_data_is_said_to_be_plain(pickled):
    output = here(pickled(pickle.dumps([1, "two"]))).output
    assert "all of them make plain data" in output
    assert "trust" not in output
    output = here(pickled(pickle.dumps(Fraction(1, 3)))).output
    assert "1 REDUCE" in output
