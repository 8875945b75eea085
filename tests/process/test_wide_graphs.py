"""Graphs that are wide or deep: right to the last value, in few frames, and with nothing held when they have ended.

Frames and bytes are counted, never times. The bounds are several times what a quiet machine needs, and a fraction of
what a message per task or a copy per worker would be.
"""

import os

import pytest

import calls
import large

LIMIT_S = 60


def warm(executor):
    """All workers are up, and how long the calls take is known; the counters now."""
    for _ in range(30):
        executor.submit(calls.add, 1, 1).result()
        executor.submit(calls.square, 1).result()
    while executor.stats().workers < 2:
        executor.submit(calls.nap, 0.01).result()
    return executor.stats()


def assert_few_frames(executor, before, most):
    """Frames in both directions since then; and nothing of the tasks stays in the engine."""
    after = executor.stats()
    assert after.frames_sent - before.frames_sent + after.frames_received - before.frames_received < most
    assert not executor._engine._scheduler.tasks
    assert not executor._client.futures


@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_futures_in_one_list(patient, count):
    before = warm(patient)
    total = patient.submit(sum, [patient.submit(calls.square, i) for i in range(count)])
    assert total.result(LIMIT_S) == sum(i * i for i in range(count))
    assert_few_frames(patient, before, count // 2)


def test_a_tree_of_many_leaves(patient):
    before = warm(patient)
    level = [patient.submit(calls.square, i) for i in range(16_384)]
    while len(level) > 1:
        level = [patient.submit(calls.add, a, b) for a, b in zip(level[::2], level[1::2], strict=True)]
    assert level[0].result(LIMIT_S) == sum(i * i for i in range(16_384))
    assert_few_frames(patient, before, 30_000)


def test_a_diamond_under_another_again_and_again(patient):
    before = warm(patient)
    top = patient.submit(calls.square, 1)
    for _ in range(2_000):
        left, right = patient.submit(calls.add, top, 1), patient.submit(calls.add, top, -1)
        top = patient.submit(max, [left, right])
    assert top.result(LIMIT_S) == 2_001
    assert_few_frames(patient, before, 6_000)  # a round trip for each task is 12,000; on a busy machine 2,000 are


def test_diamonds_of_large_values_leave_the_last_one_alone(patient):
    """300 values of a megabyte, of which each is freed when the next ones have taken it."""
    top = patient.submit(large.make, "mapped", 1)
    expected = large.make("mapped", 1)
    for number in range(100):
        sides = [patient.submit(large.built, "mapped", side, top) for side in range(2)]
        top = patient.submit(large.built, "mapped", number, *sides)
        sides = [large.built("mapped", side, expected) for side in range(2)]
        expected = large.built("mapped", number, *sides)
    del sides
    assert large.fingerprint(top.result(LIMIT_S)) == large.fingerprint(expected)
    assert len(large.files_of(patient)) == 1


@pytest.mark.parametrize("ended", [True, False])
def test_one_large_value_for_many_tasks_is_one_file_that_all_workers_map(patient, ended):
    """500 tasks take 5 MB each; what travels is where these are."""
    before = warm(patient)
    value = patient.submit(large.make, "huge", 5)
    if ended:
        value.exception(LIMIT_S)
    futures = [patient.submit(large.file_of, value, 0.001) for _ in range(500)]
    found = [future.result(LIMIT_S) for future in futures]
    after = patient.stats()
    (name,) = large.files_of(patient)
    inode = os.stat(f"{patient._values._run.path}/{name}").st_ino
    pids, inodes, numbers = map(set, zip(*found, strict=True))
    assert (inodes, numbers) == ({inode}, {int(large.make("huge", 5)[-1])})
    assert len(pids) == 2
    assert after.bytes_sent - before.bytes_sent < 500 * 1_000
    assert after.bytes_received - before.bytes_received < 500 * 1_000
    assert after.frames_sent - before.frames_sent <= 500
