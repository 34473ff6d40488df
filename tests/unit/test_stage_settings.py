"""Stages of training: which tree of settings a file is, what each takes, and what it refuses and
how it says so."""

from __future__ import annotations

import dataclasses
import re
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.errors import Misuse
from tests.trl_examples import example_for
from trainer.config.run import TrainConfig
from trainer.config.stages import (
    STAGES,
    DpoStage,
    PretrainStage,
    RewardStage,
    SftStage,
    StageConfig,
    load_stage,
)

TOP = "model: some/model\noutput_dir: runs/x\n"
ROWS = TOP + "data: {dataset: rows.jsonl}\n"
TOKENS = TOP + "stage: pretrain\ndata: {dataset: t.npy, curriculum: [{length: 8, steps: 2}]}\n"
REWARDED = ROWS + "reward: {grader: ocaml}\n"


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def written(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path

    return written


# ---------------------------------------------------------------------- which stage it is


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (ROWS + "stage: sft", SftStage),
        (ROWS + "stage: dpo", DpoStage),
        (ROWS + "stage: reward", RewardStage),
        (TOKENS, PretrainStage),
        (REWARDED, TrainConfig),
        (REWARDED + "stage: grpo", TrainConfig),
        (REWARDED + "stage: rloo", TrainConfig),
    ],
)
def test_a_file_is_of_the_stage_that_it_names(write, text: str, kind: type) -> None:  # type: ignore[no-untyped-def]
    assert type(load_stage(write(text))) is kind


def test_a_stage_on_the_command_line_has_to_agree_with_the_file(write) -> None:  # type: ignore[no-untyped-def]
    path = write(ROWS + "stage: sft")
    assert isinstance(load_stage(path, expected="sft"), SftStage)
    with pytest.raises(Misuse, match="is not for dpo: it says stage: sft"):
        load_stage(path, expected="dpo")
    path = write(REWARDED)
    assert isinstance(load_stage(path, expected="grpo"), TrainConfig)
    with pytest.raises(Misuse, match="is not for rloo: it has no stage:, which means grpo"):
        load_stage(path, expected="rloo")


def test_an_override_chooses_the_stage_and_where_bare_options_go(write) -> None:  # type: ignore[no-untyped-def]
    config = load_stage(write(REWARDED), ["--stage", "rloo", "--beta", "0.1"])
    assert isinstance(config, TrainConfig)
    assert (config.stage, config.options) == ("rloo", {"beta": 0.1})


@pytest.mark.parametrize("stage", ["sft", "dpo", "reward"])
def test_no_is_a_strategy_and_not_false(write, stage: str) -> None:  # type: ignore[no-untyped-def]
    path = write(ROWS + f"stage: {stage}")
    assert load_stage(path, ["--eval_strategy", "no"]).options == {"eval_strategy": "no"}


