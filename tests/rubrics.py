"""The shipped rubrics of all graders under one roof, as tests of rewards use them."""

from __future__ import annotations

from typing import Any

from gradus.errors import Misuse
from services.graders.base.rubric import Rubrics, Score
from services.graders.story.rubric import SCRUM_WEIGHTS
from tests.graders import GRADERS, class_of

SHIPPED: dict[str, Rubrics[Any]] = {name: class_of(name).shipped for name in GRADERS}
RUBRICS = {name: rubric for rubrics in SHIPPED.values() for name, rubric in rubrics.rubrics.items()}
CODE_RUBRICS = {
    name: rubric for name, rubric in RUBRICS.items() if name.startswith(("ocaml/", "rust/"))
}
STORY_RUBRICS = SHIPPED["story"].rubrics

__all__ = [
    "CODE_RUBRICS",
    "RUBRICS",
    "SCRUM_WEIGHTS",
    "SHIPPED",
    "STORY_RUBRICS",
    "Score",
    "rubrics_of",
    "score",
]


def rubrics_of(grader: str) -> tuple[str, ...]:
    return tuple(SHIPPED[grader].rubrics) if grader in SHIPPED else ()


def score(facts: Any, rubric: str) -> Score:
    if rubric not in RUBRICS:
        raise Misuse(f"there is no rubric {rubric!r}; there are: {', '.join(RUBRICS)}")
    return SHIPPED[rubric.partition("/")[0]].score(facts, rubric)
