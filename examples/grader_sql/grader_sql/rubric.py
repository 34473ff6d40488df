"""What the SQL grader observes of an answer, and the rubrics that make a reward of it."""

from dataclasses import dataclass

from services.graders.base.code import QUIET, SHAPING, TESTS, CodeFacts, shaped, strict
from services.graders.base.rubric import Rubrics, weighted


@dataclass(frozen=True, slots=True)
class SqlFacts(CodeFacts):
    returned_share: float = 0.0
    """Share of the cases in which the query returned rows, right or wrong, in [0, 1]."""


MEASURES = {
    "compile": lambda facts: float(facts.compiled),
    "returns": lambda facts: facts.returned_share,
    **TESTS,
}
RUBRICS: Rubrics[SqlFacts] = Rubrics(
    {
        "sql/graduated@1": weighted(
            MEASURES, {"compile": 0.1, "returns": 0.1, "tests": 0.8}, shaped
        ),
        "sql/strict@1": strict,
    },
    components=(*MEASURES, *SHAPING),
    measures=MEASURES,
    shape=shaped,
    quiet=QUIET,
)
