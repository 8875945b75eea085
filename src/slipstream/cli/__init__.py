"""The `slipstream` command: one module per sub-command, loaded when it is asked for.

This package stays cheap to import: workers of every system import `slipstream.cli.bench.tasks` during the bench, and
what its parents import would be counted as that system's start. So click and rich are never imported at this level.
"""


def main() -> None:
    """Run the command line that `sys.argv` holds, and end the process with its exit status."""
    from slipstream.cli.group import group

    group(prog_name="slipstream")
