"""What a reward must do whatever is written: a story left out never pays, a matching one more never
costs; on the shipped tasks, and on real backlogs where they are beside the checkout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import Graded, StorySubmission
from services.attacks.stories import build_sprint, read_story_rows
from services.graders.story.grader import StoryGrader
from services.graders.story.parser import Story, clean_line, read_story

BACKLOGS = Path(__file__).parents[3] / "shared" / "data" / "stories_dalpiaz_by_role.jsonl"
CASES = Path(__file__).parents[3] / "shared" / "cases" / "story_turn3.jsonl"
TOLERANCE = 0.002
"""Rounding of vectors, which depends on the company in a pass."""


def answers() -> Iterator[Any]:
    """Yield references, an answer, and whether its test is slow."""
    for number, (name, row) in enumerate(read_story_rows().items()):
        sprint = build_sprint(name, row)
        marks = () if number % 11 == 2 else pytest.mark.slow
        yield pytest.param(sprint.task.references, sprint.honest, id=name, marks=marks)
    if CASES.is_file():
        for line in CASES.read_text().splitlines():
            case = json.loads(line)
            if case["kind"] == "honest-paraphrase":
                given = case["task"]["references"], case["completion"].splitlines()
                yield pytest.param(*given, id=case["id"])
    if BACKLOGS.is_file():
        for number, line in enumerate(BACKLOGS.read_text().splitlines()):
            stories = json.loads(line)["formatted_issues"].split(" ||||| ")
            lines = [text for text in stories if isinstance(read_story(clean_line(text)), Story)]
            if 3 <= len(lines) <= 40:
                yield pytest.param(stories, lines, id=f"backlog-{number}", marks=pytest.mark.slow)


def grade(grader: StoryGrader, references: Sequence[str], lines: Sequence[str]) -> Graded:
    submission = StorySubmission.model_validate(
        {"id": "a", "completion": "\n".join(lines), "task": {"references": tuple(references)}}
    )
    return grader.grade(submission, "story/weighted@1", 0)


@pytest.mark.parametrize(("references", "lines"), answers())
def test_leaving_a_story_out_never_pays(
    story_grader: StoryGrader, references: Sequence[str], lines: Sequence[str]
) -> None:
    full = grade(story_grader, references, lines).reward
    for at in range(len(lines)):
        rest = [*lines[:at], *lines[at + 1 :]]
        if rest and len(lines) <= len(references):
            less = grade(story_grader, references, rest).reward
            assert less <= full + TOLERANCE, lines[at]


@pytest.mark.parametrize(("references", "lines"), answers())
def test_a_matching_story_more_never_costs(
    story_grader: StoryGrader, references: Sequence[str], lines: Sequence[str]
) -> None:
    lines = lines[: len(references)]
    rewards = [
        grade(story_grader, references, lines[: number + 1]).reward for number in range(len(lines))
    ]
    for before, after in zip(rewards, rewards[1:], strict=False):
        assert after >= before - TOLERANCE
