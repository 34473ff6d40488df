"""Honest answers to all shipped story tasks and their twists, graded: the figures of tests and docs/stories.md."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from services.attacks.stories import FIGURE_TOLERANCE, STALE, KnownException, Sprint, halves, sprint_of, story_rows
from services.graders.story.grader import StoryGrader
from tests.attack.story_twists import ATTACKS, LAYOUTS, Given, parts_of

RUBRIC = "story/weighted@1"
SOURCES = ("references", "solutions")
THREADS = 16
Rewards = tuple[float, ...]


@dataclass(frozen=True)
class Field:
    """Rewards in the order of the tasks."""

    source: str
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
        return sum(reward >= half for reward, half in zip(self.attacks[kind], self.half, strict=True))

    def verdict_on(self, kind: str, exceptions: Mapping[tuple[str, str], KnownException]) -> tuple[str, str | None]:
        """As in `services.attacks.stories`, by the means over all tasks."""
        reward, half = self.mean_of(self.attacks[kind]), self.mean_of(self.half)
        known = exceptions.get((self.source, kind))
        if reward < half:
            return "held", STALE if known and reward < half - FIGURE_TOLERANCE else None
        if known is None:
            return "THROUGH", f"earns {reward:.2f}, half of an honest answer {half:.2f}"
        off = max(abs(known.reward - reward), abs(known.half - half))
        return "known", f"earns {reward:.2f} and the halves {half:.2f}" if off > FIGURE_TOLERANCE else None


@cache
def measured(grader: StoryGrader, source: str) -> Field:
    """All rewards for one source of honest answers: the tasks' `references`, or their `solutions`."""
    sprints = [sprint_of(name, row) for name, row in story_rows().items()]
    answers = [sprint.task.references if source == "references" else sprint.honest for sprint in sprints]
    given = [_given(sprints, at, answers[at]) for at in range(len(sprints))]

    with ThreadPoolExecutor(THREADS) as pool:

        def rewards(text_at: Callable[[int], str]) -> Rewards:
            def reward(at: int) -> float:
                return grader.grade(sprints[at].submission(text_at(at)), RUBRIC, 0).reward

            return tuple(pool.map(reward, range(len(sprints))))

        odd, even = (rewards(lambda at, n=n: halves(answers[at])[n]) for n in range(2))  # type: ignore[misc]
        return Field(
            source=source,
            names=tuple(sprint.name for sprint in sprints),
            full=rewards(lambda at: "\n".join(answers[at])),
            one_missing=rewards(lambda at: "\n".join(answers[at][:-1])),
            half=tuple((one + other) / 2 for one, other in zip(odd, even, strict=True)),
            one_story=rewards(lambda at: answers[at][0]),
            two_foreign=rewards(lambda at: "\n".join([*answers[at], *given[at].foreign[:2]])),
            foreign=rewards(lambda at: "\n".join(given[at].foreign)),
            attacks={kind: rewards(lambda at, t=twist: t(given[at])) for kind, twist in ATTACKS.items()},  # type: ignore[misc]
            layouts={kind: rewards(lambda at, t=twist: t(given[at])) for kind, twist in LAYOUTS.items()},  # type: ignore[misc]
        )


def _given(sprints: Sequence[Sprint], at: int, answer: Sequence[str]) -> Given:
    foreign = sprints[(at + 7) % len(sprints)].task.references
    stories = [parts_of(story) for story in answer]
    return Given(stories, sprints[at].task.sprint_goal, foreign, random.Random(sprints[at].name))
