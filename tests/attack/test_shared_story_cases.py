"""Story cases beside the checkout (`../shared/cases`), where they are: honest answers all hold, and
so does every attack but those of meaning, which are not told without a judge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import Graded, StorySubmission
from services.graders.story.grader import StoryGrader

FOLDER = Path(__file__).parents[3] / "shared" / "cases"
MISSED: Mapping[str, Mapping[str, int]] = {
    "story_turn2": {
        "contradicted": 12,
        "harmful-benefit": 7,
        "wrong-role": 7,
        "wrong-detail": 5,
        "empty-benefit": 1,
        "padded": 1,
    },
    "story_turn3": {
        "condition-empties": 5,
        "denied-behind": 5,
        "gibberish-optimised": 4,
        "reversed-relation": 2,
        "benefit-generic": 1,
        "benefit-of-the-wrong-side": 1,
        "benefit-restates": 1,
        "criteria-nonsense": 1,
        "either-or": 1,
        "near-duplicates": 1,
        "one-word-of-a-reference": 1,
        "role-generic": 1,
        "wrong-method": 1,
        "wrong-number": 1,
        "wrong-object": 1,
        "wrong-scope": 1,
    },
}
"""Attacks of each kind that earn too much without a judge (docs/stories.md); no other case does,
and no honest one earns too little."""


@pytest.mark.parametrize("name", MISSED)
def test_no_kind_misses_more_cases_than_are_listed(story_grader: StoryGrader, name: str) -> None:
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
    missed: dict[str, list[str]] = {}
    for case in cases:
        problem = find_problem(results[case["id"]], case["demand"], results)
        if problem:
            missed.setdefault(case["kind"], []).append(f"{case['id']} {problem}")
    listed = MISSED[name]
    more = {kind: found for kind, found in missed.items() if len(found) > listed.get(kind, 0)}
    assert more == {}


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
