"""From the options of a command to what is asked: the model, the plan, the tasks with their
prompts. Asks nothing yet.

A model that lies in a run folder is asked and judged as in that run: with its prompt template and
its rubric. Any other gets the task's text, and the grader's default rubric.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gradus.contract import GraderName
from gradus.errors import Misuse
from gradus.validation import explain
from gradus.yaml_reader import read_scalar
from trainer.config.run import DataConfig, ModelConfig, PromptConfig, RunConfig, TrainConfig
from trainer.config.stages import STAGES, RowStage
from trainer.data.tasks import Example, read_examples
from trainer.evaluate.local import LocalModel
from trainer.evaluate.openai_client import Endpoint, Server, models_at
from trainer.evaluate.plan import CompletionSource, EvalPlan, Problem, make_plan

VLLM = "vllm"
"""What vLLM calls the owner of the models that it lists."""
NEUTRAL = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
"""Fields of a request to vLLM that sample from the whole distribution, as training does."""


class AskSettings(BaseModel):
    """The rarer settings of the commands that ask a model, each changed by `--set NAME=VALUE`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    seed: int = 0
    top_p: float = 1.0
    """Over 0, up to 1."""
    body: dict[str, Any] = {}
    """Further fields of requests to an endpoint, such as {top_k: 20}; null leaves one out."""
    chat: bool | None = None
    """Ask with messages, or with one text; None: as trained, else messages for an endpoint and one
    text here."""
    system: str | None = None
    template: str | None = None
    """What the model reads, with {prompt} in it."""
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 16
    timeout_s: Annotated[float, Field(gt=0, le=86400)] = 300.0
    attempts: Annotated[int, Field(ge=1, le=100)] = 5
    batch_size: Annotated[int, Field(ge=1)] = 64
    config: Path | None = None
    """Configuration of a grader here; None: the shipped one."""
    slots: Annotated[int | None, Field(ge=1, le=256)] = None


class SamplingOptions(AskSettings):
    """How completions are made: everything that the commands which ask a model have in common."""

    model: str | None
    """A folder, a name on the hub, or what the server calls it; None: the only one that the server
    has."""
    server: Server | None = None
    """None: the model is loaded here."""
    like: Path | None = None
    samples: int = 1
    temperature: float = 1.0
    greedy: bool = True
    max_new_tokens: int = 512
    turns: int = 1
    limit: Annotated[int | None, Field(ge=1)] = None
    fresh: bool = False

    @classmethod
    def of(
        cls, given: Sequence[str], model: str | None, endpoint: str | None, **options: Any
    ) -> SamplingOptions:
        """How `model` is asked, here or at `endpoint`; `given` are `--set` options. Raises Misuse
        naming the option."""
        values: dict[str, Any] = {}
        for one in given:
            name, mark, text = one.partition("=")
            if not mark or name not in AskSettings.model_fields:
                raise Misuse(
                    f"--set {one}: use NAME=VALUE, where NAME is one of"
                    f" {', '.join(AskSettings.model_fields)}"
                )
            try:
                values[name] = read_scalar(text, one)
            except Misuse:
                values[name] = text
        try:
            asked = cls(model=model, **options, **values)
        except ValidationError as error:
            raise Misuse(f"--set: {explain(error)}") from None
        if endpoint is None:
            return asked
        key = os.environ.get("GRADUS_ENDPOINT_API_KEY") or None
        server = Server(endpoint, key, asked.concurrency, asked.timeout_s, asked.attempts)
        return asked.model_copy(update={"server": server})


async def with_model(asked: SamplingOptions) -> SamplingOptions:
    """`asked` with the model's name, which a server with one model need not be told, and with
    neutral sampling.

    vLLM samples as the model's own generation_config.json says where a request is silent; other
    servers may refuse these fields.
    """
    server = asked.server
    if server is None:
        if asked.model is None:
            raise Misuse(
                "name a model: a folder, or a name on the hub; or an --endpoint that serves one"
            )
        return asked
    served = await models_at(server)
    if VLLM in served.values():
        asked = asked.model_copy(update={"body": {**NEUTRAL, **asked.body}})
    if asked.model is not None:
        return asked
    if len(served) != 1:
        raise Misuse(
            f"--model: name one of those at {server.url}:"
            f" {', '.join(served) or 'it does not say which'}"
        )
    return asked.model_copy(update={"model": next(iter(served))})


