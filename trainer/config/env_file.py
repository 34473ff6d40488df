"""Files of environment variables (.envrc) that configured ocamler-grpo, as options of `gradus
train`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from gradus.errors import Misuse
from trainer.config.files import iter_overrides

_SHARED = {
    "BASE_MODEL_ID": "model.name",
    "LORA_R": "lora.r",
    "LORA_ALPHA": "lora.alpha",
    "LORA_DROPOUT": "lora.dropout",
    "LORA_BIAS": "lora.bias",
    "LORA_TARGET_MODULES": "lora.targets",
}
_RENAMED = {
    "BATCH_SIZE": "per_device_train_batch_size",
    "BATCH": "per_device_train_batch_size",
    "GRAD_ACCUM_STEPS": "gradient_accumulation_steps",
    "GRAD_ACCUM": "gradient_accumulation_steps",
    "MAX_COMPLETION": "max_completion_length",
    "MAX_SEQ_LENGTH": "max_length",
    "NUM_EPOCHS": "num_train_epochs",
    "EPOCHS": "num_train_epochs",
    "LR": "learning_rate",
    "WARMUP": "warmup_steps",
    "WARMUP_RATIO": "warmup_steps",
    "WD": "weight_decay",
    "GRAD_NORM": "max_grad_norm",
    "LOGGING": "logging_steps",
    "OPTIMIZER": "optim",
}
"""Variables of a stage without their `GRPO_` or `SFT_`; others have the names of TRL's options."""
_PLACED = {
    "DATASET": "data.dataset",
    "OUTPUT_DIR": "output_dir",
    "MAX_PROMPT": "data.max_prompt_tokens",
    "EVAL_SPLIT": "data.held_out",
}
_DROPPED = {
    "GRPO_DISABLE_PROSE_PENALTY": "choose a rubric: reward.rubric",
    "REWARD_POOL_SIZE": "give --slots to `gradus serve` or `gradus worker`",
    "SFT_PUSH_TO_HUB": "upload the folder when the run is done",
    "SFT_HUB_MODEL_ID": "upload the folder when the run is done",
}


def read_env_options(path: Path, stage: str) -> tuple[list[str], list[str]]:
    """Return options `--name=value` for a run of `stage`, and a line for each variable: what it
    became, or why nothing.

    Variables of other stages are passed over without a line. Raises Misuse for a file that cannot
    be read, and for a value that only a shell could make.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Misuse(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    options, messages = [], []
    for number, line in enumerate(lines, start=1):
        try:
            words = []
            for word in shlex.split(line, comments=True):
                if word != "export":
                    words.append(word)
        except ValueError as error:
            raise Misuse(f"{path}:{number}: {error}") from None
        for name, equals, value in (word.partition("=") for word in words):
            if not equals or not value:
                continue
            if "$" in value or "`" in value:
                raise Misuse(
                    f"{path}:{number}: {name}: write the value itself; no shell reads this file"
                )
            option = _get_option(name, stage)
            if option is not None:
                # Names of modules stand between commas there, and in a list here.
                setting = f"[{value}]" if option == "lora.targets" else value
                options.append(f"--{option}={setting}")
                messages.append(f"{name}={value} is --{option}")
            elif name in _DROPPED:
                messages.append(f"{name} sets nothing: {_DROPPED[name]}")
            elif not name.startswith(("GRPO_", "SFT_", "OPENAI_")):
                messages.append(f"{name} sets nothing: it is not a training variable")
    return options, messages


def _get_option(name: str, stage: str) -> str | None:
    """Return the option that a variable sets in a run of `stage`; None for none."""
    if name == "TRAINING_DATASET":
        return "data.dataset" if stage == "grpo" else None
    if name in _DROPPED or not name.startswith(f"{stage.upper()}_"):
        return _SHARED.get(name)
    short = name.partition("_")[2]
    return _PLACED.get(short) or f"{stage}.{_RENAMED.get(short, short.lower())}"


def merge_env_file(overrides: Sequence[str], path: Path, stage: str) -> tuple[list[str], list[str]]:
    """Return the options of the file that no override sets, the overrides, and what to say of the
    file's variables."""
    options, messages = read_env_options(path, stage)
    overridden = set()
    for name, _ in iter_overrides(overrides):
        if name == "model":
            overridden.add("model.name")
        else:
            overridden.add(name.replace("-", "_"))
    names = [option[2:].partition("=")[0] for option in options]
    remaining = []
    for setting, name in zip(options, names, strict=True):
        if not {name, name.removeprefix(f"{stage}.")} & overridden:
            remaining.append(setting)
    return [*remaining, *overrides], messages
