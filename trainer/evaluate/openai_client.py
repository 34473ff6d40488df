"""Completions from any server that speaks OpenAI's protocol, chat or completions, by the package
`openai`.

One request per completion, a bounded number at a time. Failures that may pass are retried here and
not by the package, which bounds no attempt as a whole and does not retry broken answers. An answer
is used only where it has the shape of a completion. A completion that was never written is a
generation error; no text is made up for it.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import openai

from gradus.errors import Misuse, QueueFault
from trainer.evaluate.plan import (
    CompletionRequest,
    ErrorKind,
    EvalPlan,
    GeneratedCompletion,
    GenerationError,
    Key,
    Outcome,
)
from trainer.evaluate.tool_calls import MAX_CALLS

RETRIED = frozenset({408, 409, 425, 429})
"""And every 5xx: statuses that may be another one next time."""
FINAL = (401, 403, 404, 405)
"""No request of this kind will ever be answered: the key, the address or the model's name is
wrong."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
"""Also where a server asks for longer with Retry-After."""
MAX_ANSWER_BYTES = 16 * 2**20
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
    """Seconds for one completion, from the request to the last byte."""
    attempts: int = 5
    first_pause_s: float = FIRST_PAUSE_S

    def __post_init__(self) -> None:
        try:
            parsed = urlsplit(self.url)
            usable = (
                parsed.scheme in ("http", "https")
                and bool(parsed.hostname)
                and (parsed.port or 80) > 0
            )
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


class _Failed(Exception):
    """One attempt brought no completion."""

    def __init__(
        self, kind: ErrorKind, message: str, *, again: bool, pause_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.again = again
        self.pause_s = pause_s


class Endpoint:
    """A `Source` of one model on a server."""

    def __init__(self, server: Server, plan: EvalPlan) -> None:
        self._server = server
        self._plan = plan
        self._unreachable_in_a_row = 0

    async def write(
        self, asks: Sequence[CompletionRequest], wanted: AbstractSet[Key]
    ) -> AsyncIterator[tuple[CompletionRequest, Outcome]]:
        slots = asyncio.Semaphore(self._server.concurrency)

        async def one(ask: CompletionRequest) -> tuple[CompletionRequest, Outcome]:
            async with slots:
                return ask, await self._outcome(client, ask)

        async with connection(self._server) as client:
            tasks = [asyncio.create_task(one(ask)) for ask in asks if ask.key in wanted]
            try:
                for task in asyncio.as_completed(tasks):
                    yield await task
            finally:
                for waiting in tasks:
                    waiting.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _outcome(self, client: openai.AsyncOpenAI, ask: CompletionRequest) -> Outcome:
        """The completion, or why there is none after all attempts. Raises QueueFault when the
        server seems gone."""
        for attempt in range(1, self._server.attempts + 1):
            try:
                written = await self._attempt(client, ask, attempt)
            except _Failed as failed:
                last = failed
                if not failed.again:
                    break
                if attempt < self._server.attempts:
                    await asyncio.sleep(self._pause_s(attempt, failed))
            else:
                self._unreachable_in_a_row = 0
                return written
        self._unreachable_in_a_row = (
            self._unreachable_in_a_row + 1 if last.kind is ErrorKind.UNREACHABLE else 0
        )
        if self._unreachable_in_a_row >= GONE_AFTER:
            raise QueueFault(
                f"the model's server is gone ({last}): {GONE_AFTER} completions in a row found no"
                " server. What was written is kept; the same command continues from there"
            )
        return GenerationError(last.kind, str(last), attempt)

    def _pause_s(self, attempt: int, failed: _Failed) -> float:
        """Full jitter over a doubling bound; or what the server asked for, within bounds, and a
        little more."""
        if failed.pause_s is not None:
            return min(failed.pause_s, LONGEST_PAUSE_S) + random.uniform(
                0, self._server.first_pause_s
            )
        return random.uniform(0, min(LONGEST_PAUSE_S, self._server.first_pause_s * 2**attempt))

    async def _attempt(
        self, client: openai.AsyncOpenAI, ask: CompletionRequest, attempt: int
    ) -> GeneratedCompletion:
        plan, started, found = self._plan, time.monotonic(), bytearray()
        chat = plan.asked_as == "chat"
        create: Any = (
            client.chat.completions if chat else client.completions
        ).with_streaming_response.create
        asked = {
            "messages" if chat else "prompt": ask.prompt,
            **({"tools": list(ask.problem.tools)} if ask.problem.tools else {}),
            "max_tokens": plan.max_new_tokens,
            "temperature": ask.temperature,
            # Always said: servers fill in a model's own settings for what is left out.
            "top_p": plan.top_p if ask.temperature > 0 else 1.0,
            "seed": ask.seed,
            **({"stop": list(plan.stop)} if plan.stop else {}),
            **(
                {"chat_template_kwargs": plan.chat_template_kwargs}
                if plan.chat_template_kwargs
                else {}
            ),
            **plan.body,
        }
        # Half a surrogate pair has no UTF-8; NaN was refused with the plan.
        text = json.dumps(
            {name: value for name, value in asked.items() if value is not None}, ensure_ascii=False
        )
        body = json.loads(text.encode(errors="replace"))
        said = {name: body.pop(name) for name in ("messages", "prompt") if name in body}
        try:
            async with (
                asyncio.timeout(self._server.timeout_s),
                create(
                    **said,
                    model=plan.model,
                    extra_body=body,
                    extra_headers=headers_of(self._server),
                ) as answer,
            ):
                async for chunk in answer.iter_bytes():
                    found += chunk
                    if len(found) > MAX_ANSWER_BYTES:
                        why = f"an answer of more than {MAX_ANSWER_BYTES} bytes"
                        raise _Failed(ErrorKind.GARBAGE, why, again=False)
        except (TimeoutError, openai.APITimeoutError):
            message = f"no answer within {self._server.timeout_s:g} s"
            raise _Failed(ErrorKind.TIMEOUT, message, again=True) from None
        except openai.APIStatusError as error:
            raise _refusal(error) from None
        except (openai.APIConnectionError, httpx2.HTTPError) as error:
            cause = error.__cause__ or error
            raise _Failed(
                ErrorKind.UNREACHABLE, str(cause) or type(cause).__name__, again=True
            ) from None
        return _written(bytes(found), time.monotonic() - started, attempt)


# ---------------------------------------------------------------------- the server


def headers_of(server: Server) -> dict[str, Any]:
    """What is left out of each request: what the environment holds for OpenAI itself, and a key
    where there is none."""
    left_out = (
        "OpenAI-Organization",
        "OpenAI-Project",
        *(() if server.api_key else ("Authorization",)),
    )
    return dict.fromkeys(left_out, openai.Omit())


def connection(server: Server, retries: int = 0) -> openai.AsyncOpenAI:
    """A client for that server. It follows no redirect, so that the key goes nowhere else."""
    return openai.AsyncOpenAI(
        base_url=server.url,
        api_key=server.api_key or "none",
        timeout=openai.Timeout(server.timeout_s, connect=min(10.0, server.timeout_s)),
        max_retries=retries,
        http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False),
    )


