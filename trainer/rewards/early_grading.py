"""Completions go to the graders as they end, while others of the batch are still being written.

Works with generation in this process, where a batch takes as long as its longest completion. A verdict is asked for by
task and text, so an early answer can only ever be the answer for exactly that completion; what was not asked early, or
came back as a fault, is asked in the usual way. Decides nothing about generation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import StoppingCriteria, StoppingCriteriaList

Send = Callable[[list[tuple[str, str]]], None]
"""Takes (prompt id, completion) pairs that have just ended."""


@contextmanager
def sent_as_they_end(
    model: Any, tokenizer: Any, eos_ids: Sequence[int], prompt_ids_B: Sequence[str], send: Send
) -> Iterator[None]:
    """Inside the block, `model.generate` on this batch hands over each completion at its end-of-sequence token."""
    watch = _EndWatch(tokenizer, eos_ids, prompt_ids_B, send)
    model.generate = functools.partial(model.generate, stopping_criteria=StoppingCriteriaList([watch]))
    try:
        yield
    finally:
        del model.generate  # the class's own is behind it


class _EndWatch(StoppingCriteria):  # type: ignore[misc]
    """Asked by `generate` after each token whether to stop: never says yes, but sees what has just ended."""

    def __init__(self, tokenizer: Any, eos_ids: Sequence[int], prompt_ids_B: Sequence[str], send: Send) -> None:
        self._tokenizer = tokenizer
        self._eos_ids = eos_ids
        self._prompt_ids_B = prompt_ids_B
        self._send = send
        self._prompt_width: int | None = None
        self._ended_B: Any = None

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        if self._prompt_width is None:
            self._prompt_width = input_ids.shape[1] - 1
            self._ended_B = torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
            self._eos = torch.tensor(self._eos_ids, device=input_ids.device)
        ends_B = torch.isin(input_ids[:, -1], self._eos) & ~self._ended_B
        self._ended_B |= ends_B
        rows = ends_B.nonzero().flatten().tolist()
        if rows and len(rows) < len(input_ids):
            ids = input_ids[rows, self._prompt_width :].tolist()
            texts = self._tokenizer.batch_decode(ids, skip_special_tokens=True)
            self._send([(self._prompt_ids_B[row], text) for row, text in zip(rows, texts, strict=True)])
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)
