"""Rubrics of the story grader."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradus.errors import InternalFault
from services.graders.base.rubric import Components, Rubrics, weighted
from services.graders.story.facts import CLAUSES, FORMAT, ROLES, StoryFacts

TAMPERING = 0.7
"""Share of the reward that a text loses that is not what it seems."""
SCRUM_WEIGHTS = {
    "regex": 0.15,
    "clause": 0.20,
    "coverage": 0.30,
    "count": 0.10,
    "length": 0.10,
    "redundancy": 0.20,
    "extraneous": 0.15,
}


def _score_format(facts: StoryFacts) -> float:
    """Return the share of lines that are stories, in proportion to coverage."""
    return facts.coverage * facts.stories / facts.lines if facts.lines else 0.0


MEASURES: Mapping[str, Callable[[StoryFacts], float]] = {
    "coverage": lambda facts: facts.coverage,
    "roles": lambda facts: facts.share(facts.roles),
    "clauses": lambda facts: facts.share(facts.benefits),
    "format": _score_format,
}
"""Each is at most the coverage: half of the stories earn half."""


def _apply_charges(parts: Components, facts: StoryFacts) -> Components:
    """`parts` and what a text loses that is not what it seems."""
    if facts.tampered and facts.coverage:
        parts["tampering"] = -TAMPERING * sum(parts.values())
    return parts


def _score_scrum(facts: StoryFacts) -> Components:
    """Return the weighted sum that its authors used, and what clipping it at 0 gives back."""
    if facts.scrum is None:
        raise InternalFault("the facts for story/scrum@1 were not gathered", retryable=False)
    parts = {name: weight * getattr(facts.scrum, name) for name, weight in SCRUM_WEIGHTS.items()}
    parts["clipped"] = max(0.0, -sum(parts.values()))
    return parts


WEIGHTS = {
    "coverage": 1 - ROLES - CLAUSES - FORMAT,
    "roles": ROLES,
    "clauses": CLAUSES,
    "format": FORMAT,
}
RUBRICS: Rubrics[StoryFacts] = Rubrics(
    {
        "story/weighted@1": weighted(MEASURES, WEIGHTS, _apply_charges),
        "story/scrum@1": _score_scrum,
    },
    components=tuple(dict.fromkeys((*MEASURES, "tampering", *SCRUM_WEIGHTS, "clipped"))),
    measures=MEASURES,
    shape=_apply_charges,
    quiet=frozenset({"clipped"}),
)
