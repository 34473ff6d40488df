"""`Evaluation`: the figures of one model on one set of tasks, from the records of its completions
and nothing else.

So they can be checked again later. RUN/eval/NAME.json and `results.json` of `gradus eval` hold one,
each beside the completions that it is computed from.
"""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pydantic import Field

from gradus.descriptions import GraderDescription
from gradus.validation import read_as
from gradus.whole_file import write_text
from trainer.evaluate.breakdowns import Details, Turns, compute_details, compute_turns
from trainer.evaluate.completion_store import write_lines
from trainer.evaluate.intervals import Part, Rate, compute_mean, group_by_task, pass_rate
from trainer.evaluate.plan import EvalPlan, Mode
from trainer.evaluate.verdicts import find_cause, get_outcome_stage, is_judged, select_typical
from trainer.rewards.judge import Record
from trainer.runs.provenance import find_version


class ProblemFigures(Part):
    """What came of one task."""

    id: str
    kind: str | None = None
    graded: int
    passed: int
    faulted: int
    mean_reward: float | None
    """None: nothing was graded."""
    difficulty: str | None = None
    stage: str | None = None
    """Where the middle one of its completions stopped, by how far they came, or `passed`; the
    earlier of two."""
    cause: str | None = None

    @property
    def pass_rate(self) -> float:
        """Of a task of which at least one completion was judged."""
        return self.passed / self.graded


class Measurement(Part):
    """One way of sampling, over all tasks. Every rate and mean is over verdicts; faults are only
    counted."""

    mode: Mode
    temperature: float
    samples: int
    graded: int
    faulted: int
    passed: int
    pass_at: dict[int, Rate]
    """By k. A k is missing when no task has so many verdicts."""
    mean_reward: Rate | None
    stopped_at: dict[str, int]
    """Verdicts that did not pass, by the furthest stage that they reached."""
    components: dict[str, float]
    """Means over verdicts; they add up to the mean reward over completions."""
    flags: dict[str, int]
    faults: dict[str, int]
    problems: tuple[ProblemFigures, ...]
    details: Details
    turns: Turns | None = None
    """None where an answer was asked for once. All other figures are of first answers."""

    @property
    def unwritten(self) -> int:
        """Generation errors."""
        return sum(self.details.generation_errors.values())

    @property
    def unjudged(self) -> int:
        """Tasks without a single verdict."""
        return sum(problem.graded == 0 for problem in self.problems)


class Evaluation(Part):
    """One model on one set of tasks."""

    schema_: Literal["gradus/evaluation@1"] = Field("gradus/evaluation@1", alias="schema")
    name: str
    created: str
    """UTC, ISO 8601."""
    model: str
    tasks: str
    tasks_sha256: str
    """Hash of the tasks as they were asked: ids, prompts and tests."""
    grader: str
    graders: tuple[str, ...]
    """Names and revisions that judged; more than one means that a worker was replaced on the
    way."""
    rubrics: tuple[str, ...]
    toolchains: tuple[str, ...]
    seed: int
    max_new_tokens: int
    duration_s: float
    machine: dict[str, str | int | float | None]
    measurements: tuple[Measurement, ...]
    served: bool = False
    asked_as: str | None = None
    top_p: float | None = None
    grader_description: GraderDescription

    def get_measurement(self, mode: Mode) -> Measurement | None:
        return next(
            (measurement for measurement in self.measurements if measurement.mode == mode), None
        )

    @property
    def faulted(self) -> int:
        return sum(measurement.faulted for measurement in self.measurements)

    @property
    def broken(self) -> int:
        """Chains of turns that a fault or a generation error broke off."""
        return sum(
            measurement.turns.broken for measurement in self.measurements if measurement.turns
        )

    @property
    def unwritten(self) -> int:
        return sum(measurement.unwritten for measurement in self.measurements)


# ----------------------------------------------------------------------------------------- figures


def compute_measurement(
    records: Sequence[Record],
    *,
    mode: Mode,
    temperature: float,
    samples: int,
    seed: int = 0,
    turns: Turns | None = None,
    description: GraderDescription,
) -> Measurement:
    """Return the figures of one way of sampling from its records, which are first answers;
    `description` is the grader's."""
    verdicts = list(filter(is_judged, records))
    problems = tuple(
        _compute_problem_figures(group, description.stages) for group in group_by_task(records)
    )
    counts = [(problem.graded, problem.passed) for problem in problems]
    ks = {samples} | {2**power for power in range(samples.bit_length())}
    pass_at = {}
    for k in sorted(ks):
        rate = pass_rate(counts, k, seed=seed)
        if rate is not None:
            pass_at[k] = rate
    components: Counter[str] = Counter()
    for record in verdicts:
        for name, value in record["components"].items():
            components[name] += value
    return Measurement(
        mode=mode,
        temperature=temperature,
        samples=samples,
        graded=len(verdicts),
        faulted=sum(record["fault"] is not None for record in records),
        passed=sum(record["passed"] for record in verdicts),
        pass_at=pass_at,
        mean_reward=compute_mean(
            [p.mean_reward for p in problems if p.mean_reward is not None], seed=seed
        ),
        stopped_at=dict(Counter(record["stage"] for record in verdicts if not record["passed"])),
        components={name: total / len(verdicts) for name, total in components.items()},
        flags=dict(Counter(flag for record in verdicts for flag in record["flags"])),
        faults=dict(
            Counter(record["fault"]["kind"] for record in records if record["fault"] is not None)
        ),
        problems=problems,
        details=compute_details(records, description, seed=seed),
        turns=turns,
    )


