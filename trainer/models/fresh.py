"""Untrained models with their tokenizers: the tiny one of a run that needs no download, and those
of `gradus model`.

A run makes a small Qwen3 on the spot (`fresh:qwen3`); it knows nothing, so give it a warm
start. `gradus model` makes any architecture that transformers has, from a file that names it, its
sizes by transformers' own names, and a tokenizer. Unknown sizes are refused: transformers would
keep them and use its defaults.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from gradus.errors import Misuse
from trainer.config.files import read_section, resolve_file_name
from trainer.config.run import FreshModel, ModelConfig, Section, describe_nearest
from trainer.models.loading import load_tokenizer
from trainer.runs.distributed import is_leader, wait_for_all
from trainer.runs.folder import write_whole

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content']"
    " }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, as Qwen's models have it."""
PAD, EOS = "<|endoftext|>", "<|im_end|>"


def prepare_start_model(config: ModelConfig, folder: Path, texts: Iterable[str], seed: int) -> str:
    """Return a folder or hub name to load the run's first weights from; a fresh model is made in
    `folder`, once."""
    if not config.is_fresh:
        return config.name
    if is_leader() and not folder.exists():
        with write_whole(folder) as target:
            make_fresh_model(config.name.removeprefix("fresh:"), config.fresh, texts, target, seed)
    wait_for_all()
    return str(folder)


def make_fresh_model(
    architecture: str, sizes: FreshModel, texts: Iterable[str], folder: Path, seed: int
) -> None:
    """Write the untrained model and a tokenizer trained on `texts` to `folder`, as any loader
    expects them."""
    tokenizer = train_tokenizer(texts, sizes)
    build_model(architecture, sizes, tokenizer, seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def train_tokenizer(texts: Iterable[str], sizes: FreshModel) -> Any:
    """Return a byte-level BPE tokenizer: every text has tokens, and decoding gives back exactly
    that text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=sizes.vocab_size,
        special_tokens=[PAD, "<|im_start|>", EOS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=sizes.max_length,
        padding_side="left",
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_model(architecture: str, sizes: FreshModel, tokenizer: Any, seed: int) -> Any:
    """Return the untrained model in float32. Raises Misuse for an architecture that is not
    offered."""
    from transformers import AutoConfig

    if architecture != "qwen3":
        raise Misuse(f"model.name: there is no fresh:{architecture}; there is fresh:qwen3")
    # Untied on purpose: with tied embeddings a model this small learns the output scale slowly.
    config = AutoConfig.for_model(
        architecture,
        vocab_size=len(tokenizer),
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        num_hidden_layers=sizes.layers,
        num_attention_heads=sizes.heads,
        num_key_value_heads=sizes.kv_heads,
        max_position_embeddings=sizes.max_length,
        tie_word_embeddings=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        head_dim=sizes.head_dim,
    )
    return build_untrained(config, "float32", seed)


def build_untrained(config: Any, dtype: str, seed: int) -> Any:
    """Return a model with random weights."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))


# ---------------------------------------------------------------------- gradus model


class Architecture(Section):
    """What `gradus model` makes."""

    architecture: str
    """transformers' name of it, `model_type`: llama, qwen3, mixtral ..."""
    sizes: dict[str, Any] = {}
    """Fields of its configuration class, by their own names."""
    tokenizer: str
    """A folder with one, or the name of a model on the hub."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 42


def read_architecture(path: Path) -> Architecture:
    """Return the file, checked. Raises Misuse naming file and key."""
    from transformers import CONFIG_MAPPING

    settings = read_section(Architecture, path)
    if settings.architecture not in CONFIG_MAPPING:
        hint = describe_nearest(settings.architecture, list(CONFIG_MAPPING))
        raise Misuse(f"{path}: architecture: transformers has no {settings.architecture}{hint}")
    size_names = list(inspect.signature(CONFIG_MAPPING[settings.architecture]).parameters)
    for name in settings.sizes:
        if name not in size_names:
            raise Misuse(f"{path}: sizes.{name}: unknown key{describe_nearest(name, size_names)}")
    return settings


def main(path: Path, out: Path, *, dry_run: bool) -> int:
    """Make the model in `out` unless it is a dry run; how many parameters it has. Raises Misuse."""
    import torch
    from transformers import AutoModelForCausalLM

    settings = read_architecture(path)
    if not dry_run and out.exists() and any(out.iterdir()):
        raise Misuse(f"{out}: is there already; name another folder with --out")
    name = resolve_file_name(settings.tokenizer, path)
    tokenizer = load_tokenizer(name, ModelConfig(name=name))
    config = _build_configuration(settings, tokenizer, path)
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        model.tie_weights()
        count: int = sum(math.prod(weight.shape) for weight in model.parameters())
    except (ValueError, TypeError, RuntimeError, ArithmeticError) as error:
        raise Misuse(
            f"{path}: sizes: no model can be made of them: {str(error).strip().splitlines()[0]}"
        ) from None
    if not dry_run:
        model = build_untrained(config, settings.dtype, settings.seed)
        with write_whole(out) as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
    return count


def _build_configuration(settings: Architecture, tokenizer: Any, path: Path) -> Any:
    from huggingface_hub.errors import StrictDataclassError
    from transformers import AutoConfig

    token_ids = {
        name: getattr(tokenizer, name) for name in ("bos_token_id", "eos_token_id", "pad_token_id")
    }
    try:
        config = AutoConfig.for_model(
            settings.architecture, **{**token_ids, "vocab_size": len(tokenizer), **settings.sizes}
        )
    except (ValueError, TypeError, ArithmeticError, StrictDataclassError) as error:
        raise Misuse(f"{path}: sizes: {str(error).strip().splitlines()[-1].strip()}") from None
    if config.get_text_config().vocab_size < len(tokenizer):
        raise Misuse(
            f"{path}: sizes.vocab_size: {config.get_text_config().vocab_size:,} is less than the "
            f"{len(tokenizer):,} tokens of the tokenizer"
        )
    return config
