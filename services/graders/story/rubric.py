"""Rubrics of the story grader."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from gradus.errors import InternalFault
from services.graders.base.rubric import Components, Rubrics, weighted
from services.graders.story.facts import StoryFacts

COVERAGE, FORMAT, CLAUSES, COUNT = 0.65, 0.20, 0.10, 0.05
WITHOUT_BENEFIT = 0.6
"""Share of `clauses` for a story without a benefit; four in ten real ones have none."""
ON_TOPIC = 0.5
"""Coverage from which form is paid in full."""
REDUNDANCY, BENEFITS, BOILERPLATE, TAMPERING = 0.6, 0.4, 0.4, 0.5
USUAL_BOILERPLATE = 0.34
"""Share of the benefits that honest writers repeat."""
FLUENCY, FOCUS, COHERENCE, ROLE = 0.9, 0.9, 0.6, 0.6
"""The most that each check of meaning takes; by how sure it is of what it finds."""
SCRUM_WEIGHTS = {
    "regex": 0.15,
    "clause": 0.20,
    "coverage": 0.30,
    "count": 0.10,
    "length": 0.10,
    "redundancy": 0.20,
    "extraneous": 0.15,
}


def _score_topic(facts: StoryFacts) -> float:
    return min(1.0, facts.coverage / ON_TOPIC)


def _score_format(facts: StoryFacts) -> float:
    """Return share of well-formed lines, by how much they are on topic."""
    return _score_topic(facts) * facts.stories / facts.lines if facts.coverage else 0.0


def _score_count(facts: StoryFacts) -> float:
    return _score_topic(facts) * math.exp(
        -abs(facts.lines - facts.references) / max(2.0, facts.references / 4)
    )


MEASURES: Mapping[str, Callable[[StoryFacts], float]] = {
    "coverage": lambda facts: facts.coverage,
    "format": _score_format,
    "clauses": lambda facts: (
        _score_format(facts) * (WITHOUT_BENEFIT + (1 - WITHOUT_BENEFIT) * facts.benefits)
    ),
    "count": _score_count,
}
"""Form counts on topic only."""


def _apply_charges(parts: Components, facts: StoryFacts) -> Components:
    """`parts` and what each thing wrong takes of what is left."""
    if not facts.coverage:
        return {"coverage": 0.0}
    remaining = sum(parts.values())
    for name, charge in _compute_charges(facts).items():
        if charge:
            parts[name] = -charge * remaining
            remaining *= 1 - charge
    return parts


def _compute_charges(facts: StoryFacts) -> Components:
    """Return shares in [0, 1] of the reward that are taken away."""
    senses = facts.senses
    return {
        "redundancy": REDUNDANCY * facts.repeats / facts.stories,
        "benefits": BENEFITS * max(0.0, facts.benefits_wanted - facts.benefits),
        "boilerplate": BOILERPLATE
        * max(0.0, facts.boilerplate - USUAL_BOILERPLATE)
        / (1 - USUAL_BOILERPLATE),
        "fluency": FLUENCY * (1 - senses.fluency),
        "focus": FOCUS * (1 - senses.focus),
        "coherence": COHERENCE * (1 - senses.coherence),
        "role": ROLE * (1 - senses.role),
        "tampering": TAMPERING if facts.tampered else 0.0,
    }


def _score_scrum(facts: StoryFacts) -> Components:
    """Return the weighted sum that its authors used, and what clipping it at 0 gives back."""
    if facts.scrum is None:
        raise InternalFault("the facts for story/scrum@1 were not gathered", retryable=False)
    parts = {name: weight * getattr(facts.scrum, name) for name, weight in SCRUM_WEIGHTS.items()}
    parts["clipped"] = max(0.0, -sum(parts.values()))
    return parts


WEIGHTS = {"coverage": COVERAGE, "format": FORMAT, "clauses": CLAUSES, "count": COUNT}
CHARGES = (
    "redundancy",
    "benefits",
    "boilerplate",
    "fluency",
    "focus",
    "coherence",
    "role",
    "tampering",
)
RUBRICS: Rubrics[StoryFacts] = Rubrics(
    {
        "story/weighted@1": weighted(MEASURES, WEIGHTS, _apply_charges),
        "story/scrum@1": _score_scrum,
    },
    components=tuple(dict.fromkeys((*MEASURES, *CHARGES, *SCRUM_WEIGHTS, "clipped"))),
    measures=MEASURES,
    shape=_apply_charges,
    quiet=frozenset({"clipped"}),
)
