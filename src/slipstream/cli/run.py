"""`slipstream run`: a script as `__main__` of this process, with the number of workers set from the command line.

Nothing here may change what the script sees: its arguments, exit status and traceback are those that
`python SCRIPT` gives. Starting workers is the Executor's part, not this module's.
"""

import importlib.machinery
import io
import os
import sys
from types import CodeType, ModuleType, TracebackType
from typing import NoReturn

import click

WORKERS_VARIABLE = "SLIPSTREAM_WORKERS"
#: What a shell reports for a process that Ctrl-C ended: 128 and the number of the signal.
INTERRUPTED = 130
#: The module that is `__main__` until a script takes its place: its functions still run, so its globals must stay.
LAUNCHER = sys.modules["__main__"]


class ScriptCommand(click.Command):
    """A command that leaves `--help` to the script once the script is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse as click does, without our own `--help` if the first argument is the script."""
        if args and not args[0].startswith("-"):
            ctx.help_option_names = []
        return super().parse_args(ctx, args)


@click.command(
    cls=ScriptCommand,
    short_help="Run a script as python does, its Executor on N workers.",
    context_settings={"ignore_unknown_options": True},
)
@click.option("--workers", type=click.IntRange(min=1), help="Worker processes of an Executor() without max_workers.")
@click.argument("script", type=click.Path(exists=True, dir_okay=False, readable=True))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def command(script: str, args: tuple[str, ...], workers: int | None) -> None:
    """Run SCRIPT as python does, its Executor on N workers.

    All other arguments go to the script. What follows a "--" does so even if it reads --workers:

    \b
        slipstream run count.py --workers 4 --verbose
        slipstream run --workers 4 count.py -- --workers of-the-script
    """  # the \b is the character that keeps click from filling the lines
    set_workers(workers)
    run_script(script, args)


def set_workers(workers: int | None) -> None:
    """Let every Executor of this process that names no max_workers have this many; None leaves the default."""
    if workers is not None:
        os.environ[WORKERS_VARIABLE] = str(workers)


def run_script(script: str, args: tuple[str, ...]) -> None:
    """Execute the file as `__main__`; ends the process if the script raises.

    Not by `runpy.run_path`: it takes its module out of `sys.modules` and clears its globals when the last line has
    run, and tasks still pending then, or functions registered with atexit, would find their globals to be None.
    """
    sys.argv = [script, *args]
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    module = _main_module(script)
    code = _compiled(script)
    try:
        exec(code, module.__dict__)
    except SystemExit:
        raise
    except BaseException as error:  # noqa: BLE001 - the top of the script: shown as python does, then the process ends
        _end_with(error, _frames_of(code, error.__traceback__))


def _main_module(script: str) -> ModuleType:
    """An empty `__main__` that says it is that file, put where pickles and workers look for it."""
    module = ModuleType("__main__", doc=None)
    module.__file__ = script
    module.__loader__ = importlib.machinery.SourceFileLoader("__main__", script)
    module.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = module
    return module


def _compiled(script: str) -> CodeType:
    """The code of the file; what the compiler objects to is shown as `python SCRIPT` shows it."""
    with io.open_code(os.path.abspath(script)) as source:
        text = source.read()
    try:
        return compile(text, script, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        _end_with(error, None)


def _frames_of(code: CodeType, frames: TracebackType | None) -> TracebackType | None:
    """The traceback from the script's own first frame on: those before it are this program's."""
    while frames is not None and frames.tb_frame.f_code is not code:
        frames = frames.tb_next
    return frames


def _end_with(error: BaseException, frames: TracebackType | None) -> NoReturn:
    """Show the error by the hook that the script may have set, and end the process as python would."""
    error.__traceback__ = frames
    sys.excepthook(type(error), error, frames)
    sys.exit(INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1)
