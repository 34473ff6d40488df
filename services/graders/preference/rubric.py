"""What the preference grader sees of a submission, the score of a reward model, and the rubric of
it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from services.graders.base import Facts
from services.graders.base.rubric import Components, Rubrics


@dataclass(frozen=True, slots=True)
class PreferenceFacts(Facts):
    """Never passes: a score has no line beyond which a text is right."""

    score: float
    """As the model gives it: finite, without bounds or unit."""
    centre: float
    """The score of a text that is as good as not."""
    scale: float
    """How much more of score makes a text e times as likely to be the preferred one; positive."""


MAX_TOLD_SCORE = 1e6
"""Largest absolute score of a reward model in the components: below it, six decimal places still
add up."""


def _compute_preference(facts: PreferenceFacts) -> float:
    """Return the chance, by Bradley and Terry, to be preferred to a text that scores `centre`."""
    odds = max(-700.0, min(700.0, (facts.score - facts.centre) / facts.scale))
    return 1 / (1 + math.exp(-odds))


def _score_sigmoid(facts: PreferenceFacts) -> Components:
    """Return the chance to be preferred, with the score itself: `squashed` is what makes the chance
    of the score."""
    score = round(max(-MAX_TOLD_SCORE, min(MAX_TOLD_SCORE, facts.score)), 6)
    return {"score": score, "squashed": _compute_preference(facts) - score}


MEASURES = {"preferred": _compute_preference}
RUBRICS: Rubrics[PreferenceFacts] = Rubrics(
    {"preference/sigmoid@1": _score_sigmoid}, components=("score", "squashed"), measures=MEASURES
)
