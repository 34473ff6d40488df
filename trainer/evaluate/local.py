"""Completions from a model in this process, in batches.

Batches are cut from the whole plan and drawn with a seed of their own, so that a run which was
stopped and continued has the completions of one that was not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gradus.errors import Misuse
from trainer.data.prompts import Prompt, token_ids
from trainer.evaluate.plan import (
    CompletionRequest,
    ErrorKind,
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

    def _drawn(self, asks: Sequence[CompletionRequest], seed: int) -> list[SampledCompletion]:
        return draw(
            *self.loaded,
            [ask.prompt for ask in asks],
            asks[0].temperature,
            self.plan.max_new_tokens,
            top_p=self.plan.top_p,
            batch_size=self.batch_size,
            seed=seed,
            tools_P=[ask.problem.tools for ask in asks],
            template=self.plan.chat_template_kwargs,
            keep_special=self.keep_special,
        )


def written_batch(
    batch: Sequence[CompletionRequest],
    tokenizer: Any,
    drawn: Callable[[Sequence[CompletionRequest], int], Sequence[SampledCompletion]],
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
            found.append((ask, GenerationError(ErrorKind.REFUSED, why)))
        else:
            one = next(made)
            reason = "stop" if one.ended else "length"
            found.append(
                (
                    ask,
                    GeneratedCompletion(
                        one.text, reason, one.prompt_tokens, one.completion_tokens, took_s
                    ),
                )
            )
    return found


@dataclass(frozen=True, slots=True)
class SampledCompletion:
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
    template: Mapping[str, Any] | None = None,
    keep_special: bool = False,
) -> list[SampledCompletion]:
    """One completion per prompt, in their order, with its length; a temperature of 0 is greedy.

    Samples from the whole distribution but for `top_p`, whatever the model's own generation
    settings say. With a `seed` the same call gives the same completions and leaves the global
    random state as it was. `tools_P` are declared with each prompt, and `template` goes to the chat
    template. `keep_special` leaves special tokens in the texts.
    """
    import torch

    ids_P = [
        token_ids(tokenizer, prompt, tools, template)
        for prompt, tools in zip(prompts, tools_P or [None] * len(prompts), strict=True)
    ]
    # Like lengths together: a short prompt in a long batch is mostly padding.
    order = sorted(range(len(prompts)), key=lambda n: len(ids_P[n]))
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    ends = ends_of(model, tokenizer)
    how: dict[str, Any] = {"do_sample": False, "temperature": None, "top_k": None, "top_p": None}
    if temperature > 0:
        how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": top_p}
    how |= {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_p": None}
    drawn: dict[int, SampledCompletion] = {}
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
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            width = max(len(ids_P[n]) for n in chosen)
            ids_B = [[pad] * (width - len(ids_P[n])) + list(ids_P[n]) for n in chosen]
            mask_B = [[0] * (width - len(ids_P[n])) + [1] * len(ids_P[n]) for n in chosen]
            output = model.generate(
                input_ids=torch.tensor(ids_B, device=model.device),
                attention_mask=torch.tensor(mask_B, device=model.device),
                max_new_tokens=max_new_tokens,
                pad_token_id=pad,
                use_cache=True,
                **how,
            )
            for n, row in zip(chosen, output[:, width:].tolist(), strict=True):
                # What stands behind an end is padding.
                length = next(
                    (place for place, token in enumerate(row, start=1) if token in ends), len(row)
                )
                text = tokenizer.decode(row[:length], skip_special_tokens=not keep_special)
                drawn[n] = SampledCompletion(
                    text, len(ids_P[n]), length, bool(row) and row[length - 1] in ends
                )
    model.train(was_training)
    return [drawn[n] for n in range(len(prompts))]


def ends_of(model: Any, tokenizer: Any) -> frozenset[int]:
    """The tokens that end a completion, as `generate` has them."""
    given = model.generation_config.eos_token_id
    given = tokenizer.eos_token_id if given is None else given
    return frozenset(given if isinstance(given, list) else [] if given is None else [given])
