"""Finds the interpreter's own tests of `concurrent.futures` and loads them. Nothing of them is copied into this
repository.

Python 3.12 and earlier have one module, `test/test_concurrent_futures.py`; 3.13 has a package. Many builds leave the
module out while they ship `test.support`, on which it rests: then Debian's copy for the same version is taken, which
the package libpython3.11-testsuite (or its like) installs.
"""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

NAME = "test.test_concurrent_futures"
#: Modules of the package from 3.13 on; before, one module has it all.
PARTS = ("util", "executor", "test_as_completed", "test_future", "test_shutdown", "test_wait")
DEBIAN = Path("/usr/lib/python{}.{}/test/test_concurrent_futures.py".format(*sys.version_info))


class Suite:
    """The classes of the standard tests, wherever they are defined.

    Args:
        modules: every module that defines some of them.
    """

    def __init__(self, modules: list[ModuleType]) -> None:
        self.modules = modules

    def __getattr__(self, name: str) -> type:
        for module in self.modules:
            if name in vars(module):
                return vars(module)[name]
        raise AttributeError(f"no {name} in {[module.__name__ for module in self.modules]}")


def find() -> Suite | str:
    """Load the standard tests; or say why they cannot be had."""
    if importlib.util.find_spec("test.support") is None:
        return "this interpreter comes without test.support"
    spec = importlib.util.find_spec(NAME)
    if spec is not None and spec.submodule_search_locations is not None:
        return Suite([importlib.import_module(f"{NAME}.{part}") for part in PARTS])
    if spec is None and DEBIAN.exists():
        spec = importlib.util.spec_from_file_location(NAME, DEBIAN)
    if spec is None or spec.loader is None:
        return f"this interpreter comes without {NAME}, and there is no {DEBIAN}"
    # Not entered in sys.modules, and test.__path__ stays as it is: workers could not import it by this name.
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return Suite([module])


def names_of_tests(cls: type) -> Iterator[str]:
    """Names of the tests of a class, inherited ones among them."""
    return (name for name in dir(cls) if name.startswith("test_") and callable(getattr(cls, name)))
