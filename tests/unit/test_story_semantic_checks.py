"""What words say of a want beyond its vector: doubt, order, length, benefits, roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import strategies as st

from services.graders.story import lexicon, semantic_checks
from services.graders.story.lexicon import extract_stems, extract_words, load_word_list, stem

CASES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "story" / "meanings.yaml").read_text()
)
WORDS = st.text(st.sampled_from("abzAZ09 '-_,.\t\n\x00\x7f\u00e9\u0130\u212a"), max_size=40)
LISTS = sorted(path.stem for path in Path(semantic_checks.__file__).parent.glob("*.txt"))


def test_long_words_have_stems_that_are_not_kept() -> None:
    before = lexicon._stem.cache_info().currsize
    assert lexicon.stem("a" * 1000 + "ing") == "a" * 999
    assert lexicon._stem.cache_info().currsize == before


@pytest.mark.parametrize("case", CASES["hedged"], ids=[case["want"] for case in CASES["hedged"]])
def test_a_want_may_be_left_open(case: dict[str, str]) -> None:
    assert semantic_checks.is_hedged(case["want"])
    assert not semantic_checks.is_hedged(case["reference"])


@pytest.mark.parametrize("want", CASES["certain"])
def test_doubt_about_something_else_is_no_doubt_about_the_want(want: str) -> None:
    assert not semantic_checks.is_hedged(want)


def test_a_benefit_is_its_own_unless_it_only_says_the_want_again() -> None:
    assert semantic_checks.has_own_benefit("pay by card", "I need no cash")
    assert not semantic_checks.has_own_benefit("pay by card", "I can pay by card")
    assert not semantic_checks.has_own_benefit("pay by card", "")


@pytest.mark.parametrize("case", CASES["denied"], ids=[case["want"] for case in CASES["denied"]])
def test_the_own_words_of_a_reference_denied_are_a_denial(case: dict[str, str]) -> None:
    assert semantic_checks.is_denial(case["want"], case["reference"])
    assert semantic_checks.is_denial(case["reference"], case["want"])
    assert not semantic_checks.is_denial(case["want"], case["want"])


@pytest.mark.parametrize(
    "case", CASES["agreeing"], ids=[case["want"] for case in CASES["agreeing"]]
)
def test_honest_wants_with_negative_words_are_no_denials(case: dict[str, str]) -> None:
    assert not semantic_checks.is_denial(case["want"], case["reference"])
    assert not semantic_checks.is_hedged(case["want"])


@pytest.mark.parametrize("criterion", CASES["taken back"])
def test_a_criterion_may_take_a_want_back(criterion: str) -> None:
    assert semantic_checks.takes_back([criterion], "cancel a visit by text message")


@pytest.mark.parametrize("criterion", CASES["criteria"])
def test_criteria_with_negative_words_take_nothing_back(criterion: str) -> None:
    assert not semantic_checks.takes_back([criterion], "cancel a visit by text message")


def test_parts_of_a_want_are_what_joins_join() -> None:
    assert semantic_checks.count_parts("cancel a visit by text message") == 1
    assert semantic_checks.count_parts("book, move or cancel a visit") == 3


def test_a_benefit_ranks_behind_those_that_say_the_same() -> None:
    benefits = ["I save time", "I save much time", None, "it is safe", "time is saved for me"]
    assert semantic_checks.rank_benefits(benefits) == [0, 1, 0, 0, 2]


def test_a_want_about_stories_is_one_unless_the_task_is_about_them() -> None:
    assert semantic_checks.is_about_stories("write a user story for this sprint", frozenset())
    assert not semantic_checks.is_about_stories(
        "write a story", frozenset(extract_stems("a club of people who write stories"))
    )


@pytest.mark.parametrize("name", LISTS)
def test_every_list_of_words_holds_words_in_lower_case(name: str) -> None:
    words = load_word_list(name)
    assert words
    assert all(extract_words(word) == (word,) for word in words)


@pytest.mark.parametrize(
    ("one", "other"),
    [("uploads", "uploaded"), ("notification", "notify"), ("filters", "filtering")],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one)[:5] == stem(other)[:5]
