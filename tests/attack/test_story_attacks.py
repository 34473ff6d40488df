"""Dishonest answers to story tasks earn less than an honest one with half of its stories missing;
honest ones compare.

The attacks are `story/*.yaml` (by hand) and the twists of `story_twists.py`. The twists change
references of shipped tasks, and their solutions, which say the same in other words. The fast tests
take every fifth task, the slow ones all. Attacks that pay are listed in `story/exceptions.yaml`. An
exception whose attack pays no longer, or whose figures are out of date, fails here. Figures of
twists are means over all tasks. `python -m tests.attack.story_table` prints the figures.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from services.attacks.stories import (
    KnownException,
    Outcome,
    check_outcome,
    compute_outcomes,
    iter_submissions,
    load_exceptions,
    load_sprints,
    split_halves,
)
from services.graders.story.grader import StoryGrader
from services.local_grading import grade_in_order
from tests.attack.story_benchmark import ALL, RUBRIC, SAMPLE, SOURCES, Field, measured
from tests.attack.story_perturbations import ATTACKS, LAYOUTS

LAYOUT_TOLERANCE = 0.02
SPRINTS = load_sprints()
EXCEPTIONS = load_exceptions()


EVERY_TASK = (pytest.mark.slow, pytest.mark.timeout(1200))
"""66 sprints times about 60 answers: some minutes of CPU."""


@pytest.fixture(scope="module")
def found(story_grader: StoryGrader) -> dict[tuple[str, str], Outcome]:
    """What every attack of the corpus earned, by file and class."""
    results = grade_in_order(story_grader, iter_submissions(SPRINTS), RUBRIC, 16)
    return {(one.sprint.name, one.attack.kind): one for one in compute_outcomes(SPRINTS, results)}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(("solutions", SAMPLE), id="solutions of a sample", marks=pytest.mark.slow),
        *(
            pytest.param((source, ALL), id=f"{source} of all", marks=EVERY_TASK)
            for source in SOURCES
        ),
    ],
)
def field(story_grader: StoryGrader, request: pytest.FixtureRequest) -> Field:
    """The rewards of the twists and the honest answers on shipped tasks, from one source."""
    return measured(story_grader, *request.param)


# ----------------------------------------------------------------------------------------- by hand


def test_the_corpus_has_many_classes_on_many_sprints() -> None:
    classes = Counter(attack.kind for sprint in SPRINTS for attack in sprint.attacks)
    assert len(SPRINTS) >= 8
    assert len(classes) >= 60
    for sprint in SPRINTS:
        kinds = [attack.kind for attack in sprint.attacks]
        assert len(kinds) == len(set(kinds)), sprint.name


@pytest.mark.parametrize(("file", "kind"), [(s.name, a.kind) for s in SPRINTS for a in s.attacks])
def test_an_attack_earns_less_than_half_an_honest_answer(
    found: dict[tuple[str, str], Outcome], file: str, kind: str
) -> None:
    outcome = found[file, kind]
    _, problem = check_outcome(outcome, EXCEPTIONS)
    assert problem is None, f"{problem}: {outcome.result}"


def test_every_exception_is_of_an_attack_that_there_is() -> None:
    known = {(sprint.name, attack.kind) for sprint in SPRINTS for attack in sprint.attacks}
    known |= {(source, kind) for source in SOURCES for kind in ATTACKS}
    assert EXCEPTIONS.keys() <= known


def test_an_exception_that_is_none_any_more_is_told(found: dict[tuple[str, str], Outcome]) -> None:
    held = min(found.values(), key=lambda one: one.reward - one.half)
    through = Outcome(held.sprint, held.attack, held.result, half=held.reward - 0.01)
    known = KnownException.model_validate(
        {
            "file": held.sprint.name,
            "class": held.attack.kind,
            "reward": held.reward,
            "half": through.half,
            "reason": "it only stands in this test",
        }
    )
    listed = {(known.file, known.kind): known}
    stale = {(known.file, known.kind): known.model_copy(update={"reward": held.reward + 0.1})}
    assert check_outcome(held, {}) == ("held", None)
    assert check_outcome(held, listed) == ("held", "is listed as an exception and is none any more")
    assert check_outcome(through, {})[0] == "THROUGH"
    assert check_outcome(through, listed) == ("known", None)
    assert "not what is listed" in str(check_outcome(through, stale)[1])


def test_halves_share_no_story_and_are_of_one_size() -> None:
    assert split_halves(["a", "b", "c", "d", "e"]) == ("a\nc", "b\nd")


# ---------------------------------------------------------------------- by machine


@pytest.mark.parametrize("kind", ATTACKS)
def test_a_twisted_answer_earns_less_than_half_an_honest_one_on_average(
    field: Field, kind: str
) -> None:
    assert field.problem_with(kind, EXCEPTIONS) is None


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_an_honest_answer_does_not_matter(field: Field, layout: str) -> None:
    differences = {
        name: round(laid_out - full, 3)
        for name, laid_out, full in zip(field.names, field.layouts[layout], field.full, strict=True)
        if abs(laid_out - full) > LAYOUT_TOLERANCE
    }
    assert differences == {}


def test_more_of_an_honest_answer_earns_more(field: Field) -> None:
    parts = (field.full, field.one_missing, field.half, field.one_story)
    means = [field.mean_of(part) for part in parts]
    assert all(more - less > 0.03 for more, less in pairwise(means))
    if field.source == "references":
        for name, *earned in zip(field.names, *parts, strict=True):
            assert earned == sorted(set(earned), reverse=True), name


def test_what_was_not_asked_for_costs_something(field: Field) -> None:
    assert field.mean_of(field.two_foreign) < field.mean_of(field.full) - 0.03
    assert field.mean_of(field.foreign) <= 0.25
