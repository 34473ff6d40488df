"""`gradus eval`: loads a model and tasks, measures, writes RUN/eval/ and prints the figures. Its options are the CLI's.

A model that lies in a run folder is asked and judged as in that run: with its prompt template and its rubric. Any other
gets the task's text as its prompt, and the grader's default rubric.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from gradus.client import RewardClient
from gradus.contract import grader_named
from gradus.errors import Misuse, QueueFault
from trainer.config import DataConfig, ModelConfig, PromptConfig, TrainConfig
from trainer.data import Example, read_examples
from trainer.evaluate.measure import Generate, OnProgress, Plan, Problem, evaluate, local_model
from trainer.evaluate.outcome import Evaluation, Measurement, write_outcome
from trainer.prompts import render

READY_TIMEOUT_S = 15.0
EXIT_GRADED, EXIT_FAULTED = 0, 3


def main(
    model: str,
    tasks: Path,
    *,
    out: Path,
    samples: int,
    temperature: float,
    max_new_tokens: int,
    urls: list[str],
    grader: str,
    name: str,
    limit: int | None,
) -> int:
    """Measure `model` on the task file and write OUT/eval/NAME.json with every completion beside it.

    `out` is a run folder, or the `eval` folder in one; a temperature of 0 leaves only the greedy measurement. Returns
    0 when all was graded and 3 when anything was not; raises Misuse.
    """
    console = Console()
    plan = _checked_plan(grader, samples, temperature, max_new_tokens, name)
    trained_with = config_beside(Path(model))
    if trained_with is not None and trained_with.reward.grader == plan.grader:
        plan = replace(plan, rubric=trained_with.reward.rubric)
    problems = problems_of(_examples(tasks, grader, limit, trained_with), _prompt_config(trained_with))
    client = RewardClient(urls, api_key=os.environ.get("GRADUS_API_KEY"))
    try:
        asyncio.run(client.wait_ready(grader, READY_TIMEOUT_S))
    except QueueFault as fault:
        print(f"gradus: nothing was measured: {fault.message}", file=sys.stderr)
        return EXIT_FAULTED
    generate = load(model, trained_with, plan)
    with progress_bar(console) as on_progress:
        done = evaluate(
            generate, problems, plan, client, name=name, model=model, tasks=tasks.name, on_progress=on_progress
        )
    path = write_outcome(out.parent if out.name == "eval" else out, done.evaluation, done.records)
    console.print(table_of(done.evaluation))
    console.print(f"written to {path}", highlight=False, soft_wrap=True)
    return EXIT_FAULTED if done.evaluation.faulted else EXIT_GRADED


def problems_of(examples: Iterable[Example], prompt: PromptConfig) -> list[Problem]:
    """The tasks with their prompts as the model reads them."""
    return [
        Problem(example.id, render(prompt, example), example.task, example.kind, prompt.opening) for example in examples
    ]


def config_beside(model: Path) -> TrainConfig | None:
    """The configuration of the run that a model's folder lies in; None when it lies in none."""
    for folder in (model, *model.resolve().parents[:2]):
        path = folder / "config.resolved.json"
        if path.is_file():
            try:
                return TrainConfig.model_validate_json(path.read_text(encoding="utf-8"))
            except ValidationError as error:
                raise Misuse(f"{path}: is no configuration that this version can read: {error}") from None
    return None


def load(model: str, trained_with: TrainConfig | None, plan: Plan) -> Generate:
    """`Generate` from a folder or a model's name on the hub. Raises Misuse when it cannot be loaded."""
    from transformers.utils import logging

    from trainer.device import choose_device, weights_dtype
    from trainer.model import load_model, load_tokenizer, load_trained

    logging.disable_progress_bar()
    settings = (trained_with.model if trained_with else ModelConfig(name=model)).model_copy(update={"name": model})
    device = choose_device(settings)
    dtype = weights_dtype(device, settings.dtype, frozen=True)
    folder = Path(model)
    loaded: tuple[Any, Any] = (
        load_trained(folder, settings, dtype)
        if folder.is_dir()
        else (load_model(model, settings, dtype), load_tokenizer(model, settings))
    )
    return local_model(loaded[0].to(device.kind), loaded[1], plan.max_new_tokens, plan.batch_size)


def _checked_plan(grader: str, samples: int, temperature: float, max_new_tokens: int, name: str) -> Plan:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise Misuse(f"name {name!r}: use up to 64 letters, digits, dots, dashes and underscores; it names a file")
    if samples < 1:
        raise Misuse(f"samples must be at least 1, not {samples}")
    if temperature == 0:
        return Plan(grader_named(grader).value, samples=0, max_new_tokens=max_new_tokens)
    return Plan(grader_named(grader).value, samples=samples, temperature=temperature, max_new_tokens=max_new_tokens)


def _examples(tasks: Path, grader: str, limit: int | None, trained_with: TrainConfig | None) -> Sequence[Example]:
    if limit is not None and limit < 1:
        raise Misuse(f"limit must be at least 1, not {limit}")
    like = trained_with.data if trained_with else DataConfig(dataset=str(tasks))
    config = DataConfig(dataset=str(tasks), columns=like.columns, ignore_columns=like.ignore_columns)
    return read_examples(config, str(tasks), grader_named(grader))[:limit]


def _prompt_config(trained_with: TrainConfig | None) -> PromptConfig:
    return trained_with.prompt if trained_with else PromptConfig()


# ----------------------------------------------------------------------------------------------------- what one sees


@contextmanager
def progress_bar(console: Console) -> Iterator[OnProgress]:
    """A bar per mode that counts graded completions."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bars: dict[str, Any] = {}

        def on_progress(mode: str, done: int, total: int) -> None:
            if mode not in bars:
                bars[mode] = progress.add_task(f"grading {mode} completions", total=total)
            progress.update(bars[mode], completed=done)

        yield on_progress


def table_of(evaluation: Evaluation) -> Table:
    """The figures of an evaluation, one row for each way of sampling."""
    table = Table("sampling", "tasks", "pass@1", "95% interval", "pass@k", "reward", "faults")
    for measurement in evaluation.measurements:
        table.add_row(*_cells(measurement))
    return table


def _cells(found: Measurement) -> Iterator[str]:
    yield "greedy" if found.mode == "greedy" else f"T={found.temperature:g}, {found.samples} each"
    yield str(len(found.problems))
    rate = found.pass_at.get(1)
    yield f"{rate.value:.1%}" if rate else "-"
    yield f"{rate.low:.1%} to {rate.high:.1%}" if rate else "-"
    most = max(found.pass_at, default=1)
    yield f"@{most} {found.pass_at[most].value:.1%}" if most > 1 else ""
    yield f"{found.mean_reward.value:.3f}" if found.mean_reward else "-"
    yield str(found.faulted)
