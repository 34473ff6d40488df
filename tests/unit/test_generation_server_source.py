"""Held-out completions from a run's generation server: what it is asked for, and what becomes of its tokens."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.config.run import PromptConfig
from trainer.evaluate.plan import ErrorKind, GeneratedCompletion, GenerationError, Outcome, Problem, asks_of, make_plan

pytestmark = pytest.mark.training


class VllmClient:
    """What TRL's and our own client of a vLLM server have in common: every completion is `abc` and perhaps an end."""

    def __init__(self, tokenizer: Any, room: int) -> None:
        self.calls: list[dict[str, Any]] = []
        self._abc, self._end, self._room = tokenizer("abc")["input_ids"], tokenizer.eos_token_id, room

    def get_server_info(self) -> dict[str, Any]:
        return {"model_config": {"max_model_len": self._room}}

    def generate(self, prompts: list[list[int]], **how: Any) -> dict[str, Any]:
        self.calls.append({"prompts": prompts, **how})
        ended = [*self._abc, self._end]
        return {"completion_ids": [ended if how["temperature"] else self._abc for _ in prompts]}


def test_the_server_writes_every_completion_and_refuses_long_prompts(tmp_path: Path) -> None:
    from trainer.config.run import FreshModel
    from trainer.evaluate.held_out import GenerationServer
    from trainer.models.fresh import train_tokenizer

    tokenizer = train_tokenizer(["let f x = abc", "abc"], FreshModel())
    problems = [Problem("a", "let f", None), Problem("b", "let f x = " * 200, None)]
    length = len(tokenizer("abc")["input_ids"])
    fields: dict[str, Any] = {"model": "m", "served": True, "samples": 2, "temperature": 0.7, "greedy": True}
    plan = make_plan(problems, PromptConfig(), tasks="t", max_new_tokens=length, **fields)
    client = VllmClient(tokenizer, room=100)
    served = SimpleNamespace(on_group=None, metrics={"generate_s": 1.0})
    trainer = SimpleNamespace(vllm_generation=SimpleNamespace(vllm_client=client), served=served)
    source = GenerationServer(trainer, frozenset({tokenizer.eos_token_id}), tokenizer, plan, 64)

    async def all_of() -> dict[Any, Outcome]:
        asks = asks_of(problems, plan)
        return {ask.key: found async for ask, found in source.write(asks, {ask.key for ask in asks})}

    found = asyncio.run(all_of())
    sampled, greedy = found["sampled", "a", 1, 1], found["greedy", "a", 0, 1]
    assert isinstance(sampled, GeneratedCompletion)
    assert isinstance(greedy, GeneratedCompletion)
    assert (sampled.text, sampled.finish_reason, greedy.finish_reason) == ("abc", "stop", "length")
    refused = found["greedy", "b", 0, 1]
    assert isinstance(refused, GenerationError)
    assert refused.kind is ErrorKind.REFUSED
    assert [(len(call["prompts"]), call["n"], call["temperature"]) for call in client.calls] == [
        (2, 1, 0.7),
        (1, 1, 0.0),
    ]
    assert served.metrics == {}  # a training step must not report them
