"""What OpenRLHF calls a query: prompt and completion in one text, decoded with special tokens."""

from __future__ import annotations

from collections.abc import Sequence

END_TOKENS = (
    *("<|im_end|>", "<|endoftext|>", "</s>", "<|eot_id|>", "<|end_of_text|>", "<end_of_turn>", "<eos>", "<|end|>"),
    *("<|return|>", "<｜end▁of▁sentence｜>", "<|eom_id|>", "<turn|>", "[EOS]", "<|EOT|>"),
)
"""Tokens that end a turn or a text in current models, as they are decoded."""


def completion_of(query: str, prompt: str, more_end_tokens: Sequence[str] = ()) -> str:
    """The completion: the query without its prompt and without the tokens that end it."""
    text = query.removeprefix(prompt)
    while (shorter := _without_end(text.rstrip(), (*END_TOKENS, *more_end_tokens))) != text.rstrip():
        text = shorter
    return text


def _without_end(text: str, tokens: Sequence[str]) -> str:
    return next((text.removesuffix(token) for token in tokens if text.endswith(token)), text)
