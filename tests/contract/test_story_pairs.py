"""The pair model tells contradictions from other words for the same, with its real weights, and may
be left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.resources import configs
from services.graders.story.grader import StoryGrader
from services.graders.story.pairs import CONTRADICTED, SAME, PairModel
from tests.contract.test_story_grader import ASKED, submission

CASES: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "story" / "meanings.yaml").read_text()
)


@pytest.fixture(scope="module")
def pairs(story_grader: StoryGrader) -> PairModel:
    assert story_grader.pairs is not None
    return story_grader.pairs


def each(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", CASES[name], ids=[case["want"] for case in CASES[name]])


@each("agreeing")
def test_a_want_that_says_the_same_does_not_contradict(
    pairs: PairModel, case: dict[str, str]
) -> None:
    [chances], _ = pairs.compute_chances([(case["reference"], case["want"])])
    assert chances[CONTRADICTED] < chances[SAME]


@each("opposed")
def test_a_want_that_denies_or_undoes_what_was_asked_for_contradicts(
    pairs: PairModel, case: dict[str, str]
) -> None:
    [chances], _ = pairs.compute_chances([(case["reference"], case["want"])])
    assert chances[CONTRADICTED] > chances[SAME]


@each("misread")
@pytest.mark.xfail(strict=True, reason="known weakness of the shipped weights: docs/decisions/0015")
def test_a_want_that_is_misread(pairs: PairModel, case: dict[str, Any]) -> None:
    [chances], _ = pairs.compute_chances([(case["reference"], case["want"])])
    assert (chances[CONTRADICTED] > chances[SAME]) == case["contradicts"]


def test_chances_add_up_and_do_not_depend_on_the_company(pairs: PairModel) -> None:
    wanted = [
        ("pay by card", "pay with a card"),
        ("pay by card", "[SEP] pay \0 never " * 200),
        ("", ""),
    ]
    together, _ = pairs.compute_chances(wanted)
    assert together.sum(1) == pytest.approx([1.0] * 3, abs=1e-5)
    for one, chances in zip(wanted, together, strict=True):
        assert pairs.compute_chances([one])[0][0] == pytest.approx(chances, abs=1e-3)


def test_no_answer_that_contradicts_passes(story_grader: StoryGrader) -> None:
    denied = ASKED[0].replace(
        "I want to pay by card", "I want to make it impossible to pay by card"
    )
    found = story_grader.grade(submission("\n".join([denied, *ASKED[1:]])), "story/weighted@1", 0)
    assert not found.passed
    assert "meaning:contradicts" in found.flags


def test_the_grader_runs_without_a_pair_model_and_says_so(
    tmp_path: Path, story_grader: StoryGrader
) -> None:
    config = tmp_path / "story.yaml"
    config.write_text(
        (configs() / "graders" / "story.yaml").read_text().replace("pairs: shipped", "pairs: none")
    )
    without = StoryGrader(config)
    assert without.info().toolchain.endswith(
        "no pair model: contradictions, harms and villains are not measured"
    )
    assert "pairs" in story_grader.info().toolchain
    assert without.info().revision != story_grader.info().revision
    without.self_test()
    assert without.grade(submission("\n".join(ASKED)), "story/weighted@1", 0).passed
    without.encoder.close()
