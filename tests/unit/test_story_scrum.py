"""The seven quantities of the reference reward: small cases by hand, larger ones against a plain
second version."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.graders.story.facts import ScrumFacts
from services.graders.story.scrum import build_scrum_facts

STORY = "As a shopper, I want to pay by card, so that I need no cash."
ANGLES = {"pay": 0.0, "see": 90.0, "print": 45.0}


def embed(texts: Sequence[str]) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """By the last known word of the text; any other text points at 180 degrees."""
    turned = []
    for text in texts:
        known = [ANGLES[word] for word in re.findall(r"\w+", text.lower()) if word in ANGLES]
        turned.append(math.radians(known[-1] if known else 180.0))
    return np.array([[math.cos(one), math.sin(one)] for one in turned], np.float32)


def facts(completion: str, *references: str) -> ScrumFacts:
    return build_scrum_facts(completion, references, embed, max_characters=32_000, max_lines=256)


def test_one_story_for_one_issue() -> None:
    found = facts(STORY, "pay by card")
    assert (found.regex, found.clause, found.coverage, found.count) == (
        1.0,
        1.0,
        pytest.approx(1.0),
        1.0,
    )
    assert found.length == 0.0  # 14 words where the issue has 3
    assert (found.redundancy, found.extraneous) == (0.0, 0.0)


def test_an_issue_for_which_no_line_is_left_counts_minus_one() -> None:
    found = facts("pay\nprint", "pay", "see", "see")
    assert found.coverage == pytest.approx((1.0 + math.cos(math.radians(45)) - 1.0) / 3)
    assert found.count == pytest.approx(math.exp(-0.5))


def test_the_choice_is_greedy_and_depends_on_the_order_of_the_issues() -> None:
    first = facts("print\npay", "see", "print").coverage
    second = facts("print\npay", "print", "see").coverage
    assert first == pytest.approx(
        (math.cos(math.radians(45)) + math.cos(math.radians(45))) / 2, abs=1e-6
    )
    assert second == pytest.approx((1.0 + 0.0) / 2, abs=1e-6)


def test_length_is_a_parabola_around_the_mean_of_the_issues() -> None:
    assert facts("pay now please", "pay now", "see it").length == pytest.approx(1 - 0.25)
    assert facts("pay", "pay now", "see it").length == pytest.approx(1 - 0.25)
    assert facts("pay " * 5, "pay now", "see it").length == 0.0


def test_redundancy_has_no_bound() -> None:
    assert facts("pay\n" * 8, "pay").redundancy == pytest.approx(-28 / 8)


def test_clauses_are_looked_for_inside_of_words() -> None:
    found = facts("He has a plan", "pay")
    assert found.clause == pytest.approx(1 / 3)
    assert found.extraneous == pytest.approx(-2 / 3)


@pytest.mark.parametrize(
    ("line", "fits"),
    [
        (STORY, True),
        ("1. as an owner i want to see sales so that i know", True),
        ("- **as a user, i want x so that y", True),
        ("As a [role], I want [action], so that [benefit]", True),
        ("As a user, I want to pay, so that I can. As a clerk, I want x, so that y.", True),
        ("**As a** user, **I want** x, **so that** y", False),
        ("As a user from Paris, France, I want x, so that y", False),
        ("As a user, I want x", False),
        ("I want x so that y", False),
        ("As a, I want x, so that y", False),
        ("As a user, I want so that y", True),
        ("As a user, I want x so that", False),
        ("As a user, on tour, I want x, so that y", False),
    ],
)
def test_the_pattern_of_a_line_is_the_one_of_its_authors(line: str, fits: bool) -> None:
    assert facts(line, "pay").regex == float(fits)


def test_the_text_behind_the_first_end_of_thinking_counts() -> None:
    assert facts(f"see</THINK>{STORY}", "pay").regex == 1.0
    assert facts(f"see</think>{STORY}\n</think>\nsee", "pay").regex == pytest.approx(1 / 3)
    assert facts(STORY, "pay") == facts(f"<think>hm</think>\n{STORY}", "pay")


def test_nothing_is_worth_nothing_but_for_the_count() -> None:
    assert facts("", "pay", "see") == ScrumFacts(0, 0, 0, math.exp(-1), 0, 0, 0)
    assert facts("pay", '""').coverage == 0.0


def test_a_line_of_many_wants_is_looked_at_in_little_time() -> None:
    assert facts("as a b i want " * 2000, "pay").regex == 0.0


LINES = st.lists(
    st.sampled_from(["pay", "see it", "print", "other", STORY, "As a x I want to see", "so that"]),
    max_size=7,
)


@given(
    LINES, st.lists(st.sampled_from(["pay", "see", "print now", "other"]), min_size=1, max_size=5)
)
def test_a_plain_second_version_agrees(lines: list[str], issues: list[str]) -> None:
    found = facts("\n".join(lines), *issues)
    assert found.coverage == pytest.approx(_coverage(lines, issues), abs=1e-6)
    assert found.redundancy == pytest.approx(_redundancy(lines), abs=1e-6)
    assert found.extraneous == pytest.approx(found.clause - 1 if lines else 0.0)
    assert -1 <= found.coverage <= 1 + 1e-6


def _coverage(lines: list[str], issues: list[str]) -> float:
    if not lines:
        return 0.0
    used: set[int] = set()
    total = 0.0
    for issue in issues:
        scores = []
        for number, line in enumerate(lines):
            one, other = embed([issue, line])
            scores.append(-1.0 if number in used else float(one @ other))
        best = max(range(len(lines)), key=lambda number: scores[number])
        used.add(best)
        total += scores[best]
    return total / len(issues)


def _redundancy(lines: list[str]) -> float:
    pairs = 0
    for number, line in enumerate(lines):
        for other in lines[:number]:
            one, two = embed([line, other])
            pairs += float(one @ two) > 0.8
    return -pairs / len(lines) if lines else 0.0
