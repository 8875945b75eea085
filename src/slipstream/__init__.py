"""Slipstream: a task engine for Python. Public names only, resolved on first use.

A worker imports this package and needs none of the names, so nothing is imported here. Types are in the modules named
in `_HOME`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from slipstream.errors import (
        DependencyError,
        InfeasibleTask,
        InternalError,
        PayloadError,
        PayloadWarning,
        RemoteError,
        SlipstreamError,
        WorkerLost,
    )
    from slipstream.executor import Executor, Stats
    from slipstream.future import Future, Payload
    from slipstream.gathering import gather
    from slipstream.nested import current_executor
    from slipstream.protocol.version import __version__
    from slipstream.serde.explain.call import doctor
    from slipstream.serde.imports import register_by_value

__all__ = [
    "DependencyError",
    "Executor",
    "Future",
    "InfeasibleTask",
    "InternalError",
    "Payload",
    "PayloadError",
    "PayloadWarning",
    "RemoteError",
    "SlipstreamError",
    "Stats",
    "WorkerLost",
    "__version__",
    "current_executor",
    "doctor",
    "gather",
    "register_by_value",
]

_HOME = {
    "DependencyError": "errors",
    "Executor": "executor",
    "Future": "future",
    "InfeasibleTask": "errors",
    "InternalError": "errors",
    "Payload": "future",
    "PayloadError": "errors",
    "PayloadWarning": "errors",
    "RemoteError": "errors",
    "SlipstreamError": "errors",
    "Stats": "executor",
    "WorkerLost": "errors",
    "__version__": "protocol.version",
    "current_executor": "nested",
    "doctor": "serde.explain.call",
    "gather": "gathering",
    "register_by_value": "serde.imports",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
