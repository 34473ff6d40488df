"""Variables of ocamler-grpo become options of `gradus train`, and every one is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from gradus.errors import Misuse
from gradus.resources import configs
from tests.conftest import Cli
from trainer.config.env_file import merge_env_file
from trainer.config.run import TrainConfig
from trainer.config.stages import SftStage, load_stage

ENVRC = """
export PYTHONUNBUFFERED=1
export BASE_MODEL_ID="Qwen/Qwen2.5-Coder-1.5B-Instruct"  # instruct
TRAINING_DATASET=kiranpg/ocaml-training-problems
export GRPO_NUM_GENERATIONS=6 GRPO_TEMPERATURE=1.0
export GRPO_MAX_PROMPT=704
export GRPO_MAX_COMPLETION=600
export GRPO_LEARNING_RATE=1e-6
export GRPO_BATCH_SIZE=6
export GRPO_GENERATION_BATCH_SIZE=12
export GRPO_OUTPUT_DIR=grpo_runs
export LORA_R=32
export LORA_TARGET_MODULES=q_proj,k_proj
export REWARD_POOL_SIZE=10
export SFT_DATASET=kiranpg/ocaml-sft-problems
export SFT_BATCH_SIZE=4
export SFT_EVAL_SPLIT=0.2
export SFT_MAX_SEQ_LENGTH=512
export OPENAI_MODEL=local-model
export EMPTY=
"""


def test_the_variables_of_rewards_reach_trls_options(tmp_path: Path) -> None:
    (file := tmp_path / ".envrc").write_text(ENVRC)
    options, told = merge_env_file(["--learning_rate", "3e-6", "--model=other"], file, "grpo")
    config = load_stage(configs() / "train" / "ocaml_qwen_1.5b.yaml", options)
    assert isinstance(config, TrainConfig)
    assert (config.model.name, config.data.dataset) == ("other", "kiranpg/ocaml-training-problems")
    assert (config.data.max_prompt_tokens, config.output_dir) == (704, Path("grpo_runs"))
    assert config.lora is not None
    assert (config.lora.r, config.lora.targets) == (32, ["q_proj", "k_proj"])
    given = {
        "num_generations": 6,
        "temperature": 1.0,
        "max_completion_length": 600,
        "learning_rate": 3e-6,
    }
    given |= {"per_device_train_batch_size": 6, "generation_batch_size": 12}
    assert given.items() <= config.grpo.items()
    assert (
        "REWARD_POOL_SIZE sets nothing: give --slots to `gradus serve` or `gradus worker`" in told
    )
    assert "PYTHONUNBUFFERED sets nothing: it is not a training variable" in told
    assert not [line for line in told if "SFT_" in line or "OPENAI_" in line or "EMPTY" in line]


def test_the_variables_of_worked_answers_reach_theirs(tmp_path: Path) -> None:
    (file := tmp_path / ".envrc").write_text(ENVRC)
    options, _ = merge_env_file([], file, "sft")
    config = load_stage(configs() / "train" / "sft_ocaml_qwen_1.5b.yaml", options)
    assert isinstance(config, SftStage)
    assert (config.data.dataset, config.data.held_out) == ("kiranpg/ocaml-sft-problems", 0.2)
    assert {"per_device_train_batch_size": 4, "max_length": 512}.items() <= config.sft.items()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "export GRPO_OUTPUT_DIR=$HOME/runs",
            ":1: GRPO_OUTPUT_DIR: write the value itself; no shell reads this file",
        ),
        ("export GRPO_BETA='0.1", ":1: No closing quotation"),
    ],
)
def test_a_line_that_only_a_shell_understands_is_refused(
    tmp_path: Path, line: str, says: str
) -> None:
    (file := tmp_path / ".envrc").write_text(line)
    with pytest.raises(Misuse) as caught:
        merge_env_file([], file, "grpo")
    assert says in str(caught.value)


def test_an_option_that_trl_does_not_know_is_refused_by_the_command(
    gradus: Cli, tmp_path: Path
) -> None:
    (file := tmp_path / ".envrc").write_text("GRPO_BETTA=0.1\n")
    said = gradus("train", configs() / "train" / "demo_ocaml.yaml", "--dry-run", "--env-file", file)
    assert said.status == 2
    assert "GRPO_BETTA=0.1 is --grpo.betta" in said.err
    assert "grpo.betta: unknown key; did you mean beta?" in said.err