def _compute_problem_figures(
    group: Sequence[Mapping[str, Any]], stages: Sequence[str]
) -> ProblemFigures:
    verdicts = list(filter(is_judged, group))
    middle = select_typical(verdicts, stages)
    return ProblemFigures(
        id=group[0]["prompt_id"],
        kind=group[0].get("kind"),
        graded=len(verdicts),
        passed=sum(record["passed"] for record in verdicts),
        faulted=sum(record["fault"] is not None for record in group),
        mean_reward=fmean(record["reward"] for record in verdicts) if verdicts else None,
        difficulty=group[0].get("difficulty"),
        stage=get_outcome_stage(middle) if middle else None,
        cause=find_cause(middle) if middle else None,
    )


def build_evaluation(
    records: Sequence[Record],
    plan: EvalPlan,
    description: GraderDescription,
    *,
    name: str,
    duration_s: float,
    later: Sequence[Record] = (),
) -> Evaluation:
    """Return the figures of a plan's records; `later` are those of turns after the first,
    `description` is the grader's."""
    verdicts = list(filter(is_judged, (*records, *later)))
    measurements = []
    for mode, temperature, samples in plan.modes:
        first = [record for record in records if record["mode"] == mode]
        later_answers = [record for record in later if record["mode"] == mode]
        measurement = compute_measurement(
            first,
            mode=mode,
            temperature=temperature,
            samples=samples,
            seed=plan.seed,
            turns=compute_turns(first, later_answers, plan.turns, seed=plan.seed)
            if plan.turns > 1
            else None,
            description=description,
        )
        measurements.append(measurement)
    return Evaluation(
        name=name,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        duration_s=round(duration_s, 3),
        machine=machine(),
        measurements=tuple(measurements),
        grader_description=description,
        **plan.model_dump(include=OF_THE_PLAN),
        graders=_collect_values(verdicts, "grader"),
        rubrics=_collect_values(verdicts, "rubric"),
        toolchains=_collect_values(verdicts, "toolchain"),
    )


def describe_evaluation(evaluation: Evaluation) -> list[str]:
    """Put the headline of each way of sampling into words."""
    lines = []
    for measurement in evaluation.measurements:
        if measurement.mode == "greedy":
            sampling = "greedy"
        else:
            sampling = f"at temperature {measurement.temperature:g}"
        figures = [f"pass@{k} {sampling} {rate.text}" for k, rate in measurement.pass_at.items()]
        if measurement.turns is not None:
            green = measurement.turns.green_by.items()
            figures += [f"green by turn {turn} {rate.text}" for turn, rate in green]
        if measurement.mean_reward is not None:
            figures.append(f"reward {measurement.mean_reward.value:.3f}")
        figures += [f"{measurement.faulted} faulted", f"{measurement.unwritten} not written"]
        lines.append(", ".join(figures))
    return lines


OF_THE_PLAN = {
    *("model", "tasks", "tasks_sha256", "grader", "seed", "max_new_tokens", "served"),
    *("asked_as", "top_p"),
}
"""What an evaluation repeats of its plan."""


def _collect_values(verdicts: Sequence[Record], column: str) -> tuple[str, ...]:
    return tuple(sorted({record[column] for record in verdicts}))


def machine() -> dict[str, str | int | float | None]:
    """System, processors and the versions that matter, without names of hosts or paths; `gpu` is
    None without one."""
    torch = sys.modules.get("torch")  # not imported for this
    on_cuda = torch is not None and torch.cuda.is_available()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch is not None and on_cuda else None,
        "python": platform.python_version(),
        "torch": find_version("torch"),
    }


# ------------------------------------------------------------------------------------------- files


def write_outcome(
    folder: Path, evaluation: Evaluation, records: Iterable[Record], later: Sequence[Record] = ()
) -> Path:
    """Write the files into a run's folder of evaluations; returns the path of the figures, which
    appear last and at once.

    `later` are the answers of turns after the first, for `<name>.turns.jsonl`.
    """
    path = folder / f"{evaluation.name}.json"
    write_lines(path.with_name(f"{path.stem}.completions.jsonl"), records)
    if later:
        write_lines(path.with_name(f"{path.stem}.turns.jsonl"), later)
    write_text(path, evaluation.model_dump_json(by_alias=True, indent=1) + "\n")
    return path


def read_evaluation(path: Path) -> Evaluation:
    """Return the evaluation in a folder of `gradus eval`, or in a file of figures: its
    results.json, or RUN/eval/NAME.json.

    Raises Misuse when there is none.
    """
    figures = path / "results.json" if path.is_dir() else path
    return read_as(Evaluation, figures, "evaluation")


# ---------------------------------------------------------------------- comparable


def find_mismatches(before: Evaluation, after: Evaluation) -> tuple[list[str], list[str]]:
    """Return what a difference between the two may come from beside the model: what makes a pass or
    a reward mean something else, and what only may matter."""
    grave = [
        ("different tasks, or differently worded", before.tasks_sha256, after.tasks_sha256),
        ("different graders", before.graders, after.graders),
        ("different rubrics", before.rubrics, after.rubrics),
    ]
    slight = [
        ("different toolchains", before.toolchains, after.toolchains),
        ("a different limit on new tokens", before.max_new_tokens, after.max_new_tokens),
        ("different sampling", _list_sampling(before), _list_sampling(after)),
    ]
    return _select_differing(grave), _select_differing(slight)


def _select_differing(sides: Sequence[tuple[str, Any, Any]]) -> list[str]:
    """Return what both sides name, and name differently."""
    return [text for text, first, last in sides if first != last and () not in (first, last)]


def _list_sampling(evaluation: Evaluation) -> tuple[tuple[str, float, int, int], ...]:
    return tuple(
        (
            measurement.mode,
            measurement.temperature,
            measurement.samples,
            measurement.turns.asked if measurement.turns else 1,
        )
        for measurement in evaluation.measurements
    )
