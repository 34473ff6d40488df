"""`gradus gate`: holds a model's figures against gates and leaves a record of what was decided, on
what, and why.

The record names everything by its hash: the model's files, the files with the figures, the tasks,
graders and rubrics behind them, and what a pipeline says of how the model came about. Measures
nothing and moves no model.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from gradus.errors import Misuse
from trainer.config.files import read_section
from trainer.config.run import Section
from trainer.pipeline.digests import digest_of, files_in
from trainer.pipeline.gates import Gates, Judged, Level, judge
from trainer.pipeline.metrics import NoFigure, read_json
from trainer.pipeline.state import write_json
from trainer.runs.provenance import versions

SCHEMA = "gradus/promotion@1"
EXIT_PROMOTED, EXIT_REFUSED = 0, 1
TOLD = (
    "schema",
    "model",
    "data",
    "data_sha256",
    "tasks",
    "tasks_sha256",
    "grader",
    "graders",
    "rubrics",
    "toolchains",
    "model_name",
    "task_hashes",
    "lm_eval_version",
)
"""What a file of figures says of itself and the record repeats; the last three are lm-eval's."""


class GatesFile(Section):
    """What `gradus gate` reads; a pipeline writes one for each of its gate stages."""

    name: str = "gates"
    model: str | None = None
    """Folder of the model that is to be promoted."""
    significance: Level = 0.05
    """Significance level of all gates with a p-value together."""
    gates: Gates
    lineage: dict[str, Any] = {}
    """How the model came about; goes into the record as it is."""

    @property
    def evidence(self) -> list[str]:
        """Every file of figures, once."""
        return list(dict.fromkeys(file for gate in self.gates for file in gate.files))


def main(path: Path, out: Path | None) -> int:
    """Judge the gates of a file, print them as a table, and write the record, whose path is printed
    last.

    Returns 0 when the model is promoted, 1 when it is refused. Raises Misuse for a file that is
    none.
    """
    asked = read_section(GatesFile, path)
    if asked.model is not None and not Path(asked.model).exists():
        raise Misuse(f"{path}: model: {asked.model} is not there")
    judged = [*judge(asked.gates, asked.significance), *implied(asked)]
    promoted = all(found.passed or found.soft for found in judged)
    record = out or path.with_name("promotion.json")
    write_json(record, record_of(asked, judged, promoted))
    console = Console(highlight=False)
    console.print(table_of(judged))
    refusals = [
        f"{found.name} ({found.why})" for found in judged if not (found.passed or found.soft)
    ]
    console.print("promoted" if promoted else f"refused: {'; '.join(refusals)}", soft_wrap=True)
    print(record)
    return EXIT_PROMOTED if promoted else EXIT_REFUSED


def record_of(asked: GatesFile, judged: Sequence[Judged], promoted: bool) -> dict[str, Any]:
    """Everything that the decision was made from."""
    return {
        "schema": SCHEMA,
        "name": asked.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "promoted": promoted,
        "model": {"path": asked.model, "files": files_in(Path(asked.model))}
        if asked.model
        else None,
        "significance": asked.significance,
        "gates": [asdict(found) for found in judged],
        "evidence": [_evidence(Path(file)) for file in asked.evidence],
        "lineage": asked.lineage,
        "versions": {"python": platform.python_version(), **versions()},
    }


def _evidence(file: Path) -> dict[str, Any]:
    told = {name: value for name, value in _tree(file).items() if name in TOLD}
    return {"file": str(file), "sha256": digest_of(file) if file.exists() else None, **told}


def implied(asked: GatesFile) -> Iterator[Judged]:
    """Yield the gate that every file has: one revision of each grader behind all metrics."""
    trees = [_tree(Path(file)) for file in asked.evidence]
    revisions: dict[str, set[str]] = {}
    for tree in trees:
        for part in (tree, tree.get("before"), tree.get("after")):
            graders = part.get("graders") if isinstance(part, dict) else None
            for revision in map(str, graders if isinstance(graders, list) else ()):
                revisions.setdefault(revision.partition("@")[0], set()).add(revision)
    mixed = [", ".join(sorted(found)) for found in revisions.values() if len(found) > 1]
    if revisions:
        said = f"figures come from {'; '.join(mixed)}" if mixed else "one"
        yield Judged("one revision of each grader", not mixed, False, "one", said)


def _tree(file: Path) -> dict[str, Any]:
    """A file of figures, or nothing where there is none: the gate that reads it says so."""
    if file.suffix == ".jsonl":
        return {}
    try:
        tree = read_json(file)
    except NoFigure:
        return {}
    return tree if isinstance(tree, dict) else {}


def table_of(judged: Sequence[Judged]) -> Table:
    """Every gate with what it wanted, what there was, and its verdict."""
    table = Table("gate", "figure", "wants", "why", "")
    for found in judged:
        mark = "[green]passed[/]"
        if not found.passed:
            mark = "[yellow]warning[/]" if found.soft else "[bold red]FAILED[/]"
        figure = "-" if found.value is None else f"{found.value:.4g}"
        if found.low is not None and found.high is not None:
            figure += f" ({found.low:.4g} to {found.high:.4g})"
        table.add_row(found.name, figure, found.wants, found.why, mark)
    return table
