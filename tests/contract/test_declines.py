"""The asks in configs/tasks/declines.jsonl that can be done, held to the real Rust compiler."""

from __future__ import annotations

from gradus.contract import SUBMISSIONS, Graded, GraderName
from gradus.resources import configs
from gradus.rows import read_rows
from services.admission import fenced
from services.graders.rust.grader import RustGrader
from services.offline import grade_in_order

ASKS = configs() / "tasks" / "declines.jsonl"


def test_what_can_be_done_can_be_done(rust_grader: RustGrader) -> None:
    """Each of these has an answer that the real compiler takes: the asks are refused wrongly or not at all."""
    rows = [row.values for row in read_rows(str(ASKS)) if row.values["can"]]
    asked = [
        {
            "id": row["id"],
            "completion": fenced(GraderName.RUST, row["solution"]),
            "task": {"tests": "#[test]\nfn t() {}"},
        }
        for row in rows
    ]
    submissions = [SUBMISSIONS[GraderName.RUST].model_validate(one) for one in asked]
    for result in grade_in_order(rust_grader, submissions, rust_grader.info().rubrics[0], 1):
        assert isinstance(result, Graded)
        assert result.passed, (result.id, result.diagnostics)
