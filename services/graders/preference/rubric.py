"""Rubrics of the preference grader."""

from __future__ import annotations

import math

from services.graders.base.rubric import Components, Rubrics
from services.graders.preference.facts import PreferenceFacts

MAX_TOLD_SCORE = 1e6
"""Of a reward model, up or down, in the components: six places behind the point still add up there."""


def _preferred(facts: PreferenceFacts) -> float:
    """The chance, by Bradley and Terry, to be preferred to a text that scores `centre`."""
    odds = max(-700.0, min(700.0, (facts.score - facts.centre) / facts.scale))
    return 1 / (1 + math.exp(-odds))


def _sigmoid(facts: PreferenceFacts) -> Components:
    """The chance to be preferred, with the score itself: `squashed` is what makes the chance of the score."""
    told = round(max(-MAX_TOLD_SCORE, min(MAX_TOLD_SCORE, facts.score)), 6)
    return {"score": told, "squashed": _preferred(facts) - told}


MEASURES = {"preferred": _preferred}
RUBRICS: Rubrics[PreferenceFacts] = Rubrics(
    {"preference/sigmoid@1": _sigmoid}, components=("score", "squashed"), measures=MEASURES
)
