"""Dask and Ray behind the calls that the bench knows: they start processes of their own around the workers'.

Adapters only, as thin as those in `systems`; both modules are handed in, and nothing of them is imported here. The
files of both are in the client's directory for temporary files, which `session` makes and removes.
"""

import logging
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Sequence
from operator import methodcaller
from typing import Any

from slipstream.cli.bench.tasks import total_of


class _Cluster:
    """What both have in common."""

    takes_futures = True

    def map(self, function: Callable[[int], int], values: Sequence[int], chunksize: int | None) -> Iterable[int]:
        """Not of interest."""
        raise NotImplementedError

    def account(self) -> dict[str, float]:
        """It has no counters of this kind."""
        return {}


class DaskSystem(_Cluster):
    """`distributed.Client` on a cluster of worker processes with one thread each."""

    def __init__(self, distributed: Any, workers: int) -> None:
        self._cluster = distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.ERROR,
        )
        self._client = distributed.Client(self._cluster)
        self._submit = self._client.submit
        self.result: Callable[[Any], Any] = methodcaller("result")

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Client.submit; `pure` would hash the arguments and run a call that it knows only once."""
        return self._submit(function, *arguments, pure=False)

    def fan_in(self, function: Callable[[list[Any]], Any], waiting: list[Any]) -> Any:
        """Futures in a list are found."""
        return self.submit(function, waiting)

    def large(self, value: Any) -> Any:
        """By `scatter`, as its documentation asks for what is large; hashing would read it once more."""
        return self._client.scatter(value, hash=False)

    def close(self) -> None:
        """The client first, then scheduler and workers."""
        self._client.close()
        self._cluster.close()


def prepare_for_ray() -> None:
    """Set what Ray reads from the environment when it is imported."""
    # A token of this client alone: left to itself Ray writes one into the user's home.
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"}
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def _total_of_all(*values: int) -> int:
    return total_of(list(values))


class RaySystem(_Cluster):
    """A Ray of its own on this machine, with a CPU for each worker."""

    def __init__(self, ray: Any, workers: int) -> None:
        self._ray = ray
        ray.init(
            address="local",
            num_cpus=workers,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=os.path.join(tempfile.gettempdir(), "ray"),
        )
        self._remotes: dict[Callable[..., Any], Callable[..., Any]] = {}
        self.result: Callable[[Any], Any] = ray.get

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """`remote` of the function, which a user would have decorated once."""
        remote = self._remotes.get(function)
        if remote is None:
            remote = self._remotes[function] = self._ray.remote(function).remote
        return remote(*arguments)

    def fan_in(self, function: Callable[[list[Any]], Any], waiting: list[Any]) -> Any:
        """References inside a list stay references, so these go as arguments one by one."""
        assert function is total_of
        return self.submit(_total_of_all, *waiting)

    def large(self, value: Any) -> Any:
        """As it is: Ray puts large arguments into its store by itself."""
        return value

    def close(self) -> None:
        """Ends all that `init` started."""
        self._ray.shutdown()
