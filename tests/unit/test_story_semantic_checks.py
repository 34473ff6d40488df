"""What words say of a want beyond its vector: doubt, order, length, benefits, roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
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
    assert semantic_checks.is_hedged(case["want"], frozenset())
    assert not semantic_checks.is_hedged(case["want"], frozenset(extract_stems(case["want"])))
    assert not semantic_checks.is_hedged(case["reference"], frozenset())


def test_a_benefit_is_its_own_unless_it_only_says_the_want_again() -> None:
    assert semantic_checks.has_own_benefit("pay by card", "I need no cash")
    assert not semantic_checks.has_own_benefit("pay by card", "I can pay by card")
    assert not semantic_checks.has_own_benefit("pay by card", "")


def test_words_of_the_task_and_usual_ones_explain_a_benefit() -> None:
    known = frozenset(extract_stems("repair heaters"))
    assert semantic_checks.compute_explained_share("the heater is repaired quickly", known) == 1.0
    assert semantic_checks.compute_explained_share("walruses juggle lanterns", known) == 0.0
    assert semantic_checks.compute_explained_share("", known) == 1.0


def test_a_role_is_known_where_the_task_has_its_last_word() -> None:
    known = frozenset(extract_stems("the tadpoles are our team"))
    assert semantic_checks.is_known_role("Tadpole", known)
    assert not semantic_checks.is_known_role("teapot of tadpoles in space", known)
    assert not semantic_checks.is_known_role("teapot", ())


def test_a_role_of_another_reference_is_the_wrong_one() -> None:
    clerk, owner = frozenset(extract_stems("clerk")), frozenset(extract_stems("shop owner"))
    assert semantic_checks.is_others_role("shop owner", clerk, {clerk, owner})
    assert not semantic_checks.is_others_role("clerk", clerk, {clerk, owner})
    assert not semantic_checks.is_others_role("cashier", clerk, {clerk, owner})
    assert not semantic_checks.is_others_role("owner", frozenset(), {clerk, owner})


def test_a_want_about_stories_is_one_unless_the_task_is_about_them() -> None:
    assert semantic_checks.is_about_stories("write a user story for this sprint", frozenset())
    assert not semantic_checks.is_about_stories(
        "write a story", frozenset(extract_stems("a club of people who write stories"))
    )


@pytest.mark.parametrize("name", ["fluency", "sense", "party"])
def test_every_probe_fits_the_model_and_gives_shares(name: str) -> None:
    probe = semantic_checks.load_probe(name)
    assert probe.weights.shape == (384,)
    assert probe.low < probe.high
    found = probe(np.random.default_rng(1).normal(size=(50, 384)).astype(np.float32))
    assert found.min() >= 0
    assert found.max() <= 1


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