async def models_at(server: Server) -> dict[str, str | None]:
    """Names of the models that the server lists, with what it calls their owner; empty where it
    lists none.

    Raises QueueFault when no server answers there, and Misuse when the key is refused.
    """
    try:
        async with connection(server, retries=server.attempts - 1) as client:
            found: Any = await client.models.list(
                timeout=min(30.0, server.timeout_s), extra_headers=headers_of(server)
            )
        return {str(model.id): getattr(model, "owned_by", None) for model in found.data}
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


def _refusal(error: openai.APIStatusError) -> _Failed:
    """What a status says. Raises Misuse for one that every request would get."""
    status = error.status_code
    text = f"{status}: {_detail(error.response.content)}"
    if status in FINAL:
        raise Misuse(f"the model's server answered {text}")
    if status not in RETRIED and status < 500:
        return _Failed(ErrorKind.REFUSED, text, again=False)
    kind = ErrorKind.OVERLOADED if status == 429 else ErrorKind.SERVER
    return _Failed(
        kind,
        text,
        again=True,
        pause_s=_retry_after_s(error.response.headers.get("retry-after", "")),
    )


def _detail(body: bytes) -> str:
    text = body.decode(errors="replace")
    try:
        value = json.loads(text)
        error = value.get("error", value)
        text = str(error.get("message") or error) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError, RecursionError):
        pass
    # Not as the server wrote it: it is shown on terminals.
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:SHOWN_CHARS]
    )


def _retry_after_s(value: str) -> float | None:
    if value.isdigit() and len(value) <= 9:
        return float(value)
    try:
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


# ---------------------------------------------------------------------- the answer


def _written(body: bytes, latency_s: float, attempts: int) -> GeneratedCompletion:
    """The completion that an answer holds. Raises _Failed when it holds none."""
    try:
        said = json.loads(body)
        if len(said["choices"]) != 1:
            raise ValueError(f"{len(said['choices'])} completions in place of one")
        choice = said["choices"][0]
        text = _text_of(choice)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"an answer that is no completion ({type(error).__name__}: {error}): {_detail(body)}"
        raise _Failed(ErrorKind.GARBAGE, why[: 2 * SHOWN_CHARS], again=True) from None
    reason = _field(choice, "finish_reason", str)
    counts = [
        _field(said.get("usage"), name, int) for name in ("prompt_tokens", "completion_tokens")
    ]
    known = [count if count is not None and 0 <= count < 10**9 else None for count in counts]
    calls = (_field(choice.get("message"), "tool_calls", list) or [])[:MAX_CALLS]
    functions = [_field(call, "function", dict) for call in calls]
    names = [_field(function, "name", str) for function in functions]
    return GeneratedCompletion(
        text=text,
        finish_reason=reason[:40] if reason is not None else None,
        prompt_tokens=known[0],
        completion_tokens=known[1],
        latency_s=latency_s,
        attempts=attempts,
        tool_calls=tuple(
            {
                "name": name[:SHOWN_CHARS] if name else name,
                "arguments": _field(function, "arguments", str),
            }
            for function, name in zip(functions, names, strict=True)
        ),
    )


def _text_of(choice: dict[str, Any]) -> str:
    """The text of a choice; thoughts that the server took out are put back, so that graders can
    leave them out."""
    if "message" not in choice:
        return "".join([choice["text"]])  # raises TypeError for what is no text, here and below
    message = choice["message"]
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    content = message.get("content")
    parts = ["<think>\n", thoughts] if thoughts else []
    if content is not None:
        parts += ["\n</think>\n", content] if thoughts else [content]
    return "".join(parts)


def _field(value: Any, name: str, type_: type[T]) -> T | None:
    """A field of an object if it is of that very type."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if type(found) is type_ else None
