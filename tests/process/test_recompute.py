"""Files of large results are removed by somebody else: the tasks run again, or say why they do not."""

import gc
import os
import threading

import numpy
import pytest

from slipstream import DependencyError, Executor, PayloadError

LARGE = 200_000  # numbers: 1.6 MB, which are mapped
SMALL = 20_000  # 160 kB, which are read
LIMIT_S = 60


def lose_all(executor):
    """Remove every file; how many there were."""
    run = executor._values._run
    names = os.listdir(run.path)
    for name in names:
        os.unlink(f"{run.path}/{name}")
    return len(names)


def wait_for(*futures):
    """Until they have ended, without a look at their values."""
    for future in futures:
        future._wait(LIMIT_S)


def note(log, what):
    with open(log, "a") as file:
        file.write(f"{what}\n")


def noted(log):
    with open(log) as file:
        return file.read().split()


def made(count, log):
    note(log, "made")
    return numpy.ones(count)


def doubled(array, log):
    note(log, "doubled")
    return array * 2


def total(array):
    return float(array.sum())


def made_once(count, log):
    """The second time it fails."""
    note(log, "made")
    if len(noted(log)) > 1:
        raise ValueError("there is only one")
    return numpy.ones(count)


@pytest.fixture
def log(tmp_path):
    return str(tmp_path / "log")


@pytest.mark.parametrize("count", [SMALL, LARGE])
def test_a_lost_result_is_computed_again_when_it_is_asked_for(single, log, count):
    future = single.submit(made, count, log)
    wait_for(future)
    assert lose_all(single) == 1
    assert future.result(LIMIT_S).sum() == count
    assert noted(log) == ["made"] * 2
    assert lose_all(single) == 1
    assert future.result().sum() == count, "what has been loaded stays"
    assert noted(log) == ["made"] * 2
    stats = single.stats()
    assert (stats.tasks, stats.succeeded, stats.failed) == (1, 1, 0)


def test_a_lost_input_is_computed_again_and_what_that_needs_too(executor, log):
    first = executor.submit(made, LARGE, log)
    second = executor.submit(doubled, first, log)
    third = executor.submit(doubled, second, log)
    wait_for(first, second, third)
    assert lose_all(executor) == 3
    assert executor.submit(total, third).result(LIMIT_S) == 4 * LARGE
    assert noted(log) == ["made", "doubled", "doubled"] * 2
    assert second.result(LIMIT_S).sum() == 2 * LARGE
    assert noted(log) == ["made", "doubled", "doubled"] * 2, "it is there again"


def test_what_nobody_holds_any_more_is_computed_again_for_the_sake_of_what_somebody_does(executor, log):
    second = executor.submit(doubled, executor.submit(made, LARGE, log), log)
    wait_for(second)
    gc.collect()
    assert lose_all(executor) == 1, "the first went with its future"
    assert second.result(LIMIT_S).sum() == 2 * LARGE
    assert noted(log) == ["made", "doubled"] * 2
    del second
    gc.collect()
    assert executor.submit(len, "turn").result() == 4
    assert executor._engine._scheduler.tasks == {}, "recipes go with the last future"
    assert lose_all(executor) == 0


