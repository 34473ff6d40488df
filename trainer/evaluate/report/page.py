"""From a run to what its report says, section by section, as plain values with every number already in words.

The template only places them. Nothing here is HTML: texts stay as they are, and the template escapes all of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.evaluate.outcome import Evaluation, Measurement
from trainer.evaluate.report import curves
from trainer.evaluate.report.charts import Chart
from trainer.evaluate.report.facts import Fact, facts_of, warnings_of
from trainer.evaluate.report.history import Run
from trainer.evaluate.report.rates import MODES, Headline, Panel, described, headline_of, panels_of
from trainer.evaluate.report.samples import SampleGroup, sample_groups
from trainer.evaluate.report.tables import (
    MOST_FAULTS,
    MOST_KINDS,
    FaultRow,
    Level,
    Table,
    fault_rows,
    flag_table,
    funnel_levels,
    kind_levels,
    steps_table,
)


@dataclass(frozen=True, slots=True)
class Held:
    """The section on held-out tasks."""

    headline: Headline
    panels: tuple[Panel, ...]
    names: tuple[str, ...]
    """Names of the evaluations that are compared, in order."""
    how: str
    funnel: tuple[Level, ...]
    kinds: tuple[Level, ...]
    kinds_left_out: int


@dataclass(frozen=True, slots=True)
class Trained:
    """The section on the training steps."""

    reward: Chart | None
    """Of what is learned from: the loss where there is no reward."""
    medium: tuple[Chart, ...]
    """An even number of them, two to a row."""
    small: tuple[Chart, ...]
    steps: Table | None


@dataclass(frozen=True, slots=True)
class Faults:
    rows: tuple[FaultRow, ...]
    left_out: int
    graded: int
    faulted: int


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the template places."""

    title: str
    made: str
    warnings: tuple[str, ...]
    missing: tuple[str, ...]
    facts: tuple[Fact, ...]
    held_out: Held
    training: Trained
    flags: Table | None
    samples: tuple[SampleGroup, ...]
    faults: Faults
    config: str


def page_of(run: Run, made: str) -> Page:
    """The page of a run. `made` says when, in words."""
    evaluations = [evaluation for evaluation in (run.before, run.after) if evaluation is not None]
    measured = _main(evaluations)
    return Page(
        title=run.name,
        made=made,
        warnings=tuple(warnings_of(run)),
        missing=tuple(run.missing),
        facts=tuple(facts_of(run)),
        held_out=_held_out(run, evaluations, measured),
        training=_training(run),
        flags=flag_table(run, [evaluation.name for evaluation in evaluations], measured),
        samples=tuple(sample_groups(run)),
        faults=_faults(run),
        config=json.dumps(run.config, indent=2, ensure_ascii=False) if run.config else "",
    )


def _main(evaluations: Sequence[Evaluation]) -> list[Measurement]:
    """One measurement of each evaluation, all in the first mode that all of them have."""
    for mode in MODES:
        found = [measurement for evaluation in evaluations if (measurement := evaluation.measured(mode))]
        if evaluations and len(found) == len(evaluations):
            return found
    return []


def _held_out(run: Run, evaluations: Sequence[Evaluation], measured: Sequence[Measurement]) -> Held:
    by_kind = kind_levels(measured)
    return Held(
        headline=headline_of(evaluations),
        panels=tuple(panels_of(evaluations)),
        names=tuple(evaluation.name for evaluation in evaluations),
        how=described(measured[-1]) if measured else "",
        funnel=tuple(funnel_levels(evaluations[-1].description, measured)) if measured else (),
        kinds=tuple(by_kind[:MOST_KINDS]),
        kinds_left_out=max(0, len(by_kind) - MOST_KINDS),
    )


def _training(run: Run) -> Trained:
    wide = (curves.component_chart(run), curves.outcome_chart(run), curves.held_out_chart(run))
    medium = [chart for chart in wide if chart is not None]
    small = curves.small_charts(run.metrics)
    time = curves.time_chart(run.metrics)
    if time is not None:
        (medium if len(medium) % 2 else small).append(time)
    return Trained(
        reward=curves.reward_chart(run.metrics) if run.is_graded else curves.loss_chart(run.metrics),
        medium=tuple(medium),
        small=tuple(small),
        steps=steps_table(run.metrics),
    )


def _faults(run: Run) -> Faults:
    rows = fault_rows(run)
    evaluations = run.evaluations.values()
    return Faults(
        rows=tuple(rows[:MOST_FAULTS]),
        left_out=max(0, len(rows) - MOST_FAULTS),
        graded=run.training.graded + sum(m.graded for e in evaluations for m in e.measurements),
        faulted=run.training.faulted + sum(e.faulted for e in evaluations),
    )
