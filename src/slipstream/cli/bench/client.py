"""The process in which one system is measured: reads a request a line, opens the system, times it, answers a line.

Each system has a process of its own, so that no measurement meets another system's threads, forks them, or pays for
what others imported. Started by `session`; run as a module, never imported by anything else.
"""

import json
import os
import sys
from typing import Any

from slipstream.cli.bench.load import Load
from slipstream.cli.bench.memory import Peak
from slipstream.cli.bench.patterns import PATTERNS, Pattern, first_result, warm_up
from slipstream.cli.bench.systems import CANDIDATES, Opener, System


def serve(name: str, workers: int) -> None:
    """Answer requests until the input ends."""
    # What a system or its workers print must not come between the answers.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            opener = CANDIDATES[name].opener()
            answer = measure(opener, workers, json.loads(line))
        except Exception as error:  # noqa: BLE001 - the top of this process: whatever a system raises is its answer
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def measure(opener: Opener, workers: int, request: dict[str, Any]) -> dict[str, Any]:
    """One repetition: its seconds, and what the system counted meanwhile; or its memory, where that is asked for."""
    pattern = PATTERNS[request["pattern"]]
    if pattern.loop is None:
        return {"wall_s": first_result(opener, workers), "account": {}}
    system = opener(workers)
    try:
        load = Load(request["tasks"], request["chunksize"], request.get("elements"))
        warm_up(pattern, system, load)
        return (memory if request.get("memory") else seconds)(pattern, system, load)
    finally:
        system.close()


def seconds(pattern: Pattern, system: System, load: Load) -> dict[str, Any]:
    """How long a warm system takes."""
    assert pattern.loop is not None
    before = system.account()
    wall_s = pattern.loop(system, load)
    after = system.account()
    return {"wall_s": wall_s, "account": {name: after[name] - before[name] for name in before}}


def memory(pattern: Pattern, system: System, load: Load) -> dict[str, Any]:
    """How much memory a warm system takes; its time would be that of looking at the memory too."""
    assert pattern.loop is not None
    with Peak() as peak:
        pattern.loop(system, load)
    return {"peak_bytes": peak.growth}


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
