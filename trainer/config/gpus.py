"""Commands that split the GPUs of one machine between a vLLM server and training. Looks at no
GPU."""

from __future__ import annotations

import shlex
from pathlib import Path

from gradus.errors import Misuse
from trainer.config.run import TrainConfig
from trainer.config.stages import load_stage

ACCELERATE = "configs/accelerate/multi_gpu.yaml"
DEFAULT = 8
"""Default of TRL for `per_device_train_batch_size` and for `num_generations`."""


def split_commands(path: Path, train: int, vllm: int, target: int | None) -> list[str]:
    """Return the command of the server and that of training, for the config of a run on rewards.

    `train`, `vllm`: GPUs of each; training takes the first ones. `target`: completions of one
    update, over all processes; None leaves the config's gradient accumulation. Raises Misuse for
    batches that do not come out even.
    """
    config = load_stage(path)
    if not isinstance(config, TrainConfig):
        raise Misuse(
            f"{path}: trains on no rewards, so nothing is generated and all GPUs can train"
        )
    server = ["gradus", "vllm", config.model.name, "--tensor-parallel-size", str(vllm)]
    if config.lora is not None:
        server += ["--lora-rank", str(config.lora.r)]
    words = ["gradus", "train", str(path), "--generation.backend", "vllm"]
    if train > 1:
        launch = [
            "accelerate",
            "launch",
            "--config_file",
            ACCELERATE,
            "--num_processes",
            str(train),
            "-m",
        ]
        words = [*launch, *words]
    if target is not None:
        at_once = int(config.options.get("per_device_train_batch_size", DEFAULT)) * train
        group = int(config.options.get("num_generations", DEFAULT))
        if target % at_once or target % group:
            raise Misuse(
                f"--batch {target}: must be a multiple of {at_once} (per_device_train_batch_size on"
                f" {train} GPUs) and of {group} (num_generations)"
            )
        words += ["--gradient_accumulation_steps", str(target // at_once)]
    lines = []
    for devices, command in ((range(train, train + vllm), server), (range(train), words)):
        lines.append(f"CUDA_VISIBLE_DEVICES={','.join(map(str, devices))} {shlex.join(command)}")
    return lines
