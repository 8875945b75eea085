"""How long imports take in a fresh interpreter: what is added up, what is said of those that fail or never end."""

import subprocess
import sys

from slipstream.serde.explain.import_times import _read, import_times


def test_imports_of_a_fresh_interpreter(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "serde_test_parent").mkdir()
    (tmp_path / "serde_test_parent" / "__init__.py").write_text("import sys; sys.stderr.write('import time: no\\n')")
    (tmp_path / "serde_test_parent" / "child.py").write_text("import colorsys")
    (tmp_path / "serde_test_raising.py").write_text("raise ValueError('two\\nlines')")
    names = ["serde_test_parent.child", "colorsys", "serde_test_raising", "json", "serde_test_none"]
    child, colorsys, raising, last, none = import_times([*names, *names])
    assert [found.module for found in (child, colorsys, raising, last, none)] == names
    assert child.seconds > 0
    assert colorsys.seconds == 0, "the module before it has brought it"
    assert last.seconds > 0
    assert (raising.seconds, raising.failed, raising.error) == (None, True, "ValueError: two lines")
    assert none.error == "ModuleNotFoundError: No module named 'serde_test_none'"
    assert "serde_test_parent" not in sys.modules


def test_an_import_that_ends_the_process_or_never_ends(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "serde_test_exits.py").write_text("import os; os._exit(0)")
    (tmp_path / "serde_test_hangs.py").write_text("import threading; threading.Event().wait()")
    exits, behind = import_times(["serde_test_exits", "json"])
    assert (exits.error, exits.failed) == ("ends the process that imports it", True)
    assert (behind.seconds, behind.failed) == (None, False)
    _, hangs = import_times(["colorsys", "serde_test_hangs"], timeout_s=1)
    assert (hangs.error, hangs.failed) == ("did not end within 1 s", False)


def test_times_are_added_up_between_marks():
    lines = [
        "import time:       300 |        900 | site",
        "slipstream import + a.b",
        "import time:       200 |        200 |   inner",
        "import time:       100 |        300 | a.b",
        "import time:        50 |         50 | late",
        "slipstream import + c",
        "import time:       nonsense",
        "slipstream import .",
        "import time:       400 |        400 | atexit",
    ]
    assert [found.seconds for found in _read(["a.b", "c"], lines, "")] == [350e-6, 0]
    assert [found.error for found in _read(["a.b", "c"], lines[:4], "late")] == [
        "late",
        "not tried: the import before it did not end",
    ]
    assert [found.seconds for found in _read(["a.b"], lines[:1] + lines[1:2] + lines[-2:-1], "")] == [0]


def test_what_an_import_raised_cannot_act_on_a_terminal():
    [found] = _read(["a"], ["slipstream import + a", "slipstream import ! Error: \x1b[2J", "slipstream import ."], "")
    assert found.error == "Error: \\x1b[2J"


def test_no_names_need_no_interpreter(monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    assert import_times([]) == ()
