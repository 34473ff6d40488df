"""What the program grader sees of an answer, and the rubrics that make a reward of it."""

from __future__ import annotations

from dataclasses import dataclass

from services.graders.base.code import QUIET, SHAPING, TESTS, CodeFacts, shaped, strict
from services.graders.base.rubric import Components, Rubrics, weighted


@dataclass(frozen=True, slots=True)
class ProgramFacts(CodeFacts):
    points_share: float = 0.0
    """Points of the groups of which every case passed, as a share of all, in [0, 1]."""


def _score_groups(facts: ProgramFacts) -> Components:
    return {"groups": facts.points_share}


MEASURES = {
    "compile": lambda facts: float(facts.compiled),
    **TESTS,
    "groups": lambda facts: facts.points_share,
}
RUBRICS: Rubrics[ProgramFacts] = Rubrics(
    {
        "program/graduated@1": weighted(MEASURES, {"compile": 0.1, "tests": 0.9}, shaped),
        "program/strict@1": strict,
        "program/first@1": _score_groups,
    },
    components=(*MEASURES, *SHAPING),
    measures=MEASURES,
    shape=shaped,
    quiet=QUIET,
)
