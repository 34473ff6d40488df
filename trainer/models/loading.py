"""Models and tokenizers: loaded, quantized. Trains nothing; adapters are
`trainer.models.adapters`'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from gradus.reward_model.model_files import resolve_base_model
from trainer.config.device import choose_device
from trainer.config.packages import refuse_absent_packages
from trainer.config.run import ModelConfig
from trainer.runs.distributed import get_local_rank


def load_tokenizer(name: str, config: ModelConfig) -> Any:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            name,
            revision=_select_revision(name, config),
            trust_remote_code=config.trust_remote_code,
            padding_side="left",
        )
    except (OSError, ValueError) as error:
        raise _build_load_error("tokenizer", name, error) from None
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def _select_class(scores: bool) -> Any:
    """Return the class of models that end in one number for the whole text, or in logits of the
    next token."""
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

    return AutoModelForSequenceClassification if scores else AutoModelForCausalLM


def load_model(name: str, config: ModelConfig, dtype: str, scores: bool = False) -> Any:
    """Return the model in `dtype`, quantized if the config says so. Raises Misuse if it cannot be
    loaded.

    Its `name_or_path` stays `name`, where TRL loads a reference model from. A head that scores is
    made at random where the checkpoint has none: `gradus.reward_model` refuses that for models that
    are to judge.
    """
    import torch

    try:
        return _select_class(scores).from_pretrained(
            name,
            **({"num_labels": 1} if scores else {}),
            revision=_select_revision(name, config),
            trust_remote_code=config.trust_remote_code,
            attn_implementation=config.attn_implementation,
            dtype=getattr(torch, dtype),
            **_build_quantization(name, config, dtype),
        )
    except (OSError, ValueError, ImportError) as error:
        raise _build_load_error("model", name, error) from None


def build_bare_model(name: str, config: ModelConfig, scores: bool = False) -> Any:
    """Return the model's modules with no weights worth using, for a look at what it is made of.
    Raises Misuse."""
    configuration = load_architecture(name, config)
    if scores:
        configuration.num_labels = 1
    try:
        return _select_class(scores).from_config(
            configuration, trust_remote_code=config.trust_remote_code
        )
    except (OSError, ValueError, ImportError) as error:
        raise _build_load_error("model", name, error) from None


def load_architecture(name: str, config: ModelConfig) -> Any:
    """Return the configuration of transformers'. Raises Misuse, also for code of the model's own
    that is not trusted."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(
            name,
            revision=_select_revision(name, config),
            trust_remote_code=config.trust_remote_code,
        )
    except (OSError, ValueError, ImportError) as error:
        raise _build_load_error("model", name, error) from None


def _build_quantization(name: str, config: ModelConfig, dtype: str) -> dict[str, Any]:
    """Return further arguments of `from_pretrained`. Raises Misuse without bitsandbytes."""
    if not config.load_in_4bit:
        from gradus.reward_model.model import get_dequantize_options

        return get_dequantize_options(name, _select_revision(name, config))
    refuse_absent_packages(config)
    import torch
    from transformers import BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )
    # Quantized weights cannot be moved by the trainer later: each process loads them to its own
    # device.
    kind = choose_device(config).kind
    return {
        "quantization_config": quantization,
        "device_map": {"": get_local_rank() if kind == "cuda" else kind},
    }


def load_trained(folder: Path, config: ModelConfig, dtype: str) -> tuple[Any, Any]:
    """Return model and tokenizer from a run's checkpoint or final folder.

    An adapter comes merged into its base model, or on top of it where that is quantized: as it was
    trained.
    """
    tokenizer = load_tokenizer(str(folder), config)
    if not (folder / "adapter_config.json").exists():
        return load_model(str(folder), config, dtype), tokenizer
    from peft import PeftModel

    model = PeftModel.from_pretrained(
        load_model(resolve_base_model(folder), config, dtype), str(folder)
    )
    return model if config.load_in_4bit else model.merge_and_unload(), tokenizer


def _select_revision(name: str, config: ModelConfig) -> str | None:
    return config.revision if name == config.name else None


def _build_load_error(kind: str, name: str, error: Exception) -> Misuse:
    if str(error).strip():
        first_line = str(error).strip().splitlines()[0]
    else:
        first_line = type(error).__name__
    if (
        name.count("/") > 1 and not Path(name).exists()
    ):  # transformers: "Repo id must be in the form ..."
        first_line = "there is no such folder"
    return Misuse(f"model.name: no {kind} can be loaded from {name}: {first_line}")
