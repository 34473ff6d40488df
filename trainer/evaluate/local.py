"""Completions from a model in this process, in batches.

Batches are cut from the whole plan and drawn with a seed of their own, so that a run which was stopped and continued
has the completions of one that was not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from gradus.errors import Misuse
from trainer.evaluate.plan import Ask, ErrorKind, Key, Outcome, Plan, Unwritten, Written, batches_of
from trainer.prompts import Prompt, token_ids

DEFAULT_BATCH = 64


class LocalModel:
    """A `Source` of a model and a tokenizer."""

    def __init__(
        self, model: Any, tokenizer: Any, plan: Plan, batch_size: int = DEFAULT_BATCH, *, keep_special: bool = False
    ) -> None:
        """`keep_special`: completions with the signs of a chat format in them, which mark calls of tools."""
        if plan.stop or plan.body:
            raise Misuse("--stop and --body are for endpoints; a model in this process ends where it ends")
        self._model = model
        self._tokenizer = tokenizer
        self._plan = plan
        self._batch_size = batch_size
        self._keep_special = keep_special

    async def write(self, asks: Sequence[Ask], wanted: AbstractSet[Key]) -> AsyncIterator[tuple[Ask, Outcome]]:
        for batch in batches_of(asks, self._batch_size):
            if any(ask.key in wanted for ask in batch):
                for ask, outcome in await asyncio.to_thread(self._written, batch):
                    if ask.key in wanted:
                        yield ask, outcome

    def _written(self, batch: Sequence[Ask]) -> list[tuple[Ask, Outcome]]:
        room = getattr(self._model.config, "max_position_embeddings", None)
        lengths = {ask.key: len(token_ids(self._tokenizer, ask.prompt, ask.problem.tools)) for ask in batch}
        too_long = {key: why for key, length in lengths.items() if (why := why_too_long(length, room))}
        fitting = [ask for ask in batch if ask.key not in too_long]
        started = time.monotonic()
        drawn = iter(
            draw(
                self._model,
                self._tokenizer,
                [ask.prompt for ask in fitting],
                batch[0].temperature,
                self._plan.max_new_tokens,
                top_p=self._plan.top_p,
                batch_size=self._batch_size,
                seed=batch[0].seed,
                tools_P=[ask.problem.tools for ask in fitting],
                keep_special=self._keep_special,
            )
        )
        took_s = time.monotonic() - started
        found: list[tuple[Ask, Outcome]] = []
        for ask in batch:
            if ask.key in too_long:
                found.append((ask, Unwritten(ErrorKind.REFUSED, too_long[ask.key])))
                continue
            one = next(drawn)
            reason = "stop" if one.ended else "length"
            found.append((ask, Written(one.text, reason, one.prompt_tokens, one.completion_tokens, took_s)))
        return found


def why_too_long(prompt_tokens: int, room: int | None) -> str:
    """Why a model with `room` tokens takes no such prompt; empty where it does."""
    if room is None or prompt_tokens < room:
        return ""
    return f"the prompt has {prompt_tokens} tokens and the model takes {room}"


# ----------------------------------------------------------------------------------------------------------- drawing


@dataclass(frozen=True, slots=True)
class Drawn:
    """One completion and what it took."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    """With the token that ended it."""
    ended: bool
    """The model ended it; otherwise it was cut off at the limit."""


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
    """One completion per prompt, in their order, with its length; a temperature of 0 is greedy.

    Samples from the whole distribution but for `top_p`, whatever the model's own generation settings say. With a `seed`
    the same call gives the same completions and leaves the global random state as it was. `tools_P` are declared with
    each prompt. `keep_special` leaves special tokens in the texts.
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
    ends = ends_of(model, tokenizer)
    lengths = [_length(row, ends) for row in written_B.tolist()]
    # What stands behind an end is padding, which is special too.
    whole_B = [row[:length] for row, (length, _) in zip(written_B.tolist(), lengths, strict=True)]
    texts: list[str] = tokenizer.batch_decode(
        whole_B if keep_special else written_B, skip_special_tokens=not keep_special
    )
    return [
        Drawn(text, len(ids), length, ended) for text, ids, (length, ended) in zip(texts, ids_B, lengths, strict=True)
    ]


def ends_of(model: Any, tokenizer: Any) -> frozenset[int]:
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
