"""Reports of runs, evaluations and comparisons: the dashboard's page as one file, written by the wing that has it.

The page reads the folders itself. Computed here is only what it needs of statistics: the comparison of two evaluations.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.wings import loaded_from
from trainer.evaluate.comparison import MODES, Comparison, compare
from trainer.evaluate.completion_store import write_text
from trainer.evaluate.results import read_evaluation

COMPLETIONS = {"problems": {"__all__": {"before": {"completion"}, "after": {"completion"}}}}
"""What of a comparison the page takes from the evaluations' own files."""


def write_report(folder: Path, out: Path) -> Path:
    """Write the page of a run or an evaluation to `out`, at once or not at all; returns `out`.

    Raises Misuse when there is no such folder, and where nothing that writes pages is installed.
    """
    _write(out, [folder], comparisons)
    return out


def write_comparison_report(found: Comparison, before: Path, after: Path, out: Path) -> Path:
    """Write the page of a comparison; the other way of sampling is compared too, where both evaluations have it."""
    _write(out, [before, after], partial(comparisons, first=found))
    return out


def _write(out: Path, folders: Sequence[Path], compared: Any) -> None:
    writers = loaded_from("gradus.reports")
    if not writers:
        raise Misuse("nothing that writes reports is installed: install Gradus with its services")
    writers[0](out, folders, compared)


def write_comparisons(before: Path, after: Path, out: Path) -> None:
    """Write to `out` what the page shows of two measurements of one run, unless one of them is missing."""
    if before.is_file() and after.is_file():
        write_text(out, json.dumps({"comparisons": comparisons(before, after)}) + "\n")


def comparisons(before: Path, after: Path, first: Comparison | None = None) -> list[dict[str, Any]]:
    """Comparisons by each way of sampling that both evaluations have, `first` before others; empty if incomparable."""
    found = [first] if first is not None else []
    found += [one for one in _compared(before, after) if first is None or one.mode != first.mode]
    return [one.model_dump(mode="json", by_alias=True, exclude=COMPLETIONS) for one in found]


def _compared(before: Path, after: Path) -> Iterator[Comparison]:
    for mode in MODES:
        try:
            sides = [read_evaluation(path).evaluation for path in (before, after)]
            yield compare(sides[0], sides[1], mode=mode, anyway=True)
        except Misuse:  # no such way of sampling, no task judged both times, or a file of another version
            continue
