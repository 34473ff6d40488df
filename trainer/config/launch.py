"""Commands that split the GPUs of one machine or several between a vLLM server and training. Looks
at no GPU."""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from trainer.config.run import TrainConfig
from trainer.config.stages import load_stage

ACCELERATE = "configs/accelerate/multi_gpu.yaml"
_SERVER_PORT = 8001
_MAIN_PORT = 29500
"""Where the processes of several machines find each other."""
PER_DEVICE = 8
"""Default of TRL for `per_device_train_batch_size`."""
GROUP = {"grpo": 8, "rloo": 2}
"""Defaults of TRL for `num_generations`."""


@dataclass(frozen=True, slots=True)
class Machines:
    """The GPUs of a run, alike on each of its machines; the vLLM server is on the first."""

    train: int
    """GPUs of each machine that train: its first ones."""
    vllm: int
    """GPUs of the server: the next ones of the first machine."""
    data_parallel: int = 1
    """Copies of the model that share the server's GPUs."""
    count: int = 1
    host: str = "127.0.0.1"
    """Address of the first machine, for the others."""

    def __post_init__(self) -> None:
        if self.vllm % self.data_parallel:
            raise Misuse(
                f"--data-parallel {self.data_parallel}: must divide --vllm {self.vllm}: each copy"
                " of the model takes as many GPUs"
            )
        if self.count > 1 and self.host in ("127.0.0.1", "localhost"):
            raise Misuse("--machines: name the address of the first one, by --host")


@dataclass(frozen=True, slots=True)
class LaunchCommand:
    """One command, and the GPUs that it sees."""

    devices: range
    words: tuple[str, ...]

    @property
    def variables(self) -> dict[str, str]:
        return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, self.devices))}

    def __str__(self) -> str:
        [(name, value)] = self.variables.items()
        return f"{name}={value} {shlex.join(self.words)}"


def plan_launch(
    path: Path,
    machines: Machines,
    target: int | None = None,
    count_tasks: Callable[[TrainConfig], int | None] = lambda config: None,
) -> list[list[LaunchCommand]]:
    """Return the commands of each machine for the config of a run on rewards: the server's first,
    on the first machine, then training's.

    `target`: completions of one update, over all processes; None leaves the config's gradient
    accumulation. `count_tasks` returns how many tasks there are to train on, None where that is not
    known. Raises Misuse for batches that do not come out even or need more tasks than there are, as
    the run would on the GPUs.
    """
    config = load_stage(path)
    if not isinstance(config, TrainConfig):
        raise Misuse(
            f"{path}: trains on no rewards, so nothing is generated and all GPUs can train"
        )
    processes = machines.train * machines.count
    at_once = int(config.options.get("per_device_train_batch_size", PER_DEVICE)) * processes
    group = int(config.options.get("num_generations", GROUP[config.stage]))
    steps = int(config.options.get("gradient_accumulation_steps", 1))
    words = ["gradus", "train", str(path), "--generation.backend", "vllm"]
    if machines.count > 1:
        words += ["--generation.url", f"http://{machines.host}:{_SERVER_PORT}"]
    if target is not None:
        if target % at_once or target % group:
            raise Misuse(
                f"--batch {target}: must be a multiple of {at_once} (per_device_train_batch_size on"
                f" {processes} GPUs) and of {group} (num_generations)"
            )
        steps = target // at_once
        words += ["--gradient_accumulation_steps", str(steps)]
    _refuse_broken_groups(config.options, at_once, group, steps, count_tasks(config))
    plan = []
    for rank in range(machines.count):
        launched = (*_build_launcher(machines, rank), *words)
        plan.append([LaunchCommand(range(machines.train), launched)])
    devices = range(machines.train, machines.train + machines.vllm)
    plan[0].insert(0, LaunchCommand(devices, _build_server(config, machines)))
    return plan


def _build_server(config: TrainConfig, machines: Machines) -> tuple[str, ...]:
    tensor_parallel = machines.vllm // machines.data_parallel
    words = ["gradus", "vllm", config.model.name, "--tensor-parallel-size", str(tensor_parallel)]
    if machines.data_parallel > 1:
        words += ["--data-parallel-size", str(machines.data_parallel)]
    if config.lora is not None:
        words += ["--lora-rank", str(config.lora.r)]
    if machines.count > 1:
        words += ["--host", machines.host, "--trust-network"]
    return tuple(words)


def _build_launcher(machines: Machines, rank: int) -> tuple[str, ...]:
    """Return the words before `gradus train` on one machine; none for one process in all."""
    processes = machines.train * machines.count
    if processes == 1:
        return ()
    words = ["accelerate", "launch", "--config_file", ACCELERATE]
    words += ["--num_processes", str(processes)]
    if machines.count > 1:
        words += ["--num_machines", str(machines.count), "--machine_rank", str(rank)]
        words += ["--main_process_ip", machines.host, "--main_process_port", str(_MAIN_PORT)]
    return (*words, "-m")


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
            " all GPUs train on at once (per_device_train_batch_size x --train x --machines)"
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
