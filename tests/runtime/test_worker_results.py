"""What a worker keeps of its last results: bounded in number, and in the bytes of those that are not small."""

from slipstream.worker import results
from slipstream.worker.results import Results


def test_the_oldest_of_too_many_go(monkeypatch):
    monkeypatch.setattr(results, "MAX_KEPT", 10)
    kept = Results()
    for task in range(25):
        kept.add(task, b"small")
    assert [kept.get(task) for task in range(25)] == [None] * 15 + [b"small"] * 10


def test_large_ones_count_by_their_bytes_and_small_ones_between_go_with_them(monkeypatch):
    monkeypatch.setattr(results, "KEPT_BYTES", 10_000)
    kept = Results()
    for task in range(0, 40, 2):
        kept.add(task, b"x" * 3_000)
        kept.add(task + 1, b"small")
    there = [task for task in range(40) if kept.get(task) is not None]
    assert there == [33, 34, 35, 36, 37, 38, 39]
    kept.add(40, b"y" * 20_000)  # too large to be kept at all
    assert kept.get(40) is None
    kept.add(41, b"x" * 3_000)
    assert kept.get(41) is not None
