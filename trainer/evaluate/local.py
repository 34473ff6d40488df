"""Completions from a model in this process, in batches.

Batches are cut from the whole plan and drawn with a seed of their own, so that a run which was
stopped and continued has the completions of one that was not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from gradus.errors import Misuse
from trainer.data.prompts import Prompt, token_ids
from trainer.evaluate.plan import (
    CompletionRequest,
    EvalPlan,
    GeneratedCompletion,
    GenerationError,
    Key,
    Outcome,
    batches_of,
)


@dataclass
class LocalModel:
    """A `Source` of a model in this process. Raises Misuse for a plan that only endpoints can
    follow."""

    load: Callable[[], tuple[Any, Any]]
    """Model and tokenizer; called once, when the first completion is wanted."""
    plan: EvalPlan
    batch_size: int
    keep_special: bool = False
    """Completions with the signs of a chat format in them, which mark calls of tools."""

    def __post_init__(self) -> None:
        if self.plan.body:
            raise Misuse("--set body=... is for endpoints")

    @cached_property
    def loaded(self) -> tuple[Any, Any]:
        return self.load()

    def written(
        self, batch: Sequence[CompletionRequest]
    ) -> list[tuple[CompletionRequest, Outcome]]:
        """What comes of one batch of `batches_of`."""
        model, tokenizer = self.loaded
        room = getattr(model.config, "max_position_embeddings", None)
        return written_batch(batch, tokenizer, self._drawn, room, 1, self.plan.chat_template_kwargs)

    async def write(
        self, asks: Sequence[CompletionRequest], wanted: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        _ = self.loaded  # here and not in the other thread, where Ctrl-C would not end it
        for batch in batches_of(asks, self.batch_size):
            if any(ask.key in wanted for ask in batch):
                for ask, outcome in await asyncio.to_thread(self.written, batch):
                    if ask.key in wanted:
                        yield ask, outcome

    def _drawn(self, asks: Sequence[CompletionRequest], seed: int) -> list[GeneratedCompletion]:
        return draw(
            *self.loaded,
            [ask.prompt for ask in asks],
            asks[0].temperature,
            self.plan.max_new_tokens,
            top_p=self.plan.top_p,
            seed=seed,
            tools_P=[ask.problem.tools for ask in asks],
            template=self.plan.chat_template_kwargs,
            keep_special=self.keep_special,
        )


def written_batch(
    batch: Sequence[CompletionRequest],
    tokenizer: Any,
    drawn: Callable[[Sequence[CompletionRequest], int], Sequence[GeneratedCompletion]],
    room: int | None,
    least: int,
    template: Mapping[str, Any],
) -> list[tuple[CompletionRequest, Outcome]]:
    """What came of neighbouring asks, of which `drawn` writes those whose prompt fits, with the
    seed of the first.

    A prompt fits a model of `room` tokens that leaves `least` of them to the completion.
    `template`: the plan's `chat_template_kwargs`.
    """
    lengths = [len(token_ids(tokenizer, ask.prompt, ask.problem.tools, template)) for ask in batch]
    fitting = [
        ask
        for ask, length in zip(batch, lengths, strict=True)
        if room is None or length + least <= room
    ]
    started = time.monotonic()
    made = iter(drawn(fitting, batch[0].seed) if fitting else ())
    took_s = time.monotonic() - started
    found: list[tuple[CompletionRequest, Outcome]] = []
    for ask, length in zip(batch, lengths, strict=True):
        if room is not None and length + least > room:
            why = f"the prompt has {length} tokens and the model takes {room}"
            found.append((ask, GenerationError("refused", why)))
        else:
            found.append((ask, replace(next(made), latency_s=took_s)))
    return found


def draw(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    temperature: float,
    max_new_tokens: int,
    *,
    top_p: float = 1.0,
    seed: int | None = None,
    tools_P: Sequence[Sequence[Mapping[str, Any]] | None] | None = None,
    template: Mapping[str, Any] | None = None,
    keep_special: bool = False,
) -> list[GeneratedCompletion]:
    """One completion per prompt, all in one batch; a temperature of 0 is greedy.

    Samples from the whole distribution but for `top_p`, whatever the model's own generation
    settings say. With a `seed` the same call gives the same completions and leaves the global
    random state as it was. `tools_P` are declared with each prompt, and `template` goes to the chat
    template. `keep_special` leaves special tokens in the texts.
    """
    import torch

    tools_P = tools_P or [None] * len(prompts)
    ids_P = [
        token_ids(tokenizer, prompt, tools, template)
        for prompt, tools in zip(prompts, tools_P, strict=True)
    ]
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    how: dict[str, Any] = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    if temperature > 0:
        how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": top_p}
    how |= {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_p": None}
    width = max(map(len, ids_P))
    padded = [[pad] * (width - len(ids)) + list(ids) for ids in ids_P]
    mask = [[0] * (width - len(ids)) + [1] * len(ids) for ids in ids_P]
    was_training = model.training
    model.eval()
    with (
        torch.random.fork_rng(
            [model.device] if model.device.type == "cuda" else [], seed is not None
        ),
        torch.no_grad(),
    ):
        if seed is not None:
            torch.manual_seed(seed)
        output = model.generate(
            input_ids=torch.tensor(padded, device=model.device),
            attention_mask=torch.tensor(mask, device=model.device),
            max_new_tokens=max_new_tokens,
            pad_token_id=pad,
            use_cache=True,
            **how,
        )
    model.train(was_training)
    ends = ends_of(model, tokenizer)
    drawn = []
    for prompt, row in zip(ids_P, output[:, width:].tolist(), strict=True):
        # What stands behind an end is padding.
        length = next((n for n, token in enumerate(row, start=1) if token in ends), len(row))
        text = tokenizer.decode(row[:length], skip_special_tokens=not keep_special)
        reason = "stop" if row and row[length - 1] in ends else "length"
        drawn.append(GeneratedCompletion(text, reason, len(prompt), length, 0.0))
    return drawn


def ends_of(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a completion, as `generate` has them."""
    given = model.generation_config.eos_token_id
    if given is None:
        given = tokenizer.eos_token_id
    if given is None:
        return frozenset()
    return frozenset(given if isinstance(given, list) else [given])
