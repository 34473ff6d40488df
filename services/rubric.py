"""Facts -> reward. Rubrics are pure and versioned: one that could give the same facts another reward is a new version.

Runs nothing and knows no compiler, so shaping can be read, changed and tested without one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gradus.contract import Stage
from gradus.errors import InternalFault, Misuse
from services.facts import Facts, PreferenceFacts, StoryFacts

Components = dict[str, float]

TYPES, COMPILE, TESTS = 0.25, 0.10, 0.65
CHECK, CLIPPY = 0.25, 0.10
DEGENERATE_FACTOR = 0.3
MAX_STYLE = 0.10
STYLE_PER_BLOCK = 0.02
STYLE_TRAILING = 0.03
TRAILING_CHARS = 30

COVERAGE, FORMAT, CLAUSES, COUNT, LENGTH = 0.65, 0.10, 0.10, 0.05, 0.10
WITHOUT_BENEFIT = 0.6
"""Of `clauses`, for a story without a benefit: four in ten real ones have none."""
ON_TOPIC = 0.5
"""Coverage from which form is paid in full."""
REDUNDANCY, EXTRANEOUS, BENEFITS, BOILERPLATE, TAMPERING = 0.6, 0.25, 0.35, 0.4, 0.5
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
MAX_TOLD_SCORE = 1e6
"""Of a reward model, up or down, in the components: six places behind the point still add up there."""


@dataclass(frozen=True, slots=True)
class Score:
    reward: float
    components: Components
    """They add up to `reward`."""


def _graduated(facts: Facts) -> Components:
    parts = {"types": TYPES * facts.typed_share, "compile": COMPILE if facts.compiled else 0.0}
    parts["tests"] = TESTS * facts.tests_share
    return _shaped(parts, facts)


def _shaped(parts: Components, facts: Facts) -> Components:
    """`parts` with what the form of the completion takes from them."""
    base = sum(parts.values())
    if facts.degenerate:
        parts["degenerate"] = -(1 - DEGENERATE_FACTOR) * base
    elif facts.passed:
        parts["style"] = -_style(facts)
    return parts


def _style(facts: Facts) -> float:
    """At most MAX_STYLE, and only taken from answers that pass: it orders the right ones, it never hides one."""
    extra_blocks = STYLE_PER_BLOCK * max(0, facts.blocks - 1)
    return min(MAX_STYLE, extra_blocks + (STYLE_TRAILING if facts.trailing_chars > TRAILING_CHARS else 0.0))


def _rust_graduated(facts: Facts) -> Components:
    parts = {"check": CHECK * facts.typed_share}
    parts["clippy"] = CLIPPY / (1 + facts.warnings) if facts.compiled else 0.0
    parts["tests"] = TESTS * facts.tests_share
    return _shaped(parts, facts)


def _tiered(facts: Facts) -> Components:
    """No code -1, does not compile -0.3, tests fail 0.1, tests pass 0.7, and without a warning 1; as (tier + 1) / 2.

    The tiers are those that trainers of Rust know; shifting all of them by one line keeps every advantage in GRPO.
    """
    if facts.passed:
        tier = 0.7 if facts.lints else 1.0
    elif facts.compiled:
        tier = 0.1
    else:
        tier = -1.0 if facts.stage is Stage.EXTRACT else -0.3
    return {"tier": (tier + 1) / 2}


def _strict(facts: Facts) -> Components:
    return {"tests": 1.0 if facts.passed else 0.0}


def _story_weighted(facts: StoryFacts) -> Components:
    """Most for what was asked for; form pays on topic only; then each thing wrong takes a share of what is left."""
    coverage = facts.coverage
    if not coverage:
        return {"coverage": 0.0}
    on_topic = min(1.0, coverage / ON_TOPIC)
    good = facts.stories / facts.lines
    parts = {"coverage": COVERAGE * coverage, "format": on_topic * FORMAT * good}
    parts["clauses"] = on_topic * CLAUSES * good * (WITHOUT_BENEFIT + (1 - WITHOUT_BENEFIT) * facts.benefits)
    parts["count"] = on_topic * COUNT * math.exp(-abs(facts.lines - facts.references) / max(2.0, facts.references / 4))
    parts["length"] = on_topic * LENGTH * good * facts.fitting_length
    left = sum(parts.values())
    for name, charge in _story_charges(facts).items():
        if charge:
            parts[name] = -charge * left
            left *= 1 - charge
    return parts


def _story_charges(facts: StoryFacts) -> Components:
    """Shares in [0, 1] of the reward that are taken away."""
    senses = facts.senses
    return {
        "redundancy": REDUNDANCY * facts.repeats / facts.stories,
        "extraneous": EXTRANEOUS * (1 - facts.stories / facts.lines),
        "benefits": BENEFITS * max(0.0, facts.benefits_wanted - facts.benefits),
        "boilerplate": BOILERPLATE * max(0.0, facts.boilerplate - USUAL_BOILERPLATE) / (1 - USUAL_BOILERPLATE),
        "fluency": FLUENCY * (1 - senses.fluency),
        "focus": FOCUS * (1 - senses.focus),
        "coherence": COHERENCE * (1 - senses.coherence),
        "role": ROLE * (1 - senses.role),
        "tampering": TAMPERING if facts.tampered else 0.0,
    }


def _story_scrum(facts: StoryFacts) -> Components:
    """The weighted sum that its authors used, and what clipping it at 0 gives back."""
    if facts.scrum is None:
        raise InternalFault("the facts for story/scrum@1 were not gathered", retryable=False)
    parts = {name: weight * getattr(facts.scrum, name) for name, weight in SCRUM_WEIGHTS.items()}
    parts["clipped"] = max(0.0, -sum(parts.values()))
    return parts


def _preference_sigmoid(facts: PreferenceFacts) -> Components:
    """The chance, by Bradley and Terry, to be preferred to a text that scores `centre`; the score as it is beside it.

    `squashed` is what makes the chance of the score, as `clipped` is for the sum of story/scrum@1.
    """
    odds = max(-700.0, min(700.0, (facts.score - facts.centre) / facts.scale))
    chance = 1 / (1 + math.exp(-odds))
    told = round(max(-MAX_TOLD_SCORE, min(MAX_TOLD_SCORE, facts.score)), 6)
    return {"score": told, "squashed": chance - told}


CODE_RUBRICS: Mapping[str, Callable[[Facts], Components]] = {
    "ocaml/graduated@1": _graduated,
    "ocaml/strict@1": _strict,
    "rust/graduated@1": _rust_graduated,
    "rust/tiered@1": _tiered,
    "rust/strict@1": _strict,
}
STORY_RUBRICS: Mapping[str, Callable[[StoryFacts], Components]] = {
    "story/weighted@1": _story_weighted,
    "story/scrum@1": _story_scrum,
}
PREFERENCE_RUBRICS: Mapping[str, Callable[[PreferenceFacts], Components]] = {
    "preference/sigmoid@1": _preference_sigmoid,
}
RUBRICS = (*CODE_RUBRICS, *STORY_RUBRICS, *PREFERENCE_RUBRICS)
_UNSEEN = frozenset({"style", "clipped"})
"""Components that are only told when they are not 0."""


def score(facts: Facts | StoryFacts | PreferenceFacts, rubric: str) -> Score:
    """The reward of `facts` under `rubric`, in [0, 1]. Raises Misuse for a rubric that does not exist or fit."""
    if rubric not in RUBRICS:
        raise Misuse(f"there is no rubric {rubric!r}; there are: {', '.join(sorted(RUBRICS))}")
    components = {
        name: round(value, 6) for name, value in _weighed(facts, rubric).items() if value or name not in _UNSEEN
    }
    return Score(min(1.0, max(0.0, round(sum(components.values()), 6))), components)


def _weighed(facts: Facts | StoryFacts | PreferenceFacts, rubric: str) -> Components:
    if isinstance(facts, StoryFacts) and rubric in STORY_RUBRICS:
        return STORY_RUBRICS[rubric](facts)
    if isinstance(facts, PreferenceFacts) and rubric in PREFERENCE_RUBRICS:
        return PREFERENCE_RUBRICS[rubric](facts)
    if isinstance(facts, Facts) and rubric in CODE_RUBRICS:
        return CODE_RUBRICS[rubric](facts)
    raise Misuse(f"the rubric {rubric!r} is another grader's")


def rubrics_of(grader: str) -> tuple[str, ...]:
    """Names of the grader's rubrics; the first is its default."""
    return tuple(name for name in RUBRICS if name.startswith(f"{grader}/"))
