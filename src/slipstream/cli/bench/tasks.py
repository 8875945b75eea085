"""The function that every system runs in the bench: importable, so that all of them send it by reference.

Nothing may be imported here, since the first task of a worker would pay for it.
"""


def increment(value: int) -> int:
    """As little work as shows, by its result, that the task did run."""
    return value + 1
