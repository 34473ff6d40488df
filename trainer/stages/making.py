"""What the makers of all stages share: the run that they are handed, TRL's arguments, the model, the callbacks.

Each stage has a module of its own, which makes its trainer; nothing here trains or reads data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback, set_seed

from gradus.errors import Misuse
from trainer.adapters import lora_config
from trainer.config import RunConfig
from trainer.device import Device, settled, weights_dtype
from trainer.model import Head, load_model
from trainer.progress import MetricsFile, ProgressBar
from trainer.run_folder import RunFolder
from trainer.signals import StopWish
from trainer.stages.rows import Sample
from trainer.stages.settings import RewardStage, StageConfig
from trainer.stopping import StopAtStepEnd

Summary = Callable[[Mapping[str, Any]], str]

DEFAULTS: dict[str, Any] = {"logging_steps": 10, "save_steps": 100, "report_to": "none"}
MEASURING: dict[str, Any] = {"eval_strategy": "epoch", "eval_on_start": True}
"""Where there is something to measure the loss on."""


@dataclass(frozen=True, slots=True)
class StageRun:
    """What every part of one run of a stage is handed."""

    config: StageConfig
    options: dict[str, Any]
    """What TRL is told: the config's options, with defaults and the device's needs beneath them."""
    device: Device
    folder: RunFolder
    wish: StopWish
    say: Callable[[str], None]
    checkpoint: Path | None
    """Where to go on from."""


def head_of(config: RunConfig) -> Head:
    return Head.SCORE if isinstance(config, RewardStage) else Head.TOKENS


def stage_options(config: StageConfig, device: Device, say: Callable[[str], None], *, measures: bool) -> dict[str, Any]:
    """What TRL is told, defaults and the device's needs included. Raises Misuse where it could not measure."""
    asked = config.options
    if str(getattr(asked.get("eval_strategy"), "value", asked.get("eval_strategy") or "no")) != "no" and not measures:
        raise Misuse(f"{config.options_name}.eval_strategy: there is nothing to measure on; give data.held_out a share")
    return settled({**DEFAULTS, **(MEASURING if measures else {}), **asked}, device, say)


def arguments(kind: Any, config: StageConfig, options: Mapping[str, Any], output_dir: Path, **more: Any) -> Any:
    """The object of TRL's or transformers'. Raises Misuse for combinations that it refuses."""
    ours = {"output_dir": str(output_dir), "seed": config.seed, "disable_tqdm": True, **more}
    try:
        return kind(**options, **ours)
    except (ValueError, TypeError, ImportError, NotImplementedError) as error:
        raise Misuse(f"{config.options_name}: {error}") from None


def made(run: StageRun, build: Callable[..., Any], start: str, summary: Summary, **parts: Any) -> Any:
    """The trainer: `build` called with the model, adapters, callbacks and `parts`.

    Raises Misuse for what TRL refuses only when it sees model and options together.
    """
    config, head = run.config, head_of(run.config)
    dtype = weights_dtype(run.device, config.model.dtype, frozen=config.lora is not None)
    set_seed(config.seed)  # a new head and new adapters are drawn
    model = load_model(start, config.model, dtype, head)
    peft = {"peft_config": lora_config(config.lora, model, head)} if config.lora else {}
    try:
        trainer = build(model=model, callbacks=_callbacks(run, summary), **peft, **parts)
    except (ValueError, NotImplementedError, ImportError) as error:
        raise Misuse(f"{config.options_name}: {error}") from None
    trainer.remove_callback(PrinterCallback)
    return trainer


def _callbacks(run: StageRun, summary: Summary) -> list[TrainerCallback]:
    return [
        MetricsFile(run.folder.metrics, summary),
        ProgressBar(run.config.options_name, summary),
        StopAtStepEnd(run.wish),
    ]


def dataset_of(samples: Iterable[Sample]) -> Any:
    """Rows of one form; tool calls of different shapes stay as they are instead of being padded to one."""
    from datasets import Dataset

    return Dataset.from_list([sample.values for sample in samples], on_mixed_types="use_json")
