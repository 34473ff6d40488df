"""A small untrained Qwen3 or Qwen2 with its own tokenizer, made on the spot, so that a run needs no download.

It trains nothing but the tokenizer. A fresh model knows nothing: give it a warm start.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gradus.errors import Misuse
from trainer.config.run import FreshModel

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML, as Qwen's models have it."""
PAD, EOS = "<|endoftext|>", "<|im_end|>"


def make_fresh_model(architecture: str, sizes: FreshModel, texts: Iterable[str], folder: Path, seed: int) -> None:
    """Write the untrained model and a tokenizer trained on `texts` to `folder`, as any loader expects them."""
    tokenizer = train_tokenizer(texts, sizes)
    build_model(architecture, sizes, tokenizer, seed).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def train_tokenizer(texts: Iterable[str], sizes: FreshModel) -> Any:
    """A byte-level BPE tokenizer: every text has tokens, and decoding gives back exactly that text."""
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
    """The untrained model in float32. Raises Misuse for an architecture that is not offered."""
    from transformers import AutoConfig

    if architecture not in ("qwen2", "qwen3"):
        raise Misuse(f"model.name: there is no fresh:{architecture}; there are: fresh:qwen2, fresh:qwen3")
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
        **({"head_dim": sizes.head_dim} if architecture == "qwen3" else {}),
    )
    return untrained(config, "float32", seed)


def untrained(config: Any, dtype: str, seed: int) -> Any:
    """A model with random weights."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
