"""Our asks, held to the real Rust compiler where they can be done, and `gradus eval-refusals` from
its entry."""

from __future__ import annotations

from pathlib import Path

from fake_openai_server import OpenAiLike

from corpus.task_rows import wrap_in_fence
from gradus.contract import SUBMISSIONS, Graded
from gradus.resources import configs
from gradus.row_reader import read_rows
from services.graders.rust.grader import RustGrader
from services.local_grading import grade_in_order
from tests.conftest import Cli

ASKS = configs() / "tasks" / "declines.jsonl"


def test_what_can_be_done_can_be_done(rust_grader: RustGrader) -> None:
    """Each of these has an answer that the real compiler takes: the asks are refused wrongly or not
    at all."""
    rows = [row.values for row in read_rows(str(ASKS)) if row.values["can"]]
    asked = [
        {
            "id": row["id"],
            "completion": wrap_in_fence("rust", row["solution"]),
            "task": {"tests": "#[test]\nfn t() {}"},
        }
        for row in rows
    ]
    submissions = [SUBMISSIONS["rust"].model_validate(one) for one in asked]
    for result in grade_in_order(rust_grader, submissions, rust_grader.info().rubrics[0], 2):
        assert isinstance(result, Graded)
        assert result.passed, (result.id, result.diagnostics)


def test_asks_are_answered_and_scored_from_the_command_line(gradus: Cli, tmp_path: Path) -> None:
    with OpenAiLike(lambda *_: "CANNOT: no.").serving() as like:
        out = tmp_path / "out"
        asked = ("--endpoint", like.url, ASKS, "--out", out, "--temperature", "0", "--limit", "10")
        got = gradus("eval-refusals", *asked)
        assert (got.status, got.out.splitlines()[-1]) == (0, str(out / "declines.json")), got.err
        assert "accuracy: 50.0%" in got.out
        assert len(like.requests) == 10
        again = gradus("eval-refusals", *asked)
        assert (again.status, again.out) == (0, got.out), again.err
        assert len(like.requests) == 10
