"""Training configuration: what is accepted, what is refused, and whether the refusal says where and
what instead."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gradus.errors import Misuse
from gradus.resources import configs
from trainer.config.files import parse_overrides
from trainer.config.stages import load_stage

MINIMAL = """
model: some/model
data: {dataset: tasks.jsonl}
reward: {grader: ocaml}
output_dir: runs/x
"""


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def written(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return path

    return written


def test_every_shipped_config_loads() -> None:
    found = sorted((configs() / "train").glob("*.yaml"))
    assert {
        "demo_ocaml.yaml",
        "ocaml_qwen_1.5b.yaml",
        "story_basic.yaml",
        "story_cot.yaml",
        "demo_story.yaml",
    } <= {path.name for path in found}
    for path in found:
        assert load_stage(path).options


def test_a_bare_model_name_and_defaults_are_enough(write) -> None:  # type: ignore[no-untyped-def]
    config = load_stage(write(MINIMAL))
    assert config.model.name == "some/model"
    assert config.reward.urls == ["http://127.0.0.1:8000"]
    assert config.lora is None
    assert config.warm_start is None


def test_a_learning_rate_without_a_dot_is_a_number(write) -> None:  # type: ignore[no-untyped-def]
    config = load_stage(
        write(MINIMAL + "grpo: {learning_rate: 5e-6, max_steps: 3}"), ["--adam_beta2", "1e-1"]
    )
    assert config.grpo == {"learning_rate": 5e-6, "max_steps": 3, "adam_beta2": 0.1}


def test_no_and_off_are_texts_but_for_settings_of_two_values(write) -> None:  # type: ignore[no-untyped-def]
    path = write(MINIMAL + "grpo: {save_strategy: no, bf16: off}")
    config = load_stage(
        path,
        ["--logging_strategy", "no", "--reward.early", "no", "--gradient_checkpointing", "on"],
    )
    assert {name: str(getattr(value, "value", value)) for name, value in config.grpo.items()} == {
        "save_strategy": "no",
        "bf16": "False",
        "logging_strategy": "no",
        "gradient_checkpointing": "True",
    }
    assert config.reward.early is False


def test_overrides_go_where_their_names_say(write) -> None:  # type: ignore[no-untyped-def]
    config = load_stage(
        write(MINIMAL + "grpo: {beta: 0.1, use_vllm: false}"),
        [
            "--beta=0.2",
            "--use_vllm",
            "--reward.deadline-s",
            "30",
            "--seed",
            "7",
            "--model",
            "fresh:qwen3",
        ],
    )
    assert config.grpo == {"beta": 0.2, "use_vllm": True}
    assert (config.reward.deadline_s, config.seed, config.model.name) == (30.0, 7, "fresh:qwen3")


def test_null_on_the_command_line_takes_a_section_away(write) -> None:  # type: ignore[no-untyped-def]
    path = write(MINIMAL + "lora: {r: 8}")
    assert load_stage(path).lora is not None
    assert load_stage(path, ["--lora", "null"]).lora is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("outputdir: x", "outputdir: unknown key; did you mean output_dir?"),
        ("lora: {rank: 8}", "lora.rank: unknown key"),
        ("grpo: {learning_rat: 1}", "grpo.learning_rat: unknown key; did you mean learning_rate?"),
        ("grpo: {lr: 1}", "grpo.lr: unknown key; did you mean learning_rate?"),
        (
            "grpo: {batch_size: 1}",
            "grpo.batch_size: unknown key; did you mean per_device_train_batch_size?",
        ),
        (
            "grpo: {load_4bit: true}",
            "grpo.load_4bit: unknown key; did you mean model.load_in_4bit?",
        ),
        ("grpo: {learning_rate: fast}", "grpo.learning_rate: 'fast'"),
        ("grpo: {max_steps: true}", "grpo.max_steps: true is not a number"),
        ("grpo: {seed: 3}", "grpo.seed: not set here: set `seed` at the top level"),
        (
            "warm_start: {dataset: d.jsonl, sft: {packin: true}}",
            "warm_start.sft.packin: unknown key; did you mean pack",
        ),
        ("seed: .nan", "seed: nan is not a finite number"),
        ("grpo: {beta: .inf}", "grpo.beta: inf is not a finite number"),
        ("seed: many", "seed: Input should be a valid integer"),
        ("seed: -1", "seed: Input should be greater than or equal to 0"),
        ("prompt: {template: solve this}", "prompt: template has no {prompt}"),
        (
            "prompt: {template: '{sprint_goal}'}",
            "prompt.template has no {prompt}; {sprint_goal} alone is for grader: story",
        ),
        (
            "prompt: {template: '{prompt}', think: true}",
            "prompt.think: unknown key; did you mean thinks?",
        ),
        ("prompt: {thinks: true}", "prompt: thinks needs style: chat"),
        ("prompt: {system: be brief}", "prompt: system needs style: chat"),
        (
            "data: {dataset: d, eval_dataset: e, held_out: 0.1}",
            "key 'data' is given twice, first on line 3",
        ),
        ("warm_start: {dataset: a, dataset: b}", "key 'dataset' is given twice, first on line 6"),
        ("grpo: [1, 2]", "grpo: Input should be a valid dictionary"),
        ("seed: [", "expected the node content"),
    ],
)
def test_a_mistake_in_the_file_is_refused_by_file_and_key(write, text: str, says: str) -> None:  # type: ignore[no-untyped-def]
    path = write(MINIMAL + text)
    with pytest.raises(Misuse, match=re.escape(says)) as caught:
        load_stage(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--learning_rat", "1"],
            "command line: grpo.learning_rat: unknown key; did you mean learning_rate?",
        ),
        (
            ["--reward.deadline", "1"],
            "command line: reward.deadline: unknown key; did you mean deadline_s?",
        ),
        (
            ["--reward.deadline_s", "soon"],
            "command line: reward.deadline_s: Input should be a valid number",
        ),
        (["--beta", ".nan"], "command line: --beta"),
        (["--beta", "1", "--beta", "2"], "command line: --beta is given twice"),
        (["beta", "1"], "command line: 'beta' is not an option"),
    ],
)
def test_a_mistake_on_the_command_line_is_refused_by_option(
    write, arguments: list[str], says: str
) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Misuse, match=re.escape(says)):
        load_stage(write(MINIMAL), arguments)


def test_all_mistakes_are_told_at_once(write) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Misuse) as caught:
        load_stage(write(MINIMAL + "a: 1\nb: 2"), ["--lora.c", "3"])
    assert len(str(caught.value).splitlines()) == 3


def test_a_missing_file_and_a_list_are_refused(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Misuse, match=r"nowhere.yaml: there is no such file"):
        load_stage(tmp_path / "nowhere.yaml")
    with pytest.raises(Misuse, match="holds list where"):
        load_stage(write("- 1"))


def test_files_are_looked_for_beside_the_config(write, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "tasks.jsonl").write_text("")
    config = load_stage(write(MINIMAL))
    assert config.data.dataset == str(tmp_path / "tasks.jsonl")


def test_a_flag_without_a_value_means_true() -> None:
    assert parse_overrides(["--use_vllm", "--beta", "-0.5"]) == {
        "grpo": {"use_vllm": True, "beta": -0.5}
    }


def test_a_resolved_config_says_the_same_again(write) -> None:  # type: ignore[no-untyped-def]
    from trainer.config.run import TrainConfig

    config = load_stage(write(MINIMAL + "grpo: {optim: adamw_8bit, lr_scheduler_type: cosine}"))
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config
