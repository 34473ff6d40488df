"""From the options of a command to what is asked: the model, the plan, the tasks with their prompts. Asks nothing yet.

A model that lies in a run folder is asked and judged as in that run: with its prompt template and its rubric. Any other
gets the task's text, and the grader's default rubric.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.validation import explain
from trainer.config import DataConfig, ModelConfig, PromptConfig, RunConfig, TrainConfig
from trainer.data import Example, read_examples
from trainer.evaluate.asking import Ask, Key, Outcome, Plan, Source
from trainer.evaluate.endpoint import Endpoint, Server, models_at
from trainer.evaluate.local import LocalModel
from trainer.evaluate.measure import Problem, fingerprint
from trainer.prompts import render
from trainer.stages.settings import STAGES, RowStage


@dataclass(frozen=True, slots=True)
class Asked:
    """How completions are made; what `gradus eval` and `gradus sample` have in common."""

    model: str | None
    """A folder, a name on the hub, or what the server calls it; None: the only one that the server has."""
    server: Server | None = None
    """None: the model is loaded here."""
    asked_as: str | None = None
    """`chat` or `text`; None: as the run does that the model is of, else chat for a server and text here."""
    system: str | None = None
    template: str | None = None
    like: Path | None = None
    """A run folder whose prompts and rubric are used."""
    samples: int = 1
    temperature: float = 1.0
    greedy: bool = True
    top_p: float = 1.0
    max_new_tokens: int = 512
    seed: int = 0
    turns: int = 1
    stop: tuple[str, ...] = ()
    body: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 64
    """Completions written at once by a model in this process."""
    limit: int | None = None
    fresh: bool = False


async def with_model(asked: Asked) -> Asked:
    """`asked` with the model's name, which a server with one model need not be told."""
    if asked.server is None:
        if asked.model is None:
            raise Misuse("name a model: a folder, or a name on the hub; or an --endpoint that serves one")
        return asked
    served = await models_at(asked.server)
    if asked.model is not None:
        return asked
    if len(served) != 1:
        raise Misuse(
            f"--model: name one of those at {asked.server.url}: {', '.join(served) or 'it does not say which'}"
        )
    return replace(asked, model=served[0])


def source_of(asked: Asked, plan: Plan, trained_with: RunConfig | None, *, keep_special: bool = False) -> Source:
    """Where completions come from; a model here is loaded only when one is wanted of it.

    `keep_special`: a model here tells the signs of its chat format too.
    """
    return _Later(asked, plan, trained_with, keep_special) if asked.server is None else Endpoint(asked.server, plan)


@dataclass(slots=True)
class _Later:
    """A model here that is loaded when the first completion is wanted."""

    asked: Asked
    plan: Plan
    trained_with: RunConfig | None
    keep_special: bool
    loaded: LocalModel | None = None

    def write(self, asks: Sequence[Ask], wanted: AbstractSet[Key]) -> AsyncIterator[tuple[Ask, Outcome]]:
        if self.loaded is None:
            model, tokenizer = load(self.plan.model, self.trained_with)
            self.loaded = LocalModel(model, tokenizer, self.plan, self.asked.batch_size, keep_special=self.keep_special)
        return self.loaded.write(asks, wanted)


# ---------------------------------------------------------------------------------------------------- what is asked


def plan_of(
    asked: Asked,
    tasks: str,
    problems: Sequence[Problem],
    prompt: PromptConfig,
    *,
    grader: str | None = None,
    rubric: str | None = None,
) -> Plan:
    """The plan for these problems. Raises Misuse for options that make no sense."""
    if not problems or len({problem.id for problem in problems}) != len(problems):
        raise Misuse(f"{tasks}: needs at least one task, each with an id of its own")
    sampled = asked.temperature != 0  # what is no number is refused below
    if not sampled and not asked.greedy:
        raise Misuse("temperature 0 is greedy; leave --no-greedy out, or sample at a temperature over 0")
    try:
        return Plan(
            model=asked.model or "",
            asked_as="chat" if prompt.style == "chat" else "text",
            served=asked.server is not None,
            tasks=tasks,
            tasks_sha256=fingerprint(problems),
            grader=grader,
            rubric=rubric,
            samples=asked.samples if sampled else 0,
            temperature=asked.temperature if sampled else 0.0,
            greedy=asked.greedy,
            top_p=asked.top_p,
            max_new_tokens=asked.max_new_tokens,
            seed=asked.seed,
            stop=asked.stop,
            body=dict(asked.body),
            opening=prompt.opening,
            turns=asked.turns,
        )
    except ValidationError as error:
        raise Misuse(explain(error)) from None


def prompt_config(asked: Asked, trained_with: RunConfig | None) -> PromptConfig:
    """How prompts are made: as the run did that the model is of, and then as was asked for."""
    base = PromptConfig(style="chat" if asked.server else "plain")
    if isinstance(trained_with, TrainConfig | RowStage):
        base = trained_with.prompt
    changes: dict[str, Any] = {"system": asked.system, "template": asked.template}
    changes = {name: value for name, value in changes.items() if value is not None}
    if asked.asked_as == "text":
        # A chat's system message does not become part of a text.
        changes = {"style": "plain", "thinks": False, "system": None, **changes}
    elif asked.asked_as == "chat":
        changes["style"] = "chat"
    try:
        return PromptConfig.model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        raise Misuse(explain(error)) from None


def problems_of(examples: Iterable[Example], prompt: PromptConfig) -> list[Problem]:
    """The tasks with their prompts as the model reads them."""
    return [
        Problem(
            example.id,
            render(prompt, example),
            example.task,
            example.kind,
            prompt.opening,
            example.difficulty,
            example.stub,
        )
        for example in examples
    ]


def config_of(asked: Asked) -> RunConfig | None:
    """The configuration of the run to do as: the one that was named, else the one that the model lies in."""
    if asked.like is not None:
        found = config_beside(asked.like)
        if found is None:
            raise Misuse(f"--like {asked.like}: there is no config.resolved.json of a run")
        return found
    return config_beside(Path(asked.model)) if asked.server is None and asked.model else None


def config_beside(model: Path) -> RunConfig | None:
    """The configuration of the run that a model's folder lies in; None when it lies in none."""
    for folder in (model, *model.resolve().parents[:2]):
        path = folder / "config.resolved.json"
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
                return STAGES[json.loads(text).get("stage", "grpo")].model_validate_json(text)
            except (ValueError, AttributeError, KeyError, TypeError) as error:
                raise Misuse(f"{path}: is no configuration that this version can read: {error}") from None
    return None


def load(model: str, trained_with: RunConfig | None) -> tuple[Any, Any]:
    """Model and tokenizer from a folder or a name on the hub. Raises Misuse when they cannot be loaded."""
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
    return loaded[0].to(device.kind), loaded[1]


def examples_of(tasks: Path, grader: GraderName, asked: Asked, trained_with: RunConfig | None) -> Sequence[Example]:
    if asked.limit is not None and asked.limit < 1:
        raise Misuse(f"limit must be at least 1, not {asked.limit}")
    # What rows of other stages are called says nothing about tasks.
    like = trained_with.data if isinstance(trained_with, TrainConfig) else DataConfig(dataset=str(tasks))
    config = DataConfig(dataset=str(tasks), columns=like.columns, ignore_columns=like.ignore_columns)
    return read_examples(config, str(tasks), grader)[: asked.limit]


def folder_name(model: str, tasks: Path) -> str:
    """A name for the folder of an evaluation that was given none."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{model}-{tasks.stem}").strip("-.")
    return plain[-100:] or "evaluation"
