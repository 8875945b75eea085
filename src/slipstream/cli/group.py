"""The click group behind `slipstream`, which imports a sub-command's module only when that sub-command is named.

What a sub-command does never lives here.
"""

from importlib import import_module

import click

#: Name of the sub-command → module whose `command` it is, in the order that the help shows.
COMMANDS = {
    "run": "slipstream.cli.run",
    "demo": "slipstream.cli.demo",
    "bench": "slipstream.cli.bench.command",
    "doctor": "slipstream.cli.doctor",
}


class LazyGroup(click.Group):
    """A click group over `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all sub-commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The sub-command of that name, imported now; None where there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(COMMANDS[cmd_name]).command
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="slipstream", message="%(prog)s %(version)s")
def group() -> None:
    """Python tasks on warm workers: a concurrent.futures Executor whose cost per task is small, bounded and visible."""
