"""The command group: what it lists, what it refuses, and what importing it costs others."""

import subprocess
import sys

from click.testing import CliRunner

import slipstream
from slipstream.cli.group import COMMANDS, group


def test_help_lists_every_command():
    shown = CliRunner().invoke(group, ["--help"])
    assert shown.exit_code == 0
    listed = [line.split()[0] for line in shown.output.partition("Commands:")[2].splitlines() if line.strip()]
    assert listed == list(COMMANDS)


def test_unknown_command_is_refused_by_name():
    refused = CliRunner().invoke(group, ["polish"])
    assert refused.exit_code == 2
    assert "polish" in refused.output


def test_version_is_the_packages():
    assert CliRunner().invoke(group, ["--version"], prog_name="slipstream").output == (
        f"slipstream {slipstream.__version__}\n"
    )


def test_workers_import_no_command_line_with_the_function_of_the_bench():
    program = """
import sys
before = set(sys.modules)
import slipstream.cli.bench.tasks
print(*sorted(name for name in set(sys.modules) - before))
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    imported = shown.split()
    ours = [name for name in imported if name.partition(".")[0] == "slipstream"]
    assert ours == ["slipstream", "slipstream.cli", "slipstream.cli.bench", "slipstream.cli.bench.tasks"]
    assert {"click", "rich", "msgspec", "concurrent.futures"}.isdisjoint(imported)
