"""Groups of eight completions of one prompt, as a GRPO step has them: what is said is people's, how
differs.

Stories come from the shipped tasks, each with its references and an honest answer in other words,
and, where the real backlogs are beside the checkout, from those. Completions of a group miss some
stories, add some of another sprint, think aloud first, number their lines. No two of a group share
a sentence, unless asked: that is the dearest case, since what is shared is embedded once.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gradus.contract import StorySubmission
from gradus.resources import configs

G = 8
TASKS = configs() / "tasks" / "story.jsonl"
REAL = Path(__file__).resolve().parents[3] / "shared" / "data" / "stories_dalpiaz_by_role.jsonl"
_WAYS = (
    ("", ""),
    ("to be able to ", ""),
    ("", " from my phone"),
    ("the option to ", " at any time"),
    ("a simple way to ", ""),
    ("", " without asking anybody for help"),
    ("to have a place to ", ""),
    ("to easily ", " in one step"),
)
"""What is put before and behind a want, one way per completion of a group."""
_FEWEST = 4


@dataclass(frozen=True, slots=True)
class Sprint:
    goal: str
    references: tuple[str, ...]
    others_words: tuple[str, ...]
    """An honest answer's stories."""


def groups(number: int, shared: float = 0.0, seed: int = 0) -> list[list[StorySubmission]]:
    """`number` groups, half of them of real backlogs if there are any. `shared`: share of stories
    said in the same words by several completions of their group. `seed`: which sprints, as far as
    there are more, and which of their stories."""
    own, real = list(_own()), list(_real())
    chosen = _spread(real, number // 2, seed) if real else []
    chosen += _spread(own, number - len(chosen), seed)
    return [
        _group(chosen, index, shared, random.Random(index + 10_000 * seed))
        for index in range(len(chosen))
    ]


def _spread(sprints: list[Sprint], number: int, seed: int) -> list[Sprint]:
    """`number` of `sprints`, or all: far from one another; the next `seed` begins where these are
    used up."""
    step = max(1, len(sprints) // number)
    begin = seed * number % len(sprints)
    return (sprints[begin:] + sprints[:begin])[::step][:number]


def _own() -> Iterator[Sprint]:
    for row in map(json.loads, TASKS.read_text().splitlines()):
        yield Sprint(
            row["sprint_goal"], tuple(row["references"]), tuple(row["solution"].splitlines())
        )


def _real() -> Iterator[Sprint]:
    for row in map(json.loads, REAL.read_text().splitlines() if REAL.exists() else ()):
        stories = tuple(
            story for story in row["formatted_issues"].split(" ||||| ") if " want to " in story
        )
        if len(stories) >= _FEWEST:
            yield Sprint(row["sprint_goal"], stories, stories)


def _group(
    sprints: list[Sprint], index: int, shared: float, drawn: random.Random
) -> list[StorySubmission]:
    sprint = sprints[index]
    other = sprints[(index + 1) % len(sprints)]
    task = {"sprint_goal": sprint.goal, "references": sprint.references}
    return [
        StorySubmission.model_validate(
            {
                "id": f"{index}-{way}",
                "completion": _completion(sprint, other, way, shared, drawn),
                "task": task,
            }
        )
        for way in range(G)
    ]


def _completion(
    sprint: Sprint, other: Sprint, way: int, shared: float, drawn: random.Random
) -> str:
    pairs = list(zip(sprint.references, sprint.others_words, strict=False))
    kept = drawn.sample(pairs, max(1, len(pairs) - way % 4))
    stories = [pair[(way + place) % 2] for place, pair in enumerate(kept)] + list(
        other.references[: way % 3]
    )
    said = [_said(story, 0 if drawn.random() < shared else way) for story in stories]
    numbered = [f"{place}. {story}" for place, story in enumerate(said, 1)] if way % 2 else said
    return f"The goal asks for several roles.\n</think>\n{chr(10).join(numbered)}"


def _said(story: str, way: int) -> str:
    """`story` with its want put as completion `way` puts it."""
    before, behind = _WAYS[way]
    head, so, benefit = story.partition(", so that")
    return (
        head.replace(" want to ", f" want {before}" if before else " want to ", 1)
        + behind
        + so
        + benefit
    )
