"""Real backlogs and sprints through the story grader: what people wrote earns nearly all, what
others wrote little."""

from __future__ import annotations

from statistics import mean

import pytest

from services.graders.story.grader import StoryGrader
from services.graders.story.parser import Rejected, clean_line, read_story
from tests.e2e.story_corpora import (
    BY_ROLE,
    DATA,
    SPRINTS,
    Group,
    backlog_items,
    graded,
    groups,
    sprint_items,
    strangers,
)

pytestmark = pytest.mark.skipif(
    not DATA.exists(), reason="the real backlogs and sprints are not here"
)

NO_STORIES = (
    "",
    "Auditing & Reporting.",
    "bidirectionally with the repository.",
)
"""Of the backlogs: an empty item, a heading, half a sentence."""
FALSELY_REJECTED = (
    "As a ResearcherDeveloper, would like the ability import/export from MS-SQL",
    (
        "As a hydrator user, I want to create a pipeline that reads or writes a new dataset"
        " instance and I want"
    ),
)
"""Real stories that are not read: the first has no `I`, the second wants two things."""


@pytest.fixture(
    params=[
        pytest.param(BY_ROLE, id="backlogs by role", marks=pytest.mark.slow),
        pytest.param(SPRINTS, id="sprints"),
    ]
)
def found(request: pytest.FixtureRequest) -> list[Group]:
    made = groups(request.param)
    assert len(made) > 60
    return made


def test_real_stories_are_read_but_for_those_named() -> None:
    rejected = [
        text for text in backlog_items() if isinstance(read_story(clean_line(text)), Rejected)
    ]
    named = [text for text in rejected if text in NO_STORIES or text.startswith(FALSELY_REJECTED)]
    assert rejected == named
    assert len(rejected) == len(NO_STORIES) + len(FALSELY_REJECTED)


def test_items_of_sprints_that_start_like_stories_are_read_but_for_one_without_a_want() -> None:
    starting = [item for item in sprint_items() if item.startswith(("As a ", "As an ", "As the "))]
    rejected = [item for item in starting if isinstance(read_story(item), Rejected)]
    assert rejected == ["As a TDP user, I want"]


def test_real_stories_given_as_the_answer_earn_nine_tenths(
    story_grader: StoryGrader, found: list[Group]
) -> None:
    rewards = [graded(story_grader, group, group.stories).reward for group in found]
    assert mean(rewards) >= 0.93
    assert min(rewards) >= 0.6


def test_stories_of_others_earn_about_a_quarter_at_most(
    story_grader: StoryGrader, found: list[Group]
) -> None:
    rewards = [
        graded(story_grader, group, strangers(group, found).stories).reward for group in found
    ]
    assert mean(rewards) <= 0.26


def test_half_of_the_real_stories_earn_clearly_less_than_all(
    story_grader: StoryGrader, found: list[Group]
) -> None:
    differences = []
    for group in found:
        read = [read_story(clean_line(text)) for text in group.stories]
        if not any(isinstance(one, Rejected) for one in read):
            whole = graded(story_grader, group, group.stories).reward
            differences.append(whole - graded(story_grader, group, group.stories[::2]).reward)
    assert min(differences) > 0
    assert mean(differences) > 0.2
