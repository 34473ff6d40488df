"""The run card and the warnings: what was trained on what, judged by whom, and what a reader should not overlook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.evaluate.outcome import Evaluation, incomparable
from trainer.evaluate.report.history import Json, Run
from trainer.evaluate.report.words import counted, duration, finite, number, percent

MAX_VALUE_CHARS = 200
LONG_CHARS = 70


@dataclass(frozen=True, slots=True)
class Fact:
    label: str
    value: str

    @property
    def is_long(self) -> bool:
        """It needs the room of two."""
        return len(self.value) > LONG_CHARS


def facts_of(run: Run) -> list[Fact]:
    """The run card; what is not known is left out."""
    known = ((label, value) for label, value in _facts(run) if value)
    return [Fact(label, value[:MAX_VALUE_CHARS]) for label, value in known]


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    config = run.config
    evaluations = list(run.evaluations.values())
    yield "Model", _text(config, "model", "name") or _listed(e.model for e in evaluations)
    yield (
        "Trained weights",
        ("" if not config else f"LoRA, rank {_text(config, 'lora', 'r')}" if config.get("lora") else "all"),
    )
    yield "Training tasks", _text(config, "data", "dataset")
    yield "Held-out tasks", _held_out(run)
    yield "Warm start", _text(config, "warm_start", "dataset")
    yield "Grader", _listed(g for e in evaluations for g in e.graders) or _listed(run.training.graders)
    yield "Rubric", _listed(r for e in evaluations for r in e.rubrics) or _text(config, "reward", "rubric")
    yield "Toolchain", _listed(t for e in evaluations for t in e.toolchains)
    yield "Seed", _seeds(run)
    yield "GRPO steps", _steps(run)
    yield "Training time", duration(seconds) if (seconds := training_s(run.metrics)) else ""
    yield "Completions by", _generation(run)
    yield "Evaluation time", duration(sum(e.duration_s for e in evaluations)) if evaluations else ""
    yield "Graded in training", _graded(run)
    yield "Settings", _settings(config)
    yield "Machine", _machine(run)


def _held_out(run: Run) -> str:
    evaluation = run.after or run.before
    if evaluation is None or not evaluation.measurements:
        return ""
    tasks = counted(len(evaluation.measurements[0].problems), "task")
    return f"{tasks} of {evaluation.tasks} (sha256 {evaluation.tasks_sha256[:12]})"


def _generation(run: Run) -> str:
    if _text(run.config, "generation", "backend") != "vllm":
        return ""
    largest = sync_difference(run.metrics)
    differs = "" if largest is None else f"; log-probabilities differed by {largest:.1e} at most after syncs"
    return f"a vLLM server{differs}"


def sync_difference(metrics: Sequence[Json]) -> float | None:
    """The largest difference between trainer and generation server in the log-probability of a token, after syncs."""
    name = "generation/sync_logprob_difference_max"
    return max((line[name] for line in metrics if line.get(name) is not None), default=None)


def _seeds(run: Run) -> str:
    seeds = {str(e.seed) for e in run.evaluations.values()}
    trained = _text(run.config, "seed")
    if trained and seeds <= {trained}:
        return trained
    return ", ".join(([f"training {trained}"] if trained else []) + ([f"evaluation {_listed(seeds)}"] if seeds else []))


def _steps(run: Run) -> str:
    if not run.metrics:
        return "0"
    planned = finite(_options(run.config).get("max_steps"))
    done = run.metrics[-1]["step"]
    return f"{done:,} of {planned:,.0f}" if planned and planned > 0 else f"{done:,}"


def _graded(run: Run) -> str:
    found = run.training
    if not found.completions:
        return ""
    parts = [
        counted(found.graded, "completion"),
        f"{percent(found.passed / found.graded)} passed" if found.graded else "",
    ]
    parts.append(f"{found.faulted:,} faulted" if found.faulted else "no faults")
    return ", ".join(part for part in parts if part)


SETTINGS = (
    ("learning_rate", "learning rate"),
    ("num_generations", "completions per prompt"),
    ("per_device_train_batch_size", "batch"),
    ("gradient_accumulation_steps", "accumulation"),
    ("loss_type", "loss"),
    ("beta", "beta"),
    ("temperature", "temperature"),
    ("max_completion_length", "new tokens"),
)


def _settings(config: Json) -> str:
    given = ((name, _options(config).get(key)) for key, name in SETTINGS)
    return ", ".join(f"{name} {_plain(value)}" for name, value in given if value is not None)


def _options(config: Json) -> Json:
    """What TRL was told: the section that is called like the stage."""
    stage = _text(config, "stage") or "grpo"
    found = config.get("reward_model" if stage == "reward" else stage)
    return found if isinstance(found, dict) else {}


def _plain(value: Any) -> str:
    figure = finite(value)
    return number(figure) if figure is not None else str(value)


def _machine(run: Run) -> str:
    evaluation = run.after or run.before
    known: Json = dict(evaluation.machine) if evaluation else dict(run.environment)
    parts = [str(known[key]) for key in ("system", "gpu") if isinstance(known.get(key), str)]
    if finite(known.get("cpus")):
        parts.insert(1, counted(int(known["cpus"]), "CPU core"))
    if finite(known.get("memory_gib")):
        parts.append(f"{number(known['memory_gib'])} GiB")
    parts += [f"{name} {known[key]}" for key, name in (("python", "Python"), ("torch", "torch")) if known.get(key)]
    return ", ".join(parts)


def training_s(metrics: Sequence[Json]) -> float | None:
    """From the start of the first step to the end of the last, by the clock; else the steps' own times added up."""
    times = [line["time"] for line in metrics if line.get("time") is not None]
    steps_s = [line["step_time"] for line in metrics if line.get("step_time") is not None]
    if len(times) >= 2:
        return float(times[-1] - times[0] + (steps_s[0] if steps_s else 0.0))
    return float(sum(steps_s)) if steps_s else None


def _at(tree: Json, *path: str) -> Any:
    value: Any = tree
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(tree: Json, *path: str) -> str:
    value = _at(tree, *path)
    return "" if value is None else str(value)


def _listed(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values))


# ---------------------------------------------------------------------------------------------------------- warnings


def warnings_of(run: Run) -> Iterator[str]:
    """What a reader should not overlook: comparisons that do not hold, verdicts without a sandbox, faults."""
    if run.before is not None and run.after is not None:
        for reason in incomparable(run.before, run.after):
            names = f"“{run.before.name}” and “{run.after.name}”"
            yield f"{names} were measured with {reason.text}: they cannot be compared."
    judged_by = [*run.training.graders, *(g for e in run.evaluations.values() for g in (*e.graders, *e.toolchains))]
    if any("unsandboxed" in name for name in judged_by):
        yield "Some verdicts were made without a sandbox: answers could have forged them."
    if run.training.faulted:
        share = percent(run.training.faulted / run.training.completions)
        yield f"{counted(run.training.faulted, 'training completion')} ({share}) could not be judged; see Faults."
    for evaluation in run.evaluations.values():
        if evaluation.faulted:
            yield from _faults_in(evaluation)


def _faults_in(evaluation: Evaluation) -> Iterator[str]:
    yield (
        f"{counted(evaluation.faulted, 'completion')} of the evaluation “{evaluation.name}” could not be judged "
        "and are in no rate; see Faults."
    )
