"""`gradus gpus`: the commands that split GPUs, those of the guide among them, and batches that do
not come out even."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from gradus.errors import Misuse
from gradus.resources import configs
from trainer.config.gpus import split_commands

CONFIG = configs() / "train" / "story_cot.yaml"
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "from_grpo_for_scrum.md"


def test_the_guide_shows_what_its_command_prints() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    [asked] = re.findall(r"`gradus gpus \S+ --train (\d) --vllm (\d) --batch (\d+)`", text)
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


def test_training_without_rewards_needs_no_server() -> None:
    with pytest.raises(Misuse, match="trains on no rewards"):
        split_commands(configs() / "train" / "demo_sft.yaml", 1, 1, None)
