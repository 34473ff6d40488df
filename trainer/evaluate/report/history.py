"""What a run left behind, read without trusting it: logs may be missing, torn, or hold NaN; completions are hostile.

Nothing is computed here beyond counting; whatever could not be read is said in `Run.missing`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gradus.descriptions import GraderDescription, description_of
from gradus.validation import explain
from trainer.evaluate.outcome import Evaluation, records_path
from trainer.evaluate.report.words import counted, finite
from trainer.run_folder import RunFolder

Json = dict[str, Any]

BEFORE, AFTER = "before", "after"
UNGRADED = ("sft", "dpo", "reward", "pretrain")
PASSED = "passed"


@dataclass(slots=True)
class StepSums:
    """The verdicts of one training step, added up."""

    graded: int = 0
    components: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    """How many passed (`PASSED`), and how many stopped at each stage."""


@dataclass(frozen=True, slots=True)
class FaultKey:
    """Faults that say the same about the same part of a run, whatever the submission."""

    where: str
    kind: str
    pattern: str


@dataclass(slots=True)
class FaultSums:
    message: str
    """The first of them in full."""
    count: int = 0
    first_step: int | None = None
    last_step: int | None = None


@dataclass(slots=True)
class Training:
    """completions.jsonl, counted."""

    completions: int = 0
    graded: int = 0
    passed: int = 0
    cached: int = 0
    flags: Counter[str] = field(default_factory=Counter)
    steps: dict[int, StepSums] = field(default_factory=dict)
    graders: set[str] = field(default_factory=set)

    @property
    def faulted(self) -> int:
        return self.completions - self.graded


@dataclass(slots=True)
class Run:
    """Everything there is to report. An absent file is an empty value here and a sentence in `missing`."""

    name: str
    config: Json = field(default_factory=dict)
    environment: Json = field(default_factory=dict)
    metrics: list[Json] = field(default_factory=list)
    """In the order of their steps, each with a whole `step`."""
    training: Training = field(default_factory=Training)
    evaluations: dict[str, Evaluation] = field(default_factory=dict)
    """By name, in the order in which they were made."""
    records: dict[str, list[Json]] = field(default_factory=dict)
    """Completions of the evaluations before and after."""
    faults: dict[FaultKey, FaultSums] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    @property
    def is_graded(self) -> bool:
        """False for stages that learn from rows or texts: they have no completions and pass no tasks."""
        return self.config.get("stage") not in UNGRADED

    @property
    def before(self) -> Evaluation | None:
        """The measurement before training: the one of that name, else the first of several."""
        others = [name for name in self.evaluations if name != AFTER]
        return self.evaluations.get(BEFORE) or (self.evaluations[others[0]] if len(self.evaluations) > 1 else None)

    @property
    def after(self) -> Evaluation | None:
        """The measurement after training: the one of that name, else the last."""
        others = [name for name in self.evaluations if name != BEFORE]
        return self.evaluations.get(AFTER) or (self.evaluations[others[-1]] if others else None)

    @property
    def description(self) -> GraderDescription:
        """The grader's description, as the last evaluation has it, else by the name of a grader in training."""
        measured = self.after or self.before
        if measured is not None:
            return measured.description
        return description_of(min(self.training.graders, default="").partition("@")[0])


def read_run(folder: Path) -> Run:
    """The run in `folder`; the folder must be there, every file in it may be missing."""
    files = RunFolder(folder)
    run = Run(name=folder.resolve().name)
    run.config = _read_json(files.resolved_config, run, "the settings are unknown")
    run.environment = _read_json(files.environment, run, None)
    run.metrics = _read_metrics(files.metrics, run)
    if run.is_graded:
        _read_training(files.completions, run)
        _read_evaluations(folder, run)
    for evaluation in (run.before, run.after):
        if evaluation is not None:
            _read_evaluated(completions_of(folder, evaluation.name), evaluation.name, run)
    return run


# ------------------------------------------------------------------------------------------------------------- files


def _read_json(path: Path, run: Run, so_what: str | None) -> Json:
    if not path.is_file():
        if so_what:
            run.missing.append(f"{path.name} is not there: {so_what}.")
        return {}
    value = _parsed(path.read_text(encoding="utf-8", errors="replace"))
    if value is None:
        run.missing.append(f"{path.name} cannot be read as JSON{': ' + so_what if so_what else ''}.")
    return value or {}


