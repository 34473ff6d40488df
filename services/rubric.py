"""Facts -> reward. Rubrics are pure and versioned: one that could give the same facts another reward is a new version.

Runs nothing and knows no compiler, so shaping can be read, changed and tested without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gradus.contract import Stage
from gradus.errors import Misuse
from services.facts import Facts

Components = dict[str, float]

TYPES, COMPILE, TESTS = 0.25, 0.10, 0.65
CHECK, CLIPPY = 0.25, 0.10
DEGENERATE_FACTOR = 0.3
MAX_STYLE = 0.10
STYLE_PER_BLOCK = 0.02
STYLE_TRAILING = 0.03
TRAILING_CHARS = 30


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


RUBRICS: Mapping[str, Callable[[Facts], Components]] = {
    "ocaml/graduated@1": _graduated,
    "ocaml/strict@1": _strict,
    "rust/graduated@1": _rust_graduated,
    "rust/tiered@1": _tiered,
    "rust/strict@1": _strict,
}


def score(facts: Facts, rubric: str) -> Score:
    """The reward of `facts` under `rubric`, in [0, 1]. Raises Misuse for a rubric that does not exist."""
    if rubric not in RUBRICS:
        raise Misuse(f"there is no rubric {rubric!r}; there are: {', '.join(sorted(RUBRICS))}")
    components = {name: round(value, 6) for name, value in RUBRICS[rubric](facts).items() if value or name != "style"}
    return Score(min(1.0, max(0.0, round(sum(components.values()), 6))), components)


def rubrics_of(grader: str) -> tuple[str, ...]:
    """Names of the grader's rubrics; the first is its default."""
    return tuple(name for name in RUBRICS if name.startswith(f"{grader}/"))
