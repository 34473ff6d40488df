"""Groups without spread that are replaced: one process, two, and a resume."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer
from trl import GRPOConfig

from gradus.errors import Misuse
from tests.tiny_models import make_model
from tests.tiny_sampling import EASY, sampling_trainer
from tests.tiny_turns import Killed, tiny_trainer
from trainer.config.run import TrainConfig
from trainer.runs.folder import read_lines
from trainer.stages.grpo import refuse_wrong_refill

pytestmark = pytest.mark.training

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model("qwen3", tmp_path_factory.mktemp("model"))


def test_other_tasks_replace_groups_without_spread(model: Path, tmp_path: Path) -> None:
    trainer = sampling_trainer(model, tmp_path, refill=1, save_strategy="no", max_steps=4)
    trainer.train()
    tokenizer = AutoTokenizer.from_pretrained(model)
    records = read_lines(tmp_path / "completions.jsonl")
    replaced = 0
    for step, inputs in enumerate(trainer.seen_inputs, start=1):
        written = {
            (one["completion"], round(one["advantage"], 4))
            for one in records
            if one["step"] == step
        }
        texts = [
            tokenizer.decode(ids[mask.bool()], skip_special_tokens=True)
            for ids, mask in zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)
        ]
        advantages = [round(one, 4) for one in inputs["advantages"].tolist()]
        assert len(texts) == 8
        assert {*zip(texts, advantages, strict=True)} <= written
        tokens = (
            inputs["completion_mask"] * inputs["tool_mask"]
            if "tool_mask" in inputs
            else inputs["completion_mask"]
        )
        assert inputs["num_items_in_batch"] == tokens.sum()
        first, *refills = [one["tasks"] for one in trainer.rounds if one["step"] == step]
        assert len(refills) <= 1
        for tasks in refills:
            assert len(tasks) == sum(task in EASY for task in first)
            assert not {*tasks} & {*first}
            replaced += len(tasks)
    assert replaced > 0


def test_with_spread_everywhere_refilling_changes_nothing(model: Path, tmp_path: Path) -> None:
    weights = []
    for refill in (0, 3):
        trainer = tiny_trainer(model, tmp_path / str(refill), None, save_strategy="no")
        trainer.refill_rounds = refill
        trainer.train()
        weights.append(trainer.model.state_dict())
    assert all(torch.equal(weights[0][name], one) for name, one in weights[1].items())


def test_a_run_that_was_killed_replaces_as_one_that_was_not(model: Path, tmp_path: Path) -> None:
    def made(folder: str) -> Any:
        return sampling_trainer(model, tmp_path / folder, refill=2, max_steps=4)

    whole = made("whole")
    whole.train()
    killed = made("killed")
    grade = killed._calculate_rewards

    def grade_until_the_fourth_step(*given: Any) -> Any:
        if killed.state.global_step == 3:
            raise Killed
        return grade(*given)

    killed._calculate_rewards = grade_until_the_fourth_step
    with pytest.raises(Killed):
        killed.train()
    checkpoint = tmp_path / "killed" / "checkpoint-3"
    resumed = made("killed")
    resumed.resume_from(checkpoint)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert all(
        torch.equal(whole.model.state_dict()[name], one)
        for name, one in resumed.model.state_dict().items()
    )
    assert {one["step"] for one in resumed.rounds} == {4}
    assert resumed.rounds == [one for one in whole.rounds if one["step"] == 4]
    assert any(one["step"] < 4 and len(one["tasks"]) < 2 for one in whole.rounds), (
        "a group was replaced"
    )


@pytest.mark.slow  # two processes train in tests/e2e/test_training_sharded.py
def test_two_processes_generate_equally_often(model: Path, tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [*launch, "-m", "tests.tiny_sampling", str(model), str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, env=settings, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (read_lines(tmp_path / f"tasks-{rank}.jsonl") for rank in (0, 1))
    assert [(one["step"], len(one["tasks"])) for one in first] == [
        (one["step"], len(one["tasks"])) for one in second
    ]
    for one, other in zip(first, second, strict=True):
        assert not {*one["tasks"]} & {*other["tasks"]}
    weights = [torch.load(tmp_path / f"weights-{rank}.pt") for rank in (0, 1)]
    assert all(torch.equal(weights[0][name], one) for name, one in weights[1].items())


@pytest.mark.parametrize(
    ("asked", "changes", "options", "why"),
    [
        ({"refill": 1}, {"turns": {"max": 2}}, {}, "alike in one turn"),
        ({"refill": 1}, {"stage": "rloo"}, {}, "stage: grpo"),
        ({"refill": 1}, {}, {"scale_rewards": "batch"}, "scale its own groups"),
        (
            {"refill": 1},
            {},
            {"multi_objective_aggregation": "normalize_then_sum"},
            "normalizes over a round",
        ),
        ({"refill": 1}, {}, {"per_device_train_batch_size": 2, "steps_per_generation": 2}, None),
    ],
)
def test_combinations_that_would_be_wrong_are_refused(
    asked: dict[str, Any],
    changes: dict[str, Any],
    options: dict[str, Any],
    why: str | None,
    tmp_path: Path,
) -> None:
    given = {
        "model": {"name": "m"},
        "data": {"dataset": "d"},
        "reward": {"grader": "ocaml"},
        "output_dir": tmp_path,
    }
    made = GRPOConfig(
        **{
            "output_dir": str(tmp_path),
            "num_generations": 4,
            "per_device_train_batch_size": 4,
            "use_cpu": True,
        }
        | {"bf16": False}
        | options
    )
    plain = TrainConfig.model_validate({**given, **changes})
    refuse_wrong_refill(plain, made)
    config = TrainConfig.model_validate({**given, **changes, "task_sampling": asked})
    if why is None:
        refuse_wrong_refill(config, made)
        return
    with pytest.raises(Misuse, match=why):
        refuse_wrong_refill(config, made)


def test_groups_that_lie_on_two_processes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {
        "model": {"name": "m"},
        "data": {"dataset": "d"},
        "reward": {"grader": "ocaml"},
        "output_dir": tmp_path,
    }
    made = GRPOConfig(
        str(tmp_path), num_generations=4, per_device_train_batch_size=4, use_cpu=True, bf16=False
    )
    made.generation_batch_size = 12
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Misuse, match="on two processes"):
        refuse_wrong_refill(
            TrainConfig.model_validate({**given, "task_sampling": {"refill": 1}}), made
        )
