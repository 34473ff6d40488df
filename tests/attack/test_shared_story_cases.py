"""Story cases beside the checkout (`../shared/cases`), where they are: honest answers all hold, and
so does every attack but those of meaning, which are not told without a judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import Graded, StorySubmission
from services.graders.story.grader import StoryGrader

FOLDER = Path(__file__).parents[3] / "shared" / "cases"
ROUNDS = ("story_turn2", "story_turn3")
NOT_TOLD = frozenset(
    ("contradicted", "harmful-benefit", "wrong-detail", "wrong-role", "empty-benefit", "padded")
    + ("benefit-generic", "benefit-of-the-wrong-side", "benefit-restates", "condition-empties")
    + ("criteria-nonsense", "denied-behind", "either-or", "gibberish-optimised", "near-duplicates")
    + ("one-word-of-a-reference", "reversed-relation", "role-generic", "wrong-method")
    + ("wrong-number", "wrong-object", "wrong-scope")
)
"""Kinds of attacks that need a judge (docs/stories.md)."""


@pytest.mark.parametrize("name", ROUNDS)
def test_every_case_but_those_of_meaning_gets_what_it_demands(
    story_grader: StoryGrader, name: str
) -> None:
    file = FOLDER / f"{name}.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    cases = [json.loads(line) for line in file.read_text().splitlines()]
    results = {}
    for case in cases:
        fields = {key: case[key] for key in ("id", "prompt", "completion", "task")}
        submission = StorySubmission.model_validate(fields)
        result = story_grader.grade(submission, "story/weighted@1", 0)
        assert isinstance(result, Graded)
        results[case["id"]] = result
    missed = {}
    for case in cases:
        told = case["kind"] not in NOT_TOLD
        problem = find_problem(results[case["id"]], case["demand"], results)
        if told and problem:
            missed[case["id"]] = problem
    assert missed == {}


def find_problem(result: Graded, demand: dict[str, Any], results: dict[str, Graded]) -> str | None:
    """Return what a result lacks of its demand."""
    reward = result.reward
    if demand.get("passed", result.passed) != result.passed:
        return f"passed is {result.passed}"
    if not demand.get("min_reward", 0) <= reward <= demand.get("max_reward", 1):
        return f"earns {reward}"
    for word in ("below", "above", "at_most", "at_least"):
        if word not in demand:
            continue
        others = [results[name].reward for name in demand[word]["mean_of"]]
        bound = demand[word].get("part", 1) * sum(others) / len(others)
        holds = reward < bound if word in ("below", "at_most") else reward > bound
        if not holds and reward != bound:
            return f"earns {reward:.3f}, {word} {bound:.3f}"
    return None
