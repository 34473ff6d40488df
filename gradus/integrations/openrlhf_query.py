"""What OpenRLHF calls a query: prompt and completion in one text, decoded with special tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from gradus.errors import Misuse

END_TOKENS = (
    *(
        "<|im_end|>",
        "<|endoftext|>",
        "</s>",
        "<|eot_id|>",
        "<|end_of_text|>",
        "<end_of_turn>",
        "<eos>",
        "<|end|>",
    ),
    *("<|return|>", "<｜end▁of▁sentence｜>", "<|eom_id|>", "<turn|>", "[EOS]", "<|EOT|>"),
)
"""Tokens that end a turn or a text in current models, as they are decoded."""


def extract_completion(query: str, prompt: str, more_end_tokens: Sequence[str] = ()) -> str:
    """Return the completion: what follows the prompt in the query, without the tokens that end it.

    Raises Misuse for a query that does not hold its prompt, which would be graded as a part of the
    answer.
    """
    _, separator, text = query.partition(prompt) if prompt else ("", prompt, query)
    if separator != prompt:
        raise Misuse(
            "a query does not hold its prompt: prompts must be those that the queries were made of"
        )
    # Backwards: a search for each token takes a second for each 600 kB of tokens.
    backwards = text[::-1]
    found = _compile_ends(tuple(more_end_tokens)).match(backwards)
    n_characters = found.end() if found else 0
    return text[: len(text) - n_characters]


@lru_cache
def _compile_ends(more_end_tokens: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern of tokens, with white space behind each, at the end of a text that is
    written backwards."""
    tokens = "|".join(re.escape(token[::-1]) for token in (*END_TOKENS, *more_end_tokens))
    return re.compile(rf"(?:\s*+(?:{tokens}))++")
