"""What OpenRLHF calls a query: prompt and completion in one text, decoded with special tokens."""

from __future__ import annotations

from collections.abc import Sequence

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
    ends = (*END_TOKENS, *more_end_tokens)
    # By position: a copy for each token would make many tokens cost their square.
    end = len(text)
    while True:
        stop = end
        while stop and text[stop - 1].isspace():
            stop -= 1
        if not text.endswith(ends, 0, stop):
            return text[:end]
        end = stop - next(len(token) for token in ends if text.endswith(token, 0, stop))
