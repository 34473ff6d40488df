"""Facts -> reward. Rubrics are pure and versioned: one that could give the same facts another
reward is a new version.

Each grader has its own in `rubric.py` of its folder; `user_rubrics` adds those of its
configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from gradus.errors import Misuse

Components = dict[str, float]
FactsT = TypeVar("FactsT")
Rubric = Callable[[FactsT], Components]


class Score(NamedTuple):
    reward: float
    components: Components
    """They add up to `reward`."""


@dataclass(frozen=True)
class Rubrics(Generic[FactsT]):
    """The rubrics of one grader."""

    rubrics: Mapping[str, Rubric[FactsT]]
    """By name; the first is the default."""
    components: tuple[str, ...]
    """Names of all components that they give."""
    measures: Mapping[str, Callable[[FactsT], float]]
    """The components, in [0, 1], that a configuration may weigh."""
    shape: Callable[[Components, FactsT], Components] = lambda parts, _: parts
    """`parts` and what the form of the completion takes from them."""
    quiet: frozenset[str] = frozenset()
    """Components that are only reported when they are not 0."""

    def score(self, facts: FactsT, rubric: str) -> Score:
        """Return the reward of `facts` under `rubric`, in [0, 1]. Raises Misuse for a rubric that
        is not among these."""
        if rubric not in self.rubrics:
            raise Misuse(f"there is no rubric {rubric!r}; there are: {', '.join(self.rubrics)}")
        parts = self.rubrics[rubric](facts).items()
        components = {}
        for name, value in parts:
            if value or name not in self.quiet:
                components[name] = round(value, 6)
        return Score(min(1.0, max(0.0, round(sum(components.values()), 6))), components)


def weighted(
    measures: Mapping[str, Callable[[FactsT], float]],
    weights: Mapping[str, float],
    shape: Callable[[Components, FactsT], Components] | None,
) -> Rubric[FactsT]:
    """Return the rubric that adds up weighted measures."""

    def rubric(facts: FactsT) -> Components:
        parts = {name: weight * measures[name](facts) for name, weight in weights.items()}
        return shape(parts, facts) if shape else parts

    return rubric
