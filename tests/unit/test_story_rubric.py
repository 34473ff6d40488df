"""The story rubrics: what they pay for, what they take, and that components add up to a reward from
0 to 1."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradus.contract import Stage
from gradus.errors import InternalFault, Misuse
from services.graders.rust.rubric import RustFacts as Facts
from services.graders.story.facts import ScrumFacts, StoryFacts
from tests.rubrics import CODE_RUBRICS, SCRUM_WEIGHTS, SHIPPED, STORY_RUBRICS, rubrics_of, score

WEIGHTED, SCRUM = "story/weighted@1", "story/scrum@1"
FULL = StoryFacts(
    Stage.SCORE,
    lines=6,
    stories=6,
    references=6,
    matched=6.0,
    roles=6.0,
    benefits=6.0,
    answered=6,
)
HALF = replace(FULL, lines=3, stories=3, matched=3.0, roles=3.0, benefits=3.0, answered=3)

SHARE = st.floats(0, 1)
AT_MOST_0 = st.floats(-50, 0)


@st.composite
def story_facts(draw: st.DrawFn) -> StoryFacts:
    lines = draw(st.integers(0, 60))
    stories = draw(st.integers(0, lines))
    references = draw(st.integers(1, 60))
    answered = draw(st.integers(0, min(stories, references)))
    matched = draw(st.floats(0, min(stories, references)))
    return StoryFacts(
        Stage.SCORE if stories else Stage.EXTRACT,
        lines=lines,
        stories=stories,
        references=references,
        matched=matched,
        answered=answered,
        roles=draw(st.floats(0, matched)),
        benefits=draw(st.floats(0, matched)),
        repeats=draw(st.integers(0, max(0, stories - 1))),
        scrum=ScrumFacts(*(draw(SHARE) for _ in range(5)), *(draw(AT_MOST_0) for _ in range(2))),
        flags=draw(st.sampled_from([(), ("story:message_to_judge",), ("think:twice",)])),
    )


@pytest.mark.parametrize("rubric", sorted(STORY_RUBRICS))
@given(facts=story_facts())
def test_every_reward_is_from_zero_to_one_and_the_sum_of_its_components(
    rubric: str, facts: StoryFacts
) -> None:
    found = score(facts, rubric)
    assert math.isfinite(found.reward)
    assert 0 <= found.reward <= 1
    assert found.reward == pytest.approx(sum(found.components.values()), abs=2e-5)


def test_all_that_was_asked_for_earns_all() -> None:
    assert score(FULL, WEIGHTED).reward == 1.0
    assert FULL.passed


def test_half_of_the_stories_earn_half() -> None:
    assert score(HALF, WEIGHTED).reward == 0.5
    assert not HALF.passed


def test_no_story_earns_nothing() -> None:
    assert score(StoryFacts(Stage.EXTRACT, lines=3, references=6), WEIGHTED).reward == 0.0
    assert score(StoryFacts(Stage.EXTRACT), WEIGHTED).reward == 0.0


def test_form_alone_earns_nothing() -> None:
    nothing = replace(FULL, matched=0.0, roles=0.0, benefits=0.0, answered=0)
    assert score(nothing, WEIGHTED).reward == 0.0


def test_roles_cost_more_than_benefits_and_both_less_than_half() -> None:
    faceless = score(replace(FULL, roles=0.0), WEIGHTED).reward
    pointless = score(replace(FULL, benefits=0.0), WEIGHTED).reward
    assert score(HALF, WEIGHTED).reward < faceless < pointless < 1.0


def test_lines_beyond_what_was_asked_for_cost() -> None:
    rewards = [
        score(replace(FULL, lines=lines, stories=lines), WEIGHTED).reward for lines in range(6, 20)
    ]
    assert rewards == sorted(rewards, reverse=True)
    assert rewards[1] > 0.95
    assert rewards[6] < 0.9


def test_no_charge_ever_raises_a_reward() -> None:
    worse = [
        replace(FULL, lines=7),
        replace(FULL, stories=5, matched=5.0),
        replace(FULL, benefits=5.5),
        replace(FULL, roles=5.5),
        replace(FULL, flags=("story:message_to_judge",)),
    ]
    assert all(score(facts, WEIGHTED).reward < 1.0 for facts in worse)


@given(story_facts(), st.floats(0, 0.5))
def test_a_better_match_never_lowers_the_reward(facts: StoryFacts, more: float) -> None:
    better = replace(facts, matched=min(facts.matched + more, facts.stories, facts.references))
    assert score(better, WEIGHTED).reward >= score(facts, WEIGHTED).reward - 1e-5


@pytest.mark.parametrize(
    "facts",
    [
        replace(FULL, lines=7),
        replace(FULL, answered=5),
        replace(FULL, repeats=1),
        replace(FULL, roles=2.0),
        replace(FULL, contradicted=1),
        replace(FULL, flags=("story:hidden_characters",)),
    ],
)
def test_what_lacks_anything_is_not_passed(facts: StoryFacts) -> None:
    assert not facts.passed


def test_scrum_weighs_the_seven_quantities() -> None:
    assert sum(abs(weight) for weight in SCRUM_WEIGHTS.values()) == pytest.approx(1.2)
    best = replace(FULL, scrum=ScrumFacts(1, 1, 1, 1, 1, 0, 0))
    assert score(best, SCRUM).reward == pytest.approx(0.85)
    some = replace(FULL, scrum=ScrumFacts(1, 1, 0.5, 1, 0, -0.5, -0.1))
    assert score(some, SCRUM).reward == pytest.approx(0.15 + 0.20 + 0.15 + 0.10 - 0.10 - 0.015)


def test_scrum_below_zero_is_zero_and_the_components_say_so() -> None:
    found = score(replace(FULL, scrum=ScrumFacts(0, 0, -1, 0, 0, -7.5, -1)), SCRUM)
    assert found.reward == 0.0
    assert found.components["redundancy"] == pytest.approx(-1.5)
    assert found.components["clipped"] == pytest.approx(1.95)


def test_scrum_without_its_facts_is_a_fault() -> None:
    with pytest.raises(InternalFault):
        score(FULL, SCRUM)


def test_a_rubric_of_another_grader_is_misuse() -> None:
    with pytest.raises(Misuse, match="there is no rubric"):
        SHIPPED["story"].score(FULL, next(iter(CODE_RUBRICS)))
    with pytest.raises(Misuse, match="there is no rubric"):
        SHIPPED["rust"].score(Facts(Stage.TESTS), WEIGHTED)


def test_weighted_is_the_default() -> None:
    assert rubrics_of("story") == (WEIGHTED, SCRUM)
