"""Corpora of hostile answers, a folder per grader: in `tests/attack/`."""

from __future__ import annotations

from pathlib import Path

from gradus.errors import Misuse


def attacks(grader: str) -> Path:
    """The folder of hostile answers for a grader. Raises Misuse when there is none."""
    folder = Path(__file__).parents[2] / "tests" / "attack" / grader
    if not folder.is_dir():
        raise Misuse(f"there is no corpus of attacks on the grader {grader!r}")
    return folder