def _parsed(text: str) -> Json | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _lines(path: Path, run: Run, so_what: str) -> Iterator[Json]:
    """The records of a JSON lines file, one at a time: these files can be larger than memory."""
    if not path.is_file():
        run.missing.append(f"{path.name} is not there: {so_what}.")
        return
    unreadable = 0
    with path.open(encoding="utf-8", errors="replace", newline="\n") as handle:
        for line in handle:
            if line.strip():
                value = _parsed(line)
                unreadable += value is None
                if value is not None:
                    yield value
    if unreadable:
        run.missing.append(f"{path.name}: {counted(unreadable, 'line')} could not be read and are left out.")


def _read_metrics(path: Path, run: Run) -> list[Json]:
    """What the last lines of a step say counts: a run that was resumed may have written some twice, and the loss on
    what is held out has lines of its own."""
    by_step: dict[int, Json] = {}
    for line in _lines(path, run, "there are no training curves"):
        step = finite(line.get("step"))
        if step is not None:
            by_step.setdefault(int(step), {}).update({name: finite(value) for name, value in line.items()})
    if path.is_file() and not by_step:
        run.missing.append(f"{path.name} holds no steps: there are no training curves.")
    return [by_step[step] | {"step": step} for step in sorted(by_step)]


def _read_training(path: Path, run: Run) -> None:
    found = run.training
    for record in _lines(path, run, "parts of the reward, flags and faults of the training steps are unknown"):
        found.completions += 1
        step = finite(record.get("step"))
        number = None if step is None else int(step)
        if not is_verdict(record):
            _note_fault(run, record, "training", number)
            continue
        found.graded += 1
        found.passed += record.get("passed") is True
        found.cached += record.get("cached") is True
        found.flags.update(flags_of(record))
        found.graders.add(str(record.get("grader")))
        if number is not None:
            _add(found.steps.setdefault(number, StepSums()), record)


def _add(sums: StepSums, record: Json) -> None:
    sums.graded += 1
    sums.outcomes[PASSED if record.get("passed") is True else str(record.get("stage"))] += 1
    for name, value in components_of(record).items():
        sums.components[name] += value  # type: ignore[assignment]  # a Counter adds floats as well


def _read_evaluations(folder: Path, run: Run) -> None:
    found = []
    for path in sorted([*(folder / "eval").glob("*.json"), *(folder / "eval").glob("*/results.json")]):
        try:
            found.append(Evaluation.model_validate_json(path.read_text(encoding="utf-8", errors="replace")))
        except ValidationError as error:
            run.missing.append(
                f"{path.relative_to(folder)} is no evaluation that this version can read: {explain(error)}"
            )
    found.sort(key=lambda one: (one.name == AFTER, one.name != BEFORE, one.created))
    run.evaluations = {evaluation.name: evaluation for evaluation in found}
    if not found:
        run.missing.append("eval/ holds no evaluation: what the model can do on held-out tasks was not measured.")
    elif run.before is None or run.after is None:
        run.missing.append("eval/ holds only one evaluation: there is nothing to compare it with.")


def completions_of(folder: Path, name: str) -> Path:
    """Where the completions of an evaluation lie: beside its figures, or in the folder that `gradus eval` made."""
    own_folder = folder / "eval" / name / "completions.jsonl"
    return own_folder if own_folder.is_file() else records_path(folder, name)


def _read_evaluated(path: Path, name: str, run: Run) -> None:
    run.records[name] = []
    for record in _lines(path, run, f"no completions of the evaluation “{name}” can be shown"):
        run.records[name].append(record)
        if not is_verdict(record):
            _note_fault(run, record, f"evaluation “{name}”", None)


# ------------------------------------------------------------------------------------------------------------ records


def is_verdict(record: Json) -> bool:
    """It has a reward and no fault."""
    return record.get("fault") is None and finite(record.get("reward")) is not None


def components_of(record: Json) -> dict[str, float]:
    given = record.get("components")
    items = given.items() if isinstance(given, Mapping) else ()
    return {str(name): number for name, value in items if (number := finite(value)) is not None}


def flags_of(record: Json) -> list[str]:
    given = record.get("flags")
    return [str(flag) for flag in given] if isinstance(given, list) else []


def task_of(record: Json) -> str:
    return str(record.get("prompt_id") or "")


def _note_fault(run: Run, record: Json, where: str, step: int | None) -> None:
    fault = record.get("fault") or record.get("error")
    fault = fault if isinstance(fault, Mapping) else {}
    message = str(fault.get("message") or "it has neither a reward nor a fault")
    key = FaultKey(where, str(fault.get("kind") or "unknown"), re.sub(r"'[^']*'|[0-9]+", "…", message))
    sums = run.faults.setdefault(key, FaultSums(message))
    sums.count += 1
    if step is not None:
        sums.first_step = step if sums.first_step is None else min(sums.first_step, step)
        sums.last_step = step if sums.last_step is None else max(sums.last_step, step)
