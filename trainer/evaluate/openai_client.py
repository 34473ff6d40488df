"""Completions from any server that speaks OpenAI's protocol, chat or completions, by the package
`openai`, which repeats what may pass: no connection, timeouts, 408, 409, 429 and every 5xx.

One request per completion, a bounded number at a time. An answer is used only where it has the
shape of a completion. A completion that was never written is a generation error; no text is made up
for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import urlsplit

import openai

from gradus.console import escape_hidden
from gradus.errors import Misuse, QueueFault
from trainer.evaluate.plan import (
    CompletionRequest,
    EvalPlan,
    GeneratedCompletion,
    GenerationError,
    Key,
    Outcome,
)
from trainer.evaluate.tool_calls import MAX_CALLS

FINAL = (401, 403, 404, 405)
"""No request of this kind will ever be answered: the key, the address or the model's name is
wrong."""
GONE_AFTER = 20
"""So many completions in a row that no server answered for, each after all its attempts: it will
not come back."""
SHOWN_CHARS = 300

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Server:
    """Where a model is served and how patiently it is asked."""

    url: str
    """With the version in it, `http://host:8000/v1`."""
    api_key: str | None = None
    concurrency: int = 16
    timeout_s: float = 300.0
    attempts: int = 5

    def __post_init__(self) -> None:
        try:
            parsed = urlsplit(self.url)
            usable = parsed.scheme in ("http", "https") and bool(parsed.hostname)
            usable = usable and (parsed.port or 80) > 0
        except ValueError:  # a port over 65535
            usable = False
        if not usable or parsed.query or parsed.fragment:
            raise Misuse(f"{self.url!r} is not an endpoint such as http://127.0.0.1:8000/v1")
        if parsed.username is not None:
            raise Misuse(
                "an endpoint's URL must not hold a password: put the key into the environment"
            )
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise Misuse("the API key contains characters that no HTTP header can carry")


class Endpoint:
    """A `Source` of one model on a server."""

    def __init__(self, server: Server, plan: EvalPlan) -> None:
        self._server = server
        self._plan = plan
        self._unreachable_in_a_row = 0

    async def write(
        self, asks: Sequence[CompletionRequest], keys: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        slots = asyncio.Semaphore(self._server.concurrency)

        async def fetch_in_slot(ask: CompletionRequest) -> tuple[CompletionRequest, Outcome]:
            async with slots:
                return ask, await self._fetch_outcome(client, ask)

        async with open_client(self._server) as client:
            tasks = []
            for ask in asks:
                if ask.key in keys:
                    tasks.append(asyncio.create_task(fetch_in_slot(ask)))
            try:
                for task in asyncio.as_completed(tasks):
                    yield await task
            finally:
                for waiting in tasks:
                    waiting.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _fetch_outcome(self, client: openai.AsyncOpenAI, ask: CompletionRequest) -> Outcome:
        """Return the completion, or why there is none after all attempts. Raises QueueFault when
        the server seems gone."""
        outcome: Outcome
        try:
            async with asyncio.timeout(self._server.timeout_s * self._server.attempts):
                answer = await self._send_request(client, ask)
        except (TimeoutError, openai.APITimeoutError):
            message = f"no answer within {self._server.timeout_s:g} s"
            outcome = GenerationError("timeout", message)
        except openai.APIStatusError as error:
            outcome = _convert_status(error)
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            outcome = GenerationError("unreachable", str(cause) or type(cause).__name__)
        else:
            latency_s = answer.elapsed.total_seconds()
            outcome = _parse_completion(answer.content, latency_s)
        if not isinstance(outcome, GenerationError) or outcome.kind != "unreachable":
            self._unreachable_in_a_row = 0
            return outcome
        self._unreachable_in_a_row += 1
        if self._unreachable_in_a_row >= GONE_AFTER:
            raise QueueFault(
                f"the model's server is gone ({outcome.message}): {GONE_AFTER} completions in a row"
                " found no server. What was written is kept; the same command continues from there"
            )
        return outcome

    async def _send_request(self, client: openai.AsyncOpenAI, ask: CompletionRequest) -> Any:
        plan = self._plan
        fields: dict[str, Any] = {
            "max_tokens": plan.max_new_tokens,
            "temperature": ask.temperature,
            # Always said: servers fill in a model's own settings for what is left out.
            "top_p": plan.top_p if ask.temperature > 0 else 1.0,
            "seed": ask.seed,
            "tools": list(ask.problem.tools or ()) or None,
            "chat_template_kwargs": plan.chat_template_kwargs or None,
            **plan.body,
        }
        body = {}
        for name, value in fields.items():
            if value is not None:
                body[name] = value
        # Half a surrogate pair has no UTF-8; NaN was refused with the plan.
        text = json.dumps([ask.prompt, body], ensure_ascii=False)
        prompt, body = json.loads(text.encode(errors="replace"))
        same: dict[str, Any] = {
            "model": plan.model,
            "extra_body": body,
            "extra_headers": build_headers(self._server),
        }
        if plan.asked_as == "chat":
            return await client.chat.completions.with_raw_response.create(messages=prompt, **same)
        return await client.completions.with_raw_response.create(prompt=prompt, **same)


# ---------------------------------------------------------------------- the server


def build_headers(server: Server) -> dict[str, Any]:
    """Return what is left out of each request: what the environment holds for OpenAI itself, and a
    key where there is none."""
    left_out = (
        "OpenAI-Organization",
        "OpenAI-Project",
        *(() if server.api_key else ("Authorization",)),
    )
    return dict.fromkeys(left_out, openai.Omit())


def open_client(server: Server) -> openai.AsyncOpenAI:
    """Return a client for that server. It follows no redirect, so that the key goes nowhere
    else."""
    return openai.AsyncOpenAI(
        base_url=server.url,
        api_key=server.api_key or "none",
        timeout=openai.Timeout(server.timeout_s, connect=min(10.0, server.timeout_s)),
        max_retries=server.attempts - 1,
        http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
    )


async def list_models(server: Server) -> dict[str, str | None]:
    """Return names of the models that the server lists, with what it calls their owner; empty where
    it lists none.

    Raises QueueFault when no server answers there, and Misuse when the key is refused.
    """
    try:
        async with open_client(server) as client:
            listing: Any = await client.models.list(
                timeout=min(30.0, server.timeout_s), extra_headers=build_headers(server)
            )
        return {str(model.id): getattr(model, "owned_by", None) for model in listing.data}
    except openai.APIConnectionError as error:
        raise QueueFault(
            f"no model's server answers at {server.url}: {error.__cause__ or error}"
        ) from None
    except openai.APIStatusError as error:
        if error.status_code in (401, 403):
            raise Misuse(
                f"{server.url} answered {error.status_code}: the API key was refused"
            ) from None
        return {}
    except (openai.OpenAIError, AttributeError, TypeError, ValueError, RecursionError):
        return {}


def _convert_status(error: openai.APIStatusError) -> GenerationError:
    """Return what a status says. Raises Misuse for one that every request would get."""
    status = error.status_code
    message = error.body.get("message") if isinstance(error.body, dict) else None
    text = f"{status}: {_clean_text(str(message or error.response.text))}"
    if status in FINAL:
        raise Misuse(f"the model's server answered {text}")
    if status == 429:
        return GenerationError("overloaded", text)
    return GenerationError("server" if status >= 500 else "refused", text)


def _clean_text(text: str) -> str:
    """Make a server's words fit for a terminal."""
    return escape_hidden(text[:SHOWN_CHARS])


