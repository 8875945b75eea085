"""The state diagram in the documentation is the table's."""

import subprocess
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def draw(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(DOCS / "diagrams.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- states:begin -->\nold\n<!-- states:end -->\nafter\n", encoding="utf-8")
    return page


@pytest.mark.skipif(not (DOCS / "design.md").exists(), reason="docs/design.md is not in this copy")
def test_the_diagram_in_the_design_is_up_to_date() -> None:
    checked = draw("--check")
    assert checked.returncode == 0, checked.stderr


def test_a_diagram_that_is_out_of_date_is_found_and_drawn_again(page: Path) -> None:
    checked = draw("--check", str(page))
    assert checked.returncode == 1
    assert "out of date" in checked.stderr
    assert "old" in page.read_text(encoding="utf-8")
    assert draw(str(page)).returncode == 0
    assert draw("--check", str(page)).returncode == 0
    drawn = page.read_text(encoding="utf-8")
    assert drawn.startswith("before\n<!-- states:begin -->\n```mermaid\nstateDiagram-v2\n")
    assert drawn.endswith("```\n<!-- states:end -->\nafter\n")
    assert "    ASSIGNED --> READY: GAVE, LACKED, WORKER_LOST, LOST_RUNNING, INPUT_GONE\n" in drawn
    assert "    SUCCEEDED --> [*]: RELEASE\n" in drawn


def test_a_page_without_a_place_for_the_diagram_is_an_error(page: Path) -> None:
    page.write_text("<!-- states:begin --> and no end", encoding="utf-8")
    checked = draw("--check", str(page))
    assert checked.returncode == 1
    assert "lacks the lines" in checked.stderr
