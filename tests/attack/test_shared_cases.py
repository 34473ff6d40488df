"""OCaml cases beside the checkout (`../shared/cases`), where they are: attacks, and right answers
in odd layouts.

`make test` grades every twelfth case the warm way, `make test-slow` all of them, the cold way too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import Graded, OcamlSubmission
from services.graders.ocaml.grader import OcamlGrader
from tests.verdict_cases import OnlyCold

FILE = Path(__file__).parents[3] / "shared" / "cases" / "ocaml_turn2.jsonl"
CASES = [json.loads(line) for line in FILE.read_text().splitlines()] if FILE.is_file() else []


def cases() -> Iterator[Any]:
    for number, case in enumerate(CASES):
        for way in ("warm", "cold"):
            often = way == "warm" and number % 12 == 0
            yield pytest.param(
                case, way, id=f"{case['id']}-{way}", marks=() if often else pytest.mark.slow
            )


@pytest.fixture(scope="module")
def graders(ocaml_grader: OcamlGrader) -> dict[str, OcamlGrader]:
    return {"warm": ocaml_grader, "cold": OnlyCold(sandbox=ocaml_grader.sandbox)}


@pytest.mark.parametrize(("case", "way"), cases())
def test_a_case_gets_what_it_demands(
    graders: dict[str, OcamlGrader], case: dict[str, Any], way: str
) -> None:
    submission = OcamlSubmission.model_validate(
        {key: case[key] for key in ("id", "prompt", "completion", "task")}
    )
    result = graders[way].grade(submission, "ocaml/graduated@1", 0)
    demand = case["demand"]
    assert isinstance(result, Graded)
    assert demand.get("passed", result.passed) == result.passed
    assert demand.get("min_reward", 0) <= result.reward <= demand.get("max_reward", 1), result
