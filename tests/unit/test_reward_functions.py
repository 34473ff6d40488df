"""Reward functions of the user's own: what they are called with, and what they may return."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from tests.tiny_models import built, make_model
from trainer.config.run import RewardConfig, RewardFunctionConfig, TrainConfig
from trainer.data.tasks import Example
from trainer.rewards.functions import (
    GIVEN,
    FunctionReward,
    WrongReward,
    load_function,
    penalize_overlong,
)
from trainer.runs.folder import read_lines

OVERLONG = "trainer.rewards.functions:penalize_overlong"
SHIPPED = {"path": OVERLONG, "arguments": {"max_length": 8, "buffer": 4}}


@pytest.mark.parametrize(
    ("length", "reward"), [(0, 0), (4, 0), (5, -0.25), (7, -0.75), (8, -1), (30, -1)]
)
def test_overlong_completions_are_punished_in_proportion(length: int, reward: float) -> None:
    assert penalize_overlong(completion_ids=[[1] * length], max_length=8, buffer=4) == [reward]


@pytest.mark.parametrize("buffer", [0, -1, 9])
def test_a_buffer_that_is_no_part_of_the_length_is_refused(buffer: int) -> None:
    with pytest.raises(Misuse, match=f"buffer is {buffer}; it must be above 0 and at most"):
        penalize_overlong(completion_ids=[[1]], max_length=8, buffer=buffer)


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"path": "nowhere_at_all:f"}, "cannot be loaded: ModuleNotFoundError"),
        ({"path": "trainer.rewards.functions:nothing"}, "cannot be loaded: AttributeError"),
        ({"path": "broken_rewards:f"}, "cannot be loaded: ZeroDivisionError"),
        ({"path": OVERLONG}, "cannot be called: missing a required argument: 'max_length'"),
        ({"path": "trainer.rewards.functions:GIVEN"}, "cannot be called: .* is not a callable"),
    ],
)
def test_functions_that_cannot_be_called_are_refused_before_the_run(
    told: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken_rewards.py").write_text("1 / 0\n")
    with pytest.raises(Misuse, match=f"reward.functions: .*{said}"):
        load_function(RewardFunctionConfig.model_validate(told))


def test_a_function_is_given_by_its_path_alone_and_two_of_one_name_are_refused() -> None:
    config = RewardConfig.model_validate({"functions": [OVERLONG]})
    assert config.functions[0].label == "penalize_overlong"
    with pytest.raises(ValueError, match="two sources of reward are called penalize_overlong"):
        RewardConfig.model_validate({"functions": [OVERLONG, OVERLONG]})
    with pytest.raises(ValueError, match="should match pattern"):
        RewardConfig.model_validate({"functions": ["no_colon"]})


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([1.0], "returned 1 rewards for 2 completions"),
        ([1.0, float("nan")], "returned nan; return None for a completion that cannot be judged"),
        (3, "must return a list of numbers and None, not 3"),
        (["a", 1], "must return a list of numbers"),
    ],
)
def test_what_is_no_reward_is_refused(returned: Any, said: str) -> None:
    with pytest.raises(WrongReward, match=re.escape(said)):
        compute(lambda **_: returned)


def test_a_function_sees_the_columns_and_what_it_cannot_judge_has_no_reward() -> None:
    given: dict[str, Any] = {}

    async def judge(**columns: Any) -> list[float | None]:
        await asyncio.sleep(0)
        given.update(columns)
        return [None, 0.5]

    assert compute(judge) == [None, 0.5]
    assert set(given) == set(GIVEN)
    assert given["completions"] == ["one", "two"]
    assert given["solution"] == ["let f = 1", "let f = 1"]
    assert given["kind"] == ["add", "add"]


def compute(function: Any) -> list[float | None]:
    example = Example(id="t", prompt="(* f *)", task=None, kind="add", solution="let f = 1")
    settings = RewardFunctionConfig(path="own:judge")
    reward = FunctionReward(settings, function, {"t": example}, lambda label, rows: None)
    columns = dict.fromkeys(("prompts", "trainer_state", "log_metric", "log_extra"))
    return asyncio.run(
        reward.compute_rewards(
            completions=["one", "two"],
            completion_ids=[[1], [2]],
            prompt_id=["t", "t"],
            **columns,
        )
    )


@pytest.mark.training
def test_a_run_learns_from_functions_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("length_rewards.py").write_text(
        "def count_ids(completion_ids, log_metric, scale, **columns):\n"
        "    log_metric('own/seen', float(len(completion_ids)))\n"
        "    return [scale * len(ids) for ids in completion_ids]\n"
    )
    rows = [{"id": f"t{n}", "prompt": f"(* add {n} *)"} for n in range(4)]
    Path("tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = TrainConfig.model_validate(
        {
            "model": {"name": str(make_model("qwen2", tmp_path / "model")), "device": "cpu"},
            "data": {"dataset": "tasks.jsonl"},
            "reward": {
                "functions": [
                    SHIPPED,
                    {"path": "length_rewards:count_ids", "arguments": {"scale": 0.5}},
                ]
            },
            "grpo": {
                "per_device_train_batch_size": 8,
                "num_generations": 4,
                "max_completion_length": 8,
                "max_steps": 2,
            },
            "output_dir": tmp_path / "run",
        }
    )
    built(config).train()
    first, *_ = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert first["own/seen"] == 8
    assert -1 <= first["rewards/penalize_overlong/mean"] <= 0
    assert 0 < first["rewards/count_ids/mean"] <= 4
