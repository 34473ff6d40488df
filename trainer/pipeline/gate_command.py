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
from trainer.pipeline.digests import compute_digest, compute_file_digests
from trainer.pipeline.gates import Gates, GateVerdict, Level, judge
from trainer.pipeline.metrics import NoFigure, read_json
from trainer.pipeline.state import write_json
from trainer.runs.provenance import collect_versions

SCHEMA = "gradus/promotion@1"
EXIT_PROMOTED, EXIT_REFUSED = 0, 1
HEADER_FIELDS = (
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
    gates_file = read_section(GatesFile, path)
    if gates_file.model is not None and not Path(gates_file.model).exists():
        raise Misuse(f"{path}: model: {gates_file.model} is not there")
    judged = [*judge(gates_file.gates, gates_file.significance), *check_revisions(gates_file)]
    promoted = all(verdict.passed or verdict.soft for verdict in judged)
    record = out or path.with_name("promotion.json")
    write_json(record, build_record(gates_file, judged, promoted))
    console = Console(highlight=False)
    console.print(build_table(judged))
    refusals = []
    for verdict in judged:
        if not (verdict.passed or verdict.soft):
            refusals.append(f"{verdict.name} ({verdict.why})")
    console.print("promoted" if promoted else f"refused: {'; '.join(refusals)}", soft_wrap=True)
    print(record)
    return EXIT_PROMOTED if promoted else EXIT_REFUSED


def build_record(
    gates_file: GatesFile, judged: Sequence[GateVerdict], promoted: bool
) -> dict[str, Any]:
    """Return everything that the decision was made from."""
    model = None
    if gates_file.model:
        model = {"path": gates_file.model, "files": compute_file_digests(Path(gates_file.model))}
    return {
        "schema": SCHEMA,
        "name": gates_file.name,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "promoted": promoted,
        "model": model,
        "significance": gates_file.significance,
        "gates": list(map(asdict, judged)),
        "evidence": [_describe_evidence(Path(file)) for file in gates_file.evidence],
        "lineage": gates_file.lineage,
        "versions": {"python": platform.python_version(), **collect_versions()},
    }


def _describe_evidence(file: Path) -> dict[str, Any]:
    header = {}
    for name, value in _read_tree(file).items():
        if name in HEADER_FIELDS:
            header[name] = value
    return {"file": str(file), "sha256": compute_digest(file) if file.exists() else None, **header}


def check_revisions(gates_file: GatesFile) -> Iterator[GateVerdict]:
    """Yield the gate that every file has: one revision of each grader behind all metrics."""
    revisions: dict[str, set[str]] = {}
    for file in gates_file.evidence:
        tree = _read_tree(Path(file))
        for part in (tree, tree.get("before"), tree.get("after")):
            graders = part.get("graders") if isinstance(part, dict) else None
            for revision in map(str, graders if isinstance(graders, list) else ()):
                revisions.setdefault(revision.partition("@")[0], set()).add(revision)
    mixed = []
    for grader_revisions in revisions.values():
        if len(grader_revisions) > 1:
            mixed.append(", ".join(sorted(grader_revisions)))
    if revisions:
        summary = f"figures come from {'; '.join(mixed)}" if mixed else "one"
        yield GateVerdict("one revision of each grader", not mixed, False, "one", summary)


def _read_tree(file: Path) -> dict[str, Any]:
    """Return a file of figures, or nothing where there is none: the gate that reads it says so."""
    if file.suffix == ".jsonl":
        return {}
    try:
        tree = read_json(file)
    except NoFigure:
        return {}
    return tree if isinstance(tree, dict) else {}


def build_table(judged: Sequence[GateVerdict]) -> Table:
    """Return every gate with what it wanted, what there was, and its verdict."""
    table = Table("gate", "figure", "wants", "why", "")
    for verdict in judged:
        mark = "[green]passed[/]"
        if not verdict.passed:
            mark = "[yellow]warning[/]" if verdict.soft else "[bold red]FAILED[/]"
        figure = "-" if verdict.value is None else f"{verdict.value:.4g}"
        if verdict.low is not None and verdict.high is not None:
            figure += f" ({verdict.low:.4g} to {verdict.high:.4g})"
        table.add_row(verdict.name, figure, verdict.wants, verdict.why, mark)
    return table
