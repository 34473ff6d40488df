"""`gradus train --dry-run`: is everything there that the run would need? Trains nothing and writes
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gradus.errors import Misuse, QueueFault
from trainer.config.device import choose_device
from trainer.config.packages import refuse_absent_packages
from trainer.config.run import RewardModelConfig, RunConfig, TrainConfig
from trainer.generation.client import select_sync
from trainer.generation.responses import GenerationStopped, TransientServerError
from trainer.generation.server import VllmServer
from trainer.models.adapters import validate_lora_targets
from trainer.models.fresh import train_tokenizer
from trainer.models.loading import load_architecture, load_tokenizer
from trainer.rewards.judges import refuse_headless
from trainer.runs.folder import RunFolder, find_resume_checkpoint, read_step
from trainer.runs.provenance import find_changes, resolve_settings
from trainer.stages.base import Stage, build_stage
from trainer.stages.rl import Rl, check_grader

Finding = tuple[str, str | None, str]
"""(what was looked at, `misuse`, `fault` or None for good, what was found)."""


def collect_findings(config: RunConfig) -> Iterator[Finding]:
    """Yield one finding for each thing that a run needs."""
    stage = build_stage(config)
    yield _run_check(stage.DATA, stage.check_data)
    if isinstance(stage, Rl):
        warm_start = stage.build_warm_start(config.output_dir)
    else:
        warm_start = None
    if warm_start is not None:
        yield _run_check("warm start", warm_start.check_data)
    yield _run_check("packages", lambda: _check_packages(config))
    yield _run_check("model", lambda: _check_model(config, stage))
    yield _run_check(f"{config.options_name} options", lambda: _check_options(config, stage))
    yield _run_check("run folder", lambda: _check_folder(config, stage))
    if isinstance(config, TrainConfig):
        yield from _check_judges(config)


def _check_judges(config: TrainConfig) -> Iterator[Finding]:
    reward = config.reward
    if config.generation.backend == "vllm":
        yield _run_check("vLLM server", lambda: _check_vllm(config))
    if reward.grader is not None:
        yield _run_check("graders", lambda: check_grader(reward, timeout_s=0))
    if reward.models:
        yield _run_check("reward models", lambda: _check_reward_models(reward.models))


def _run_check(subject: str, look: Callable[[], str]) -> Finding:
    try:
        return subject, None, look()
    except Misuse as misuse:
        return subject, "misuse", str(misuse)
    except QueueFault as fault:
        return subject, "fault", fault.message
    except (GenerationStopped, TransientServerError) as trouble:
        return subject, "fault", str(trouble)


def _check_packages(config: RunConfig) -> str:
    refuse_absent_packages(config.model, config.options.get("report_to"))
    return "all that the settings need"


def _check_model(config: RunConfig, stage: Stage[Any, Any]) -> str:
    device = choose_device(config.model)
    if config.model.is_fresh:
        # the tokenizer that the run would train, in seconds; the weights play no part in lengths
        tokenizer = train_tokenizer(stage.iter_texts(stage.read()), config.model.fresh)
        lengths = stage.check_lengths(tokenizer, config.model.fresh.max_length)
        return "; ".join([f"{config.model.name}, made on the spot, on {device.kind}", *lengths])
    architecture = load_architecture(config.model.name, config.model)
    if config.lora is not None:
        validate_lora_targets(config.lora, config.model.name, config.model, stage.SCORES)
    window = getattr(architecture.get_text_config(), "max_position_embeddings", None)
    lengths = stage.check_lengths(load_tokenizer(config.model.name, config.model), window)
    return "; ".join(
        [f"{config.model.name} ({architecture.model_type}), on {device.kind}", *lengths]
    )


def _check_options(config: RunConfig, stage: Stage[Any, Any]) -> str:
    notes: list[str] = []
    device = choose_device(config.model)
    options = stage.options(device, notes.append)
    return "; ".join([stage.check(stage.read(), options, device), *notes])


def _check_folder(config: RunConfig, stage: Stage[Any, Any]) -> str:
    folder = RunFolder(config.output_dir)
    done = read_step(find_resume_checkpoint(folder.path, "auto", lambda text: None))
    options = stage.options(choose_device(config.model), lambda text: None)
    changes = find_changes(resolve_settings(config, options), folder)
    changes.pop("data.dataset", None)
    names = ", ".join(changes)
    if done == 0 and changes and folder.final.exists():
        raise Misuse(
            f"{folder.path}: holds a finished run with other settings ({names}): choose another"
            " output_dir, or start anew with --resume never"
        )
    if done == 0 and changes and folder.has_start():
        return f"{folder.path}, models of other settings ({names}) lie there and are set aside"
    if done == 0:
        return f"{folder.path}, no step is done"
    if changes:
        raise Misuse(
            f"{folder.path}: {done} steps are done with other settings ({names}):"
            " resume with --accept-changes, or start anew with --resume never"
        )
    return f"{folder.path}, resumes after step {done}"


def _check_vllm(config: TrainConfig) -> str:
    generation, lora = config.generation, config.lora
    server = VllmServer(generation)
    server.await_ready(0, log=lambda text: None)
    adapter = lora is not None and not lora.modules_to_save and generation.sync in ("auto", "lora")
    way = select_sync(server, generation, adapter)
    sent = {"lora": "LoRA adapters"}.get(way, way)
    if lora is not None and adapter and way != "lora":
        sent += f", merged; `gradus vllm MODEL --lora-rank {lora.r}` takes the adapter alone"
    return f"{server.model()} at {server.url}, vLLM {server.get_version()}, weights by {sent}"


def _check_reward_models(models: Sequence[RewardModelConfig]) -> str:
    refuse_headless(models)
    return ", ".join(f"{model.label} x {model.weight:g}" for model in models)
