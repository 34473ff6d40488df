"""Commands that split the GPUs of one machine between a vLLM server and training. Looks at no
GPU."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from trainer.config.run import TrainConfig
from trainer.config.stages import load_stage

ACCELERATE = "configs/accelerate/multi_gpu.yaml"
PER_DEVICE = 8
"""Default of TRL for `per_device_train_batch_size`."""
GROUP = {"grpo": 8, "rloo": 2}
"""Defaults of TRL for `num_generations`."""


def split_commands(
    path: Path,
    train: int,
    vllm: int,
    target: int | None,
    data_parallel: int = 1,
    count_tasks: Callable[[TrainConfig], int | None] = lambda config: None,
) -> list[str]:
    """Return the command of the server and that of training, for the config of a run on rewards.

    `train`, `vllm`: GPUs of each; training takes the first ones. `target`: completions of one
    update, over all processes; None leaves the config's gradient accumulation. `data_parallel`:
    copies of the model that share the server's GPUs. `count_tasks` returns how many tasks there are
    to train on, None where that is not known. Raises Misuse for batches that do not come out even
    or need more tasks than there are, as the run would on the GPUs.
    """
    config = load_stage(path)
    if not isinstance(config, TrainConfig):
        raise Misuse(
            f"{path}: trains on no rewards, so nothing is generated and all GPUs can train"
        )
    if vllm % data_parallel:
        raise Misuse(
            f"--data-parallel {data_parallel}: must divide --vllm {vllm}: each copy of the model"
            " takes as many GPUs"
        )
    tensor_parallel = vllm // data_parallel
    server = ["gradus", "vllm", config.model.name, "--tensor-parallel-size", str(tensor_parallel)]
    if data_parallel > 1:
        server += ["--data-parallel-size", str(data_parallel)]
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
    at_once = int(config.options.get("per_device_train_batch_size", PER_DEVICE)) * train
    group = int(config.options.get("num_generations", GROUP[config.stage]))
    steps = int(config.options.get("gradient_accumulation_steps", 1))
    if target is not None:
        if target % at_once or target % group:
            raise Misuse(
                f"--batch {target}: must be a multiple of {at_once} (per_device_train_batch_size on"
                f" {train} GPUs) and of {group} (num_generations)"
            )
        steps = target // at_once
        words += ["--gradient_accumulation_steps", str(steps)]
    _refuse_broken_groups(config.options, at_once, group, steps, count_tasks(config))
    lines = []
    for devices, command in ((range(train, train + vllm), server), (range(train), words)):
        lines.append(f"CUDA_VISIBLE_DEVICES={','.join(map(str, devices))} {shlex.join(command)}")
    return lines


def _refuse_broken_groups(
    options: Mapping[str, Any], at_once: int, group: int, steps: int, tasks: int | None
) -> None:
    """Raise Misuse where one round of generation is not made of whole batches and whole groups of
    different tasks."""
    given = options.get("generation_batch_size")
    size = int(given or at_once * int(options.get("steps_per_generation") or steps))
    if size % at_once:
        raise Misuse(
            f"generation_batch_size {size}: must be a multiple of {at_once}, the completions that"
            " all GPUs train on at once (per_device_train_batch_size x --train)"
        )
    if size % group:
        raise Misuse(
            f"{size} completions of one round on these GPUs are no multiple of num_generations"
            f" {group}: TRL would refuse the run. Give --batch a multiple of"
            f" {math.lcm(at_once, group)}, or change per_device_train_batch_size or --train"
        )
    if tasks is not None and tasks < size // group:
        raise Misuse(
            f"one round on these GPUs takes {size // group} different tasks ({size} completions,"
            f" {group} for each), and there are {tasks}: give a smaller --batch, or fewer --train"
        )
