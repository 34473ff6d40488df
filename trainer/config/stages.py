"""What each stage can be told, as one tree each, and which tree a file is. Loads no torch and
starts nothing.

The sections are those of `trainer.config.run`. A stage's own section is called like the stage
(`reward_model` for `reward`) and holds every option of TRL's or transformers' configuration class,
by its own name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from gradus.errors import Misuse
from gradus.yaml_reader import read_mapping
from trainer.config.files import iter_overrides, load
from trainer.config.run import (
    OWN_NAMES,
    Count,
    PromptConfig,
    RunConfig,
    Section,
    SplitSource,
    StopOnKl,
    TrainConfig,
    describe_nearest,
    ensure_list,
)

BY_TRANSFORMERS = {
    name: OWN_NAMES[name]
    for name in (
        "output_dir",
        "seed",
        "resume_from_checkpoint",
        "use_cpu",
        "disable_tqdm",
        "push_to_hub",
    )
}
BY_TRL = BY_TRANSFORMERS | {
    name: OWN_NAMES[name] for name in ("trust_remote_code", "model_init_kwargs")
}
BY_PHASES = {name: "set `data.curriculum`" for name in ("max_steps", "num_train_epochs")} | {
    "remove_unused_columns": "leave it out: there are no columns"
}


class StageConfig(RunConfig):
    """What stages without a grader have in common."""

    SET_ELSEWHERE: ClassVar[Mapping[str, str]] = BY_TRL


class RowStage(StageConfig):
    """A stage that learns from rows with prompts and answers."""

    data: SplitSource
    prompt: PromptConfig = PromptConfig()
    """How a prompt that is a plain text becomes what the model reads. Rows of messages are taken as
    they are."""


class SftStage(RowStage):
    """Supervised training on worked answers: `gradus train sft`."""

    TRL_CLASSES: ClassVar[Mapping[tuple[str, ...], str]] = {("sft",): "SFTConfig"}

    stage: Literal["sft"] = "sft"
    sft: dict[str, Any] = {}
    """TRL's SFTConfig, by its own names."""


class DpoStage(RowStage):
    """Direct preference optimisation, on pairs of a better and a worse answer: `gradus train
    dpo`."""

    TRL_CLASSES: ClassVar[Mapping[tuple[str, ...], str]] = {("dpo",): "DPOConfig"}

    stage: Literal["dpo"] = "dpo"
    dpo: dict[str, Any] = {}
    """TRL's DPOConfig, by its own names."""
    stop_when: StopOnKl = StopOnKl()
    """Rules that end a run which has gone too far from its reference; none by default."""


class RewardStage(RowStage):
    """A model that scores answers, from pairs of a better and a worse one: `gradus train
    reward`."""

    TRL_CLASSES: ClassVar[Mapping[tuple[str, ...], str]] = {("reward_model",): "RewardConfig"}

    stage: Literal["reward"] = "reward"
    reward_model: dict[str, Any] = {}
    """TRL's RewardConfig, by its own names."""


class Phase(Section):
    """So many steps on blocks of so many tokens."""

    length: Annotated[int, Field(ge=2, le=2**24)]
    steps: Count


class TokenSource(Section):
    """A stream of tokens to train on, and another to measure on."""

    dataset: Annotated[list[str], BeforeValidator(ensure_list), Field(min_length=1)]
    """Files and folders: `.npy` of uint16 or uint32 holds tokens; `.txt` is one text; `.jsonl`,
    `.json`, `.csv` and names on the hub have a text in each row. A folder stands for its files, by
    name."""
    split: str = "train"
    """Split of a dataset on the hub."""
    text_column: str = "text"
    eval_dataset: Annotated[list[str], BeforeValidator(ensure_list)] = []
    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the tokens that is measured on and not trained on: the end of the stream."""
    eval_blocks: Count = 64
    """How many blocks of the longest length are measured on, at most."""
    curriculum: Annotated[list[Phase], Field(min_length=1)]
    """The phases, in their order; the rates of learning run over all of them together."""

    @model_validator(mode="after")
    def _check_held_out(self) -> TokenSource:
        if self.eval_dataset and self.held_out > 0:
            raise ValueError("give either eval_dataset or held_out, not both")
        return self

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.curriculum)

    @property
    def longest(self) -> int:
        return max(phase.length for phase in self.curriculum)


class PretrainStage(StageConfig):
    """Training on plain text, further or from the beginning: `gradus train pretrain`."""

    TRL_CLASSES: ClassVar[Mapping[tuple[str, ...], str]] = {("pretrain",): "TrainingArguments"}
    SET_ELSEWHERE: ClassVar[Mapping[str, str]] = BY_TRANSFORMERS | BY_PHASES

    stage: Literal["pretrain"] = "pretrain"
    data: TokenSource
    pretrain: dict[str, Any] = {}
    """transformers' TrainingArguments, by their own names."""


STAGES: Mapping[str, type[RunConfig]] = {
    "sft": SftStage,
    "dpo": DpoStage,
    "reward": RewardStage,
    "grpo": TrainConfig,
    "rloo": TrainConfig,
    "pretrain": PretrainStage,
}
PPO = (
    "stage: ppo: PPO is no longer in TRL. Take stage: rloo or stage: grpo, which need no value"
    " model; reward.models gives them a reward model (gradus train reward), beside a grader or"
    " alone"
)


def load_stage(path: Path, overrides: Sequence[str] = (), expected: str | None = None) -> RunConfig:
    """Return the config of a run of any stage; `expected` is the one of the command line, if it
    named one.

    GRPO where neither the file nor the command line says. Raises Misuse as `load` does, and where
    the two disagree.
    """
    overridden = dict(iter_overrides(overrides))
    declared = overridden.get("stage") or read_mapping(path).get("stage")
    stage = expected or declared or "grpo"
    if stage == "ppo":
        raise Misuse(f"{path}: {PPO}")
    if not isinstance(stage, str) or stage not in STAGES:
        raise Misuse(
            f"{path}: stage: {stage!r} is not one of"
            f" {', '.join(STAGES)}{describe_nearest(str(stage), list(STAGES))}"
        )
    if expected is not None and expected != (declared or "grpo"):
        if declared:
            declaration = f"says stage: {declared}"
        else:
            declaration = "has no stage:, which means grpo"
        raise Misuse(f"{path}: is not for {expected}: it {declaration}")
    return load(path, overrides, STAGES[stage])
