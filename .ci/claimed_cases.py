"""Run the shared cases that tests/claimed_cases.txt lists, and fail unless every one of them passes.

Usage: python .ci/claimed_cases.py CASES_FOLDER
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

CLAIMS = Path(__file__).resolve().parent.parent / "tests" / "claimed_cases.txt"
FACTORY = "slipstream:Executor"


def claimed_numbers() -> list[str]:
    """The two-digit numbers in the list of claims, without comments."""
    lines = (line.split("#")[0].strip() for line in CLAIMS.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line]


def verdicts_of(cases: Path, numbers: list[str]) -> dict[str, str]:
    """Run the cases and return the verdict of each number."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        command = [sys.executable, str(cases / "run_cases.py"), FACTORY]
        command += ["--only", ",".join(numbers), "--json", report.name, "--verbose"]
        # Its exit status says less than the report: it takes a skip for a success.
        subprocess.run(command, check=False)
        rows = json.loads(Path(report.name).read_text(encoding="utf-8") or "[]")
    return {row["case"][:2]: row["verdict"] for row in rows}


def main() -> int:
    """Print what did not pass and a closing line that counts; return the exit status."""
    numbers = claimed_numbers()
    verdicts = verdicts_of(Path(sys.argv[1]), numbers)
    failed = [number for number in numbers if verdicts.get(number) != "PASS"]
    for number in failed:
        print(f"case {number} is claimed and did not pass: {verdicts.get(number, 'no such case')}")
    print(f"cases: {len(numbers) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed or not numbers else 0


if __name__ == "__main__":
    sys.exit(main())
