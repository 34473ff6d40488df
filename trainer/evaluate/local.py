"""Completions from a model in this process, in batches. Talks to nobody and grades nothing.

Batches are cut from the whole plan and drawn with a seed of their own, so that a run which was stopped and continued
has the completions of one that was not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from gradus.errors import Misuse
from trainer.evaluate.asking import Ask, ErrorKind, Key, Outcome, Plan, Unwritten, Written
from trainer.prompts import token_ids

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
        for batch in self._batches(asks):
            if any(ask.key in wanted for ask in batch):
                for ask, outcome in await asyncio.to_thread(self._written, batch):
                    if ask.key in wanted:
                        yield ask, outcome

    def _batches(self, asks: Sequence[Ask]) -> Iterator[list[Ask]]:
        """Neighbours of one temperature together."""
        batch: list[Ask] = []
        for ask in asks:
            if batch and (len(batch) == self._batch_size or ask.temperature != batch[0].temperature):
                yield batch
                batch = []
            batch.append(ask)
        if batch:
            yield batch

    def _written(self, batch: Sequence[Ask]) -> list[tuple[Ask, Outcome]]:
        from trainer.sample import draw

        too_long = {ask.key: why for ask in batch if (why := self._why_too_long(ask))}
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

    def _why_too_long(self, ask: Ask) -> str:
        room = getattr(self._model.config, "max_position_embeddings", None)
        length = len(token_ids(self._tokenizer, ask.prompt, ask.problem.tools))
        if room is None or length < room:
            return ""
        return f"the prompt has {length} tokens and the model takes {room}"
