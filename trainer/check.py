"""`gradus train --dry-run`: is everything there that the run would need? Trains nothing and writes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gradus.errors import Misuse, QueueFault
from trainer.asked_early import client_of
from trainer.config import GenerationConfig, RewardConfig, RunConfig, TrainConfig
from trainer.data import load_tasks, read_worked_examples
from trainer.generation.server import VllmServer
from trainer.generation.trouble import GenerationStopped, ServerTrouble
from trainer.generation.versions import refuse_untested

Finding = tuple[str, str | None, str]
"""(what was looked at, `misuse`, `fault` or None for good, what was found)."""


def findings(config: RunConfig) -> Iterator[Finding]:
    """One finding for each thing that a run needs."""
    if isinstance(config, TrainConfig):
        yield from _findings_on_rewards(config)
    else:
        from trainer.stages.check import data_found, options_found

        yield _checked("data", lambda: data_found(config))
        yield _checked("model", lambda: _model(config))
        yield _checked(f"{config.options_name} options", lambda: options_found(config))


def _findings_on_rewards(config: TrainConfig) -> Iterator[Finding]:
    yield _checked("tasks", lambda: _tasks(config))
    if config.warm_start is not None:
        asked = config.warm_start
        yield _checked("warm start", lambda: f"{len(read_worked_examples(asked))} worked answers")
    yield _checked("model", lambda: _model(config))
    yield _checked(f"{config.stage} options", lambda: _options(config))
    if config.generation.backend == "vllm":
        yield _checked("vLLM server", lambda: _vllm(config.generation))
    if config.reward.grader is not None:
        yield _checked("graders", lambda: ready_grader(config.reward, timeout_s=0))
    for service in config.reward.services:
        as_asked = config.reward.as_asked_of(service)
        yield _checked(f"service {service.label}", partial(ready_grader, as_asked, 0, "reward.services"))
    if config.reward.models:
        yield _checked("reward models", lambda: _reward_models(config.reward))


def _checked(what: str, look: Callable[[], str]) -> Finding:
    try:
        return what, None, look()
    except Misuse as misuse:
        return what, "misuse", str(misuse)
    except QueueFault as fault:
        return what, "fault", fault.message
    except (GenerationStopped, ServerTrouble) as trouble:
        return what, "fault", str(trouble)


def _tasks(config: TrainConfig) -> str:
    tasks = load_tasks(config.data, config.reward.grader, config.seed)
    return f"{len(tasks.train)} to train on, {len(tasks.held_out)} held out"


def _model(config: RunConfig) -> str:
    from trainer.device import choose_device

    device = choose_device(config.model)
    if config.model.is_fresh:
        return f"{config.model.name}, made on the spot, on {device.kind}"
    from transformers import AutoConfig

    try:
        found = AutoConfig.from_pretrained(config.model.name, revision=config.model.revision)
    except (OSError, ValueError) as error:
        raise Misuse(f"model.name: {config.model.name}: {str(error).strip().splitlines()[0]}") from None
    if config.lora is not None:
        from trainer.adapters import rehearse
        from trainer.stages.making import head_of

        rehearse(config.lora, config.model.name, config.model, head_of(config))
    return f"{config.model.name} ({found.model_type}), on {device.kind}"


def _options(config: TrainConfig) -> str:
    from trainer.device import choose_device
    from trainer.generation.backend import refuse_without_vllm
    from trainer.grpo import grpo_config, grpo_options

    notes: list[str] = []
    device = choose_device(config.model)
    options = grpo_options(config, device, notes.append)
    refuse_without_vllm(config.generation, options, device)
    tasks = len(load_tasks(config.data, config.reward.grader, config.seed).train)
    made = grpo_config(options, output_dir=Path("."), seed=config.seed, tasks=tasks, stage=config.stage)
    prompts = made.generation_batch_size // made.num_generations
    return "; ".join([f"{prompts} prompts x {made.num_generations} completions per generation", *notes])


def _vllm(config: GenerationConfig) -> str:
    server = VllmServer(config)
    try:
        server.await_ready(0, say=lambda text: None)
        if config.sync != "nccl":
            refuse_untested(server.version(), allowed=config.allow_untested_versions)
        return f"{server.model()} at {server.url}, vLLM {server.version()}"
    finally:
        server.close()


def _reward_models(config: RewardConfig) -> str:
    from trainer.reward_models import refuse_headless

    refuse_headless(config.models)
    return ", ".join(f"{model.label} x {model.weight:g}" for model in config.models)


def ready_grader(config: RewardConfig, timeout_s: float, place: str = "reward") -> str:
    """What will grade. Raises QueueFault if it is not there in time, Misuse for a rubric that it does not have.

    `place`: where the configuration names it.
    """
    info = asyncio.run(client_of(config).wait_ready(config.judge, timeout_s))
    if config.rubric is not None and config.rubric not in info.rubrics:
        raise Misuse(f"{place}.rubric: {info.grader} has no {config.rubric}; it has: {', '.join(info.rubrics)}")
    rubric = config.rubric or info.rubrics[0]
    return f"{info.grader} at {', '.join(config.urls)}, rubric {rubric}, {info.slots} slots"
