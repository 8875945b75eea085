"""A function that goes by value crosses to each worker once, and each task has what it is at its submit."""

import functools
import sys
import types
import warnings

import pytest

import calls
import scripts
from slipstream import Executor, PayloadError, PayloadWarning, WorkerLost, register_by_value
from slipstream.serde import definitions
from slipstream.serde.imports import unregister_by_value


def keep_one_definition():
    definitions.KEPT_BYTES = 1


def adder(n):
    return lambda x: x + n


def wrapped(fn):
    @functools.wraps(fn)
    def wrapper(*args):
        return fn(*args)

    return wrapper


class Adder:
    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        return x + self.n

    def add(self, x):
        return x + self.n


def base(x, y=0):
    return x * 10 + y


def test_many_tasks_of_one_function_send_it_once(single):
    fn = adder(1)
    assert [single.submit(fn, n).result() for n in range(50)] == list(range(1, 51))
    assert single.stats().callables_sent == 1


def test_each_worker_is_sent_it_once(executor):
    fn = adder(1)
    assert [future.result() for future in [executor.submit(fn, n) for n in range(2_000)]] == list(range(1, 2_001))
    assert 1 <= executor.stats().callables_sent <= 2


def test_partials_decorated_functions_and_equal_closures_are_one_function(single):
    fn = adder(1)
    assert [single.submit(functools.partial(fn, n)).result() for n in range(100)] == list(range(1, 101))
    assert single.stats().callables_sent == 1
    assert [single.submit(wrapped(fn), n).result() for n in range(100)] == list(range(1, 101))
    assert single.stats().callables_sent == 2
    assert [single.submit(adder(7), n).result() for n in range(100)] == list(range(7, 107))
    assert single.stats().callables_sent == 3


def local_adder():
    """A class that no worker can import."""

    class Local(Adder):
        step = 1

        def __call__(self, x):
            return x + self.step * self.n

    return Local


def test_a_class_is_sent_once_for_all_its_instances_and_methods(single):
    local = local_adder()
    futures = [single.submit(local(n), 1) for n in range(50)]
    assert [future.result() for future in futures] == list(range(1, 51))
    assert single.stats().callables_sent == 1
    assert max(future.payload().arguments for future in futures) < 250
    assert [single.submit(local(n).__call__, 1).result() for n in range(50)] == list(range(1, 51))
    assert [single.submit(local, n).result().n for n in range(50)] == list(range(50))
    assert [single.submit(base, local(n).n).result() for n in range(50)] == [10 * n for n in range(50)]
    assert single.stats().callables_sent == 1
    assert list(single.map(local(1), range(100))) == list(range(1, 101))
    assert single.stats().callables_sent == 1


def test_a_class_that_is_changed_is_what_it_is_now_on_every_worker(executor):
    local = local_adder()
    for step in (1, 5, 1, 7):
        local.step = step
        futures = [executor.submit(local(n), 1) for n in range(200)]
        local.step = 0  # later than their submit
        assert [future.result() for future in futures] == [1 + step * n for n in range(200)]


def test_a_worker_that_had_to_drop_a_class_asks_for_it():
    classes = [local_adder() for _ in range(3)]
    with Executor(max_workers=2, initializer=keep_one_definition) as executor:
        futures = [executor.submit(cls(n), n) for n in range(40) for cls in classes]
        futures += [executor.submit(lambda n, cls=cls: cls(n)(n), n) for n in range(40) for cls in classes]
        assert [future.result() for future in futures] == 2 * [2 * n for n in range(40) for _ in classes]
        assert (executor.stats().failed, executor.stats().workers_lost) == (0, 0)


def test_maps_send_their_function_once_too(single):
    fn = adder(2)
    assert list(single.map(fn, range(1_000))) == list(range(2, 1_002))
    assert list(single.map(functools.partial(base, 1), range(100))) == [10 + n for n in range(100)]
    assert list(single.map(functools.partial(lambda a, b, *, c: (a, b, c), 1, c=3), [2])) == [(1, 2, 3)]
    assert single.stats().callables_sent == 2  # `base` is found by name


def test_a_worker_that_had_to_drop_a_definition_asks_for_it_and_no_task_fails():
    functions = [adder(n) for n in range(5)]
    with Executor(max_workers=2, initializer=keep_one_definition) as executor:
        for _ in range(3):
            futures = [(n, i, executor.submit(functions[n], i)) for i in range(40) for n in range(5)]
            assert [future.result() for _, _, future in futures] == [n + i for n, i, _ in futures]
        stats = executor.stats()
    assert (stats.succeeded, stats.failed, stats.workers_lost) == (600, 0, 0)
    assert stats.callables_sent > 10  # more than once for each worker


