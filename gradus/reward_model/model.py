"""A reward model in memory: texts to tokens, tokens to scores. Imports torch and transformers;
batches nothing itself.

A model of texts can be loaded as one that scores from any checkpoint; where the checkpoint has no
head, it gets a random one without a word, and a policy would learn noise. So what lacks its head,
or any other weight, is refused. No code of a checkpoint is run: no pickle, no remote code.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    Mxfp4Config,
    PreTrainedConfig,
)

from gradus.reward_model.model_files import (
    ADAPTER,
    HEADS,
    NO_HEAD,
    build_model_misuse,
    get_first_line,
    read_json_object,
    refuse_unusable,
    resolve_base_model,
    resolve_model_folder,
)
from gradus.reward_model.tokenization import PromptTokenizer


class RewardModel:
    def __init__(self, model: Any, tokenizer: Any, *, max_tokens: int | None = None) -> None:
        """`max_tokens`: the most that is read of a text, at most what the model has positions
        for."""
        self.model = model.eval()
        self.tokenizer = tokenizer
        text_config = model.config.get_text_config()
        text_config.pad_token_id = tokenizer.pad_token_id
        limits = []
        for limit in (max_tokens, getattr(text_config, "max_position_embeddings", None)):
            if limit:
                limits.append(limit)
        self.limit: int | None = min(limits, default=None)
        self.reader = PromptTokenizer(tokenizer, self.limit)

    @torch.inference_mode()
    def compute_scores(self, ids_B: Sequence[Sequence[int]]) -> list[float]:
        """One score per text, in order, in one pass. A score that is not finite is the caller's to
        refuse."""
        batch = self.tokenizer.pad(
            {"input_ids": [list(ids) for ids in ids_B]}, padding_side="right", return_tensors="pt"
        ).to(self.model.device)
        logits = self.model(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]
        ).logits
        return [float(score) for score in logits[:, 0].float().tolist()]


def load(name: str, device: str, dtype: str, *, max_tokens: int | None = None) -> RewardModel:
    """Return the model of a folder or of a name on the hub, whole or an adapter, on `device` (cpu,
    cuda, mps) in `dtype`.

    Raises Misuse for one that cannot be loaded safely and whole, with its trained head.
    """
    folder = resolve_model_folder(name)
    refuse_unusable(folder)
    tokenizer = _load_tokenizer(folder)
    loader = _load_adapter if (folder / ADAPTER).exists() else _load_full
    model = loader(folder, getattr(torch, dtype))
    rows = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > rows:
        raise build_model_misuse(
            name, f"its tokenizer has {len(tokenizer)} tokens and its model only {rows}"
        )
    return RewardModel(model.to(device), tokenizer, max_tokens=max_tokens)


def _load_tokenizer(folder: Path) -> Any:
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise build_model_misuse(
            folder, f"its tokenizer cannot be loaded: {get_first_line(error)}"
        ) from None
    if not tokenizer.is_fast or tokenizer.eos_token is None:
        raise build_model_misuse(
            folder, "its tokenizer has no tokenizer.json, or no token that ends a text"
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _load_full(folder: Path, dtype: torch.dtype) -> Any:
    model, info = _from_pretrained(folder, dtype)
    lost = sorted(info["missing_keys"])
    if lost:
        is_head = any(part in HEADS for name in lost for part in name.split("."))
        raise build_model_misuse(
            folder, NO_HEAD if is_head else f"lacks weights, the first {lost[0]}"
        )
    if model.config.num_labels != 1:
        raise build_model_misuse(
            folder, f"gives {model.config.num_labels} numbers for a text, and a reward is one"
        )
    return model


def _load_adapter(folder: Path, dtype: torch.dtype) -> Any:
    from peft import PeftModel

    task = read_json_object(folder / ADAPTER).get("task_type")
    if task != "SEQ_CLS":
        raise build_model_misuse(folder, f"is an adapter for {task}, not for scores")
    if not (folder / "adapter_model.safetensors").exists():
        raise build_model_misuse(folder, "cannot be loaded: it has no adapter_model.safetensors")
    base = resolve_model_folder(resolve_base_model(folder))
    model, _ = _from_pretrained(
        base, dtype, num_labels=1, **get_dequantize_options(str(base), None)
    )
    try:
        return PeftModel.from_pretrained(model, str(folder)).merge_and_unload()
    except (OSError, ValueError, RuntimeError) as error:
        raise build_model_misuse(folder, f"cannot be loaded: {get_first_line(error)}") from None


def _from_pretrained(
    folder: Path, dtype: torch.dtype, **options: Any
) -> tuple[Any, dict[str, Any]]:
    safely = {"use_safetensors": True, "trust_remote_code": False}
    try:
        model, info = AutoModelForSequenceClassification.from_pretrained(
            str(folder), dtype=dtype, output_loading_info=True, **safely, **options
        )
    except (OSError, ValueError, ImportError, RuntimeError, KeyError) as error:
        raise build_model_misuse(folder, f"cannot be loaded: {get_first_line(error)}") from None
    return model, info


def get_dequantize_options(name: str, revision: str | None) -> dict[str, Any]:
    """GPT-OSS is published in MXFP4, in which it neither trains nor merges: its weights are taken
    as 16-bit ones."""
    config, _ = PreTrainedConfig.get_config_dict(name, revision=revision)
    published = config.get("quantization_config") or {}
    if published.get("quant_method") == "mxfp4":
        return {"quantization_config": Mxfp4Config(dequantize=True)}
    return {}
