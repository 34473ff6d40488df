"""TRL's own trainer with rewards from Gradus: a fault is NaN, which TRL leaves out of the
baseline."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.fake_grader import Service
from tests.tiny_models import make_model

pytestmark = [pytest.mark.slow, pytest.mark.training]

TASK = json.dumps({"tests": "let () = assert (f 1 = 2)"})


def test_trl_calculates_rewards_with_faults(tmp_path: Path) -> None:
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    from gradus.integrations.trl import reward

    folder = make_model("qwen2", tmp_path / "model")
    with Service().running() as service:
        options: dict[str, Any] = {
            "report_to": "none",
            "use_cpu": True,
            "per_device_train_batch_size": 4,
        }
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(folder),
            processing_class=AutoTokenizer.from_pretrained(folder),
            reward_funcs=reward("ocaml", url=service.url),
            train_dataset=Dataset.from_list([{"prompt": "p", "task": TASK}] * 4),
            args=GRPOConfig(
                output_dir=str(tmp_path / "out"),
                num_generations=4,
                max_completion_length=8,
                **options,
            ),
        )
        texts = ["reward 1", "fault", "reward 0.5", "reward 0"]
        rows = [{"prompt": "p", "task": TASK}] * 4
        found = trainer._calculate_rewards(rows, ["p"] * 4, texts, [[1]] * 4).flatten().tolist()
    assert [found[0], *found[2:]] == [1.0, 0.5, 0.0]
    assert math.isnan(found[1])

    # The model's own texts earn what it happens to write, so that the same rewards are put in.
    calculated = torch.tensor(found).reshape(-1, 1)
    trainer._calculate_rewards = lambda *_: calculated
    advantages = trainer._generate_and_score_completions(rows)["advantages"].tolist()
    kept = torch.tensor([1.0, 0.5, 0.0])
    expected = ((kept - kept.mean()) / (kept.std() + 1e-4)).tolist()
    assert [advantages[0], *advantages[2:]] == pytest.approx(expected, abs=1e-5)
    assert advantages[1] == 0.0
