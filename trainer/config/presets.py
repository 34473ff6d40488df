"""Training without a config file: `gradus train sft --model M --dataset D --preset quick`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from gradus.errors import Misuse
from gradus.resources import configs
from trainer.config.files import iter_overrides

PRESETS: Mapping[str, Mapping[str, int]] = {
    "quick": {"data.limit": 500, "num_train_epochs": 1},
    "standard": {"num_train_epochs": 3},
}
STAGES = ("sft", "dpo", "reward")


def apply_preset(
    stage: str | None, preset: str, arguments: Sequence[str]
) -> tuple[Path, list[str]]:
    """Return the shipped config of a stage, and the options that come after it: the preset's, then
    `arguments`.

    `--dataset` is `--data.dataset`. The run folder is named after stage, model and dataset unless
    one is given. Raises Misuse where a model or a dataset is missing.
    """
    if stage not in STAGES:
        raise Misuse(f"--preset: give a STAGE before the options, one of {', '.join(STAGES)}")
    if preset not in PRESETS:
        raise Misuse(f"--preset {preset}: use one of {', '.join(PRESETS)}")
    options = [re.sub(r"^--dataset(?==|$)", "--data.dataset", word) for word in arguments]
    named = {name.replace("-", "_"): value for name, value in iter_overrides(options)}
    model, dataset = named.get("model", named.get("model.name")), named.get("data.dataset")
    if not model or not dataset:
        raise Misuse(f"gradus train {stage} without a CONFIG needs --model and --dataset")
    folder = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{stage}-{model}-{Path(dataset).stem}").strip("-.")
    defaults = {**PRESETS[preset], "output_dir": f"runs/{folder[-100:]}"}
    first = []
    for name, value in defaults.items():
        if name not in named:
            first.append(f"--{name}={value}")
    return configs() / "presets" / f"{stage}.yaml", [*first, *options]
