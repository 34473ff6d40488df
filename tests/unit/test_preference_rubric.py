"""preference/sigmoid@1: the chance to be preferred, whatever a model scores, with the score beside
it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradus.contract import Stage
from gradus.errors import Misuse
from services.graders.preference.rubric import PreferenceFacts
from services.graders.rust.rubric import RustFacts as Facts
from tests.rubrics import SHIPPED, rubrics_of, score

[SIGMOID] = rubrics_of("preference")
FINITE = st.floats(allow_nan=False, allow_infinity=False)


def reward(given_score: float, centre: float = 0.0, scale: float = 1.0) -> float:
    return score(PreferenceFacts(Stage.SCORE, given_score, centre, scale), SIGMOID).reward


def test_the_reward_is_the_chance_by_bradley_and_terry_to_beat_the_centre() -> None:
    assert reward(0.0) == 0.5
    assert reward(math.log(3)) == 0.75
    assert reward(-math.log(3)) == 0.25
    assert reward(5.0, centre=5.0) == 0.5
    assert reward(2 * math.log(3), scale=2.0) == 0.75


@given(FINITE, FINITE, st.floats(1e-300, 1e300))
def test_every_finite_score_has_a_reward_from_0_to_1_that_its_components_add_up_to(
    given_score: float, centre: float, scale: float
) -> None:
    found = score(PreferenceFacts(Stage.SCORE, given_score, centre, scale), SIGMOID)
    assert 0 <= found.reward <= 1
    assert found.reward == pytest.approx(sum(found.components.values()), abs=1e-6)
    assert all(map(math.isfinite, found.components.values()))


@given(st.floats(-1e6, 1e6))
def test_the_score_is_told_as_it_is(given_score: float) -> None:
    assert score(PreferenceFacts(Stage.SCORE, given_score, 0.0, 1.0), SIGMOID).components[
        "score"
    ] == pytest.approx(given_score, abs=1e-6)


@given(FINITE, FINITE)
def test_a_higher_score_never_earns_less(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert reward(low) <= reward(high)


def test_a_score_passes_nothing() -> None:
    assert not PreferenceFacts(Stage.SCORE, 1e9, 0.0, 1.0).passed


def test_the_rubric_is_for_these_facts_only() -> None:
    with pytest.raises(Misuse, match="there is no rubric"):
        SHIPPED["rust"].score(Facts(Stage.TESTS), SIGMOID)
    with pytest.raises(Misuse, match="there is no rubric"):
        SHIPPED["preference"].score(PreferenceFacts(Stage.SCORE, 0.0, 0.0, 1.0), "ocaml/strict@1")
