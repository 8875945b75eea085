"""How many frames a program's tasks take: counts, never times."""

import calls


def test_a_bag_of_a_hundred_thousand_takes_few_frames(executor):
    """On a busy machine the engine is late with what it gathers, and needs more: the best of three counts."""
    executor.submit(calls.square, 1).result()
    counts = []
    while len(counts) < 3 and min(counts, default=100_000) > 5_000:
        before = executor.stats()
        futures = [executor.submit(calls.square, i) for i in range(100_000)]
        assert sum(future.result() for future in futures) == sum(i * i for i in range(100_000))
        after = executor.stats()
        assert after.succeeded - before.succeeded == 100_000
        counts.append(after.frames_sent - before.frames_sent)
    assert min(counts) <= 5_000, counts


def test_one_at_a_time_takes_one_frame_each_way(single):
    single.submit(calls.square, 1).result()
    before = single.stats()
    for i in range(300):
        assert single.submit(calls.square, i).result() == i * i
    after = single.stats()
    assert after.frames_sent - before.frames_sent == 300
    assert after.frames_received - before.frames_received <= 310


def test_a_map_takes_fewer_frames_than_a_bag(executor):
    assert sum(executor.map(calls.square, range(200_000))) == sum(i * i for i in range(200_000))
    assert executor.stats().frames_sent <= 1_000


def test_a_payload_is_small(single):
    single.submit(calls.square, 1).result()
    before = single.stats()
    for i in range(100):
        single.submit(calls.square, i).result()
    after = single.stats()
    assert (after.bytes_sent - before.bytes_sent) / 100 < 120
    assert (after.bytes_received - before.bytes_received) / 100 < 44
