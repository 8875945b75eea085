"""What counts as importable by another process, proved by another process where that is cheap."""

import collections.abc
import importlib
import importlib.machinery
import json
import os.path
import subprocess
import sys
import types
import xml.parsers.expat

import numpy
import pytest

from slipstream.serde import imports
from slipstream.serde.imports import is_by_reference, is_importable, reference_of

LOADED = (
    "import sys, json, collections.abc, os.path, xml.parsers.expat, concurrent.futures\n"
    "import typing, numpy.linalg, pydantic, hypothesis\n"
    "from slipstream.serde.imports import is_importable\n"
    "print(json.dumps(sorted(name for name in list(sys.modules) if not is_importable(name))))\n"
)


def test_everything_that_a_plain_program_imports_is_importable():
    command = [sys.executable, "-W", "ignore", "-c", LOADED]
    refused = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert set(refused) <= {"__main__", "__mp_main__"}


@pytest.mark.parametrize(
    "name", ["", "__main__", "__mp_main__", "no_such_module", "json.no_such_module", "json.decoder.x"]
)
def test_what_no_process_can_import(name):
    assert not is_importable(name)


def test_the_file_found_must_be_the_file_loaded(tmp_path, monkeypatch):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "serde_test_twin.py").write_text("def f():\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path / "a"))
    twin = importlib.import_module("serde_test_twin")
    monkeypatch.delitem(sys.modules, "serde_test_twin")
    monkeypatch.setitem(sys.modules, "serde_test_twin", twin)
    assert is_importable("serde_test_twin")
    assert reference_of(twin.f) == ("serde_test_twin", "f")
    monkeypatch.syspath_prepend(str(tmp_path / "b"))  # another process would find this one first
    assert not is_importable("serde_test_twin")
    assert reference_of(twin.f) is None
    sys.path.remove(str(tmp_path / "b"))
    assert is_importable("serde_test_twin")
    sys.path.remove(str(tmp_path / "a"))
    assert not is_importable("serde_test_twin")


def test_a_link_to_the_same_file_is_the_same_file(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "serde_test_linked.py").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.syspath_prepend(str(tmp_path / "real"))
    linked = importlib.import_module("serde_test_linked")
    monkeypatch.delitem(sys.modules, "serde_test_linked")
    monkeypatch.setitem(sys.modules, "serde_test_linked", linked)
    monkeypatch.syspath_prepend(str(tmp_path / "link"))
    assert is_importable("serde_test_linked")


def test_a_module_of_a_parent_on_no_path_is_not_importable(tmp_path, monkeypatch):
    package = tmp_path / "serde_test_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("serde_test_package", "serde_test_package.part")
    for name in names:
        module = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, name, module)
    assert [is_importable(name) for name in names] == [True, True]
    sys.path.remove(str(tmp_path))
    assert [is_importable(name) for name in names] == [False, False]


def test_a_module_made_by_hand_is_not_importable_until_it_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "serde_test_made", types.ModuleType("serde_test_made"))
    (tmp_path / "serde_test_made.py").write_text("")
    assert not is_importable("serde_test_made")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not is_importable("serde_test_made"), "what would be found is another module"
    del sys.modules["serde_test_made"]
    importlib.import_module("serde_test_made")
    assert is_importable("serde_test_made")


def test_a_finder_of_the_program_itself_is_not_asked_and_a_broken_one_finds_nothing(monkeypatch):
    class Finder:
        def __init__(self, module):
            self.__module__ = module
            self.asked = 0

        def find_spec(self, name, path):
            self.asked += 1
            if self.__module__ == "__main__":
                return importlib.machinery.ModuleSpec(name, None)
            raise RuntimeError("broken")

    mine, broken = Finder("__main__"), Finder("elsewhere")
    monkeypatch.setattr(sys, "meta_path", [mine, broken, *sys.meta_path])
    monkeypatch.setattr(imports, "_decisions", imports.Decisions([]))
    made = types.ModuleType("serde_test_found")
    monkeypatch.setitem(sys.modules, "serde_test_found", made)
    assert not is_importable("serde_test_found")
    assert is_importable("json")
    assert (mine.asked, broken.asked) == (0, 2)


def test_names_must_lead_to_the_very_object(monkeypatch):
    assert is_by_reference(json.JSONDecoder)
    assert is_by_reference(json.JSONDecoder.decode)
    assert is_by_reference(collections.abc.Mapping)
    assert is_by_reference(xml.parsers.expat.ParserCreate)
    assert is_by_reference(numpy.ndarray)
    assert reference_of(os.path.join) == ("posixpath", "join")
    copy = types.FunctionType(os.path.join.__code__, {}, "join")
    copy.__module__, copy.__qualname__ = "posixpath", "join"
    assert not is_by_reference(copy)
    assert reference_of(copy) is None
    original = os.path.join
    monkeypatch.setattr(os.path, "join", copy)
    assert reference_of(copy) == ("posixpath", "join")
    assert reference_of(original) is None


def test_strange_modules_and_names_are_no_reference():
    def f():
        pass

    for module in (None, 3, [], "no_such_module"):
        f.__module__ = module
        assert not is_by_reference(f)
        assert reference_of(f) is None
    assert not is_by_reference(3)
    f.__module__ = "json"
    assert not is_by_reference(f, "")
    assert not is_by_reference(f, "JSONDecoder..decode")


def test_a_module_that_raises_for_a_name_it_lacks(monkeypatch, tmp_path):
    (tmp_path / "serde_test_raising.py").write_text("def __getattr__(name):\n    raise RuntimeError(name)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "serde_test_raising", None)
    del sys.modules["serde_test_raising"]
    importlib.import_module("serde_test_raising")

    class Lost:
        __module__ = "serde_test_raising"
        __qualname__ = "Lost"

    assert is_importable("serde_test_raising")
    assert not is_by_reference(Lost)
