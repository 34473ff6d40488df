"""Corpora of hostile answers, a folder per grader: in `tests/attack/` of a checkout, `corpora/` when installed."""

from __future__ import annotations

from pathlib import Path

from gradus.errors import Misuse


def attacks(grader: str) -> Path:
    """The folder of hostile answers for a grader. Raises Misuse when there is none."""
    for folder in (Path(__file__).parent / "corpora", Path(__file__).parents[2] / "tests" / "attack"):
        if (folder / grader).is_dir():
            return folder / grader
    raise Misuse(f"there is no corpus of attacks on the grader {grader!r}")