def test_a_task_that_waits_keeps_the_definition_that_it_needs(single, tmp_path):
    """However many others come in between."""
    with Executor(max_workers=1, initializer=keep_one_definition) as executor:
        executor.submit(adder(0), 1).result()
        futures = [executor.submit(adder(n), 1) for n in range(300)]
        assert [future.result() for future in futures] == [1 + n for n in range(300)]
        assert executor.stats().callables_sent <= 2 * 301


def test_a_replaced_worker_is_sent_everything_anew(single):
    fn = adder(1)
    assert single.submit(fn, 1).result() == 2
    assert isinstance(single.submit(calls.die).exception(), WorkerLost)
    assert single.submit(fn, 1).result() == 2
    assert single.stats().callables_sent == 2


def test_a_new_definition_is_what_runs_on_every_worker():
    script = """
        import slipstream
        factor = 2
        def called(x): return x * factor
        def f(x): return called(x)
        with slipstream.Executor(max_workers=2) as executor:
            def results():
                return {future.result() for future in [executor.submit(f, 10) for _ in range(200)]}
            print(results())
            factor = 3
            print(results())
            def called(x): return -x
            print(results())
            def f(x, called=called): return called(x) - 1
            print(results())
            f.__defaults__ = (abs,)
            print(results())
            print(executor.stats().callables_sent <= 10)
    """
    assert scripts.run(script).lines() == ["{20}", "{30}", "{-10}", "{-11}", "{9}", "True"]


def test_payload_tells_the_bytes_of_each_part(single):
    data = list(range(1_000))
    future = single.submit(lambda text: (text, len(data)), "x" * 100)
    assert future.result() == ("x" * 100, 1_000)
    payload = future.payload()
    assert 200 < payload.callable < 1_000
    assert 100 < payload.arguments < 150
    assert 2_000 < payload.state < 4_000
    assert 100 < payload.result < 150
    by_name = single.submit(calls.add, 1, 1)
    assert by_name.result() == 2
    assert (by_name.payload().callable, by_name.payload().state) == (0, 0)


def test_much_captured_state_is_warned_of_once_by_name(single):
    table = {n: f"x{n:100}" for n in range(20_000)}
    small = [1]
    look_up = lambda n: (table[n][0], small)  # noqa: E731
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(5):
            assert single.submit(look_up, n).result() == ("x", [1])
    (warning,) = caught
    assert warning.category is PayloadWarning
    assert warning.filename == __file__
    assert "captures 2." in str(warning.message)
    assert "MB that are sent with each task" in str(warning.message)
    assert "the variable 'table' of an enclosing function, of type 'dict'" in str(warning.message)


def test_a_large_constant_is_sent_once(single):
    table = b"x" * 3_000_000
    for n in range(5):
        assert single.submit(lambda n: table[n], n).result() == ord("x")
    assert single.stats().bytes_sent < 4_000_000


@pytest.fixture
def edited(tmp_path, monkeypatch):
    """A package that is being worked on: it changes here, and not in the workers."""
    package = tmp_path / "edited_package"
    package.mkdir()
    (package / "__init__.py").write_text("def f(x): return 'old', x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import edited_package

    yield edited_package
    unregister_by_value(edited_package)
    del sys.modules["edited_package"]


@pytest.mark.parametrize("how", ["by name", "module", "argument"])
def test_a_package_under_edit_goes_by_value_where_that_is_asked_for(edited, how):
    with Executor(max_workers=1, by_value=["edited_package"] if how == "argument" else ()) as executor:
        if how != "argument":
            assert executor.submit(edited.f, 1).result() == ("old", 1)
            register_by_value("edited_package" if how == "by name" else edited)
        exec("def f(x): return 'new', x", vars(edited))
        assert executor.submit(edited.f, 1).result() == ("new", 1)


@pytest.mark.parametrize("wrong", [3, None, object()])
def test_what_goes_by_value_is_a_module(wrong):
    with pytest.raises(TypeError, match="a module or the name of one"):
        register_by_value(wrong)
    with pytest.raises(TypeError, match="a module or the name of one"):
        Executor(by_value=[wrong])


def test_a_module_that_workers_cannot_import_is_named_with_advice(single):
    class Finder:
        """Workers do not have it, though it is not the program's own."""

        __module__ = "elsewhere"

        @staticmethod
        def find_spec(name, path=None, target=None):
            return types.SimpleNamespace(origin="here") if name == "only_here" else None

    module = types.ModuleType("only_here")
    module.__spec__ = types.SimpleNamespace(name="only_here", origin="here")
    exec("def f(): return 1", vars(module))
    sys.modules["only_here"] = module
    sys.meta_path.append(Finder)
    try:
        error = single.submit(module.f).exception()
    finally:
        sys.meta_path.remove(Finder)
        del sys.modules["only_here"]
    assert isinstance(error, PayloadError)
    assert "No module named 'only_here'" in str(error)
    assert "Executor(by_value=['only_here'])" in str(error)
