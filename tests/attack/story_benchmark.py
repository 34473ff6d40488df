"""Honest answers to all shipped story tasks and their twists, graded: the figures of tests and of
`story_table`."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from gradus.contract import Faulted, Graded
from services.attacks.stories import (
    FIGURE_TOLERANCE,
    STALE,
    KnownException,
    Sprint,
    build_sprint,
    read_story_rows,
    split_halves,
)
from services.graders.story.grader import StoryGrader
from services.local_grading import grade_in_order
from tests.attack.story_perturbations import ATTACKS, LAYOUTS, Given, parts_of

RUBRIC = "story/weighted@1"
SOURCES = ("references", "solutions")
SLOTS = 16
ALL = slice(None)
SAMPLE = slice(2, None, 5)
"""Every fifth task. Means over these 13 tasks differ from the means over all 66 by 0.08 at most."""
Rewards = tuple[float, ...]


@dataclass(frozen=True)
class Field:
    """Rewards in the order of the tasks."""

    source: str
    is_sample: bool
    names: tuple[str, ...]
    full: Rewards
    one_missing: Rewards
    half: Rewards
    """The mean of both halves."""
    one_story: Rewards
    two_foreign: Rewards
    """The whole answer and two stories of another sprint."""
    foreign: Rewards
    """The references of another sprint."""
    attacks: Mapping[str, Rewards]
    layouts: Mapping[str, Rewards]

    @staticmethod
    def mean_of(rewards: Rewards) -> float:
        return sum(rewards) / len(rewards)

    def paying(self, kind: str) -> int:
        """On how many tasks the attack earns as much as half of the honest answer, or more."""
        return sum(
            reward >= half for reward, half in zip(self.attacks[kind], self.half, strict=True)
        )

    def problem_with(
        self, kind: str, exceptions: Mapping[tuple[str, str], KnownException]
    ) -> str | None:
        """Why the mean reward of the attack is not as it should be. Figures of exceptions are means
        over all tasks."""
        reward, half = self.mean_of(self.attacks[kind]), self.mean_of(self.half)
        known = exceptions.get((self.source, kind))
        told = f"earns {reward:.2f}, half of an honest answer {half:.2f}"
        if known is None:
            return told if reward >= half else None
        if self.is_sample:
            return None
        if reward < half:
            return STALE if reward < half - FIGURE_TOLERANCE else None
        return (
            told
            if max(abs(known.reward - reward), abs(known.half - half)) > FIGURE_TOLERANCE
            else None
        )


def measured(grader: StoryGrader, source: str, chosen: slice = ALL) -> Field:
    """Rewards of the chosen tasks for one source of honest answers: their `references`, or their
    `solutions`."""
    sprints = [build_sprint(name, row) for name, row in read_story_rows().items()]
    answers = [
        sprint.task.references if source == "references" else sprint.honest for sprint in sprints
    ]
    tasks = range(len(sprints))[chosen]
    given = {at: _given(sprints, at, answers[at]) for at in tasks}
    texts: dict[str, Callable[[int], str]] = {
        "full": lambda at: "\n".join(answers[at]),
        "one_missing": lambda at: "\n".join(answers[at][:-1]),
        "odd": lambda at: split_halves(answers[at])[0],
        "even": lambda at: split_halves(answers[at])[1],
        "one_story": lambda at: answers[at][0],
        "two_foreign": lambda at: "\n".join([*answers[at], *given[at].foreign[:2]]),
        "foreign": lambda at: "\n".join(given[at].foreign),
    }
    twists = {kind: twist for kinds in (ATTACKS, LAYOUTS) for kind, twist in kinds.items()}
    submissions = [
        sprints[at].build_submission(text(at)) for text in texts.values() for at in tasks
    ]
    submissions += [
        sprints[at].build_submission(twist(given[at])) for twist in twists.values() for at in tasks
    ]
    results = grade_in_order(grader, submissions, RUBRIC, SLOTS)
    rewards = (_reward(result) for result in results)
    honest = {name: tuple(islice(rewards, len(tasks))) for name in texts}
    twisted = {kind: tuple(islice(rewards, len(tasks))) for kind in twists}
    odd, even = honest.pop("odd"), honest.pop("even")
    return Field(
        source=source,
        is_sample=len(tasks) < len(sprints),
        names=tuple(sprints[at].name for at in tasks),
        half=tuple((one + other) / 2 for one, other in zip(odd, even, strict=True)),
        attacks={kind: twisted[kind] for kind in ATTACKS},
        layouts={kind: twisted[kind] for kind in LAYOUTS},
        **honest,
    )


def _reward(result: Graded | Faulted) -> float:
    assert isinstance(result, Graded), result
    return result.reward


def _given(sprints: Sequence[Sprint], at: int, answer: Sequence[str]) -> Given:
    foreign = sprints[(at + 7) % len(sprints)].task.references
    stories = [parts_of(story) for story in answer]
    return Given(stories, sprints[at].task.sprint_goal, foreign, random.Random(sprints[at].name))
