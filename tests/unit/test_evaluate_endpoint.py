"""Asking a server for completions: what is asked, how often, what is believed, and what becomes a
generation error."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from fake_openai_server import Json, OpenAiLike, Reply, refused, said

from gradus.errors import Misuse, QueueFault
from trainer.evaluate import openai_client as endpoint
from trainer.evaluate.openai_client import Endpoint, Server, list_models
from trainer.evaluate.plan import (
    CompletionRequest,
    ErrorKind,
    EvalPlan,
    GeneratedCompletion,
    GenerationError,
    Outcome,
    Problem,
    build_requests,
)

Answer = Callable[[str, Json, int], Reply | str]


def plan(**changed: Any) -> EvalPlan:
    given: dict[str, Any] = {
        "model": "m",
        "asked_as": "chat",
        "served": True,
        "tasks": "t.jsonl",
        "tasks_sha256": "ab",
        "samples": 1,
        "temperature": 0.7,
        "greedy": False,
        "max_new_tokens": 32,
    }
    return EvalPlan.model_validate(given | changed)


def problems(*texts: str, chat: bool = True) -> list[Problem]:
    return [
        Problem(text, [{"role": "user", "content": text}] if chat else text, None) for text in texts
    ]


def written(
    answer: Answer,
    asked: EvalPlan,
    given: Sequence[Problem],
    wanted: set[Any] | None = None,
    **server: Any,
) -> tuple[dict[Any, Outcome], OpenAiLike]:
    """What came of each ask, by its key, and the server with its log."""

    async def all_of(like: OpenAiLike) -> list[tuple[CompletionRequest, Outcome]]:
        options: dict[str, Any] = {"attempts": 3, "timeout_s": 20, **server}
        asks = build_requests(given, asked)
        source = Endpoint(Server(like.url, **options), asked)
        keys = {ask.key for ask in asks} if wanted is None else wanted
        return [found async for found in source.write(asks, keys)]

    with OpenAiLike(answer).serving() as like:
        return {ask.key: outcome for ask, outcome in asyncio.run(all_of(like))}, like


def only(outcomes: dict[Any, Outcome]) -> Outcome:
    (outcome,) = outcomes.values()
    return outcome


# ---------------------------------------------------------------------- what is asked


def test_a_chat_is_asked_with_messages_sampling_and_a_seed_of_its_own() -> None:
    asked = plan(samples=2, top_p=0.9, body={"top_k": 20, "stop": ["END"]})
    outcomes, like = written(lambda text, body, before: f"to {text}", asked, problems("a", "b"))
    assert {
        key: outcome.text
        for key, outcome in outcomes.items()
        if isinstance(outcome, GeneratedCompletion)
    } == {
        ("sampled", "a", 0, 1): "to a",
        ("sampled", "a", 1, 1): "to a",
        ("sampled", "b", 0, 1): "to b",
        ("sampled", "b", 1, 1): "to b",
    }
    path, body, _ = like.requests[0]
    assert path == "/v1/chat/completions"
    assert body["messages"][0]["role"] == "user"
    expected = {
        "model": "m",
        "max_tokens": 32,
        "temperature": 0.7,
        "top_p": 0.9,
        "stop": ["END"],
        "top_k": 20,
    }
    assert {name: body[name] for name in expected} == expected
    seeds = [body["seed"] for _, body, _ in like.requests]
    assert len(set(seeds)) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)


def test_a_text_is_asked_with_a_prompt_on_the_other_route() -> None:
    asked = plan(asked_as="text", samples=0, greedy=True)
    outcomes, like = written(
        lambda text, body, before: said("x", chat=False), asked, problems("let f =", chat=False)
    )
    assert isinstance(only(outcomes), GeneratedCompletion)
    path, body, _ = like.requests[0]
    assert (path, body["prompt"], body["temperature"], body["top_p"]) == (
        "/v1/completions",
        "let f =",
        0.0,
        1.0,
    )


def test_null_in_further_fields_leaves_one_of_ours_out() -> None:
    asked = plan(body={"max_tokens": None, "max_completion_tokens": 7, "seed": None})
    _, like = written(lambda text, body, before: "x", asked, problems("a"))
    body = like.requests[0][1]
    assert "max_tokens" not in body
    assert "seed" not in body
    assert body["max_completion_tokens"] == 7


def test_the_same_plan_asks_for_the_same_seeds_and_another_seed_for_others() -> None:
    def seeds(seed: int) -> list[int]:
        return [ask.seed for ask in build_requests(problems("a", "b"), plan(seed=seed, samples=3))]

    first, again, other = map(seeds, (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)


def test_only_what_is_wanted_is_asked_for() -> None:
    _, like = written(
        lambda text, body, before: "x", plan(), problems("a", "b", "c"), {("sampled", "b", 0, 1)}
    )
    assert like.prompts() == ["b"]


def test_as_many_requests_as_allowed_run_at_one_time_and_no_more() -> None:
    together = threading.Barrier(3)

    def meeting(text: str, body: Json, before: int) -> Reply:
        together.wait(60)
        found = said("x", chat=True)
        found.delay_s = 0.01
        return found

    _, like = written(meeting, plan(), problems(*"abcdefghijkl"), concurrency=3)
    assert like.most_at_once == 3
    assert len(like.requests) == 12


def test_the_key_is_sent_and_only_to_the_server_itself() -> None:
    _, like = written(lambda text, body, before: "x", plan(), problems("a"), api_key="secret")
    assert like.requests[0][2]["authorization"] == "Bearer secret"
    _, like = written(lambda text, body, before: "x", plan(), problems("a"))
    assert "authorization" not in like.requests[0][2]
    elsewhere = Reply(b"", 307, {"location": "http://127.0.0.1:9/v1/chat/completions"})
    outcomes, like = written(
        lambda text, body, before: elsewhere, plan(), problems("a"), api_key="secret"
    )
    assert only(outcomes) == GenerationError("refused", "307: ")


def test_no_key_of_openai_s_in_the_environment_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "theirs")
    for key in (None, "ours"):
        _, like = written(lambda text, body, before: "x", plan(), problems("a"), api_key=key)
        assert "theirs" not in str(like.requests[0][2])


def test_half_a_surrogate_pair_in_a_prompt_is_replaced() -> None:
    _, like = written(lambda text, body, before: "x", plan(), problems("\ud800 half"))
    assert like.prompts() == ["? half"]


# ---------------------------------------------------------------------- what is believed


def test_lengths_and_the_reason_of_the_end_are_taken_over() -> None:
    answer = said(
        "half of", chat=True, finish_reason="length", prompt_tokens=5, completion_tokens=32
    )
    outcome = only(written(lambda *_: answer, plan(), problems("a"))[0])
    assert isinstance(outcome, GeneratedCompletion)
    assert (outcome.finish_reason, outcome.prompt_tokens, outcome.completion_tokens) == (
        "length",
        5,
        32,
    )
    assert outcome.latency_s > 0


@pytest.mark.parametrize(
    "usage",
    [None, [], {}, {"completion_tokens": -1}, {"completion_tokens": True}, {"prompt_tokens": "9"}],
)
def test_counts_that_are_none_are_left_out(usage: Any) -> None:
    body = {"choices": [{"message": {"content": "x"}, "finish_reason": ["?"]}], "usage": usage}
    outcome = only(written(lambda *_: Reply(json.dumps(body).encode()), plan(), problems("a"))[0])
    assert isinstance(outcome, GeneratedCompletion)
    assert (outcome.prompt_tokens, outcome.completion_tokens, outcome.finish_reason) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": None}, ""),
        ({"content": "\ud800 half"}, "\ud800 half"),
        ({"content": "let f = 1", "reasoning_content": "hm"}, "<think>\nhm\n</think>\nlet f = 1"),
        ({"content": "let f = 1", "reasoning": "hm"}, "<think>\nhm\n</think>\nlet f = 1"),
        ({"content": None, "reasoning": "hm, I"}, "<think>\nhm, I"),
    ],
)
def test_thoughts_that_the_server_took_out_are_put_back(message: Json, text: str) -> None:
    body = json.dumps({"choices": [{"message": message, "finish_reason": "stop"}]}).encode()
    outcome = only(written(lambda *_: Reply(body), plan(), problems("a"))[0])
    assert isinstance(outcome, GeneratedCompletion)
    assert outcome.text == text


GARBAGE = {
    "no JSON": b"<html>502 Bad Gateway</html>",
    "nothing": b"",
    "a list": b"[1]",
    "no choices": b'{"choices": []}',
    "two choices": b'{"choices": [{"text": "a"}, {"text": "b"}]}',
    "a number for a text": b'{"choices": [{"message": {"content": 7}}]}',
    "a message that is none": b'{"choices": [{"message": "hello"}]}',
    "deep brackets": b"[" * 200_000,
    "no UTF-8": b'{"choices": [{"text": "\xff\xfe"}]}',
}


@pytest.mark.parametrize("body", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_a_generation_error(body: bytes) -> None:
    outcomes, like = written(lambda *_: Reply(body), plan(), problems("a"))
    outcome = only(outcomes)
    assert isinstance(outcome, GenerationError)
    assert (outcome.kind, len(like.requests)) == ("garbage", 1)


# ---------------------------------------------------------------------- what goes wrong


def test_what_may_pass_is_asked_for_again() -> None:
    answers = [*(refused(status) for status in (408, 409, 429, 500, 502, 503, 529)), "x"]
    outcomes, like = written(
        lambda text, body, before: answers[before], plan(), problems("a"), attempts=len(answers)
    )
    outcome = only(outcomes)
    assert isinstance(outcome, GeneratedCompletion)
    assert len(like.requests) == len(answers)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, "overloaded"), (500, "server"), (503, "server")],
)
def test_what_does_not_pass_is_a_generation_error_after_all_attempts(
    status: int, kind: ErrorKind
) -> None:
    outcome = only(written(lambda *_: refused(status, "busy"), plan(), problems("a"))[0])
    assert outcome == GenerationError(kind, f"{status}: busy")


def test_what_a_server_says_cannot_steer_a_terminal() -> None:
    outcome = only(
        written(lambda *_: refused(400, "\x1b]0;title\x07\u202eno"), plan(), problems("a"))[0]
    )
    assert isinstance(outcome, GenerationError)
    assert outcome.message.isprintable()
    assert "no" in outcome.message


def test_a_refused_prompt_is_not_asked_for_again_and_harms_no_other() -> None:
    answer = lambda text, body, before: refused(400, "too long") if text == "b" else "x"  # noqa: E731
    outcomes, like = written(answer, plan(), problems("a", "b", "c"))
    assert outcomes["sampled", "b", 0, 1] == GenerationError("refused", "400: too long")
    assert isinstance(outcomes["sampled", "a", 0, 1], GeneratedCompletion)
    assert len(like.requests) == 3


@pytest.mark.parametrize("status", [401, 403, 404])
def test_what_no_request_will_get_past_ends_everything(status: int) -> None:
    with pytest.raises(Misuse, match=f"{status}: no such model"):
        written(lambda *_: refused(status, "no such model"), plan(), problems("a", "b"))


def test_a_late_answer_is_a_timeout() -> None:
    late = said("x", chat=True)
    late.delay_s = 1.0
    outcomes, _ = written(lambda *_: late, plan(), problems("a"), timeout_s=0.1, attempts=2)
    assert only(outcomes) == GenerationError("timeout", "no answer within 0.1 s")


def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    broken = said("x", chat=True)
    broken.breaks_off = True
    outcome = only(
        written(lambda text, body, before: broken if before == 0 else "y", plan(), problems("a"))[0]
    )
    assert isinstance(outcome, GeneratedCompletion)
    assert outcome.text == "y"


def test_a_server_that_is_gone_ends_the_run_and_not_each_completion_by_itself() -> None:
    asked = plan()
    asks = build_requests(problems(*(f"p{n}" for n in range(200))), asked)
    source = Endpoint(Server("http://127.0.0.1:9/v1", attempts=1), asked)
    came = 0

    async def run() -> None:
        nonlocal came
        async for _ in source.write(asks, {ask.key for ask in asks}):
            came += 1

    with pytest.raises(QueueFault, match="gone"):
        asyncio.run(run())
    assert came < 2 * endpoint.GONE_AFTER


def test_an_hour_of_errors_with_answers_between_them_goes_on() -> None:
    answer = lambda text, body, before: "x" if int(text[1:]) % 2 else refused(500)  # noqa: E731
    outcomes, _ = written(answer, plan(), problems(*(f"p{n}" for n in range(60))), attempts=1)
    assert sum(isinstance(outcome, GeneratedCompletion) for outcome in outcomes.values()) == 30


# ---------------------------------------------------------------------- the server


def test_a_server_names_its_models() -> None:
    with OpenAiLike(lambda *_: "x", models=("a", "b")).serving() as like:
        assert asyncio.run(list_models(Server(like.url))) == {"a": "library", "b": "library"}
    with OpenAiLike(lambda *_: "x", models=None).serving() as like:
        assert asyncio.run(list_models(Server(like.url))) == {}


def test_nobody_there_is_a_fault_that_says_where() -> None:
    with pytest.raises(QueueFault, match=r"no model's server answers at http://127\.0\.0\.1:9/v1"):
        asyncio.run(list_models(Server("http://127.0.0.1:9/v1", attempts=2)))


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000/v1",
        "ftp://host/v1",
        "http:///v1",
        "http://h/v1?key=1",
        "http://me:secret@h/v1",
        "http://h:99999/v1",
    ],
)
def test_an_address_that_is_none_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(Misuse) as caught:
        Server(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["a\nb", "schlüssel"])
def test_keys_that_cannot_work_are_refused(key: str) -> None:
    with pytest.raises(Misuse):
        Server("http://h/v1", key)
