"""Rubrics of the OCaml grader."""

from collections.abc import Callable, Mapping

from services.graders.base.code import QUIET, SHAPING, TESTS, CodeFacts, shaped, strict
from services.graders.base.rubric import Rubrics, weighted

MEASURES: Mapping[str, Callable[[CodeFacts], float]] = {
    "types": lambda facts: facts.typed_share,
    "compile": lambda facts: float(facts.compiled),
    **TESTS,
}
RUBRICS: Rubrics[CodeFacts] = Rubrics(
    {
        "ocaml/graduated@1": weighted(
            MEASURES, {"types": 0.25, "compile": 0.10, "tests": 0.65}, shaped
        ),
        "ocaml/strict@1": strict,
    },
    components=(*MEASURES, *SHAPING),
    measures=MEASURES,
    shape=shaped,
    quiet=QUIET,
)
