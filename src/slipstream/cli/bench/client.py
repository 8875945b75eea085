"""The process in which one system is measured: reads a request a line, opens the system, times it, answers a line.

Each system has a process of its own, so that no measurement meets another system's threads, forks them, or pays for
what others imported. Started by `session`; run as a module, never imported by anything else.
"""

import json
import os
import sys
from typing import Any

from slipstream.cli.bench.patterns import PATTERNS, Load, first_result, warm_up
from slipstream.cli.bench.systems import CANDIDATES, Opener


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
    """One repetition: its seconds, and what the system counted meanwhile."""
    loop = PATTERNS[request["pattern"]].loop
    if loop is None:
        return {"wall_s": first_result(opener, workers), "account": {}}
    system = opener(workers)
    try:
        load = Load(request["tasks"], request["chunksize"])
        warm_up(loop, system, load)
        before = system.account()
        wall_s = loop(system, load)
        after = system.account()
    finally:
        system.close()
    return {"wall_s": wall_s, "account": {name: after[name] - before[name] for name in before}}


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
