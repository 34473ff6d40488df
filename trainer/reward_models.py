"""Reward models: loaded with the head that was trained, or not at all, and asked for scores as they were trained.

A model of texts can be loaded as one that scores from any checkpoint; where the checkpoint has no head, it gets a
random one without a word, and a policy would learn noise. Trains nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from trainer.config import ModelConfig, RewardModelConfig
from trainer.device import Device, weights_dtype
from trainer.model import Head, base_of, load_model, load_tokenizer
from trainer.rewards import GradingStopped

HEADS = ("score", "classifier", "classification_head")
"""What architectures call it."""


class RewardModel:
    """A source of reward for TRL: one score per completion. TRL's own way leaves out the end of plain texts, which
    the model was trained to look at."""

    def __init__(self, model: Any, tokenizer: Any, config: RewardModelConfig) -> None:
        self.__name__ = config.label  # what TRL calls it in metrics
        self._model = model.eval()
        self._tokenizer = tokenizer
        self._batch_size = config.batch_size
        model.config.get_text_config().pad_token_id = tokenizer.pad_token_id

    def __call__(self, prompts: Sequence[Any], completions: Sequence[Any], **_columns: Any) -> list[float]:
        """Scores in the order of the completions; texts or messages, as TRL hands them over.

        Raises GradingStopped for a score that is not finite: TRL would add nothing for it, which is a score of 0.
        """
        ids_B = [self._ids(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]
        scores_B = [score for start in range(0, len(ids_B), self._batch_size) for score in self._scores(ids_B, start)]
        if wrong := [score for score in scores_B if not math.isfinite(score)]:
            raise GradingStopped(
                f"the reward model {self.__name__} gave {wrong[0]} for {len(wrong)} of {len(scores_B)} completions: "
                "its weights are broken, or too large for their precision. Train it anew with: gradus train reward"
            )
        return scores_B

    def _ids(self, prompt: Any, completion: Any) -> list[int]:
        """As TRL's RewardTrainer makes them; of a text that is too long, its end."""
        if isinstance(prompt, str):
            text, end = prompt + completion, self._tokenizer.eos_token
            ids = self._tokenizer(text=text if text.endswith(end) else text + end)["input_ids"]
        else:
            ids = self._tokenizer.apply_chat_template([*prompt, *completion], tokenize=True, return_dict=True)[
                "input_ids"
            ]
        limit = getattr(self._model.config.get_text_config(), "max_position_embeddings", None) or len(ids)
        return list(ids[-limit:])

    def _scores(self, ids_B: Sequence[list[int]], start: int) -> Iterator[float]:
        import torch

        batch = self._tokenizer.pad(
            {"input_ids": ids_B[start : start + self._batch_size]}, padding_side="right", return_tensors="pt"
        ).to(self._model.device)
        with torch.inference_mode():
            logits = self._model(**batch).logits
        yield from logits[:, 0].float().tolist()


def refuse_headless(models: Sequence[RewardModelConfig]) -> None:
    """Raises Misuse for a folder whose model or adapter has no trained head; looks at names, and loads nothing."""
    for folder in (Path(model.path) for model in models):
        files = sorted(folder.glob("*.safetensors"))
        if files and not any(part in HEADS for file in files for name in _names_in(file) for part in name.split(".")):
            raise _refused(folder, NO_HEAD)


NO_HEAD = "has no trained head, so its scores would be random"


def load_reward_model(config: RewardModelConfig, device: Device) -> RewardModel:
    """The model of a run's final folder, or of a name on the hub, on the device. Raises Misuse without its head."""
    import torch

    settings = ModelConfig(name=config.path)
    refuse_headless([config])
    dtype = getattr(torch, weights_dtype(device, "auto", frozen=True))
    folder = Path(config.path)
    model = (
        _adapted(folder, settings, dtype) if (folder / "adapter_config.json").exists() else _whole(config.path, dtype)
    )
    return RewardModel(model.to(device.kind), load_tokenizer(config.path, settings), config)


def _whole(path: str, dtype: Any) -> Any:
    from transformers import AutoModelForSequenceClassification

    try:
        model, found = AutoModelForSequenceClassification.from_pretrained(path, dtype=dtype, output_loading_info=True)
    except (OSError, ValueError, ImportError, RuntimeError) as error:
        raise _refused(path, f"cannot be loaded: {str(error).strip().splitlines()[0]}") from None
    lost = sorted(name for name in found["missing_keys"] if name.partition(".")[0] in HEADS)
    if lost:
        raise _refused(path, NO_HEAD)
    if model.config.num_labels != 1:
        raise _refused(path, f"gives {model.config.num_labels} numbers for a text, and a reward is one")
    return model


def _adapted(folder: Path, settings: ModelConfig, dtype: Any) -> Any:
    """An adapter with its head, merged into its base."""
    from peft import PeftModel

    task = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8")).get("task_type")
    if task != "SEQ_CLS":
        raise _refused(folder, f"is an adapter for {task}, not for scores")
    base = load_model(base_of(folder), settings, str(dtype).removeprefix("torch."), Head.SCORE)
    return PeftModel.from_pretrained(base, str(folder)).merge_and_unload()


def _names_in(file: Path) -> list[str]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as handle:
            return list(handle.keys())
    except (OSError, SafetensorError) as error:
        raise _refused(file.parent, f"its weights cannot be read: {error}") from None


def _refused(path: object, why: str) -> Misuse:
    return Misuse(f"reward.models: {path}: {why}. Train one with: gradus train reward")
