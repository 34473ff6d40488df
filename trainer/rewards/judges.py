"""Judges of a run: the grader of the tasks, asked over HTTP, and reward models (`reward.models`).

A reward model is the grader `preference` in this process, whose raw score is the reward.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradus.client import RewardClient
from gradus.contract import PreferenceSubmission, Submission
from gradus.errors import Fault, Misuse
from gradus.local import LocalGrader, open_local
from gradus.reward_model.model_files import refuse_unusable
from gradus.tasks.base import clean_text
from trainer.config.run import PromptConfig, RewardConfig, RewardModelConfig
from trainer.data.prompts import Prompt, render
from trainer.data.tasks import Example
from trainer.rewards.judge import (
    CompletionsFile,
    Judge,
    Record,
    Result,
    build_submission_maker,
    make_http_grade,
)

if TYPE_CHECKING:
    from trainer.config.device import Device

VERDICT_FIELDS = (
    "status",
    "reward",
    "components",
    "flags",
    "fault",
    "rubric",
    "grader",
    "toolchain",
    "cached",
)
"""Fields of a reward model's verdict that stand in the line of its completion."""
PREFERENCE = "preference"


@dataclass(slots=True)
class Judges:
    """Maker of the judges of one run, which share its tasks, its prompts and its files."""

    config: RewardConfig
    tasks: Mapping[str, Example]
    """By the ids of their prompts."""
    prompt: PromptConfig
    file: CompletionsFile | None = None
    """File that takes what each judge said."""
    grading: Callable[[], AbstractContextManager[None]] = nullcontext
    """A context that is entered while samples are with the graders."""

    def build_judges(self, models: Sequence[LocalGrader]) -> list[Judge]:
        """Return the judges in the order of `list_weights`; `models` are those of `reward.models`,
        opened."""
        config = self.config
        if config.grader is not None:
            judges = [self.make_task_judge(create_client(config))]
        else:
            judges = []
        for model_config, model in zip(config.models, models, strict=True):
            judges.append(self.make_model_judge(model_config, model))
        return judges

    def make_task_judge(self, client: RewardClient) -> Judge:
        make_submission = build_submission_maker(self.config, self.tasks, self.prompt.opening)
        record = self.file.take if self.file else None
        return Judge(
            self.config,
            make_submission,
            make_http_grade(self.config, client),
            record=record,
            grading=self.grading,
        )

    def make_model_judge(self, model_config: RewardModelConfig, model: LocalGrader) -> Judge:
        """The raw score is the reward, as `preference/sigmoid` tells it among its components."""

        async def grade(submissions: Sequence[Submission], deadline_s: float) -> list[Result]:
            return await asyncio.to_thread(lambda: list(model.grade(submissions)))

        def make_submission(prompt_id: str, text: str, number: str) -> Submission:
            return build_preference(render(self.prompt, self.tasks[prompt_id]), text, number)

        def record(records: Sequence[Record]) -> None:
            rows = []
            for line in records:
                rows.append({field: line[field] for field in VERDICT_FIELDS})
            if self.file is not None:
                self.file.add_extra_results(model_config.label, rows)

        return Judge(
            self.config.model_copy(update={"grader": PREFERENCE, "urls": []}),
            make_submission,
            grade,
            name=model_config.label,
            value=lambda verdict: verdict.components["score"],
            record=record,
            grading=self.grading,
        )


def create_client(config: RewardConfig) -> RewardClient:
    return RewardClient(config.urls, api_key=os.environ.get("GRADUS_API_KEY"))


def list_weights(reward: RewardConfig) -> list[float]:
    """Return one weight for each source: the grader of the tasks, reward models, functions."""
    weights = [reward.weight] if reward.grader is not None else []
    weights += [model.weight for model in reward.models]
    weights += [function.weight for function in reward.functions]
    return weights


def build_preference(prompt: Prompt, completion: str, submission_id: str) -> Submission:
    """Return a completion behind the prompt that it answers, as the policy reads that prompt."""
    fields: dict[str, Any] = {"id": submission_id, "completion": clean_text(completion), "task": {}}
    if isinstance(prompt, str):
        return PreferenceSubmission.model_validate({**fields, "prompt": clean_text(prompt)})
    messages = []
    for message in prompt:
        messages.append({"role": message["role"], "content": clean_text(message["content"])})
    return PreferenceSubmission.model_validate({**fields, "task": {"messages": messages}})


def refuse_headless(models: Sequence[RewardModelConfig]) -> None:
    """Raise Misuse for a folder whose model or adapter has no trained head; looks at names, and
    loads nothing."""
    for folder in (Path(model.path) for model in models):
        if folder.is_dir():
            try:
                refuse_unusable(folder)
            except Misuse as refused:
                raise Misuse(f"reward.models: {refused}") from None


def open_reward_model(config: RewardModelConfig, device: Device) -> LocalGrader:
    """Return the grader `preference` in this process, with this model on the device, after its
    self-test.

    Raises Misuse for a model that cannot be used.
    """
    import torch

    from trainer.config.device import select_weights_dtype

    settings = {
        "MODEL": config.path,
        "DEVICE": device.kind,
        "DTYPE": select_weights_dtype(device, "auto", frozen=True),
        "THREADS": str(torch.get_num_threads()),
    }
    before = dict(os.environ)
    os.environ.update({f"GRADUS_PREFERENCE_{name}": value for name, value in settings.items()})
    try:  # the grader's settings come from its variables, which go before any file
        opened = open_local(PREFERENCE, slots=config.batch_size)
        opened.self_test()
        return opened
    except Misuse as refused:
        raise Misuse(f"reward.models: {refused}") from None
    except Fault as fault:
        raise Misuse(f"reward.models: {fault.message}") from None
    finally:
        for name in settings:
            os.environ.pop(f"GRADUS_PREFERENCE_{name}")
        os.environ.update(before)
