"""`gradus train --dry-run`: is everything there that the run would need? Trains nothing and writes
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradus.errors import Misuse, QueueFault
from trainer.config.device import choose_device
from trainer.config.packages import refuse_absent_packages
from trainer.config.run import RewardModelConfig, RunConfig, TrainConfig
from trainer.generation.client import way_of_weights
from trainer.generation.responses import GenerationStopped, TransientServerError
from trainer.generation.server import VllmServer
from trainer.models.adapters import validate_lora_targets
from trainer.models.loading import architecture_of, load_tokenizer
from trainer.rewards.judges import refuse_headless
from trainer.stages.base import Stage, stage_for
from trainer.stages.rl import Rl, ready_grader

Finding = tuple[str, str | None, str]
"""(what was looked at, `misuse`, `fault` or None for good, what was found)."""


def findings(config: RunConfig) -> Iterator[Finding]:
    """One finding for each thing that a run needs."""
    stage = stage_for(config)
    yield _checked(stage.DATA, stage.data_found)
    warm_start = stage.warm_start_stage(config.output_dir) if isinstance(stage, Rl) else None
    if warm_start is not None:
        yield _checked("warm start", warm_start.data_found)
    yield _checked("packages", lambda: _packages(config))
    yield _checked("model", lambda: _model(config, stage))
    yield _checked(f"{config.options_name} options", lambda: _options(config, stage))
    if isinstance(config, TrainConfig):
        yield from _judges_and_server(config)


def _judges_and_server(config: TrainConfig) -> Iterator[Finding]:
    reward = config.reward
    if config.generation.backend == "vllm":
        yield _checked("vLLM server", lambda: _vllm(config))
    if reward.grader is not None:
        yield _checked("graders", lambda: ready_grader(reward, timeout_s=0))
    if reward.models:
        yield _checked("reward models", lambda: _reward_models(reward.models))


def _checked(what: str, look: Callable[[], str]) -> Finding:
    try:
        return what, None, look()
    except Misuse as misuse:
        return what, "misuse", str(misuse)
    except QueueFault as fault:
        return what, "fault", fault.message
    except (GenerationStopped, TransientServerError) as trouble:
        return what, "fault", str(trouble)


def _packages(config: RunConfig) -> str:
    refuse_absent_packages(config.model, config.options.get("report_to"))
    return "all that the settings need"


def _model(config: RunConfig, stage: Stage[Any, Any]) -> str:
    device = choose_device(config.model)
    if config.model.is_fresh:
        return f"{config.model.name}, made on the spot, on {device.kind}"
    found = architecture_of(config.model.name, config.model)
    if config.lora is not None:
        validate_lora_targets(config.lora, config.model.name, config.model, stage.SCORES)
    window = getattr(found.get_text_config(), "max_position_embeddings", None)
    lengths = stage.lengths_found(load_tokenizer(config.model.name, config.model), window)
    return "; ".join([f"{config.model.name} ({found.model_type}), on {device.kind}", *lengths])


def _options(config: RunConfig, stage: Stage[Any, Any]) -> str:
    notes: list[str] = []
    device = choose_device(config.model)
    options = stage.options(device, notes.append)
    return "; ".join([stage.check(stage.read(), options, device), *notes])


def _vllm(config: TrainConfig) -> str:
    generation, lora = config.generation, config.lora
    server = VllmServer(generation)
    server.await_ready(0, say=lambda text: None)
    adapter = lora is not None and not lora.modules_to_save and generation.sync in ("auto", "lora")
    way = way_of_weights(server, generation, adapter)
    sent = {"lora": "LoRA adapters"}.get(way, way)
    if lora is not None and adapter and way != "lora":
        sent += f", merged; `gradus vllm MODEL --lora-rank {lora.r}` takes the adapter alone"
    return f"{server.model()} at {server.url}, vLLM {server.version()}, weights by {sent}"


def _reward_models(models: Sequence[RewardModelConfig]) -> str:
    refuse_headless(models)
    return ", ".join(f"{model.label} x {model.weight:g}" for model in models)
