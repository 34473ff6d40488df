"""Evaluation against a real vLLM server, without anything of ours in it: the same model here writes
the same."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from tests.vllm_server.conftest import Server
from trainer.config.run import ModelConfig
from trainer.evaluate import openai_client as endpoint
from trainer.evaluate.local import LocalModel
from trainer.evaluate.openai_client import Endpoint, list_models
from trainer.evaluate.plan import (
    CompletionSource,
    EvalPlan,
    GeneratedCompletion,
    GenerationError,
    Key,
    Outcome,
    Problem,
    build_requests,
)

pytestmark = pytest.mark.training
TEXTS = [Problem(f"t{n}", f"(* add {n} *)\nlet f x =", None) for n in range(8)]


@pytest.fixture(scope="module")
def served(server: Server, model: Path) -> endpoint.Server:
    server.bare(model)
    return endpoint.Server(f"{server.url}/v1", attempts=2, concurrency=4)


def plan(model: Path, **changed: Any) -> EvalPlan:
    given: dict[str, Any] = {
        "model": str(model),
        "asked_as": "text",
        "served": True,
        "tasks": "t",
        "tasks_sha256": "ab",
    }
    given |= {"samples": 0, "temperature": 0.0, "greedy": True, "max_new_tokens": 12}
    return EvalPlan.model_validate(given | changed)


def written(
    source: CompletionSource, problems: Sequence[Problem], asked: EvalPlan
) -> dict[Key, Outcome]:
    async def all_of() -> dict[Key, Outcome]:
        asks = build_requests(problems, asked)
        keys = {ask.key for ask in asks}
        return {ask.key: outcome async for ask, outcome in source.write(asks, keys)}

    return asyncio.run(all_of())


def test_greedy_completions_are_those_of_the_model_here(
    served: endpoint.Server, model: Path
) -> None:
    from trainer.models.loading import load_model, load_tokenizer

    settings = ModelConfig(name=str(model), device="cpu")
    loaded = load_model(str(model), settings, "float32"), load_tokenizer(str(model), settings)
    here = written(LocalModel(lambda: loaded, plan(model, served=False), 64), TEXTS, plan(model))
    there = written(Endpoint(served, plan(model)), TEXTS, plan(model))
    for key, outcome in here.items():
        other = there[key]
        assert isinstance(outcome, GeneratedCompletion)
        assert isinstance(other, GeneratedCompletion)
        # A character that the limit cuts in two is no character to vLLM, and one that cannot be
        # read to transformers.
        assert other.text.rstrip("\ufffd") == outcome.text.rstrip("\ufffd")
        assert other.finish_reason == outcome.finish_reason
        assert (other.prompt_tokens, other.completion_tokens) == (
            outcome.prompt_tokens,
            outcome.completion_tokens,
        )


def test_a_seed_gives_the_same_completions_again(served: endpoint.Server, model: Path) -> None:
    asked = plan(model, samples=3, temperature=1.0, greedy=False, seed=5)
    texts = []
    for _ in range(2):
        outcomes = written(Endpoint(served, asked), TEXTS, asked)
        completed = {
            key: outcome.text
            for key, outcome in outcomes.items()
            if isinstance(outcome, GeneratedCompletion)
        }
        texts.append(completed)
    assert len(texts[0]) == 24
    assert texts[0] == texts[1]
    assert len(set(texts[0].values())) > 8


def test_a_chat_goes_through_the_servers_template(served: endpoint.Server, model: Path) -> None:
    asked = plan(model, asked_as="chat")
    problem = Problem("c", [{"role": "user", "content": "add 1"}], None)
    (outcome,) = written(Endpoint(served, asked), [problem], asked).values()
    assert isinstance(outcome, GeneratedCompletion)
    assert outcome.prompt_tokens is not None
    assert outcome.prompt_tokens > len("add 1") // 4


def test_a_prompt_that_is_too_long_is_refused_and_another_models_name_ends_it(
    served: endpoint.Server, model: Path
) -> None:
    asked = plan(model)
    found = written(
        Endpoint(served, asked), [*TEXTS[:1], Problem("long", "let " * 200, None)], asked
    )
    assert isinstance(found["greedy", "t0", 0, 1], GeneratedCompletion)
    lost = found["greedy", "long", 0, 1]
    assert isinstance(lost, GenerationError)
    assert lost.kind == "refused"
    assert asyncio.run(list_models(served)) == {str(model): "vllm"}
    with pytest.raises(Misuse, match="404"):
        written(Endpoint(served, plan(Path("nobody"))), TEXTS, plan(Path("nobody")))