def test_many_threads_that_miss_a_result_have_it_computed_once(executor, log):
    future = executor.submit(made, LARGE, log)
    wait_for(future)
    lose_all(executor)
    sums = []
    threads = [threading.Thread(target=lambda: sums.append(future.result(LIMIT_S).sum())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sums == [LARGE] * 20
    assert noted(log) == ["made"] * 2


def test_many_tasks_that_miss_an_input_have_it_computed_once(executor, log):
    future = executor.submit(made, LARGE, log)
    wait_for(future)
    lose_all(executor)
    totals = [executor.submit(total, future) for _ in range(50)]
    assert [one.result(LIMIT_S) for one in totals] == [LARGE] * 50
    assert noted(log) == ["made"] * 2


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_it_is_computed_again_so_many_times_and_then_the_reason_is_told(log, retries):
    with Executor(max_workers=1, worker_retries=retries) as executor:
        future = executor.submit(made, LARGE, log)
        for _ in range(retries):
            wait_for(future)
            lose_all(executor)
            assert executor.submit(total, future).result(LIMIT_S) == LARGE
        wait_for(future)
        lose_all(executor)
        dependent = executor.submit(total, future)
        error = dependent.exception(LIMIT_S)
        assert isinstance(error, DependencyError)
        assert isinstance(error.__cause__, PayloadError)
        assert "the result of task 'made' is gone" in str(error.__cause__)
        assert "worker_retries" in str(error.__cause__)
        with pytest.raises(PayloadError, match=r"the result of task 'made' is gone.*worker_retries"):
            future.result(LIMIT_S)
        assert isinstance(executor.submit(total, future).exception(LIMIT_S), DependencyError)
        assert noted(log) == ["made"] * (retries + 1)
        assert executor.submit(len, "on").result(LIMIT_S) == 2


def test_without_retries_a_result_that_is_asked_for_tells_the_reason(log):
    with Executor(max_workers=1, worker_retries=0) as executor:
        future = executor.submit(made, LARGE, log)
        wait_for(future)
        lose_all(executor)
        with pytest.raises(
            PayloadError, match="'made' is gone, and it is not computed again, since worker_retries is 0"
        ):
            future.result(LIMIT_S)
        assert isinstance(future.exception(), PayloadError)
        assert future.done()
        assert not future.succeeded


def test_a_task_that_cannot_be_repeated_fails_all_that_need_its_result(executor, log):
    future = executor.submit(made_once, LARGE, log)
    dependent = executor.submit(doubled, future, log)
    wait_for(future, dependent)
    lose_all(executor)
    with pytest.raises(DependencyError) as failure:
        dependent.result(LIMIT_S)
    assert str(failure.value.__cause__) == "there is only one"
    with pytest.raises(ValueError, match="there is only one"):
        future.result(LIMIT_S)


def test_a_loaded_result_stays_although_it_cannot_be_made_again(executor, log):
    future = executor.submit(made_once, LARGE, log)
    assert future.result(LIMIT_S).sum() == LARGE
    lose_all(executor)
    dependent = executor.submit(total, future)
    assert isinstance(dependent.exception(LIMIT_S), DependencyError)
    assert future.result().sum() == LARGE


def test_a_value_that_was_put_cannot_be_computed_again(executor, log):
    table = executor.put(numpy.ones(LARGE))
    assert executor.submit(total, table).result(LIMIT_S) == LARGE
    lose_all(executor)
    error = executor.submit(total, table).exception(LIMIT_S)
    assert isinstance(error, PayloadError)
    assert "task 'total' cannot run: a value that it takes, which was put" in str(error)


def test_a_chunk_of_a_map_is_computed_again(executor, log):
    results = executor.map(made, [SMALL] * 4, [log] * 4, chunksize=2)
    wait_for(*list(executor._client.futures.values()))
    assert lose_all(executor) == 2
    assert [array.sum() for array in results] == [SMALL] * 4
    assert noted(log) == ["made"] * 8


def test_when_the_executor_has_ended_it_is_too_late(log):
    with Executor(max_workers=1) as executor:
        future = executor.submit(made, LARGE, log)
    lose_all(executor)
    with pytest.raises(PayloadError, match="its file was removed or cut short") as failure:
        future.result(LIMIT_S)
    assert "This was the result of task 'made'." in failure.value.__notes__
    executor._values._run.remove()


def test_a_file_that_was_cut_short_is_gone_too(single, log):
    future = single.submit(made, SMALL, log)  # not a mapped one: to cut that short would end whoever reads it
    wait_for(future)
    run = single._values._run
    (name,) = os.listdir(run.path)
    os.truncate(f"{run.path}/{name}", 1000)
    assert future.result(LIMIT_S).sum() == SMALL
    assert noted(log) == ["made"] * 2
