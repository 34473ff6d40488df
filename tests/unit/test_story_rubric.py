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
from services.graders.story.facts import ScrumFacts, Senses, StoryFacts
from tests.rubrics import CODE_RUBRICS, SCRUM_WEIGHTS, SHIPPED, STORY_RUBRICS, rubrics_of, score

WEIGHTED, SCRUM = "story/weighted@1", "story/scrum@1"
FULL = StoryFacts(
    Stage.SCORE,
    lines=6,
    stories=6,
    references=6,
    matched=6.0,
    answered=6,
    benefits=1.0,
    benefits_wanted=1.0,
)
HALF = replace(FULL, lines=3, stories=3, matched=3.0, answered=3)

SHARE = st.floats(0, 1)
AT_MOST_0 = st.floats(-50, 0)


@st.composite
def story_facts(draw: st.DrawFn) -> StoryFacts:
    lines = draw(st.integers(0, 60))
    stories = draw(st.integers(0, lines))
    references = draw(st.integers(1, 60))
    answered = draw(st.integers(0, min(stories, references)))
    return StoryFacts(
        Stage.SCORE if stories else Stage.EXTRACT,
        lines=lines,
        stories=stories,
        references=references,
        matched=draw(st.floats(0, min(stories, references))),
        answered=answered,
        benefits=draw(SHARE),
        benefits_wanted=draw(SHARE),
        repeats=draw(st.integers(0, max(0, stories - 1))),
        boilerplate=draw(st.floats(0, 0.99)),
        senses=Senses(*(draw(SHARE) for _ in range(4))),
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


def test_half_of_the_stories_earn_more_than_half_and_much_less_than_all() -> None:
    assert 0.6 < score(HALF, WEIGHTED).reward < 0.8
    assert not HALF.passed


def test_no_story_earns_nothing() -> None:
    assert score(StoryFacts(Stage.EXTRACT, lines=3, references=6), WEIGHTED).reward == 0.0
    assert score(StoryFacts(Stage.EXTRACT), WEIGHTED).reward == 0.0


def test_form_alone_earns_nothing() -> None:
    assert score(replace(FULL, matched=0.0, answered=0), WEIGHTED).reward == 0.0


def test_a_benefit_is_only_missed_where_the_references_have_one() -> None:
    without = replace(FULL, benefits=0.0)
    assert score(without, WEIGHTED).reward < score(HALF, WEIGHTED).reward
    assert score(replace(without, benefits_wanted=0.0), WEIGHTED).reward > 0.9


def test_a_few_benefits_said_twice_are_usual() -> None:
    assert score(replace(FULL, boilerplate=0.2), WEIGHTED).reward == 1.0
    assert score(replace(FULL, boilerplate=5 / 6), WEIGHTED).reward < score(HALF, WEIGHTED).reward


@pytest.mark.parametrize("sense", ["fluency", "focus"])
def test_words_that_make_no_sense_earn_less_than_half_of_the_stories(sense: str) -> None:
    assert (
        score(replace(FULL, senses=Senses(**{sense: 0.2})), WEIGHTED).reward
        < score(HALF, WEIGHTED).reward
    )


def test_no_charge_ever_raises_a_reward() -> None:
    worse = [
        replace(FULL, repeats=3),
        replace(FULL, stories=5, matched=5.0),
        replace(FULL, benefits=0.5),
        replace(FULL, senses=Senses(coherence=0.5)),
        replace(FULL, senses=Senses(role=0.5)),
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
        replace(FULL, senses=Senses(fluency=0.4)),
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
