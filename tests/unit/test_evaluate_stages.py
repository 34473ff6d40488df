"""A model of any stage's run is asked as it was trained; its pairs are rows that preferences are
learnt from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from trainer.config.files import load
from trainer.config.run import TrainConfig
from trainer.config.stages import (
    DpoStage,
    PretrainStage,
    RewardStage,
    RowStage,
    SftStage,
    StageConfig,
)
from trainer.data.rows import load_rows
from trainer.evaluate.pairs import build_preference_pairs
from trainer.evaluate.setup import (
    SamplingOptions,
    find_run_config,
    load_examples,
    resolve_config,
    resolve_prompt_config,
)

PROMPT = {"template": "Write: {prompt}"}
ROWS = {"data": {"dataset": "rows.jsonl", "columns": {"prompt": "instruction"}}, "prompt": PROMPT}
STAGES: dict[str, tuple[type[StageConfig], dict[str, Any]]] = {
    "sft": (SftStage, ROWS),
    "dpo": (DpoStage, ROWS),
    "reward": (RewardStage, ROWS),
    "pretrain": (
        PretrainStage,
        {"data": {"dataset": "x.txt", "curriculum": [{"length": 8, "steps": 1}]}},
    ),
}


def run_folder(tmp_path: Path, settings: str) -> Path:
    """A run's folder as far as its configuration goes; where its final model lies."""
    (tmp_path / "config.resolved.json").write_text(settings)
    (tmp_path / "final").mkdir()
    return tmp_path / "final"


@pytest.mark.parametrize("stage", STAGES)
def test_a_model_is_asked_with_the_prompts_of_its_run(tmp_path: Path, stage: str) -> None:
    kind, settings = STAGES[stage]
    config = kind.model_validate({"model": "fresh:qwen3", "output_dir": str(tmp_path), **settings})
    model = run_folder(tmp_path, config.model_dump_json())
    found = resolve_config(SamplingOptions(model=str(model)))
    assert isinstance(found, kind)
    wanted = PROMPT["template"] if issubclass(kind, RowStage) else "{prompt}"
    assert resolve_prompt_config(SamplingOptions(model=str(model)), found).template == wanted


def test_columns_of_a_run_s_rows_say_nothing_about_tasks(tmp_path: Path) -> None:
    config = SftStage.model_validate({"model": "fresh:qwen3", "output_dir": str(tmp_path), **ROWS})
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps({"id": "a", "prompt": "p", "tests": "let () = assert true"}) + "\n")
    (found,) = load_examples(tasks, "ocaml", SamplingOptions(model="m"), config)
    assert found.prompt == "p"


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"stage": "ppo"}', '{"stage": []}', '{"stage": "sft"}', "null"]
)
def test_a_configuration_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    model = run_folder(tmp_path, text)
    with pytest.raises(Misuse, match=r"config\.resolved\.json: is no configuration"):
        find_run_config(model)


@pytest.mark.parametrize(
    "prompt", ["(* add 1 *)", [{"role": "user", "content": "add 1"}]], ids=["text", "messages"]
)
def test_pairs_are_read_by_the_training_that_they_are_for(tmp_path: Path, prompt: Any) -> None:
    same = {"prompt_id": "a", "prompt": prompt}
    answers = [
        {**same, "completion": "good", "reward": 1.0, "passed": True},
        {**same, "completion": "bad", "reward": 0.0, "passed": False},
    ]
    pairs = list(build_preference_pairs(answers, 0.05, 1))
    file = tmp_path / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in pairs))
    settings = {
        "stage": "dpo",
        "model": "fresh:qwen3",
        "data": {"dataset": str(file)},
        "output_dir": str(tmp_path),
    }
    (tmp_path / "run.yaml").write_text(json.dumps(settings))
    (row,) = load_rows(load(tmp_path / "run.yaml", (), DpoStage)).train
    assert set(row.values) == {"prompt", "chosen", "rejected"}


def test_a_run_on_rewards_is_still_asked_as_before(tmp_path: Path) -> None:
    settings = {
        "model": "fresh:qwen3",
        "data": {"dataset": "x"},
        "reward": {"grader": "ocaml"},
        "output_dir": "x",
    }
    config = TrainConfig.model_validate({**settings, "prompt": PROMPT})
    assert isinstance(find_run_config(run_folder(tmp_path, config.model_dump_json())), TrainConfig)
