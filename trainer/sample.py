"""Completions from a model in this process, many at once, for measuring. Grades nothing; TRL samples for training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from trainer.prompts import Prompt, token_ids


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
    ids_P = [token_ids(tokenizer, prompt) for prompt in prompts]
    wanted = [index for index in range(len(prompts)) for _ in range(k)]
    # Like lengths together: a short prompt in a long batch is mostly padding.
    order = sorted(range(len(wanted)), key=lambda n: len(ids_P[wanted[n]]))
    texts = [""] * len(wanted)
    with _measuring(model), _seeded(seed, model.device):
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = [ids_P[wanted[n]] for n in chosen]
            for n, text in zip(chosen, _complete(model, tokenizer, batch, temperature, max_new_tokens), strict=True):
                texts[n] = text
    return [texts[index * k : (index + 1) * k] for index in range(len(prompts))]


def _complete(
    model: Any, tokenizer: Any, ids_B: Sequence[Sequence[int]], temperature: float, max_new_tokens: int
) -> list[str]:
    width = max(len(ids) for ids in ids_B)
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    input_ids = torch.tensor([[pad] * (width - len(ids)) + list(ids) for ids in ids_B], device=model.device)
    mask = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in ids_B], device=model.device)
    how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0} if temperature > 0 else GREEDY
    with torch.no_grad():
        output = model.generate(
            input_ids=input_ids, attention_mask=mask, max_new_tokens=max_new_tokens, pad_token_id=pad, **how
        )
    decoded: list[str] = tokenizer.batch_decode(output[:, width:], skip_special_tokens=True)
    return decoded


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
