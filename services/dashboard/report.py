"""Reports: the page of a run, of an evaluation or of a comparison as one file, from the folders'
files alone."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gradus.errors import Misuse
from gradus.whole_file import write_text
from services.dashboard.document import encode_json, render_standalone_page
from services.dashboard.evaluations import MODES, Evaluation, read_evaluation
from services.dashboard.files import ConfinedDirectory, Json
from services.dashboard.run import COMPARISONS, MARKERS, FollowedRun, has_run
from services.dashboard.samples import select_samples
from services.dashboard.views import build_detail, build_summary

Compare = Callable[[Path, Path], Sequence[Json]]
"""Function of two files of figures that returns comparisons (`gradus/comparison@1`), one for each
way of sampling that both have."""


def write_report(out: Path, folders: Sequence[Path], compare: Compare | None = None) -> Path:
    """Write the page of one folder, or of a comparison of two evaluations, at once or not at all.
    Returns `out`.

    The folders are those of runs and of `gradus eval`; of a comparison they may be files of
    figures. A run's measurements before and after are compared too; for the dashboard, the
    comparisons are stored beside a report in the run's folder. The page names files that are
    missing or torn. Raises Misuse when there is no such folder.
    """
    data = (
        _build_comparison_data(folders, compare)
        if len(folders) == 2
        else _build_run_data(out, folders[0], compare)
    )
    timestamp = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    write_text(out, render_standalone_page(data["title"], {"made": timestamp, **data}))
    return out


def _build_run_data(out: Path, folder: Path, compare: Compare | None) -> Json:
    if not folder.is_dir():
        raise Misuse(f"{folder}: there is no such folder of a run or an evaluation")
    # A folder that only holds folders of evaluations is no run of the dashboard, but has a report.
    holds_evaluations = any((folder / "eval").glob("*/*.json"))
    if not holds_evaluations and not has_run(folder, os.listdir(folder)):
        raise Misuse(
            f"{folder}: holds no run and no evaluation (no {MARKERS[0]}); name the folder that"
            " `gradus train` or `gradus eval` wrote"
        )
    run = FollowedRun(ConfinedDirectory(folder), folder, folder.resolve().name)
    while run.read_changes()[1]:
        pass
    sides = run.evaluations.select_before_and_after()
    if compare is not None and len(sides) == 2:
        run.comparisons = list(compare(sides[0].file, sides[1].file))
        if out.resolve().parent == folder.resolve():
            write_text(folder / COMPARISONS, encode_json({"comparisons": run.comparisons}) + "\n")
    now = time.time()
    answers = {
        "/api/runs": {"now": now, "ids": [run.id], "runs": [build_summary(run, now)]},
        "/api/run": build_detail(run, now),
        "/api/samples": select_samples(run.confined, sides),
    }
    kind = "evaluation report" if run.is_evaluation else "training report"
    return {"start": ["run", run.id], "title": f"{run.id}: {kind}", "answers": answers}


def _build_comparison_data(paths: Sequence[Path], compare: Compare | None) -> Json:
    files = [(path / "results.json" if path.is_dir() else path).resolve() for path in paths]
    confined = ConfinedDirectory(Path(os.path.commonpath(files)))
    sides = []
    for file in files:
        evaluation = read_evaluation(confined, file)
        if evaluation is None:
            raise Misuse(f"{file}: is no evaluation")
        sides.append(evaluation)
    before, after = sides
    if before.name == after.name:
        before = replace(before, name=f"{before.name} (before)")
        after = replace(after, name=f"{after.name} (after)")
    title = f"{before.name} and {after.name}"
    answers = {"/api/changes": build_changes(confined, [before, after], compare)}
    return {"start": ["changes", title], "title": f"{title}: comparison", "answers": answers}


def build_changes(
    confined: ConfinedDirectory, sides: Sequence[Evaluation], compare: Compare | None
) -> Json:
    """Return two evaluations, their comparisons, and completions of both."""
    before, after = sides
    comparisons = compare(before.file, after.file) if compare is not None else []
    modes = [str(entry["mode"]) for entry in comparisons] or MODES[::-1]
    return {
        "measured": [{**entry.content, "name": entry.name} for entry in sides],
        "comparisons": comparisons,
        **select_samples(confined, sides, modes),
    }
