"""What a reward must do whatever is written: a story left out never pays, a matching one more never
costs; on the shipped tasks, and on real backlogs and cases where they are beside the checkout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from gradus.contract import Graded, StorySubmission
from services.attacks.stories import build_sprint, read_story_rows
from services.graders.story.grader import StoryGrader
from services.graders.story.parser import Story, read, read_story

SHARED = Path(__file__).parents[3] / "shared"
BACKLOGS = ("dalpiaz_by_role", "dalpiaz_backlogs", "tanf_sprints", "tanf_epics")
CASES = ("story_turn2", "story_turn3")
MOST_STORIES = 40
"""Larger backlogs are read in parts of this size: the cost grows with the cube."""
SAMPLED = 13
"""One answer of so many is no slow test."""
TOLERANCE = 0.01
"""Rounding of vectors, which depends on the company in a pass, and that the grader tries some
matchings and not all: the most that was seen is 0.006."""


class Answer(NamedTuple):
    name: str
    references: tuple[str, ...]
    lines: tuple[str, ...]


def shipped_answers() -> Iterator[Answer]:
    for name, row in read_story_rows().items():
        sprint = build_sprint(name, row)
        yield Answer(name, sprint.task.references, sprint.honest)


def real_answers() -> Iterator[Answer]:
    """Yield each backlog as its own answer, and worn out: titles as wants of a user, every
    second story without its benefit, every third by another role."""
    for name in BACKLOGS:
        for record in read_rows(SHARED / "data" / f"stories_{name}.jsonl"):
            items = [" ".join(item.split()) for item in record["formatted_issues"].split("|||||")]
            stories = tuple(dict.fromkeys(filter(None, items)))
            for start in range(0, len(stories), MOST_STORIES):
                part = stories[start : start + MOST_STORIES]
                label = f"{record['id']}/{start}"
                yield Answer(label, part, tuple(text for text in part if read_lines(text)))
                yield Answer(f"{label}/worn", part, tuple(wear_out(part)))


def case_answers() -> Iterator[Answer]:
    """Yield what stands in the completions of cases, attacks too, as one story a line."""
    for name in CASES:
        for case in read_rows(SHARED / "cases" / f"{name}.jsonl"):
            lines = read_lines(case["completion"])
            yield Answer(f"{name}/{case['id']}", tuple(case["task"]["references"]), lines)


def read_rows(path: Path) -> Iterator[dict[str, Any]]:
    if path.is_file():
        yield from map(json.loads, path.read_text().splitlines())


def read_lines(completion: str) -> tuple[str, ...]:
    return tuple(story.text for story in read(completion, 32_000, 256).stories)


def wear_out(items: Sequence[str]) -> Iterator[str]:
    for number, item in enumerate(items):
        text = f"As a user, I want {item}"
        for story in read(item, 32_000, 256).stories:
            role = "user" if number % 3 == 0 else story.role
            benefit = f", so that {story.benefit}" if story.benefit and number % 2 else ""
            text = f"As a {role}, I want to {story.want}{benefit}"
        if isinstance(read_story(text), Story):
            yield text


def answers() -> Iterator[Any]:
    made = [*shipped_answers(), *case_answers(), *real_answers()]
    for number, answer in enumerate(made):
        lines = tuple(dict.fromkeys(answer.lines))[: len(answer.references)]
        if len(lines) > 1:
            marks = []
            if number % SAMPLED != 2 or len(lines) >= 13:
                marks.append(pytest.mark.slow)
                if number % 3:
                    marks.append(pytest.mark.whole)
            yield pytest.param(answer.references, lines, id=answer.name, marks=marks)


def grade(grader: StoryGrader, references: Sequence[str], lines: Sequence[str]) -> Graded:
    submission = StorySubmission.model_validate(
        {"id": "a", "completion": "\n".join(lines), "task": {"references": tuple(references)}}
    )
    return grader.grade(submission, "story/weighted@1", 0)


def find_violations(
    grader: StoryGrader, references: Sequence[str], lines: Sequence[str]
) -> Iterator[str]:
    """Yield the stories that pay when they are left out, or cost when they are added."""
    full = grade(grader, references, lines).reward
    for at, line in enumerate(lines):
        less = grade(grader, references, [*lines[:at], *lines[at + 1 :]]).reward
        if less > full + TOLERANCE:
            yield f"left out: {full:.3f} -> {less:.3f}: {line}"
    before = 0.0
    for number, line in enumerate(lines, 1):
        after = grade(grader, references, lines[:number]).reward
        if after < before - TOLERANCE:
            yield f"added: {before:.3f} -> {after:.3f}: {line}"
        before = after


@pytest.mark.parametrize(("references", "lines"), answers())
def test_no_story_pays_when_left_out_or_costs_when_added(
    story_grader: StoryGrader, references: Sequence[str], lines: Sequence[str]
) -> None:
    assert list(find_violations(story_grader, references, lines)) == []
