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
from services.dashboard.document import escaped_json, standalone_page
from services.dashboard.evaluations import MODES, Evaluation, read_evaluation
from services.dashboard.files import ConfinedDirectory, Json
from services.dashboard.run import COMPARISONS, FollowedRun
from services.dashboard.samples import samples_of
from services.dashboard.views import detail_of, summary_of

Compare = Callable[[Path, Path], Sequence[Json]]
"""From two files of figures to comparisons (`gradus/comparison@1`), one for each way of sampling
that both have."""


def write_report(out: Path, folders: Sequence[Path], compare: Compare | None = None) -> Path:
    """Write the page of one folder, or of a comparison of two evaluations, at once or not at all;
    returns `out`.

    The folders are those of runs and of `gradus eval`; of a comparison they may be files of
    figures. A run's measurements before and after are compared too, and what was found stays beside
    a report in the run's folder, for the dashboard. Files that are missing or torn are named on the
    page. Raises Misuse when there is no such folder.
    """
    is_pair = len(folders) == 2
    data = _comparison(folders, compare) if is_pair else _run(out, folders[0], compare)
    made = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC").lstrip("0")
    write_text(out, standalone_page(data["title"], {"made": made, **data}))
    return out


def _run(out: Path, folder: Path, compare: Compare | None) -> Json:
    if not folder.is_dir():
        raise Misuse(f"{folder}: there is no such folder of a run or an evaluation")
    run = FollowedRun(ConfinedDirectory(folder), folder, folder.resolve().name)
    while run.look()[1]:
        pass
    sides = [one.file for one in run.evaluations.before_and_after()]
    if compare is not None and len(sides) == 2:
        run.comparisons = list(compare(sides[0], sides[1]))
        if out.resolve().parent == folder.resolve():
            write_text(folder / COMPARISONS, escaped_json({"comparisons": run.comparisons}) + "\n")
    now = time.time()
    answers = {
        "/api/runs": {"now": now, "ids": [run.id], "runs": [summary_of(run, now)]},
        "/api/run": detail_of(run, now),
        "/api/samples": samples_of(run.confined, run.evaluations.before_and_after()),
    }
    kind = "evaluation report" if run.is_evaluation else "training report"
    return {"start": ["run", run.id], "title": f"{run.id}: {kind}", "answers": answers}


def _comparison(paths: Sequence[Path], compare: Compare | None) -> Json:
    files = [(path / "results.json" if path.is_dir() else path).resolve() for path in paths]
    confined = ConfinedDirectory(Path(os.path.commonpath([file.parent for file in files])))
    sides = []
    for file in files:
        found = read_evaluation(confined, file)
        if found is None:
            raise Misuse(f"{file}: is no evaluation")
        sides.append(found)
    before, after = sides
    if before.name == after.name:
        before = replace(before, name=f"{before.name} (before)")
        after = replace(after, name=f"{after.name} (after)")
    title = f"{before.name} and {after.name}"
    answers = {"/api/changes": changes_of(confined, [before, after], compare)}
    return {"start": ["changes", title], "title": f"{title}: comparison", "answers": answers}


def changes_of(
    confined: ConfinedDirectory, sides: Sequence[Evaluation], compare: Compare | None
) -> Json:
    """Return two evaluations that were read from files, what changed between them, and completions
    of both."""
    before, after = sides
    comparisons = list(compare(before.file, after.file)) if compare is not None else []
    modes = [str(one["mode"]) for one in comparisons] or MODES[::-1]
    measured = [{**one.given, "name": one.name} for one in sides]
    return {"measured": measured, "comparisons": comparisons, **samples_of(confined, sides, modes)}
