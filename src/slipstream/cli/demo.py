"""`slipstream demo`: the example on a part of its input, to see in some seconds that everything works.

The example itself never lives here. It is the file beside this one, `identifiers.py`, which in the repository is a
link to `examples/identifiers.py`: so it can be read as the program that a user would write, is written once, and is
part of an installed wheel, which has no folder of examples.
"""

from pathlib import Path

import click

from slipstream.cli.run import run_script, set_workers

EXAMPLE = Path(__file__).with_name("identifiers.py")


@click.command(short_help="Count identifiers in the standard library, a task per file.")
@click.option("--files", type=click.IntRange(min=1), default=200, show_default=True, help="Files to count in.")
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes; default: the CPUs you may use.")
def command(files: int, workers: int | None) -> None:
    """Count the identifiers in some files of the standard library, a task per file."""
    set_workers(workers)
    run_script(str(EXAMPLE), ("--files", str(files)))