def source_of(
    asked: SamplingOptions,
    plan: EvalPlan,
    trained_with: RunConfig | None,
    *,
    keep_special: bool = False,
) -> CompletionSource:
    """Where completions come from. `keep_special`: a model here tells the signs of its chat format
    too."""
    if asked.server is not None:
        return Endpoint(asked.server, plan)
    return LocalModel(lambda: load(plan.model, trained_with), plan, asked.batch_size, keep_special)


# ---------------------------------------------------------------------- what is asked


def plan_of(
    asked: SamplingOptions,
    tasks: str,
    problems: Sequence[Problem],
    prompt: PromptConfig,
    *,
    grader: str | None = None,
    rubric: str | None = None,
) -> EvalPlan:
    """The plan for these problems. Raises Misuse for options that make no sense."""
    sampled = asked.temperature != 0  # what is no number is refused below
    if not sampled and not asked.greedy:
        raise Misuse(
            "temperature 0 is greedy; leave --no-greedy out, or sample at a temperature over 0"
        )
    same = ("greedy", "top_p", "max_new_tokens", "seed", "turns", "body")
    return make_plan(
        problems,
        prompt,
        model=asked.model or "",
        served=asked.server is not None,
        tasks=tasks,
        grader=grader,
        rubric=rubric,
        samples=asked.samples if sampled else 0,
        temperature=asked.temperature if sampled else 0.0,
        **{name: getattr(asked, name) for name in same},
    )


def prompt_config(asked: SamplingOptions, trained_with: RunConfig | None) -> PromptConfig:
    """How prompts are made: as the run did that the model is of, and then as was asked for."""
    base = PromptConfig(style="chat" if asked.server else "plain")
    if isinstance(trained_with, TrainConfig | RowStage):
        base = trained_with.prompt
    changes: dict[str, Any] = asked.model_dump(include={"system", "template"}, exclude_none=True)
    if asked.chat is False:
        # A chat's system message does not become part of a text.
        changes = {"style": "plain", "thinks": False, "system": None, **changes}
    elif asked.chat:
        changes["style"] = "chat"
    try:
        return PromptConfig.model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        raise Misuse(explain(error)) from None


def rubric_of(trained_with: RunConfig | None, grader: str) -> str | None:
    """The rubric of the run; None where it was judged by another grader, or by none."""
    if isinstance(trained_with, TrainConfig) and trained_with.reward.grader == grader:
        return trained_with.reward.rubric
    return None


def config_of(asked: SamplingOptions) -> RunConfig | None:
    """The configuration of the run to do as: the one that was named, else the one that the model
    lies in."""
    if asked.like is not None:
        found = config_beside(asked.like)
        if found is None:
            raise Misuse(f"--prompts-from {asked.like}: there is no config.resolved.json of a run")
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
                raise Misuse(
                    f"{path}: is no configuration that this version can read: {error}"
                ) from None
    return None


def load(model: str, trained_with: RunConfig | None) -> tuple[Any, Any]:
    """Model and tokenizer from a folder or a name on the hub. Raises Misuse when they cannot be
    loaded."""
    from transformers.utils import logging

    from trainer.config.device import choose_device, weights_dtype
    from trainer.models.loading import load_model, load_tokenizer, load_trained

    logging.disable_progress_bar()
    settings = (trained_with.model if trained_with else ModelConfig(name=model)).model_copy(
        update={"name": model}
    )
    device = choose_device(settings)
    dtype = weights_dtype(device, settings.dtype, frozen=True)
    if Path(model).is_dir():
        loaded, tokenizer = load_trained(Path(model), settings, dtype)
    else:
        loaded = load_model(model, settings, dtype)
        tokenizer = load_tokenizer(model, settings)
    return loaded.to(device.kind), tokenizer


def examples_of(
    tasks: Path, grader: GraderName, asked: SamplingOptions, trained_with: RunConfig | None
) -> Sequence[Example]:
    # What rows of other stages are called says nothing about tasks.
    like = (
        trained_with.data
        if isinstance(trained_with, TrainConfig)
        else DataConfig(dataset=str(tasks))
    )
    config = DataConfig(
        dataset=str(tasks), columns=like.columns, ignore_columns=like.ignore_columns
    )
    return read_examples(config, str(tasks), grader)[0][: asked.limit]


def folder_name(model: str, tasks: Path) -> str:
    """A name for the folder of an evaluation that was given none."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{model}-{tasks.stem}").strip("-.")
    return plain[-100:] or "evaluation"