# ---------------------------------------------------------------------- the answer


def _parse_completion(body: bytes, latency_s: float) -> Outcome:
    """Return the completion that an answer holds, or a generation error where it holds none."""
    try:
        response = json.loads(body)
        (choice,) = response["choices"]
        text = _join_text(choice)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"an answer that is no completion ({type(error).__name__}: {error}):"
        why += f" {_clean_text(body.decode(errors='replace'))}"
        return GenerationError("garbage", why[: 2 * SHOWN_CHARS])
    usage = response.get("usage")
    calls = _get_field(choice.get("message"), "tool_calls", list) or []
    return GeneratedCompletion(
        text=text,
        finish_reason=(_get_field(choice, "finish_reason", str) or "")[:40] or None,
        prompt_tokens=_read_count(usage, "prompt_tokens"),
        completion_tokens=_read_count(usage, "completion_tokens"),
        latency_s=latency_s,
        tool_calls=tuple(map(_parse_call, calls[:MAX_CALLS])),
    )


def _parse_call(call: Any) -> dict[str, str | None]:
    function = _get_field(call, "function", dict)
    name = _get_field(function, "name", str)
    return {
        "name": name[:SHOWN_CHARS] if name else name,
        "arguments": _get_field(function, "arguments", str),
    }


def _read_count(usage: Any, name: str) -> int | None:
    count = _get_field(usage, name, int)
    return count if count is not None and 0 <= count < 10**9 else None


def _join_text(choice: dict[str, Any]) -> str:
    """Return the text of a choice; thoughts that the server took out are put back, so that graders
    can leave them out."""
    if "message" not in choice:
        return "".join([choice["text"]])  # raises TypeError for what is no text, here and below
    message = choice["message"]
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    content = message.get("content")
    parts = ["<think>\n", thoughts] if thoughts else []
    if content is not None:
        parts += ["\n</think>\n", content] if thoughts else [content]
    return "".join(parts)


def _get_field(value: Any, name: str, type_: type[T]) -> T | None:
    """Return a field of an object if it is of that very type."""
    field = value.get(name) if isinstance(value, dict) else None
    return field if type(field) is type_ else None
