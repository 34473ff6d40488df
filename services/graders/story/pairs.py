"""The pair model: what one text is to another, which no comparison of two vectors tells. `upload`
and `never upload`.

Runs `pairs.safetensors` on the sentence model, in ONNX. Batched and cached by
`encoder.Encoder`, a pair being one text for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.graders.story.backends import Floats, Pooled, Tokens
from services.graders.story.backends.onnx import open_session
from services.graders.story.encoder import Encoder
from services.graders.story.model import PAIRS, ExportedModel

SAME, CONTRADICTED = 0, 1
"""Columns of the chances; the last one is of neither."""
_BETWEEN = "\0"
_MARKS = str.maketrans({_BETWEEN: " ", "[": "(", "]": ")"})
"""No text spells what ends a text for the model, `[SEP]`."""
_MAX_TOKENS = 128
_MAX_CHARS = 2000


class PairModel:
    """May be called from many threads at once."""

    def __init__(self, model: ExportedModel, threads: int, cache_mb: int) -> None:
        """Raises InternalFault saying what is missing."""
        self.name = f"pairs {model.revision} fp32"
        self._tokenizer = model.tokenizer(_MAX_TOKENS).tokenizer
        self._end = self._tokenizer.encode("a", "b").ids[-1]
        self._session = open_session(model.get_graph_path(PAIRS), threads)
        self._encoder = Encoder(self, self, cache_mb=cache_mb)
        self.close = self._encoder.close

    def compute_chances(
        self, pairs: Sequence[tuple[str, str]]
    ) -> tuple[NDArray[np.float64], float]:
        """(len(pairs), 3): how likely the second text says the same as the first, contradicts it,
        or says something else; rows add up to 1. And the CPU seconds of the model. Raises
        InternalFault when the model fails."""
        if not pairs:
            return np.zeros((0, 3)), 0.0
        embeddings = self._encoder.embed(
            [f"{_read(first)}{_BETWEEN}{_read(second)}" for first, second in pairs]
        )
        return embeddings.vectors.astype(np.float64), embeddings.cpu_s

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        token_ids = []
        for text in texts:
            first, _, second = text.partition(_BETWEEN)
            token_ids.append(self._tokenizer.encode(first, second).ids)
        return token_ids

    def encode(self, ids: Tokens, mask: Tokens) -> Pooled:
        ends = ids == self._end
        is_second = (ends.cumsum(1) - ends > 0) & (mask > 0)
        inputs = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": is_second.astype(np.int64),
        }
        [logits] = self._session.run(None, inputs)
        odds = np.exp(logits - logits.max(1, keepdims=True))
        chances: Floats = (odds / odds.sum(1, keepdims=True)).astype(np.float32)
        return Pooled(chances, chances[:, :0])


def _read(text: str) -> str:
    return text[:_MAX_CHARS].translate(_MARKS)
