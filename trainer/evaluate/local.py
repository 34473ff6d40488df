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
from trainer.data.prompts import Prompt, encode_prompt
from trainer.evaluate.plan import (
    CompletionRequest,
    EvalPlan,
    GeneratedCompletion,
    GenerationError,
    Key,
    Outcome,
    split_batches,
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

    def write_batch(
        self, batch: Sequence[CompletionRequest]
    ) -> list[tuple[CompletionRequest, Outcome]]:
        """Return what comes of one batch of `split_batches`."""
        model, tokenizer = self.loaded
        room = getattr(model.config, "max_position_embeddings", None)
        return generate_batch(
            batch, tokenizer, self._generate, room, 1, self.plan.chat_template_kwargs
        )

    async def write(
        self, asks: Sequence[CompletionRequest], keys: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        _ = self.loaded  # here and not in the other thread, where Ctrl-C would not end it
        for batch in split_batches(asks, self.batch_size):
            if any(ask.key in keys for ask in batch):
                for ask, outcome in await asyncio.to_thread(self.write_batch, batch):
                    if ask.key in keys:
                        yield ask, outcome

    def _generate(self, asks: Sequence[CompletionRequest], seed: int) -> list[GeneratedCompletion]:
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


def generate_batch(
    batch: Sequence[CompletionRequest],
    tokenizer: Any,
    generate: Callable[[Sequence[CompletionRequest], int], Sequence[GeneratedCompletion]],
    room: int | None,
    reserve: int,
    template: Mapping[str, Any],
) -> list[tuple[CompletionRequest, Outcome]]:
    """Return what came of neighbouring asks, of which `write_batch` writes those whose prompt fits,
    with the seed of the first.

    A prompt fits a model of `room` tokens that leaves `reserve` of them to the completion.
    `template`: the plan's `chat_template_kwargs`.
    """
    lengths = []
    for ask in batch:
        lengths.append(len(encode_prompt(tokenizer, ask.prompt, ask.problem.tools, template)))
    fitting = []
    for ask, length in zip(batch, lengths, strict=True):
        if room is None or length + reserve <= room:
            fitting.append(ask)
    started = time.monotonic()
    completions = iter(generate(fitting, batch[0].seed) if fitting else ())
    took_s = time.monotonic() - started
    outcomes: list[tuple[CompletionRequest, Outcome]] = []
    for ask, length in zip(batch, lengths, strict=True):
        if room is not None and length + reserve > room:
            why = f"the prompt has {length} tokens and the model takes {room}"
            outcomes.append((ask, GenerationError("refused", why)))
        else:
            outcomes.append((ask, replace(next(completions), latency_s=took_s)))
    return outcomes


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
    """Return one completion per prompt, all in one batch; a temperature of 0 is greedy.

    Samples from the whole distribution but for `top_p`, whatever the model's own generation
    settings say. With a `seed` the same call gives the same completions and leaves the global
    random state as it was. `tools_P` are declared with each prompt, and `template` goes to the chat
    template. `keep_special` leaves special tokens in the texts.
    """
    import torch

    tools_P = tools_P or [None] * len(prompts)
    ids_P = []
    for prompt, tools in zip(prompts, tools_P, strict=True):
        ids_P.append(encode_prompt(tokenizer, prompt, tools, template))
    if tokenizer.pad_token_id is not None:
        pad = tokenizer.pad_token_id
    else:
        pad = tokenizer.eos_token_id
    sampling: dict[str, Any] = {
        "do_sample": False,
        "temperature": None,
        "top_k": None,
        "top_p": None,
    }
    if temperature > 0:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": top_p}
    sampling |= {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_p": None}
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
            **sampling,
        )
    model.train(was_training)
    ends = get_end_tokens(model, tokenizer)
    drawn = []
    for prompt_ids, row in zip(ids_P, output[:, width:].tolist(), strict=True):
        # What stands behind an end is padding.
        length = next((n for n, token in enumerate(row, start=1) if token in ends), len(row))
        text = tokenizer.decode(row[:length], skip_special_tokens=not keep_special)
        reason = "stop" if row and row[length - 1] in ends else "length"
        drawn.append(GeneratedCompletion(text, reason, len(prompt_ids), length, 0.0))
    return drawn


def get_end_tokens(model: Any, tokenizer: Any) -> frozenset[int]:
    """Return the tokens that end a completion, as `generate` has them."""
    end_ids = model.generation_config.eos_token_id
    if end_ids is None:
        end_ids = tokenizer.eos_token_id
    if end_ids is None:
        return frozenset()
    return frozenset(end_ids if isinstance(end_ids, list) else [end_ids])
