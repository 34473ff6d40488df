"""Gates: what a model has to show before it is promoted, and whether it does. Reads figures and
computes none.

A threshold is held against the end of the confidence interval that is worse for the model, not
against the figure itself, unless the gate says `bound: value`. Where several p-values gate, they
are corrected together (Holm). A figure that is missing or not finite fails its gate; nothing is
skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from trainer.config.run import Section
from trainer.evaluate.intervals import holm
from trainer.pipeline.metrics import Figure, NoFigure, Take, at, finite, read_figure, read_json

Level = Annotated[float, Field(gt=0, lt=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
DATA = ("data_sha256", "task_hashes", "versions", "n-shot", "n-samples")
"""Where files say what was measured on; all but the first are lm-eval's, and `task_hashes` is empty
without its --log_samples."""


class Gate(Section):
    """One condition."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    of: str
    """The file: what `gradus eval`, `gradus compare` or a run left; or lm-eval's folder."""
    metric: str
    at_least: Finite | None = None
    at_most: Finite | None = None
    bound: Literal["confidence", "value"] = "confidence"
    """confidence: the lower end of the interval has to be at least so much, or the upper end at
    most so much."""
    take: Take = "last"
    """Line to take of a metric with many lines."""
    against: str | None = None
    """A file with the same metric of a baseline: the threshold is then for the difference from its
    figure."""
    p_value: str | None = None
    """In place of a threshold: where the p-value of `metric`, a change, stands in the same file."""
    soft: bool = False
    """A warning: it never refuses."""

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Gate:
        if [self.at_least, self.at_most, self.p_value].count(None) != 2:
            raise ValueError("give one of at_least, at_most and p_value")
        if self.p_value is not None and self.against is not None:
            raise ValueError(
                "p_value is of a comparison, which has its baseline already; leave against out"
            )
        return self

    @property
    def files(self) -> list[str]:
        """The files of figures that it reads."""
        return [self.of] if self.against is None else [self.of, self.against]

    @property
    def wants(self) -> str:
        """The condition in words."""
        if self.p_value is not None:
            return "higher, significantly"
        sign, threshold = (
            (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        )
        return f"{sign} {threshold:g}" + (
            " against the baseline" if self.against is not None else ""
        )


def _named_apart(gates: list[Gate]) -> list[Gate]:
    """Refuses two gates of one name: a verdict would not say which it is of."""
    names = [gate.name for gate in gates]
    if twins := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two gates are called {twins[0]!r}")
    return gates


Gates = Annotated[list[Gate], Field(min_length=1), AfterValidator(_named_apart)]


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of one gate."""

    name: str
    passed: bool
    soft: bool
    wants: str
    why: str
    of: str = ""
    metric: str = ""
    value: float | None = None
    low: float | None = None
    high: float | None = None
    baseline: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None


def judge(gates: Sequence[Gate], significance: float) -> list[Judged]:
    """Each gate with its verdict, in their order."""
    tested = {gate.name: _tested(gate) for gate in gates if gate.p_value is not None}
    # A test that is missing still is one of the family: what is left must not get easier by it.
    family = holm([found[1] if isinstance(found, tuple) else 1.0 for found in tested.values()])
    adjusted = dict(zip(tested, family, strict=True))
    return [
        _significance(gate, tested[gate.name], adjusted[gate.name], significance)
        if gate.name in tested
        else _threshold(gate)
        for gate in gates
    ]


def _threshold(gate: Gate) -> Judged:
    try:
        figure = read_figure(Path(gate.of), gate.metric, gate.take)
        baseline = _baseline(gate)
    except NoFigure as trouble:
        return _judged(gate, False, str(trouble))
    end: float | None = figure.value
    which = ""
    if gate.bound == "confidence":
        end = figure.high if gate.at_least is None else figure.low
        which = "upper end " if gate.at_least is None else "lower end "
    if end is None:
        no_interval = f"{gate.metric} has no confidence interval in {Path(gate.of).name}"
        return _judged(gate, False, f"{no_interval}; say bound: value to do without")
    held = end - (baseline or 0.0)
    passed = held <= (gate.at_most or 0.0) if gate.at_least is None else held >= gate.at_least
    why = f"{which}{held:g}" if baseline is None else f"{which}less the baseline {held:+g}"
    return _judged(gate, passed, why, figure, baseline=baseline)


def _baseline(gate: Gate) -> float | None:
    """The figure of the file that the gate is `against`. Raises NoFigure for one of other data."""
    if gate.against is None:
        return None
    baseline = read_figure(Path(gate.against), gate.metric, gate.take)
    if _data_of(gate.of) != _data_of(gate.against):
        raise NoFigure("the baseline was measured on other data")
    return baseline.value


def _data_of(file: str) -> Any:
    """What identifies the data that was measured on, where the file has it: evaluations without a
    grader and lm-eval do."""
    tree = None if file.endswith(".jsonl") else read_json(Path(file))
    return [tree.get(name) for name in DATA] if isinstance(tree, dict) else None


def _tested(gate: Gate) -> tuple[Figure, float] | str:
    """The change and its p-value, or why there is none."""
    try:
        tree = read_json(Path(gate.of))
        p_value = finite(at(tree, str(gate.p_value)), str(gate.p_value))
        if not 0 <= p_value <= 1:
            return f"{gate.p_value} is {p_value:g}, which is no p-value"
        return read_figure(Path(gate.of), gate.metric), p_value
    except NoFigure as trouble:
        return str(trouble)


def _significance(
    gate: Gate, found: tuple[Figure, float] | str, adjusted: float, significance: float
) -> Judged:
    if isinstance(found, str):
        return _judged(gate, False, found)
    figure, p_value = found
    corrected = "" if adjusted == p_value else f", {adjusted:.4g} after Holm"
    why = f"change {figure.value:+.4g}, p = {p_value:.4g}{corrected}, level {significance:g}"
    return _judged(
        gate,
        figure.value > 0 and adjusted <= significance,
        why,
        figure,
        p_value=p_value,
        p_adjusted=adjusted,
    )


def _judged(
    gate: Gate, passed: bool, why: str, figure: Figure | None = None, **more: float | None
) -> Judged:
    ends = {} if figure is None else {"value": figure.value, "low": figure.low, "high": figure.high}
    return Judged(
        gate.name, passed, gate.soft, gate.wants, why, gate.of, gate.metric, **ends, **more
    )
