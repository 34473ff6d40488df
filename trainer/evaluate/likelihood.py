"""How likely a model in this process holds texts: sums over their tokens, and perplexity of
completions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

DEFAULT_WINDOW = 2048
"""Tokens that a model sees at once where its configuration does not say."""


@dataclass(frozen=True, slots=True)
class Document:
    """One document as tokens; `counted` says which of them are foreseen."""

    ids: list[int]
    counted: list[bool]
    counted_bytes: int


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums over the tokens of one document."""

    nats: float
    tokens: int
    counted_bytes: int


def sums_of(model: Any, document: Document, window: int, stride: int) -> Sums:
    """The negative log-likelihood of the counted tokens of a document, in nats.

    A document longer than `window` is read in windows that overlap by `window - stride`; each token
    is counted in the first window that holds it.
    """
    import torch

    nats, tokens, done = 0.0, 0, 1
    ids = document.ids
    while done < len(ids):
        end = min(len(ids), window if done == 1 else done + stride)
        start = max(0, end - window)
        targets = [place for place in range(done, end) if document.counted[place]]
        if targets:
            part = torch.tensor([ids[start:end]], device=model.device)
            with torch.no_grad():
                logits = model(input_ids=part, use_cache=False).logits[0]
            rows = torch.tensor([place - 1 - start for place in targets], device=model.device)
            wanted = torch.tensor([ids[place] for place in targets], device=model.device)
            chosen = logits[rows].float()
            losses = torch.logsumexp(chosen, dim=-1) - chosen.gather(1, wanted[:, None])[:, 0]
            nats += float(losses.double().sum())
            tokens += len(targets)
        done = end
    return Sums(nats, tokens, document.counted_bytes)


def completion_document(prompt_ids: Sequence[int], completion: str, tokenizer: Any) -> Document:
    """A prompt of these tokens and its completion, whose tokens alone are counted."""
    ids = tokenizer(text=completion, add_special_tokens=False)["input_ids"]
    counted = [False] * len(prompt_ids) + [True] * len(ids)
    return Document([*prompt_ids, *ids], counted, len(completion.encode(errors="replace")))


def perplexity_of_completions(model: Any, documents: Sequence[Document]) -> float | None:
    """exp of the mean negative log-likelihood of their counted tokens; None where there is none."""
    model.eval()
    window = int(getattr(model.config, "max_position_embeddings", None) or DEFAULT_WINDOW)
    sums = [sums_of(model, document, window, max(1, window // 2)) for document in documents]
    tokens = sum(one.tokens for one in sums)
    return exp_of(sum(one.nats for one in sums) / tokens) if tokens else None


def exp_of(nats: float) -> float:
    # A model that gives a token no chance at all is as bad as a number can say.
    return math.exp(min(nats, 700.0))
