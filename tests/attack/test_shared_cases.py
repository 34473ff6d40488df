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
from gradus.errors import InternalFault
from services.graders.ocaml.grader import OcamlGrader
from tests.verdict_cases import OnlyCold

FOLDER = Path(__file__).parents[3] / "shared" / "cases"
FILES = sorted(FOLDER.glob("ocaml_turn[23].jsonl"))
CASES = [json.loads(line) for file in FILES for line in file.read_text().splitlines()]
NOT_HELD = {"m1:sum-after"}
"""Tests that compute what they expect from an argument that the answer may have changed: `gradus
tasks validate` warns of them."""


def cases() -> Iterator[Any]:
    held = [case for case in CASES if case["id"] not in NOT_HELD]
    for number, case in enumerate(held):
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
    demand = case["demand"]
    if demand.get("faulted"):
        with pytest.raises(InternalFault):
            graders["warm"].grade(submission, "ocaml/graduated@1", 0)
        return
    result = graders[way].grade(submission, "ocaml/graduated@1", 0)
    assert isinstance(result, Graded)
    assert demand.get("passed", result.passed) == result.passed
    assert demand.get("min_reward", 0) <= result.reward <= demand.get("max_reward", 1), result
