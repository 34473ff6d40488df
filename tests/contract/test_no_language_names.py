"""What carries, shows and counts work names no language: a new grader needs no edit there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLACES = (
    "services/api",
    "services/broker",
    "services/commands",
    "services/dashboard",
    "services/doctor.py",
    "services/worker.py",
    "services/worker_metrics.py",
    "trainer/evaluate",
    "gradus/cli.py",
    "gradus/client.py",
    "gradus/console.py",
    "gradus/descriptions.py",
    "gradus/discovery.py",
    "gradus/doctor.py",
    "gradus/interactive.py",
    "gradus/request_failures.py",
    "gradus/rest.py",
    "gradus/wings.py",
)
NAMES = re.compile(r"(?<![a-z])(ocaml|rust)(?![a-z])", re.IGNORECASE)


def files() -> list[Path]:
    found = [ROOT / place for place in PLACES]
    inside = [
        path
        for place in found
        for path in (sorted(place.rglob("*")) if place.is_dir() else [place])
    ]
    return [path for path in inside if path.is_file() and "__pycache__" not in path.parts]


def test_there_are_files_to_look_at() -> None:
    assert len(files()) > 40
    assert all((ROOT / place).exists() for place in PLACES)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_names_no_language(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    found = [
        f"{name}:{number}: {line.strip()}"
        for number, line in enumerate(
            path.read_text(encoding="utf-8", errors="replace").splitlines(), 1
        )
        if NAMES.search(line)
    ]
    assert not found
