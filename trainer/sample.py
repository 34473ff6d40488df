"""Completions from a model in this process, many at once, for measuring. Grades nothing; TRL samples for training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from trainer.prompts import Prompt, token_ids


@dataclass(frozen=True, slots=True)
class Drawn:
    """One completion and what it took."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    """With the token that ended it."""
    ended: bool
    """The model ended it; otherwise it was cut off at the limit."""


def sample(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    k: int,
    temperature: float,
    max_new_tokens: int,
    *,
    batch_size: int = 256,
    seed: int | None = None,
) -> list[list[str]]:
    """`k` completions per prompt, in the order of `prompts`; a temperature of 0 is greedy.

    Samples from the whole distribution (no top-k, no top-p), whatever the model's own generation settings say. With a
    `seed` the same call gives the same completions and leaves the global random state as it was.
    """
    wanted = [prompt for prompt in prompts for _ in range(k)]
    drawn = draw(model, tokenizer, wanted, temperature, max_new_tokens, batch_size=batch_size, seed=seed)
    return [[one.text for one in drawn[index * k : (index + 1) * k]] for index in range(len(prompts))]


def draw(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    temperature: float,
    max_new_tokens: int,
    *,
    top_p: float = 1.0,
    batch_size: int = 256,
    seed: int | None = None,
    tools_P: Sequence[Sequence[Mapping[str, Any]] | None] | None = None,
    keep_special: bool = False,
) -> list[Drawn]:
    """One completion per prompt, in their order, with its length; all else as `sample`.

    `tools_P` are declared with each prompt. `keep_special` leaves special tokens in the texts.
    """
    ids_P = [
        token_ids(tokenizer, prompt, tools)
        for prompt, tools in zip(prompts, tools_P or [None] * len(prompts), strict=True)
    ]
    # Like lengths together: a short prompt in a long batch is mostly padding.
    order = sorted(range(len(prompts)), key=lambda n: len(ids_P[n]))
    drawn: dict[int, Drawn] = {}
    with _measuring(model), _seeded(seed, model.device):
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = [ids_P[n] for n in chosen]
            drawn |= dict(
                zip(
                    chosen,
                    _complete(model, tokenizer, batch, temperature, max_new_tokens, top_p, keep_special),
                    strict=True,
                )
            )
    return [drawn[n] for n in range(len(prompts))]


def _complete(
    model: Any,
    tokenizer: Any,
    ids_B: Sequence[Sequence[int]],
    temperature: float,
    max_new_tokens: int,
    top_p: float,
    keep_special: bool,
) -> list[Drawn]:
    width = max(len(ids) for ids in ids_B)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    input_ids = torch.tensor([[pad] * (width - len(ids)) + list(ids) for ids in ids_B], device=model.device)
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in ids_B], device=model.device)
    how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": top_p} if temperature > 0 else GREEDY
    with torch.no_grad():
        output = model.generate(
            input_ids=input_ids, attention_mask=mask, max_new_tokens=max_new_tokens, pad_token_id=pad, **how
        )
    written_B = output[:, width:]
    ends = _ends(model, tokenizer)
    lengths = [_length(row, ends) for row in written_B.tolist()]
    # What stands behind an end is padding, which is special too.
    whole_B = [row[:length] for row, (length, _) in zip(written_B.tolist(), lengths, strict=True)]
    texts: list[str] = tokenizer.batch_decode(
        whole_B if keep_special else written_B, skip_special_tokens=not keep_special
    )
    return [
        Drawn(text, len(ids), length, ended) for text, ids, (length, ended) in zip(texts, ids_B, lengths, strict=True)
    ]


def _ends(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a completion, as `generate` has them."""
    given = model.generation_config.eos_token_id
    given = tokenizer.eos_token_id if given is None else given
    return frozenset(given if isinstance(given, list) else [] if given is None else [given])


def _length(row: Sequence[int], ends: frozenset[int]) -> tuple[int, bool]:
    """How many tokens were written, and whether the last of them is an end. What stands behind an end is padding."""
    for place, token in enumerate(row):
        if token in ends:
            return place + 1, True
    return len(row), False


GREEDY: dict[str, Any] = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}


@contextmanager
def _measuring(model: Any) -> Iterator[None]:
    """Evaluation mode with the key-value cache on, both put back afterwards."""
    training, cache = model.training, model.config.use_cache
    model.eval()
    model.config.use_cache = True
    try:
        yield
    finally:
        model.config.use_cache = cache
        model.train(training)


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    if seed is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
