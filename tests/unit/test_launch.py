"""`gradus launch`: the commands that split GPUs, those of the guide among them, batches that do not
come out even, and processes that end each other."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from gradus.resources import configs
from trainer.config.launch import LaunchCommand, Machines, plan_launch
from trainer.pipeline.launch import SERVER_ENDED, run_commands

CONFIG = configs() / "train" / "story_cot.yaml"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "from_grpo_for_scrum.md"


def split_commands(
    path: Path, train: int, vllm: int, target: int | None, copies: int = 1, **given: Any
) -> list[str]:
    """Return the two commands for one machine."""
    [commands] = plan_launch(path, Machines(train, vllm, copies), target, **given)
    return list(map(str, commands))


def test_the_guide_shows_what_its_command_prints() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    [asked] = re.findall(r"`gradus launch \S+ --train (\d) --vllm (\d) --batch (\d+)`", text)
    [shown] = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    printed = split_commands(Path(os.path.relpath(CONFIG)), *map(int, asked))
    assert [
        line.replace(os.path.relpath(CONFIG), "configs/train/story_cot.yaml") for line in printed
    ] == (shown.splitlines())


@pytest.mark.parametrize("train", [1, 2, 4])
def test_an_update_has_the_completions_that_were_asked_for(train: int) -> None:
    """2 completions for each GPU and micro-step, as the config says."""
    server, training = split_commands(CONFIG, train, 1, 48)
    steps = int(training.rsplit(" ", 1)[1])
    assert 2 * train * steps == 48
    assert server.startswith(f"CUDA_VISIBLE_DEVICES={train} gradus vllm ")
    assert training.startswith(f"CUDA_VISIBLE_DEVICES={','.join(map(str, range(train)))} ")
    assert ("accelerate launch" in training) == (train > 1)


@pytest.mark.parametrize("batch", [36 + 2, 47, 50])
def test_a_batch_that_does_not_come_out_even_is_refused(batch: int) -> None:
    with pytest.raises(Misuse, match="must be a multiple of 4 .* and of 6"):
        split_commands(CONFIG, 2, 2, batch)


@pytest.mark.parametrize(("train", "batch"), [(4, None), (5, None), (4, 48)])
def test_a_round_that_trl_would_refuse_is_refused(
    train: int, batch: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL's own word on each of them, as if that many processes ran."""
    from trl import GRPOConfig

    text = CONFIG.read_text().replace("steps: 24", "steps: 1").replace("step: 48", "step: 1")
    path = tmp_path / "run.yaml"
    path.write_text(text.replace("../tasks", str(configs() / "tasks")))
    words = {"per_device_train_batch_size": 2, "num_generations": 6}
    steps = 1 if batch is None else batch // (2 * train)
    monkeypatch.setattr(GRPOConfig, "world_size", train)
    try:
        GRPOConfig(**words, gradient_accumulation_steps=steps, use_cpu=True, bf16=False)
    except ValueError:
        with pytest.raises(Misuse, match="TRL would refuse the run"):
            split_commands(path, train, 1, batch)
    else:
        assert len(split_commands(path, train, 1, batch)) == 2


def test_a_round_of_more_tasks_than_there_are_is_refused() -> None:
    with pytest.raises(Misuse, match="takes 48 different tasks .288 completions.* there are 16"):
        split_commands(CONFIG, 6, 2, None, count_tasks=lambda config: 16)
    assert split_commands(CONFIG, 6, 2, 96, count_tasks=lambda config: 16)


def test_copies_of_the_model_share_the_servers_gpus() -> None:
    server, _ = split_commands(CONFIG, 1, 4, 48, 2)
    assert "--tensor-parallel-size 2 --data-parallel-size 2" in server
    with pytest.raises(Misuse, match="--data-parallel 3: must divide --vllm 4"):
        split_commands(CONFIG, 1, 4, 48, 3)


def test_training_without_rewards_needs_no_server() -> None:
    with pytest.raises(Misuse, match="trains on no rewards"):
        split_commands(configs() / "train" / "demo_sft.yaml", 1, 1, None)


def test_several_machines_find_the_first_one() -> None:
    machines = Machines(train=4, vllm=4, count=2, host="10.0.0.1")
    plan = plan_launch(CONFIG, machines, 96)
    server, first = map(str, plan[0])
    [second] = map(str, plan[1])
    assert server.startswith("CUDA_VISIBLE_DEVICES=4,5,6,7 gradus vllm ")
    assert server.endswith("--host 10.0.0.1 --trust-network")
    for rank, line in enumerate((first, second)):
        assert "CUDA_VISIBLE_DEVICES=0,1,2,3 accelerate launch " in line
        assert f"--num_processes 8 --num_machines 2 --machine_rank {rank} " in line
        assert "--main_process_ip 10.0.0.1 --main_process_port 29500 -m gradus train" in line
        assert line.endswith(
            "--generation.url http://10.0.0.1:8001 --gradient_accumulation_steps 6"
        )


def test_several_machines_need_an_address() -> None:
    with pytest.raises(Misuse, match="name the address of the first one, by --host"):
        Machines(train=4, vllm=4, count=2)


SERVER = "import sys, time; print('serving', flush=True); time.sleep({})"


@pytest.mark.parametrize(
    ("server", "training", "statuses"),
    [
        (SERVER.format(600), "import sys; sys.exit(3)", {3}),
        (SERVER.format(600), "pass", {0}),
        ("import sys; print('no card'); sys.exit(1)", "import time; time.sleep(600)", {-15}),
        (
            "import sys; sys.exit(1)",
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\ntime.sleep(600)",
            {SERVER_ENDED, -15},  # the signal itself ends it, if it comes before it is listened to
        ),
    ],
    ids=["training fails", "training ends", "no server", "no server, and training saves"],
)
def test_what_ends_first_ends_the_other(
    server: str, training: str, statuses: set[int], tmp_path: Path
) -> None:
    commands = [
        LaunchCommand(range(1, 2), (sys.executable, "-c", server)),
        LaunchCommand(range(1), (sys.executable, "-c", training)),
    ]
    assert run_commands(commands, tmp_path / "run" / "vllm.log") in statuses
