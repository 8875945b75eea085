"""`slipstream doctor`: what a call would cost to send, or what a pickle file would do, as tables or as JSON.

Nothing is found out here: see `serde.explain` and `serde.pickle_file`. A pickle file is never loaded.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import msgspec

from slipstream.serde.error_text import error_text
from slipstream.serde.explain.call import explain
from slipstream.serde.explain.import_times import TIMEOUT_S
from slipstream.serde.explain.pickle_file import Outline, outline_file
from slipstream.serde.explain.printable import printable
from slipstream.serde.explain.report import Report


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of tables.")
@click.option(
    "--import-timeout",
    type=click.FloatRange(min=0),
    default=TIMEOUT_S,
    show_default=True,
    metavar="SECONDS",
    help="Limit for the imports in a fresh interpreter; 0 imports nothing there.",
)
@click.argument("target", metavar="MODULE:FUNCTION | FILE")
def command(target: str, as_json: bool, import_timeout: float) -> None:
    """Explain what a task would cost to send, and what of it cannot be sent.

    \b
        slipstream doctor package.module:function
        slipstream doctor file.pkl

    A module is imported from the present folder or sys.path. A pickle file is read, never loaded: it may come from
    anybody. The exit status is 1 if something cannot be sent, or the file is no complete pickle.
    """  # the \b is the character that keeps click from filling the lines
    module, colon, name = target.rpartition(":")
    if colon and module and name and not Path(target).is_file():
        found = explain(_function(module, name), (), {}, import_timeout)
    else:
        found = _outline(target)
    if as_json:
        document = msgspec.to_builtins(found)
        click.echo(msgspec.json.format(msgspec.json.encode({"ok": found.ok, **document}), indent=2).decode())
    else:
        _show(found, target)
    sys.exit(0 if found.ok else 1)


def _show(found: Report | Outline, target: str) -> None:
    from slipstream.cli import doctor_tables  # rich takes longer to import than the rest

    if isinstance(found, Report):
        doctor_tables.show_report(found)
    else:
        doctor_tables.show_outline(found, target)


def _function(module: str, name: str) -> Any:
    """The object of that name, its module imported as `python -m` would find it."""
    if not sys.flags.safe_path and "" not in sys.path:
        sys.path.insert(0, "")
    if module.endswith(".py"):
        raise click.BadParameter(f"{module!r} is a file: name the module, as in {Path(module).stem}:{name}")
    try:
        found: Any = import_module(module)
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            raise click.BadParameter(f"there is no module {module!r} here or on sys.path") from error
        raise click.ClickException(f"module {module!r} cannot be imported: {printable(error_text(error))}") from error
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError as error:
            raise click.BadParameter(f"module {module!r} has no {name!r}") from error
    if not callable(found):
        raise click.BadParameter(f"{name!r} of module {module!r} is a {type(found).__qualname__}, and no function")
    return found


def _outline(path: str) -> Outline:
    try:
        if not Path(path).is_file():
            raise click.BadParameter(f"there is no file {path!r}; a function is named MODULE:FUNCTION")
        with open(path, "rb") as file:
            return outline_file(file, os.fstat(file.fileno()).st_size)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path!r} cannot be read: {error}") from error
