"""Facts -> reward. Rubrics are pure and versioned: one that could give the same facts another reward is a new version.

Each grader has its own in `rubric.py` of its folder. A configuration may add rubrics: weights over the grader's
components, or a Python function (docs/rubrics.md).
"""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

from gradus.errors import InternalFault, Misuse, boundary
from services.graders.base.config_loader import GraderConfig, RubricSettings

Components = dict[str, float]
FactsT = TypeVar("FactsT")
Rubric = Callable[[FactsT], Components]


@dataclass(frozen=True, slots=True)
class Score:
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
    sources: tuple[str, ...] = ()
    """Hashes of the functions that a configuration named."""

    @property
    def names(self) -> tuple[str, ...]:
        """The default first."""
        return tuple(self.rubrics)

    def score(self, facts: FactsT, rubric: str) -> Score:
        """The reward of `facts` under `rubric`, in [0, 1]. Raises Misuse for a rubric that is not among these."""
        if rubric not in self.rubrics:
            raise Misuse(f"there is no rubric {rubric!r}; there are: {', '.join(self.rubrics)}")
        components = {
            name: round(value, 6)
            for name, value in self.rubrics[rubric](facts).items()
            if value or name not in self.quiet
        }
        return Score(min(1.0, max(0.0, round(sum(components.values()), 6))), components)

    def configured(self, config: GraderConfig, file: Path) -> Rubrics[FactsT]:
        """These and those of the configuration, its default first. Raises Misuse naming `file` and the key."""
        grader = next(iter(self.rubrics)).partition("/")[0]
        rubrics, sources = dict(self.rubrics), []
        for name, settings in config.rubrics.items():
            where = f"{file}: rubrics.{name}"
            if name in self.rubrics or not name.startswith(f"{grader}/"):
                raise Misuse(f"{where}: name it {grader}/..., and not as one that ships with the grader")
            if settings.function is not None:
                rubrics[name], source = _function(name, settings.function, f"{where}.function")
                sources.append(source)
            else:
                rubrics[name] = self._weighted(settings, where, grader)
        if config.rubric not in rubrics:
            raise Misuse(f"{file}: rubric: no rubric {config.rubric!r}; there are: {', '.join(rubrics)}")
        ordered = {config.rubric: rubrics[config.rubric]} | rubrics
        weighed = [name for settings in config.rubrics.values() for name in settings.weights or {}]
        components = tuple(dict.fromkeys((*self.components, *weighed)))
        return replace(self, rubrics=ordered, components=components, sources=tuple(sources))

    def _weighted(self, settings: RubricSettings, where: str, grader: str) -> Rubric[FactsT]:
        weights = settings.weights or {}
        for name in weights:
            if name not in self.measures:
                known = ", ".join(self.measures)
                raise Misuse(f"{where}.weights.{name}: the {grader} grader has no such component; it has: {known}")
        return weighted(self.measures, weights, self.shape if settings.shaping else None)


def weighted(
    measures: Mapping[str, Callable[[FactsT], float]],
    weights: Mapping[str, float],
    shape: Callable[[Components, FactsT], Components] | None,
) -> Rubric[FactsT]:
    """The rubric that adds up weighted measures."""

    def rubric(facts: FactsT) -> Components:
        parts = {name: weight * measures[name](facts) for name, weight in weights.items()}
        return shape(parts, facts) if shape else parts

    return rubric


def _function(name: str, path: str, where: str) -> tuple[Rubric[Any], str]:
    """The function at `package.module:function`, and the hash of the file it is in. Raises Misuse naming `where`."""
    module, _, attribute = path.partition(":")
    try:
        function = getattr(import_module(module), attribute)
        source = Path(str(inspect.getsourcefile(function))).read_bytes()
    except (ImportError, AttributeError, TypeError, OSError) as error:
        raise Misuse(f"{where}: {path} cannot be loaded: {type(error).__name__}: {error}") from None

    def rubric(facts: Any) -> Components:
        with boundary(InternalFault, f"the rubric {name}, {path}"):
            parts = {str(part): float(value) for part, value in function(facts).items()}
        total = sum(parts.values())
        if not (math.isfinite(total) and -1e-6 <= total <= 1 + 1e-6):
            message = f"the rubric {name}, {path}, gave components that add up to {total:g}, not to 0 to 1"
            raise InternalFault(message, retryable=False)
        return parts

    return rubric, hashlib.sha256(source).hexdigest()