@pytest.mark.parametrize("asked", [None, "ppo"])
def test_who_asks_for_ppo_is_told_what_to_take(write, asked: str | None) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(
        Misuse, match=r"PPO is no longer in TRL. Take stage: rloo or stage: grpo.*reward.models"
    ):
        load_stage(write(REWARDED + ("stage: ppo" if asked is None else "")), expected=asked)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            ROWS + "stage: sftt",
            "'sftt' is not one of sft, dpo, reward, grpo, rloo, pretrain; did you mean sft?",
        ),
        (ROWS + "stage: [sft]", "stage: ['sft'] is not one of sft"),
        (ROWS + "stage: 3", "stage: 3 is not one of sft"),
        (ROWS + "stage: sft\nreward: {grader: ocaml}", "reward: unknown key"),
        (
            ROWS + "stage: sft\nsft: {packin: true}",
            "sft.packin: unknown key; did you mean packing?",
        ),
        (
            ROWS + "stage: sft\nsft: {learning_rate: .inf}",
            "sft.learning_rate: inf is not a finite number",
        ),
        (ROWS + "stage: sft\nsft: {max_steps: true}", "sft.max_steps: true is not a number"),
        (
            ROWS + "stage: sft\nsft: {seed: 1}",
            "sft.seed: not set here: set `seed` at the top level",
        ),
        (ROWS + "stage: sft\ngrpo: {}", "grpo: unknown key"),
        (ROWS + "stage: dpo\ndpo: {beta: much}", "dpo.beta: 'much'"),
        (
            ROWS + "stage: dpo\nstop_when: {no_spread: 0.5}",
            "stop_when.no_spread: unknown key; known: kl, kl_warning",
        ),
        (
            ROWS + "stage: reward\nreward_model: {margin: 1}",
            "(RewardConfig of TRL has no such option)",
        ),
        (
            ROWS.replace("rows.jsonl", "r, held_out: 1") + "stage: sft",
            "data.held_out: Input should be less than 1",
        ),
        (ROWS.replace("rows.jsonl", "r, held_out: .1, eval_dataset: e") + "stage: sft", "not both"),
        (ROWS + "stage: sft\nmodel_: x", "model_: unknown key; did you mean model?"),
        (
            TOP.replace("some/model", "{name: m, load_in_4bit: true}")
            + "stage: sft\ndata: {dataset: d}",
            "needs lora",
        ),
        (
            TOKENS.replace("length: 8", "length: 1"),
            "curriculum.0.length: Input should be greater than or equal to 2",
        ),
        (
            TOKENS.replace("steps: 2", "steps: 0"),
            "curriculum.0.steps: Input should be greater than or equal to 1",
        ),
        (
            TOKENS.replace("[{length: 8, steps: 2}]", "[]"),
            "data.curriculum: List should have at least 1 item",
        ),
        (
            TOKENS + "pretrain: {max_steps: 3}",
            "pretrain.max_steps: not set here: set `data.curriculum`",
        ),
        (
            TOKENS + "pretrain: {learning_rat: 3}",
            "did you mean learning_rate? (TrainingArguments of transformers",
        ),
        (
            REWARDED + "stage: rloo\ngrpo: {beta: 0.1}",
            "stage: rloo takes its options from rloo:, but grpo: is given",
        ),
        (
            REWARDED + "rloo: {beta: 0.1}",
            "stage: grpo takes its options from grpo:, but rloo: is given",
        ),
        (ROWS + "reward: {}", "give a grader, reward models or reward functions"),
        (
            ROWS + "reward: {models: [{path: a/final}, {path: b/a}]}",
            "two sources of reward are called a; give each a name",
        ),
        (
            ROWS.replace("rows.jsonl", "rows.jsonl, held_out: 0.1")
            + "reward: {models: [{path: m}]}",
            "data.eval_dataset and data.held_out need reward.grader",
        ),
        (
            ROWS + "reward: {models: [{path: m, wieght: 2}]}",
            "reward.models.0.wieght: unknown key; did you mean weight?",
        ),
        (ROWS + "reward: {models: [{path: m, weight: .nan}]}", "nan is not a finite number"),
        (
            REWARDED + "on_out_of_memory: ignore",
            "on_out_of_memory: Input should be 'halve' or 'stop'",
        ),
    ],
)
def test_a_mistake_is_refused_by_file_and_key(write, text: str, says: str) -> None:  # type: ignore[no-untyped-def]
    path = write(text)
    with pytest.raises(Misuse, match=re.escape(says)) as caught:
        load_stage(path)
    assert str(path) in str(caught.value)


def test_files_of_a_curriculum_are_looked_for_beside_the_config(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "t.npy").touch()
    config = load_stage(write(TOKENS.replace("t.npy", "[t.npy, elsewhere.npy]")))
    assert isinstance(config, PretrainStage)
    assert config.data.dataset == [str(tmp_path / "t.npy"), "elsewhere.npy"]


# ---------------------------------------------------------------------- options of the libraries

CLASSES = {"sft": "SFTConfig", "dpo": "DPOConfig", "reward": "RewardConfig", "rloo": "RLOOConfig"}


@pytest.mark.training
@pytest.mark.parametrize("stage", [*CLASSES, "pretrain"])
def test_every_option_of_the_class_is_taken_but_those_that_say_where_they_are_set(
    write, stage: str
) -> None:  # type: ignore[no-untyped-def]
    import transformers
    import trl

    cls: Any = getattr(trl, CLASSES[stage]) if stage in CLASSES else transformers.TrainingArguments
    hints = typing.get_type_hints(cls)
    fields = {field.name: hints[field.name] for field in dataclasses.fields(cls) if field.init}
    kind = STAGES[stage]
    assert set(kind.SET_ELSEWHERE) - {"eval_strategy", "reward_weights"} <= set(fields)
    options = {
        name: example_for(name, hint)
        for name, hint in fields.items()
        if name not in kind.SET_ELSEWHERE
    }
    assert len(options) > 90
    top = {"pretrain": TOKENS, "rloo": REWARDED + "stage: rloo\n"}.get(
        stage, ROWS + f"stage: {stage}\n"
    )
    section = "reward_model" if stage == "reward" else stage
    taken = load_stage(write(top + yaml.safe_dump({section: options}))).options
    assert taken.pop("parallelism_config").tp_size == options.pop("parallelism_config")["tp_size"]
    plain = {
        name: list(value) if isinstance(value, tuple) else value for name, value in taken.items()
    }
    assert {name: getattr(value, "value", value) for name, value in plain.items()} == options


def test_a_resolved_config_says_the_same_again(write) -> None:  # type: ignore[no-untyped-def]
    for text in (
        ROWS + "stage: sft\nsft: {packing: true}",
        ROWS + "stage: dpo\ndpo: {loss_type: [ipo]}",
        TOKENS,
    ):
        config = load_stage(write(text))
        assert isinstance(config, StageConfig)
        assert type(config).model_validate_json(config.model_dump_json()) == config
