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
from trainer.evaluate.openai_client import Endpoint, Server, list_models
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
    def parse(
        cls, settings: Sequence[str], model: str | None, endpoint: str | None, **options: Any
    ) -> SamplingOptions:
        """How `model` is asked, here or at `endpoint`; `arguments` are `--set` options. Raises
        Misuse naming the option."""
        values: dict[str, Any] = {}
        for setting in settings:
            name, mark, text = setting.partition("=")
            if not mark or name not in AskSettings.model_fields:
                raise Misuse(
                    f"--set {setting}: use NAME=VALUE, where NAME is one of"
                    f" {', '.join(AskSettings.model_fields)}"
                )
            try:
                values[name] = read_scalar(text, setting)
            except Misuse:
                values[name] = text
        try:
            sampling = cls(model=model, **options, **values)
        except ValidationError as error:
            raise Misuse(f"--set: {explain(error)}") from None
        if endpoint is None:
            return sampling
        key = os.environ.get("GRADUS_ENDPOINT_API_KEY") or None
        server = Server(endpoint, key, sampling.concurrency, sampling.timeout_s, sampling.attempts)
        return sampling.model_copy(update={"server": server})


async def resolve_model(options: SamplingOptions) -> SamplingOptions:
    """`options` with the model's name, which a server with one model need not be told, and with
    neutral sampling.

    vLLM samples as the model's own generation_config.json says where a request is silent; other
    servers may refuse these fields.
    """
    server = options.server
    if server is None:
        if options.model is None:
            raise Misuse(
                "name a model: a folder, or a name on the hub; or an --endpoint that serves one"
            )
        return options
    served = await list_models(server)
    if VLLM in served.values():
        options = options.model_copy(update={"body": {**NEUTRAL, **options.body}})
    if options.model is not None:
        return options
    if len(served) != 1:
        raise Misuse(
            f"--model: name one of those at {server.url}:"
            f" {', '.join(served) or 'it does not say which'}"
        )
    return options.model_copy(update={"model": next(iter(served))})


def create_source(
    options: SamplingOptions,
    plan: EvalPlan,
    trained_with: RunConfig | None,
    *,
    keep_special: bool = False,
) -> CompletionSource:
    """Return where completions come from. `keep_special`: a model here tells the signs of its chat
    format too."""
    if options.server is not None:
        return Endpoint(options.server, plan)
    return LocalModel(
        lambda: load(plan.model, trained_with), plan, options.batch_size, keep_special
    )


# ---------------------------------------------------------------------- what is asked


def build_plan(
    options: SamplingOptions,
    tasks: str,
    problems: Sequence[Problem],
    prompt: PromptConfig,
    *,
    grader: str | None = None,
    rubric: str | None = None,
) -> EvalPlan:
    """Return the plan for these problems. Raises Misuse for options that make no sense."""
    sampled = options.temperature != 0  # what is no number is refused below
    if not sampled and not options.greedy:
        raise Misuse(
            "temperature 0 is greedy; leave --no-greedy out, or sample at a temperature over 0"
        )
    same = ("greedy", "top_p", "max_new_tokens", "seed", "turns", "body")
    return make_plan(
        problems,
        prompt,
        model=options.model or "",
        served=options.server is not None,
        tasks=tasks,
        grader=grader,
        rubric=rubric,
        samples=options.samples if sampled else 0,
        temperature=options.temperature if sampled else 0.0,
        **{name: getattr(options, name) for name in same},
    )


def resolve_prompt_config(options: SamplingOptions, trained_with: RunConfig | None) -> PromptConfig:
    """Return how prompts are made: as the run did that the model is of, and then as was asked
    for."""
    base = PromptConfig(style="chat" if options.server else "plain")
    if isinstance(trained_with, TrainConfig | RowStage):
        base = trained_with.prompt
    changes: dict[str, Any] = options.model_dump(include={"system", "template"}, exclude_none=True)
    if options.chat is False:
        # A chat's system message does not become part of a text.
        changes = {"style": "plain", "thinks": False, "system": None, **changes}
    elif options.chat:
        changes["style"] = "chat"
    try:
        return PromptConfig.model_validate({**base.model_dump(), **changes})
    except ValidationError as error:
        raise Misuse(explain(error)) from None


def get_rubric(trained_with: RunConfig | None, grader: str) -> str | None:
    """Return the rubric of the run; None where it was judged by another grader, or by none."""
    if isinstance(trained_with, TrainConfig) and trained_with.reward.grader == grader:
        return trained_with.reward.rubric
    return None


def resolve_config(options: SamplingOptions) -> RunConfig | None:
    """Return the configuration of the run to do as: the one that was named, else the one that the
    model lies in."""
    if options.like is not None:
        config = find_run_config(options.like)
        if config is None:
            raise Misuse(
                f"--prompts-from {options.like}: there is no config.resolved.json of a run"
            )
        return config
    if options.server is None and options.model:
        return find_run_config(Path(options.model))
    return None


def find_run_config(model: Path) -> RunConfig | None:
    """Return the configuration of the run that a model's folder lies in; None when it lies in
    none."""
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
    """Return model and tokenizer from a folder or a name on the hub. Raises Misuse when they cannot
    be loaded."""
    from transformers.utils import logging

    from trainer.config.device import choose_device, select_weights_dtype
    from trainer.models.loading import load_model, load_tokenizer, load_trained

    logging.disable_progress_bar()
    settings = (trained_with.model if trained_with else ModelConfig(name=model)).model_copy(
        update={"name": model}
    )
    device = choose_device(settings)
    dtype = select_weights_dtype(device, settings.dtype, frozen=True)
    if Path(model).is_dir():
        loaded, tokenizer = load_trained(Path(model), settings, dtype)
    else:
        loaded = load_model(model, settings, dtype)
        tokenizer = load_tokenizer(model, settings)
    return loaded.to(device.kind), tokenizer


def load_examples(
    tasks: Path, grader: GraderName, options: SamplingOptions, trained_with: RunConfig | None
) -> Sequence[Example]:
    # What rows of other stages are called says nothing about tasks.
    if isinstance(trained_with, TrainConfig):
        like = trained_with.data
    else:
        like = DataConfig(dataset=str(tasks))
    config = DataConfig(
        dataset=str(tasks), columns=like.columns, ignore_columns=like.ignore_columns
    )
    return read_examples(config, str(tasks), grader)[0][: options.limit]


def make_folder_name(model: str, tasks: Path) -> str:
    """Return a name for the folder of an evaluation that was given none."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{model}-{tasks.stem}").strip("-.")
    return plain[-100:] or "evaluation"
