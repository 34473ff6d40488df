"""Evaluations of a grader that nothing here knows: its stages, rates and components come from its
description alone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from report_data import answer_in
from report_runs import MACHINE, record_of, verdict

from gradus.client import RewardClient
from gradus.contract import Diagnostic, Graded, Severity, Stage
from gradus.descriptions import GraderDescription, describe_offline
from gradus.errors import Misuse
from gradus.tasks import TASKS
from trainer.evaluate.breakdowns import compute_details
from trainer.evaluate.comparison import compare
from trainer.evaluate.grader_backend import ServiceJudge
from trainer.evaluate.report import write_report
from trainer.evaluate.results import Evaluation, compute_measurement, read_evaluation
from trainer.evaluate.verdicts import build_rate_test, get_stage_rank, select_typical
from trainer.rewards.judge import Record

ROOT = Path(__file__).parents[2]
TOY = GraderDescription(
    name="toy",
    task_schema={"type": "object"},
    example={"id": "a", "prompt": "", "completion": "x", "task": {}},
    stages=(Stage.EXTRACT, Stage.SCORE, Stage.CHECK),
    rates={"scored": "past:score", "tidy": "clean:check", "right": "passed"},
    components=("sound", "tidiness"),
    fences=("toy",),
    reads_prompt=False,
)
"""A grader that scores before it checks, unlike the order of the contract."""
ANSWER = "```toy\nx\nz\n```\n```\ny\n```"


def toy(stage: Stage, *, passed: bool = False, untidy: bool = False, **components: float) -> Graded:
    remarks = (
        (Diagnostic(stage=Stage.CHECK, severity=Severity.WARNING, message="untidy"),)
        if untidy
        else ()
    )
    return verdict(
        sum(components.values()),
        passed=passed,
        stage=stage,
        components=components,
        diagnostics=remarks,
        tests=None,
        grader="toy@1",
        rubric="toy/plain@1",
    )


RESULTS = {
    "a": toy(Stage.CHECK, passed=True, tidiness=0.2, sound=0.8),
    "b": toy(Stage.CHECK, untidy=True, tidiness=0.0, sound=0.4),
    "c": toy(Stage.SCORE, sound=0.2),
    "d": toy(Stage.EXTRACT, sound=0.0),
}


def records(results: dict[str, Graded] = RESULTS) -> list[Record]:
    return [
        record_of(
            result, mode="greedy", task_id=task, kind=None, sample=0, prompt="?", completion=ANSWER
        )
        for task, result in results.items()
    ]


def evaluation(made: list[Record], **changed: Any) -> Evaluation:
    given: dict[str, Any] = {
        "name": "toy",
        "created": "2026-01-01T00:00:00+00:00",
        "model": "m",
        "tasks": "toy.jsonl",
        "tasks_sha256": "ab" * 32,
        "grader": "toy",
        "graders": ("toy@1",),
        "rubrics": ("toy/plain@1",),
        "toolchains": (),
        "seed": 0,
        "max_new_tokens": 8,
        "duration_s": 1.0,
        "machine": MACHINE,
        "measurements": (
            compute_measurement(made, mode="greedy", temperature=0.0, samples=1, description=TOY),
        ),
        "grader_description": TOY,
    }
    return Evaluation(**{**given, **changed})


def test_rates_follow_the_rules_of_the_description() -> None:
    found = compute_details(records(), TOY)
    assert {name: rate.value for name, rate in found.rates.items()} == {
        "scored": 0.5,
        "tidy": 0.25,
        "right": 0.25,
    }


@pytest.mark.parametrize(
    "rule", ["", "past", "past:types", "clean:", "before:check", "passed:check"]
)
def test_a_rule_that_cannot_be_applied_is_refused(rule: str) -> None:
    with pytest.raises(Misuse, match="no rule of a rate"):
        build_rate_test(rule, TOY.stages)


def told(folder: Path, found: Evaluation) -> dict[str, Any]:
    """What the page of an evaluation is told of it."""
    folder.mkdir(exist_ok=True)
    (folder / "results.json").write_text(found.model_dump_json(by_alias=True, exclude_none=True))
    [measured] = answer_in(write_report(folder, folder / "report.html"), "/api/run")["measured"]
    return dict(measured)


def test_the_page_is_told_stages_rates_and_components_of_the_description(tmp_path: Path) -> None:
    found = told(tmp_path / "a", evaluation(records()))
    assert found["grader_stages"] == ["extract", "score", "check"]
    assert found["rules"] == {"scored": "past:score", "tidy": "clean:check", "right": "passed"}
    assert found["components"] == ["sound", "tidiness"], "in the order of the description"
    [measured] = found["measurements"]
    assert (measured["passed"], measured["stopped_at"]) == (
        1,
        {"check": 1, "score": 1, "extract": 1},
    )
    assert {name: rate["value"] for name, rate in measured["details"]["rates"].items()} == {
        "scored": 0.5,
        "tidy": 0.25,
        "right": 0.25,
    }


def test_what_only_a_language_can_tell_is_left_out_for_a_grader_without_one() -> None:
    found = compute_details(records(), TOY)
    assert (found.imperative, found.invented) == (None, None)
    assert found.answer_lines is not None
    assert found.answer_lines.max == 2, "the block with the grader's info string is the answer"
    prose = TOY.model_copy(update={"fences": ()})
    assert compute_details(records(), prose).answer_lines is None


def test_the_middle_completion_is_found_in_the_order_of_the_description() -> None:
    scored, checked = records({"a": RESULTS["c"], "b": RESULTS["b"]})
    assert select_typical([scored, checked], TOY.stages) is scored
    assert select_typical([scored, checked], ()) is checked, (
        "without one, in the order of the contract"
    )
    assert (
        get_stage_rank("nonsense", TOY.stages)
        < get_stage_rank("extract", TOY.stages)
        < get_stage_rank("passed", TOY.stages)
    )


def test_a_stored_evaluation_brings_its_description(tmp_path: Path) -> None:
    made = evaluation(records())
    (tmp_path / "results.json").write_text(made.model_dump_json(by_alias=True))
    read = read_evaluation(tmp_path)
    assert read.grader_description == TOY
    after = evaluation(records({**RESULTS, "d": RESULTS["c"]}))
    assert list(compare(read, after).migration) == ["extract", "score", "check", "passed"]


@pytest.mark.parametrize("name", list(TASKS))
def test_every_built_in_grader_is_described(name: str) -> None:
    found = describe_offline(name)
    assert found.name == name
    assert found.stages[0] is Stage.EXTRACT
    assert all(build_rate_test(rule, found.stages) for rule in found.rates.values())


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (lambda _: httpx.Response(200, text=TOY.model_dump_json()), TOY),
        (lambda _: httpx.Response(404, json={"detail": "Not Found"}), describe_offline("toy")),
        (lambda _: httpx.Response(503), describe_offline("toy")),
        (lambda _: httpx.Response(200, text="<html>"), describe_offline("toy")),
    ],
    ids=["announced", "older", "away", "something else"],
)
async def test_a_service_is_asked_for_the_description(
    reply: Callable[[httpx.Request], httpx.Response], expected: GraderDescription
) -> None:
    client = RewardClient("http://service", transport=httpx.MockTransport(reply))
    assert await ServiceJudge(client, "toy").description() == expected


def test_evaluations_name_no_language() -> None:
    named = re.compile(r"\b(ocaml|rust|rustc|cargo)\b", re.IGNORECASE)
    files = [path for path in (ROOT / "trainer" / "evaluate").rglob("*") if path.suffix == ".py"]
    assert files
    assert not [path.name for path in files if named.search(path.read_text(encoding="utf-8"))]
