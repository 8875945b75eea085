"""`slipstream run`: the script sees what `python SCRIPT` would show it, and its end is the command's end."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from slipstream.cli import main; main()"]


def slipstream(*args, stdin="", **variables):
    environment = {**os.environ, **variables}
    return subprocess.run([*COMMAND, *args], input=stdin, capture_output=True, text=True, env=environment, timeout=60)


@pytest.fixture
def script(tmp_path):
    def write(text):
        path = tmp_path / "script.py"
        path.write_text(text)
        return str(path)

    return write


def test_script_is_main_and_has_its_arguments(script):
    path = script("import sys; print(__name__, __file__, sys.argv, sys.path[0], sep='|')")
    ended = slipstream("run", path, "one", "--two", "3", "-v")
    assert ended.stderr == ""
    folder = os.path.realpath(Path(path).parent)
    assert ended.stdout == f"__main__|{path}|{[path, 'one', '--two', '3', '-v']}|{folder}\n"
    assert ended.returncode == 0


def test_script_finds_modules_beside_it_but_not_in_the_present_folder(script, tmp_path):
    (tmp_path / "beside.py").write_text("WORD = 'found'")
    assert slipstream("run", script("import beside; print(beside.WORD)")).stdout == "found\n"


@pytest.mark.parametrize("order", ["before", "behind"])
def test_workers_are_passed_on_by_the_variable(script, order):
    path = script("import os, sys; print(os.environ['SLIPSTREAM_WORKERS'], sys.argv[1:])")
    args = ["--workers", "3", path, "rest"] if order == "before" else [path, "--workers", "3", "rest"]
    assert slipstream("run", *args).stdout == "3 ['rest']\n"


def test_without_workers_the_variable_stays_as_it_is(script):
    path = script("import os; print(os.environ.get('SLIPSTREAM_WORKERS'))")
    assert slipstream("run", path, SLIPSTREAM_WORKERS="5").stdout == "5\n"


def test_no_workers_at_all_are_refused(script):
    ended = slipstream("run", "--workers", "0", script("print('ran')"))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--workers" in ended.stderr


def test_what_follows_two_dashes_is_the_scripts(script):
    path = script("import os, sys; print('SLIPSTREAM_WORKERS' in os.environ, sys.argv[1:])")
    assert slipstream("run", path, "--", "--workers", "3").stdout == "False ['--workers', '3']\n"


def test_help_behind_the_script_is_the_scripts(script):
    path = script("import sys; print(sys.argv[1:])")
    assert slipstream("run", path, "--help").stdout == "['--help']\n"
    assert "Usage: slipstream run" in slipstream("run", "--help").stdout


@pytest.mark.parametrize(
    ("end", "status", "shown"),
    [("sys.exit()", 0, ""), ("sys.exit(7)", 7, ""), ("sys.exit('no more paper')", 1, "no more paper\n")],
)
def test_exit_status_passes_through(script, end, status, shown):
    ended = slipstream("run", script(f"import sys; {end}"))
    assert (ended.returncode, ended.stderr) == (status, shown)


def test_traceback_is_pythons(script):
    path = script("def divide(by):\n    return 1 / by\n\ntry:\n    divide(0)\nexcept OSError:\n    pass\n")
    ours = slipstream("run", path)
    pythons = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert "ZeroDivisionError" in ours.stderr
    assert (ours.returncode, ours.stderr) == (pythons.returncode, pythons.stderr)


def test_syntax_error_is_shown_as_pythons(script):
    path = script("print('never')\nwhile True print(1)\n")
    ours = slipstream("run", path)
    pythons = subprocess.run([sys.executable, path], capture_output=True, text=True)
    assert "SyntaxError" in ours.stderr
    assert (ours.returncode, ours.stdout, ours.stderr) == (pythons.returncode, "", pythons.stderr)


def test_end_of_input_is_an_error_like_any_other(script):
    ended = slipstream("run", script("input()"))
    assert ended.returncode == 1
    assert ended.stderr.splitlines()[-1] == "EOFError: EOF when reading a line"


def test_interrupt_has_its_traceback_and_the_status_of_a_shell(script):
    ended = slipstream("run", script("raise KeyboardInterrupt"))
    assert ended.returncode == 130
    assert ended.stderr.splitlines()[-1] == "KeyboardInterrupt"


def test_the_scripts_own_hook_shows_its_errors(script):
    ended = slipstream("run", script("import sys\nsys.excepthook = lambda *e: print(e[1])\nraise OSError('by hook')"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "by hook\n", "")


def test_globals_live_until_the_process_ends(script):
    path = script(
        "import atexit, sys\nword = 'alive'\natexit.register(lambda: print(word, sys.modules['__main__'].word))"
    )
    assert slipstream("run", path).stdout == "alive alive\n"


@pytest.mark.parametrize("name", ["absent.py", ""])
def test_missing_script_is_named(tmp_path, name):
    missing = str(tmp_path / name)
    ended = slipstream("run", missing)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert missing in ended.stderr.replace("\n", "")
    assert "Traceback" not in ended.stderr


def test_functions_and_classes_of_the_script_reach_workers(script):
    path = script(
        """
from dataclasses import dataclass
from slipstream import Executor

SCALE = 10

@dataclass
class Point:
    x: int

def scaled(point):
    return Point(point.x * SCALE)

with Executor() as executor:
    print([executor.submit(scaled, Point(x)).result() for x in range(3)], executor.stats().workers)
"""
    )
    ended = slipstream("run", path, "--workers", "1")
    assert ended.stderr == ""
    assert ended.stdout == "[Point(x=0), Point(x=10), Point(x=20)] 1\n"


def test_tasks_pending_at_the_last_line_still_end(script):
    path = script(
        """
import atexit, time
from slipstream import Executor

DELAY = 0.05

def late(value):
    time.sleep(DELAY)
    return value

executor = Executor()
futures = [executor.submit(late, value) for value in range(3)]
futures[-1].add_done_callback(lambda future: print(future.result()))
atexit.register(lambda: print([future.done() for future in futures]))
"""
    )
    ended = slipstream("run", path, "--workers", "1")
    assert ended.stderr == ""
    assert ended.stdout == "2\n[True, True, True]\n"
