"""Facts -> reward: the graduated and the strict rubric of OCaml, exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradus.contract import Stage, TestCount
from gradus.errors import Misuse
from services.graders.rust.rubric import RustFacts as Facts
from tests.rubrics import CODE_RUBRICS, Score, rubrics_of, score

GRADUATED = "ocaml/graduated@1"
STRICT = "ocaml/strict@1"


def facts(passed: int, total: int, *flags: str, blocks: int = 1, trailing_chars: int = 0) -> Facts:
    """Facts of an answer that types, compiles and was tested."""
    tests = TestCount(passed=passed, total=total)
    return Facts(
        stage=Stage.TESTS,
        typed_share=1.0,
        compiled=True,
        tests=tests,
        flags=flags,
        blocks=blocks,
        trailing_chars=trailing_chars,
    )


ALL_FACTS = st.builds(
    Facts,
    stage=st.sampled_from(list(Stage)),
    typed_share=st.floats(0, 1),
    compiled=st.booleans(),
    tests=st.one_of(
        st.none(),
        st.integers(0, 50).flatmap(
            lambda total: st.integers(0, total).map(
                lambda passed: TestCount(passed=passed, total=total)
            )
        ),
    ),
    flags=st.lists(
        st.sampled_from(["degenerate:prose", "degenerate:stub", "limit:cpu"]), max_size=3
    ).map(tuple),
    blocks=st.integers(0, 100),
    trailing_chars=st.integers(0, 10_000),
)


def test_full_marks_are_one() -> None:
    assert score(facts(5, 5), GRADUATED) == Score(
        1.0, {"types": 0.25, "compile": 0.1, "tests": 0.65}
    )


@pytest.mark.parametrize(
    ("passed", "reward"), [(0, 0.35), (1, 0.48), (2, 0.61), (3, 0.74), (4, 0.87)]
)
def test_tests_earn_their_share(passed: int, reward: float) -> None:
    assert score(facts(passed, 5), GRADUATED).reward == pytest.approx(reward)


@pytest.mark.parametrize(("typed_share", "reward"), [(0.0, 0.0), (0.5, 0.125), (1.0, 0.25)])
def test_what_does_not_compile_earns_the_share_that_types(
    typed_share: float, reward: float
) -> None:
    assert score(
        Facts(stage=Stage.TYPES, typed_share=typed_share), GRADUATED
    ).reward == pytest.approx(reward)


def test_tests_that_did_not_run_earn_nothing() -> None:
    assert score(
        Facts(stage=Stage.TESTS, typed_share=1.0, compiled=True), GRADUATED
    ).reward == pytest.approx(0.35)
    assert score(facts(0, 0), GRADUATED).reward == pytest.approx(0.35)


def test_degenerate_answers_keep_three_tenths() -> None:
    found = score(facts(5, 5, "degenerate:prose"), GRADUATED)
    assert found.reward == pytest.approx(0.3)
    assert found.components["degenerate"] == pytest.approx(-0.7)
    assert score(facts(0, 5, "degenerate:stub"), GRADUATED).reward == pytest.approx(0.105)


def test_two_signs_are_no_worse_than_one() -> None:
    assert score(
        facts(5, 5, "degenerate:prose", "degenerate:code_spam"), GRADUATED
    ).reward == pytest.approx(0.3)


def test_other_flags_cost_nothing() -> None:
    assert score(facts(5, 5, "extract:unclosed_fence", "limit:cpu"), GRADUATED).reward == 1.0


@pytest.mark.parametrize(
    ("blocks", "trailing_chars", "style"),
    [
        (0, 0, 0.0),
        (1, 30, 0.0),
        (1, 31, 0.03),
        (2, 0, 0.02),
        (2, 31, 0.05),
        (4, 31, 0.09),
        (50, 10_000, 0.10),
    ],
)
def test_style_takes_at_most_a_tenth(blocks: int, trailing_chars: int, style: float) -> None:
    found = score(facts(5, 5, blocks=blocks, trailing_chars=trailing_chars), GRADUATED)
    assert found.reward == pytest.approx(1 - style)
    assert found.components.get("style", 0.0) == pytest.approx(-style)


def test_style_is_taken_from_answers_that_pass_and_from_no_other() -> None:
    assert "style" not in score(facts(4, 5, blocks=9, trailing_chars=99), GRADUATED).components
    assert "style" not in score(facts(5, 5, "degenerate:prose", blocks=9), GRADUATED).components


def test_style_never_changes_passed() -> None:
    assert facts(5, 5, blocks=50, trailing_chars=10_000).passed
    assert not facts(4, 5).passed


def test_a_suite_without_tests_is_never_passed() -> None:
    assert not facts(0, 0).passed
    assert not Facts(stage=Stage.TESTS, typed_share=1.0, compiled=True).passed


def test_strict_is_all_or_nothing() -> None:
    assert score(facts(5, 5), STRICT) == Score(1.0, {"tests": 1.0})
    assert score(facts(4, 5), STRICT) == Score(0.0, {"tests": 0.0})
    assert score(Facts(stage=Stage.TYPES, typed_share=1.0), STRICT).reward == 0.0


@pytest.mark.parametrize("rubric", sorted(CODE_RUBRICS))
@given(facts=ALL_FACTS)
def test_every_reward_is_a_finite_number_from_zero_to_one_and_the_sum_of_its_components(
    rubric: str, facts: Facts
) -> None:
    found = score(facts, rubric)
    assert math.isfinite(found.reward)
    assert 0 <= found.reward <= 1
    assert found.reward == pytest.approx(sum(found.components.values()), abs=1e-5)


@given(facts=ALL_FACTS, more=st.integers(1, 5))
def test_another_passed_test_never_lowers_an_honest_reward(facts: Facts, more: int) -> None:
    if facts.tests and not facts.degenerate and facts.tests.passed + more < facts.tests.total:
        better = TestCount(passed=facts.tests.passed + more, total=facts.tests.total)
        improved = replace(facts, tests=better, flags=(), blocks=1, trailing_chars=0)
        assert score(improved, GRADUATED).reward > score(facts, GRADUATED).reward


@given(ALL_FACTS)
def test_bad_style_never_makes_a_right_answer_cheaper_than_one_that_fails_a_fifth(
    facts: Facts,
) -> None:
    worst_right = score(
        Facts(
            stage=Stage.TESTS,
            typed_share=1.0,
            compiled=True,
            tests=TestCount(passed=1, total=1),
            blocks=99,
            trailing_chars=99,
        ),
        GRADUATED,
    )
    if not facts.passed and facts.tests_share <= 0.8:
        assert score(facts, GRADUATED).reward < worst_right.reward


def test_a_rubric_that_does_not_exist_is_misuse_that_names_those_there_are() -> None:
    with pytest.raises(Misuse, match="ocaml/graduated@1, ocaml/strict@1"):
        score(facts(1, 1), "ocaml/no_such_rubric@1")


def test_the_first_rubric_of_a_grader_is_its_default() -> None:
    assert rubrics_of("ocaml") == (GRADUATED, STRICT)
    assert rubrics_of("cobol") == ()
