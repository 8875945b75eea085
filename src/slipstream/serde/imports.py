"""What another process can import: the decision between by reference and by value.

A module counts as importable if the import system finds a spec for it on the present `sys.path`, and that spec names
the file that is loaded here. Being in `sys.modules` is not enough: `__main__`, modules made by hand, and test modules
loaded from a file that is on no path are there too, and no worker can import them.

A decision costs a search of the file system, so it is kept for each module until `sys.path` changes. What was decided
is not reconsidered when a file is deleted or the working directory changes afterwards.

Never here: pickling. Nothing here imports a module that is not yet loaded.
"""

from __future__ import annotations

import sys
from os.path import realpath

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import BuiltinFunctionType, FunctionType, ModuleType


class Decisions:
    """What was decided about modules under one `sys.path`."""

    __slots__ = ("by_module", "path")

    def __init__(self, path: list[str]) -> None:
        self.path = path
        #: By name: the module object it was decided for, and whether another process can import it.
        self.by_module: dict[str, tuple[ModuleType | None, bool]] = {}


# Replaced as a whole, so that a thread that decides under the old path cannot write into the new decisions.
_decisions = Decisions([])


def is_importable(name: str) -> bool:
    """Whether another process with this `sys.path` would import the same module under this name.

    Args:
        name: Dotted name of a module.

    Example:
        >>> is_importable("json.decoder"), is_importable("__main__"), is_importable("no_such_module")
        (True, False, False)
    """
    by_module = decisions().by_module
    module = sys.modules.get(name)
    decided = by_module.get(name)
    if decided is None or decided[0] is not module:
        decided = by_module[name] = (module, module is not None and _would_import(name, module))
    return decided[1]


def decisions() -> Decisions:
    """What has been decided under the present `sys.path`: another object when that has changed."""
    global _decisions
    present = _decisions
    if present.path != sys.path:  # 0.1 µs; nothing tells when a program changes its path
        _decisions = present = Decisions(list(sys.path))
    return present


#: Names of modules whose functions and classes go by value although a worker could import them.
_by_value: set[str] = set()


def register_by_value(module: ModuleType | str) -> None:
    """Send the functions and classes of a module by value from now on, and those of its submodules.

    For a package under edit, whose changes workers would not see, and for one that they cannot import. It holds for
    all executors of this process.

    Args:
        module: The module, or its dotted name. It need not be imported yet.

    Raises:
        TypeError: It is neither.

    Example:
        >>> import json
        >>> register_by_value(json)
        >>> is_importable("json.decoder")
        False
        >>> unregister_by_value("json")
    """
    _by_value.add(_name_of(module))
    _decide_anew()


def unregister_by_value(module: ModuleType | str) -> None:
    """Undo `register_by_value`; nothing if it was not called.

    Args:
        module: As there.
    """
    _by_value.discard(_name_of(module))
    _decide_anew()


def _name_of(module: object) -> str:
    if isinstance(module, str):
        return module
    name = getattr(module, "__name__", None)
    if type(module) is type(sys) and isinstance(name, str):
        return name
    raise TypeError(f"a module or the name of one can be sent by value, not {module!r}")


def _decide_anew() -> None:
    global _decisions
    _decisions = Decisions(list(sys.path))


def is_by_reference(value: object, qualified_name: str | None = None) -> bool:
    """Whether another process would find this very class or function under its module and qualified name.

    Args:
        value: A class, a function or anything else that has a `__module__`.
        qualified_name: Where in the module to look; `value.__qualname__` by default.

    Example:
        >>> is_by_reference(str), is_by_reference(lambda: 0)
        (True, False)
    """
    module_name: object = getattr(value, "__module__", None)
    name: object = getattr(value, "__qualname__", None) if qualified_name is None else qualified_name
    if not isinstance(module_name, str) or not isinstance(name, str) or not is_importable(module_name):
        return False
    found: object = sys.modules.get(module_name)
    try:
        for part in name.split("."):
            found = getattr(found, part)  # "<locals>" is an attribute of nothing
    except Exception:  # noqa: BLE001 - a module or a metaclass may raise what it likes for a name that it lacks
        return False
    return found is value


def reference_of(function: FunctionType | BuiltinFunctionType) -> tuple[str, str] | None:
    """Module and name of a function at the top level of an importable module; None for any other.

    The short way of `is_by_reference` for the most common callables: about 0.4 µs.

    Example:
        >>> import shutil
        >>> reference_of(shutil.which), reference_of([].append)
        (('shutil', 'which'), None)
    """
    module_name, name = function.__module__, function.__qualname__
    try:
        module = sys.modules[module_name]
        decided = decisions().by_module.get(module_name)
        known = decided[1] if decided is not None and decided[0] is module else is_importable(module_name)
        if known and module.__dict__.get(name) is function:
            return module_name, name
    except (KeyError, TypeError):  # unloaded by another thread; a __module__ that is no string
        pass
    return None


def _would_import(name: str, module: ModuleType) -> bool:
    if name in ("__main__", "__mp_main__"):  # each process has one of its own
        return False
    if name in _by_value:
        return False
    parent, _, child = name.rpartition(".")
    if parent and not is_importable(parent):
        return False
    own = getattr(module, "__spec__", None)
    alias = getattr(own, "name", name)
    if alias != name and isinstance(alias, str):
        # Another module under a second name, as collections.abc: importing the parent brings the name with it.
        return bool(parent) and is_importable(alias)
    if parent and own is None and getattr(module, "__file__", None) is None:
        # Made by its parent's import, as the submodules of many C extensions are: there is no file to find.
        return getattr(sys.modules.get(parent), child, None) is module
    spec = _find_spec(name, getattr(sys.modules.get(parent), "__path__", []) if parent else None)
    return spec is not None and _same_origin(spec, own, module)


def _find_spec(name: str, search: list[str] | None) -> ModuleSpec | None:
    """Ask the finders, as `import` would; `importlib.util.find_spec` answers from `sys.modules` instead."""
    for finder in sys.meta_path:
        if getattr(finder, "__module__", None) == "__main__":  # this program's own: no worker has it
            continue
        try:
            spec = finder.find_spec(name, search)
        except Exception:  # noqa: BLE001 - a foreign finder; one that fails finds nothing
            continue
        if spec is not None:
            return spec
    return None


def _same_origin(spec: ModuleSpec, own: ModuleSpec | None, module: ModuleType) -> bool:
    """Whether the spec found names the file that the loaded module came from."""
    loaded = getattr(module, "__file__", None) if own is None else own.origin
    if spec.origin == loaded:
        return True
    return spec.origin is not None and isinstance(loaded, str) and realpath(spec.origin) == realpath(loaded)
