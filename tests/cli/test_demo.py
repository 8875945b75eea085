"""`slipstream demo` and the example behind it, on real files."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from slipstream.cli import identifiers as example
from slipstream.cli.demo import EXAMPLE

COMMAND = [sys.executable, "-c", "from slipstream.cli import main; main()"]


def test_demo_counts_and_gives_its_account():
    ended = subprocess.run([*COMMAND, "demo", "--files", "12", "--workers", "2"], capture_output=True, text=True)
    assert ended.stderr == ""
    assert ended.returncode == 0
    assert re.search(r"Most used of [\d,]+ identifiers in 12 files", ended.stdout)
    assert re.search(r"tasks +12 ", ended.stdout)
    for name in ("time", "rate", "overhead", "sent", "received", "one process"):
        assert re.search(rf"^ *{name} +[\d.,]+ ", ended.stdout, re.MULTILINE), name


def test_the_demo_is_the_example_of_the_repository():
    assert EXAMPLE.resolve() == Path(__file__).parents[2] / "examples" / "identifiers.py"


def test_identifiers_leave_keywords_and_strings_out(tmp_path):
    source = tmp_path / "source.py"
    source.write_text("for name in names: name.strip('word')  # remark\n")
    assert example.identifiers(source) == Counter(name=2, names=1, strip=1)


def test_what_is_not_python_is_skipped(tmp_path):
    for number, content in enumerate([b"'''", b"# coding: unknown\n", b"word = '\xff'\n"]):
        source = tmp_path / f"{number}.py"
        source.write_bytes(content)
        assert example.identifiers(source) is None


def test_a_part_of_the_library_is_spread_over_the_whole():
    whole, part = example.standard_library(), example.standard_library(10)
    assert len(part) == 10
    assert set(part) < set(whole)
    assert part[-1] > whole[len(whole) * 3 // 4]
    assert len(example.standard_library(10**6)) == len(whole)
