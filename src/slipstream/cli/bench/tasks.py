"""The functions that every system runs in the bench: importable, so that all of them send them by reference.

Nothing may be imported here, since the first task of a worker would pay for it.
"""


def increment(value: int) -> int:
    """As little work as shows, by its result, that the task did run."""
    return value + 1


def add(left: int, right: int) -> int:
    """The same for two values."""
    return left + right


def total_of(values: list[int]) -> int:
    """The same for many values in one list."""
    return sum(values)
