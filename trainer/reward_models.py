"""Reward models in the trainer's process, as sources of reward for TRL. They score as the service `preference` does:
`gradus.reward_model` is the one way to load and to ask them. Trains nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradus.errors import InternalFault, Misuse
from gradus.reward_model.model_files import refuse_unusable
from trainer.config import RewardModelConfig
from trainer.device import Device, weights_dtype
from trainer.prompts import text_of
from trainer.rewards import GradingStopped

if TYPE_CHECKING:
    from gradus.reward_model.model import RewardModel


class ModelSource:
    """A source of reward for TRL: one score per completion. TRL's own way leaves out the end of plain texts, which
    the model was trained to look at."""

    def __init__(self, model: RewardModel, config: RewardModelConfig) -> None:
        self.__name__ = config.label  # what TRL calls it in metrics
        self.model = model
        self._batch_size = config.batch_size

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **_columns: Any) -> list[float]:
        """Scores in the order of the completions; texts or messages, as TRL hands them over.

        Raises GradingStopped for a score that is not finite: TRL would add nothing for it, which is a score of 0.
        """
        ids_B = [self._ids(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
        size = self._batch_size
        scores_B = [
            score for start in range(0, len(ids_B), size) for score in self.model.scores(ids_B[start : start + size])
        ]
        if wrong := [score for score in scores_B if not math.isfinite(score)]:
            raise GradingStopped(
                f"the reward model {self.__name__} gave {wrong[0]} for {len(wrong)} of {len(scores_B)} completions: "
                "its weights are broken, or too large for their precision. Train it anew with: gradus train reward"
            )
        return scores_B

    def _ids(self, prompt: Any, completion: Any) -> list[int]:
        try:
            return self.model.read(prompt, text_of(completion)).ids
        except InternalFault as fault:
            raise GradingStopped(f"the reward model {self.__name__}: {fault.message}") from None


def refuse_headless(models: Sequence[RewardModelConfig]) -> None:
    """Raises Misuse for a folder whose model or adapter has no trained head; looks at names, and loads nothing."""
    with _named():
        for folder in (Path(model.path) for model in models):
            if folder.is_dir():
                refuse_unusable(folder)


def load_reward_model(config: RewardModelConfig, device: Device) -> ModelSource:
    """The model of a run's final folder, or of a name on the hub, on the device. Raises Misuse without its head."""
    from gradus.reward_model.model import load

    with _named():
        return ModelSource(load(config.path, device.kind, weights_dtype(device, "auto", frozen=True)), config)


@contextmanager
def _named() -> Iterator[None]:
    """Names the key of the configuration in what is refused."""
    try:
        yield
    except Misuse as refused:
        raise Misuse(f"reward.models: {refused}") from None
