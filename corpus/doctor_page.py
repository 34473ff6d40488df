"""The page of `gradus tasks doctor`: one file that shows each row and saves what is accepted."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from corpus.task_doctor import Diagnosis, RowState
from gradus.contract import GraderName
from services.dashboard.document import build_style, read_page_file, render_page_with_data


def render_doctor_page(
    file: str, grader: GraderName, diagnoses: Sequence[Diagnosis], weak_tests: Sequence[str]
) -> str:
    """Return a self-contained HTML file with all rows in it."""
    rows = [
        _describe(diagnosis, weak) for diagnosis, weak in zip(diagnoses, weak_tests, strict=True)
    ]
    name = "rows" if file == "-" else Path(file).stem
    states = [state.value for state in RowState]
    data = {"name": name, "grader": grader, "states": states, "rows": rows}
    text = resources.files("corpus").joinpath("page/doctor.js").read_text(encoding="utf-8")
    script = f'"use strict";\n(() => {{\n{read_page_file("dom.js")}{text}}})();\n'
    return render_page_with_data(f"Rows of {name}", data, script, build_style())


def _describe(diagnosis: Diagnosis, weak: str) -> dict[str, Any]:
    """Return what the page shows of a row."""
    row = diagnosis.row
    return {
        "where": row.where,
        "id": str(row.values.get("id") or ""),
        "state": diagnosis.state.value,
        "cause": diagnosis.cause,
        "failing": [{"line": test.line, "text": test.text} for test in diagnosis.failing],
        "repairs": list(diagnosis.repairs),
        "warnings": list(diagnosis.warnings),
        "advice": diagnosis.advice,
        "weak": weak,
        "joined_to": diagnosis.joined_to,
        "row": dict(row.values),
        "task": dict(diagnosis.repaired.values) if diagnosis.repaired else None,
    }
