"""What an evaluation found, as RUN/eval/ holds it: a small JSON with the figures, a JSONL with every completion.

The figures are computed here from the completions' rows and nothing else, so that they can be checked again later.
It samples and grades nothing.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from pydantic import ConfigDict, Field

from gradus.contract import Faulted, Graded
from gradus.descriptions import GraderDescription, description_of
from trainer.evaluate.causes import PASSED, cause_of
from trainer.evaluate.details import Details, details_of, is_judged
from trainer.evaluate.figures import Part, Rate, rate_of
from trainer.evaluate.intervals import mean_with_interval, pass_rate
from trainer.evaluate.stages import grader_of, rank_of
from trainer.evaluate.turns import Turns
from trainer.rewards import Record, outcome_of

SCHEMA: Literal["gradus/evaluation@1"] = "gradus/evaluation@1"

Mode = Literal["sampled", "greedy"]


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
    """Where the middle one of its completions stopped, by how far they came, or `passed`; the earlier of two."""
    cause: str | None = None
    """What stopped that completion."""


class Measurement(Part):
    """One way of sampling, over all tasks. Every rate and mean is over verdicts; faults are only counted."""

    mode: Mode
    temperature: float
    samples: int
    """Completions asked for per task."""
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
    """By kind."""
    mean_chars: float | None
    problems: tuple[ProblemFigures, ...]
    details: Details | None = None
    """None in files of earlier versions."""
    turns: Turns | None = None
    """None where an answer was asked for once. All other figures are of first answers."""

    @property
    def unwritten(self) -> int:
        """Generation errors."""
        return sum(self.details.generation_errors.values()) if self.details else 0

    @property
    def unjudged(self) -> int:
        """Tasks without a single verdict."""
        return sum(problem.graded == 0 for problem in self.problems)


class Evaluation(Part):
    """One model on one set of tasks."""

    schema_: Literal["gradus/evaluation@1"] = Field(SCHEMA, alias="schema")
    name: str
    created: str
    """UTC, ISO 8601."""
    model: str
    tasks: str
    tasks_sha256: str
    """Of the tasks as they were asked, prompts and tests."""
    grader: str
    graders: tuple[str, ...]
    """Names and revisions that judged; more than one means that a worker was replaced on the way."""
    rubrics: tuple[str, ...]
    toolchains: tuple[str, ...]
    seed: int
    max_new_tokens: int
    duration_s: float
    machine: dict[str, str | int | float | None]
    measurements: tuple[Measurement, ...]
    served: bool = False
    """By an endpoint; otherwise by a model in the measuring process."""
    asked_as: str | None = None
    """`chat`: messages through a chat template. `text`: one plain text."""
    top_p: float | None = None
    grader_description: GraderDescription | None = None
    """The grader's description; None in files of earlier versions."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)

    def measured(self, mode: Mode) -> Measurement | None:
        return next((found for found in self.measurements if found.mode == mode), None)

    @property
    def description(self) -> GraderDescription:
        """The grader's description, for files of earlier versions that of this version."""
        return self.grader_description or description_of(self.grader)

    @property
    def faulted(self) -> int:
        return sum(measurement.faulted for measurement in self.measurements)

    @property
    def broken(self) -> int:
        """Chains of turns that a fault or a generation error broke off."""
        return sum(measurement.turns.broken for measurement in self.measurements if measurement.turns)

    @property
    def unwritten(self) -> int:
        return sum(measurement.unwritten for measurement in self.measurements)


# ----------------------------------------------------------------------------------------------------------- records


def record_of(
    result: Graded | Faulted, *, mode: Mode, task_id: str, kind: str | None, sample: int, prompt: str, completion: str
) -> Record:
    """One line of the completions file: the columns of a run's own, with `mode` and `kind` in place of `step`."""
    asked: Record = {"mode": mode, "prompt_id": task_id, "kind": kind, "sample": sample}
    return {**asked, "prompt": prompt, "completion": completion, **outcome_of(result)}


# ----------------------------------------------------------------------------------------------------------- figures


