from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from other_process import OtherProcess


@pytest.fixture(scope="module")
def other() -> Iterator[OtherProcess]:
    process = OtherProcess()
    yield process
    process.close()


@pytest.fixture
def main() -> Callable[[str], dict[str, Any]]:
    """Runs source as a script's `__main__` would, and returns its globals."""
    namespace: dict[str, Any] = {"__name__": "__main__"}

    def run(source: str) -> dict[str, Any]:
        exec(compile(source, "<script>", "exec", dont_inherit=True), namespace)
        return namespace

    return run


@pytest.fixture
def file_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ModuleType]:
    """Loads a module from a file that is on no path, as pytest's importlib mode does."""
    import importlib.util
    import sys

    def load(name: str, source: str) -> ModuleType:
        path = tmp_path / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return load
