"""Durations of the suites: noted by the suites, written into one table, and stated nowhere else."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tools.timed import ROW, format_minutes, run_timed, write_durations

ROOT = Path(__file__).parents[2]
SUITES = ("check", "test", "test-fast", "test-slow", "test-vllm", "test-compose")
DURATION = re.compile(r"\d+ (seconds?|minutes?|min|s)\b|an? (hour|minute)\b")


def test_a_suite_that_passes_is_noted_and_one_that_fails_is_not(tmp_path: Path) -> None:
    notes = tmp_path / "build" / "durations.json"
    assert run_timed("fails", [sys.executable, "-c", "raise SystemExit(3)"], notes) == 3
    assert not notes.exists()
    assert run_timed("one", [sys.executable, "-c", "pass"], notes) == 0
    assert run_timed("two", [sys.executable, "-c", "pass"], notes) == 0
    noted = json.loads(notes.read_text())
    assert list(noted) == ["one", "two"]
    assert all(found.keys() == {"s", "cpu_s"} for found in noted.values())


def test_notes_go_into_the_table_and_other_rows_stay() -> None:
    page = "| `make a` | x | 1 | – |\n| `make b` | y | 2 | 3 |\ntext\n"
    written = write_durations(page, {"a": {"s": 17.0, "cpu_s": 1380.0}})
    assert written == "| `make a` | x | 0.3 | 23 |\n| `make b` | y | 2 | 3 |\ntext\n"


@pytest.mark.parametrize(("seconds", "text"), [(17.0, "0.3"), (119.0, "2.0"), (429.0, "7")])
def test_minutes_have_no_more_digits_than_they_are_worth(seconds: float, text: str) -> None:
    assert format_minutes(seconds) == text


def test_every_suite_has_a_row() -> None:
    named = {row["name"] for row in ROW.finditer((ROOT / "docs/testing.md").read_text())}
    assert set(SUITES) <= named


@pytest.mark.parametrize("name", ["Makefile", "README.md", "CONTRIBUTING.md", "docs/faq.md"])
def test_no_other_page_says_how_long_a_suite_takes(name: str) -> None:
    suites = re.compile(rf"make ({'|'.join(SUITES)})\b|^({'|'.join(SUITES)}):", re.MULTILINE)
    lines = (ROOT / name).read_text().splitlines()
    assert [line for line in lines if suites.search(line) and DURATION.search(line)] == []
