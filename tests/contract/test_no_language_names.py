"""What carries, shows and counts work names no language: a new grader needs no edit there."""

from __future__ import annotations

import re
from pathlib import Path

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


def test_no_file_names_a_language() -> None:
    found = []
    for path in files():
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            if NAMES.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found