def measurement_of(
    records: Sequence[Record],
    *,
    mode: Mode,
    temperature: float,
    samples: int,
    seed: int = 0,
    turns: Turns | None = None,
    description: GraderDescription | None = None,
) -> Measurement:
    """The figures of one way of sampling from its records, which are first answers.

    `description` is by default that of the grader which the records name.
    """
    verdicts = [record for record in records if is_judged(record)]
    description = description or description_of(grader_of(verdicts))
    problems = tuple(_by_problem(records, description.stages))
    lengths = [len(record["completion"]) for record in records if record["status"] != "generation_error"]
    return Measurement(
        mode=mode,
        temperature=temperature,
        samples=samples,
        graded=len(verdicts),
        faulted=sum(record["fault"] is not None for record in records),
        passed=sum(record["passed"] for record in verdicts),
        pass_at=dict(_pass_at(problems, samples, seed)),
        mean_reward=rate_of(
            mean_with_interval([p.mean_reward for p in problems if p.mean_reward is not None], seed=seed)
        ),
        stopped_at=dict(Counter(record["stage"] for record in verdicts if not record["passed"])),
        components=_mean_components(verdicts),
        flags=dict(Counter(flag for record in verdicts for flag in record["flags"])),
        faults=dict(Counter(record["fault"]["kind"] for record in records if record["fault"] is not None)),
        mean_chars=fmean(lengths) if lengths else None,
        problems=problems,
        details=details_of(records, description, seed=seed),
        turns=turns,
    )


def _by_problem(records: Iterable[Record], stages: Sequence[str]) -> Iterator[ProblemFigures]:
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record["prompt_id"], []).append(record)
    for task_id, group in groups.items():
        verdicts = [record for record in group if is_judged(record)]
        middle = typical_of(verdicts, stages)
        yield ProblemFigures(
            id=task_id,
            kind=group[0].get("kind"),
            graded=len(verdicts),
            passed=sum(record["passed"] for record in verdicts),
            faulted=sum(record["fault"] is not None for record in group),
            mean_reward=fmean(record["reward"] for record in verdicts) if verdicts else None,
            difficulty=group[0].get("difficulty"),
            stage=outcome_stage(middle) if middle else None,
            cause=cause_of(middle) if middle else None,
        )


def typical_of(verdicts: Sequence[Record], stages: Sequence[str] = ()) -> Record | None:
    """The middle one by how far they came, then by reward; the lower of two. None where there is none.

    `stages` are the grader's in their order, by default those of `Stage`.
    """
    ranked = sorted(verdicts, key=lambda record: (rank_of(outcome_stage(record), stages), record["reward"]))
    return ranked[(len(ranked) - 1) // 2] if ranked else None


def outcome_stage(record: Record) -> str:
    """`passed`, or the furthest stage that was reached."""
    return PASSED if record["passed"] is True else str(record["stage"])


def _pass_at(problems: Sequence[ProblemFigures], samples: int, seed: int) -> Iterator[tuple[int, Rate]]:
    """k = 1, 2, 4 ... and `samples`."""
    ks = sorted({1, samples} | {2**power for power in range(1, samples.bit_length()) if 2**power <= samples})
    for k in ks:
        rate = rate_of(pass_rate([(p.graded, p.passed) for p in problems], k, seed=seed))
        if rate is not None:
            yield k, rate


def _mean_components(verdicts: Sequence[Record]) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for record in verdicts:
        for name, value in record["components"].items():
            sums[name] += value
    return {name: total / len(verdicts) for name, total in sums.items()}


# ------------------------------------------------------------------------------------------------------------- files


def figures_path(run: Path, name: str) -> Path:
    return run / "eval" / f"{name}.json"


def records_path(run: Path, name: str) -> Path:
    return run / "eval" / f"{name}.completions.jsonl"


def write_outcome(run: Path, evaluation: Evaluation, records: Iterable[Record]) -> Path:
    """Write both files into the run folder; returns the path of the figures, which appear last and at once."""
    path = figures_path(run, evaluation.name)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (json.dumps(record, ensure_ascii=False, allow_nan=False) + "\n" for record in records)
    _write(records_path(run, evaluation.name), "".join(lines))
    _write(path, evaluation.model_dump_json(by_alias=True, indent=1) + "\n")
    return path


def _write(path: Path, text: str) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
