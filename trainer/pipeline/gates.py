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
from trainer.evaluate.intervals import adjust_p_values
from trainer.pipeline.metrics import (
    Figure,
    NoFigure,
    Take,
    read_figure,
    read_json,
    require_finite,
    resolve_path,
)

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
    def _require_one_condition(self) -> Gate:
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
        if self.at_least is not None:
            condition = f">= {self.at_least:g}"
        else:
            condition = f"<= {self.at_most:g}"
        if self.against is not None:
            condition += " against the baseline"
        return condition


def _check_unique_names(gates: list[Gate]) -> list[Gate]:
    """Refuses two gates of one name: a verdict would not say which it is of."""
    names = [gate.name for gate in gates]
    if twins := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two gates are called {twins[0]!r}")
    return gates


Gates = Annotated[list[Gate], Field(min_length=1), AfterValidator(_check_unique_names)]


@dataclass(frozen=True, slots=True)
class GateVerdict:
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


def judge(gates: Sequence[Gate], significance: float) -> list[GateVerdict]:
    """Return each gate with its verdict, in their order."""
    tested = {}
    p_values = {}
    for gate in gates:
        if gate.p_value is not None:
            test = _read_change(gate)
            tested[gate.name] = test
            # A missing test stays in the family: the others must not get easier by it.
            p_values[gate.name] = test[1] if isinstance(test, tuple) else 1.0
    adjusted = dict(zip(p_values, adjust_p_values(list(p_values.values())), strict=True))
    verdicts = []
    for gate in gates:
        if gate.name in tested:
            verdicts.append(
                _check_significance(gate, tested[gate.name], adjusted[gate.name], significance)
            )
        else:
            verdicts.append(_check_threshold(gate))
    return verdicts


def _check_threshold(gate: Gate) -> GateVerdict:
    try:
        figure = read_figure(Path(gate.of), gate.metric, gate.take)
        baseline = _read_baseline(gate)
    except NoFigure as trouble:
        return _build_verdict(gate, False, str(trouble))
    end: float | None = figure.value
    which = ""
    if gate.bound == "confidence":
        end = figure.high if gate.at_least is None else figure.low
        which = "upper end " if gate.at_least is None else "lower end "
    if end is None:
        no_interval = f"{gate.metric} has no confidence interval in {Path(gate.of).name}"
        return _build_verdict(gate, False, f"{no_interval}; say bound: value to do without")
    value = end - (baseline or 0.0)
    if gate.at_least is None:
        passed = value <= (gate.at_most or 0.0)
    else:
        passed = value >= gate.at_least
    if baseline is None:
        why = f"{which}{value:g}"
    else:
        why = f"{which}less the baseline {value:+g}"
    return _build_verdict(gate, passed, why, figure, baseline=baseline)


def _read_baseline(gate: Gate) -> float | None:
    """Return the figure of the file that the gate is `against`. Raises NoFigure for one of other
    data."""
    if gate.against is None:
        return None
    baseline = read_figure(Path(gate.against), gate.metric, gate.take)
    if _read_data_identity(gate.of) != _read_data_identity(gate.against):
        raise NoFigure("the baseline was measured on other data")
    return baseline.value


def _read_data_identity(file: str) -> Any:
    """Return what identifies the data that was measured on, where the file has it: evaluations
    without a grader and lm-eval do."""
    tree = None if file.endswith(".jsonl") else read_json(Path(file))
    return list(map(tree.get, DATA)) if isinstance(tree, dict) else None


def _read_change(gate: Gate) -> tuple[Figure, float] | str:
    """Return the change and its p-value, or why there is none."""
    try:
        tree = read_json(Path(gate.of))
        p_value = require_finite(resolve_path(tree, str(gate.p_value)), str(gate.p_value))
        if not 0 <= p_value <= 1:
            return f"{gate.p_value} is {p_value:g}, which is no p-value"
        return read_figure(Path(gate.of), gate.metric), p_value
    except NoFigure as trouble:
        return str(trouble)


def _check_significance(
    gate: Gate, test: tuple[Figure, float] | str, adjusted: float, significance: float
) -> GateVerdict:
    if isinstance(test, str):
        return _build_verdict(gate, False, test)
    figure, p_value = test
    corrected = "" if adjusted == p_value else f", {adjusted:.4g} after Holm"
    why = f"change {figure.value:+.4g}, p = {p_value:.4g}{corrected}, level {significance:g}"
    return _build_verdict(
        gate,
        figure.value > 0 and adjusted <= significance,
        why,
        figure,
        p_value=p_value,
        p_adjusted=adjusted,
    )


def _build_verdict(
    gate: Gate, passed: bool, why: str, figure: Figure | None = None, **extra: float | None
) -> GateVerdict:
    if figure is None:
        ends = {}
    else:
        ends = {"value": figure.value, "low": figure.low, "high": figure.high}
    return GateVerdict(
        gate.name, passed, gate.soft, gate.wants, why, gate.of, gate.metric, **ends, **extra
    )
