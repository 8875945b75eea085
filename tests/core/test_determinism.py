"""The same events give the same effects, byte for byte, however the interpreter hashes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EVENT_LOG = Path(__file__).with_name("event_log.py")


def digest_of_effects(seed: int, hash_seed: int) -> tuple[str, int]:
    """Digest and size in bytes of all effects of an event log."""
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    command = [sys.executable, str(EVENT_LOG), str(seed)]
    digest, size = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.split()
    return digest, int(size)


@pytest.mark.parametrize("seed", [1, 2])
def test_effects_do_not_depend_on_hashing(seed: int) -> None:
    digest, size = digest_of_effects(seed, hash_seed=0)
    assert size > 100_000
    assert digest_of_effects(seed, hash_seed=4242) == (digest, size)


def test_effects_depend_on_the_events() -> None:
    assert digest_of_effects(1, hash_seed=0) != digest_of_effects(2, hash_seed=0)
