"""Completions from any server that speaks OpenAI's protocol, chat or completions. Grades nothing.

One request per completion, a bounded number at a time. What may pass is tried again within bounds, and what comes back
is believed only where it has the shape of a completion. A completion that was never written is a generation error; no
text is made up for it.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from gradus.errors import Misuse, QueueFault
from trainer.evaluate.asking import Ask, ErrorKind, Key, Outcome, Plan, Unwritten, Written
from trainer.evaluate.tool_calls import MAX_CALLS

RETRIED = frozenset({408, 409, 425, 429})
"""And every 5xx: statuses that may be another one next time."""
OURS = frozenset({401, 403, 404, 405})
"""No request of this kind will ever be answered: the key, the address or the model's name is wrong."""
FIRST_PAUSE_S = 0.5
LONGEST_PAUSE_S = 60.0
"""Also where a server asks for longer with Retry-After."""
MAX_ANSWER_BYTES = 16 * 2**20
GONE_AFTER = 20
"""So many completions in a row that no server answered for, each after all its attempts: it will not come back."""
SHOWN_CHARS = 300


@dataclass(frozen=True, slots=True)
class Server:
    """Where a model is served and how patiently it is asked."""

    url: str
    """With the version in it, `http://host:8000/v1`."""
    api_key: str | None = None
    concurrency: int = 16
    timeout_s: float = 300.0
    """For one completion, from the request to the last byte."""
    attempts: int = 5
    first_pause_s: float = FIRST_PAUSE_S

    def __post_init__(self) -> None:
        _check_url(self.url)
        if not 1 <= self.concurrency <= 1024 or not 1 <= self.attempts <= 100 or not 0 < self.timeout_s <= 86400:
            raise Misuse("concurrency must be 1 to 1024, attempts 1 to 100, and the timeout over 0 s and up to a day")
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise Misuse("the API key contains characters that no HTTP header can carry")


class _Failed(Exception):
    """One attempt brought no completion."""

    def __init__(self, kind: ErrorKind, message: str, *, again: bool, pause_s: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.again = again
        self.pause_s = pause_s


class Endpoint:
    """A `Source` of one model on a server."""

    def __init__(self, server: Server, plan: Plan, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._server = server
        self._plan = plan
        self._transport = transport
        self._unreachable_in_a_row = 0

    async def write(self, asks: Sequence[Ask], wanted: AbstractSet[Key]) -> AsyncIterator[tuple[Ask, Outcome]]:
        todo = [ask for ask in asks if ask.key in wanted]
        waiting = iter(todo)
        done: asyncio.Queue[tuple[Ask, Outcome] | BaseException] = asyncio.Queue()
        async with connection(self._server, self._transport) as http:
            at_once = min(self._server.concurrency, len(todo))
            workers = [asyncio.create_task(self._work(http, waiting, done)) for _ in range(at_once)]
            try:
                for _ in todo:
                    found = await done.get()
                    if isinstance(found, BaseException):
                        raise found
                    yield found
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    async def _work(
        self, http: httpx.AsyncClient, waiting: Iterator[Ask], done: asyncio.Queue[tuple[Ask, Outcome] | BaseException]
    ) -> None:
        try:
            for ask in waiting:
                done.put_nowait((ask, await self._outcome(http, ask)))
        except (Misuse, QueueFault) as end:
            done.put_nowait(end)

    async def _outcome(self, http: httpx.AsyncClient, ask: Ask) -> Outcome:
        """The completion, or why there is none after all attempts. Raises QueueFault when the server seems gone."""
        for attempt in range(1, self._server.attempts + 1):
            try:
                written = await self._attempt(http, ask, attempt)
            except _Failed as failed:
                last = failed
                if not failed.again:
                    break
                if attempt < self._server.attempts:
                    await asyncio.sleep(self._pause_s(attempt, failed))
            else:
                self._unreachable_in_a_row = 0
                return written
        self._count(last)
        return Unwritten(last.kind, str(last), attempt)

    def _count(self, failed: _Failed) -> None:
        self._unreachable_in_a_row = self._unreachable_in_a_row + 1 if failed.kind is ErrorKind.UNREACHABLE else 0
        if self._unreachable_in_a_row >= GONE_AFTER:
            raise QueueFault(
                f"the model's server is gone ({failed}): {GONE_AFTER} completions in a row found nobody there. "
                "What was written is kept; the same command goes on from there"
            )

    def _pause_s(self, attempt: int, failed: _Failed) -> float:
        """Full jitter over a doubling bound; or what the server asked for, within bounds, and a little more."""
        if failed.pause_s is not None:
            return min(failed.pause_s, LONGEST_PAUSE_S) + random.uniform(0, self._server.first_pause_s)
        return random.uniform(0, min(LONGEST_PAUSE_S, self._server.first_pause_s * 2**attempt))

    async def _attempt(self, http: httpx.AsyncClient, ask: Ask, attempt: int) -> Written:
        route = "chat/completions" if self._plan.asked_as == "chat" else "completions"
        started = time.monotonic()
        try:
            async with asyncio.timeout(self._server.timeout_s):
                status, headers, body = await _exchange(http, f"{self._server.url.rstrip('/')}/{route}", self.body(ask))
        except (TimeoutError, httpx.TimeoutException):
            message = f"no answer within {self._server.timeout_s:g} s"
            raise _Failed(ErrorKind.TIMEOUT, message, again=True) from None
        except (httpx.RequestError, httpx.DecodingError) as error:
            message = str(error) or type(error).__name__
            raise _Failed(ErrorKind.UNREACHABLE, message, again=True) from None
        if status != 200:
            raise _refusal(status, headers, body)
        return _written(body, ask, time.monotonic() - started, attempt)

    def body(self, ask: Ask) -> dict[str, Any]:
        """The request for one completion."""
        plan = self._plan
        prompt = ask.prompt
        said: dict[str, Any] = {"messages": prompt} if plan.asked_as == "chat" else {"prompt": prompt}
        asked = {
            "model": plan.model,
            **said,
            **({"tools": list(ask.problem.tools)} if ask.problem.tools else {}),
            "max_tokens": plan.max_new_tokens,
            "temperature": ask.temperature,
            # Always said: servers fill in a model's own settings for what is left out.
            "top_p": plan.top_p if ask.temperature > 0 else 1.0,
            "seed": ask.seed,
            **({"stop": list(plan.stop)} if plan.stop else {}),
            **plan.body,
        }
        return {name: value for name, value in asked.items() if value is not None}


# --------------------------------------------------------------------------------------------------------- the server


def connection(server: Server, transport: httpx.AsyncBaseTransport | None = None) -> httpx.AsyncClient:
    """A client for that server. It follows no redirect, so that the key goes nowhere else."""
    headers = {"authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    return httpx.AsyncClient(
        transport=transport,
        headers=headers,
        timeout=httpx.Timeout(server.timeout_s, connect=min(10.0, server.timeout_s), pool=None),
        limits=httpx.Limits(max_connections=server.concurrency),
        follow_redirects=False,
    )


async def models_at(server: Server, transport: httpx.AsyncBaseTransport | None = None) -> list[str]:
    """Names of the models that the server says it serves; empty where it does not say.

    Raises QueueFault when nobody answers there, and Misuse when the key is refused.
    """
    url = f"{server.url.rstrip('/')}/models"
    for attempt in range(1, server.attempts + 1):
        try:
            async with connection(server, transport) as http:
                response = await http.get(url, timeout=min(30.0, server.timeout_s))
            break
        except httpx.RequestError as error:
            if attempt == server.attempts:
                why = str(error) or type(error).__name__
                raise QueueFault(f"no model's server answers at {server.url}: {why}") from None
            await asyncio.sleep(random.uniform(0, min(LONGEST_PAUSE_S, server.first_pause_s * 2**attempt)))
    if response.status_code in (401, 403):
        raise Misuse(f"{server.url} answered {response.status_code}: it wants another API key")
    try:
        return [str(entry["id"]) for entry in response.json()["data"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []


def _check_url(url: str) -> None:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = httpx.URL("")
    usable = parsed.scheme in ("http", "https") and bool(parsed.host) and 1 <= (parsed.port or 80) <= 65535
    if not usable or parsed.query or parsed.fragment:
        raise Misuse(f"{url!r} is not an endpoint such as http://127.0.0.1:8000/v1")
    if parsed.userinfo:
        raise Misuse("an endpoint's URL must not hold a password: put the key into the environment")


async def _exchange(http: httpx.AsyncClient, url: str, body: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
    """Status, headers and body of one request; a body over the limit is cut, and so is no JSON any more."""
    async with http.stream("POST", url, content=_encoded(body), headers={"content-type": "application/json"}) as answer:
        found = bytearray()
        async for chunk in answer.aiter_bytes():
            found += chunk
            if len(found) > MAX_ANSWER_BYTES:
                raise _Failed(ErrorKind.GARBAGE, f"an answer of more than {MAX_ANSWER_BYTES} bytes", again=False)
        return answer.status_code, answer.headers, bytes(found)


def _encoded(body: dict[str, Any]) -> bytes:
    # A lone surrogate in a prompt is escaped by JSON itself; NaN was refused with the plan.
    return json.dumps(body).encode()


def _refusal(status: int, headers: httpx.Headers, body: bytes) -> _Failed:
    """What a status says. Raises Misuse for one that every request would get."""
    said = f"{status}: {_detail(body)}"
    if status in OURS:
        raise Misuse(f"the model's server answered {said}")
    if status == 429:
        return _Failed(ErrorKind.OVERLOADED, said, again=True, pause_s=_retry_after_s(headers))
    if status >= 500 or status in RETRIED:
        return _Failed(ErrorKind.SERVER, said, again=True, pause_s=_retry_after_s(headers))
    return _Failed(ErrorKind.REFUSED, said, again=False)


def _detail(body: bytes) -> str:
    text = body.decode(errors="replace")
    try:
        value = json.loads(text)
        error = value.get("error", value)
        text = str(error.get("message") or error) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError, RecursionError):
        pass
    # Not as the server wrote it: it is shown on terminals.
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:SHOWN_CHARS])


def _retry_after_s(headers: httpx.Headers) -> float | None:
    value = headers.get("retry-after", "")
    if value.isdigit() and len(value) <= 9:
        return float(value)
    try:
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return None


# --------------------------------------------------------------------------------------------------------- the answer


def _written(body: bytes, ask: Ask, latency_s: float, attempts: int) -> Written:
    """The completion that an answer holds. Raises _Failed when it holds none."""
    try:
        said = json.loads(body)
        choices = said["choices"]
        if len(choices) != 1:
            raise ValueError(f"{len(choices)} completions in place of one")
        text = _text_of(choices[0])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"an answer that is no completion ({type(error).__name__}: {error}): {_detail(body)}"
        raise _Failed(ErrorKind.GARBAGE, why[: 2 * SHOWN_CHARS], again=True) from None
    usage = said.get("usage")
    reason = choices[0].get("finish_reason")
    return Written(
        text=text,
        finish_reason=reason[:40] if isinstance(reason, str) else None,
        prompt_tokens=_count_in(usage, "prompt_tokens"),
        completion_tokens=_count_in(usage, "completion_tokens"),
        latency_s=latency_s,
        attempts=attempts,
        tool_calls=tuple(_tool_calls(choices[0])),
    )


def _text_of(choice: dict[str, Any]) -> str:
    """The text of a choice; thoughts that the server took out are put back, so that graders can leave them out."""
    if "message" not in choice:
        return _string(choice["text"])
    message = choice["message"]
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    content = message.get("content")
    if not thoughts:
        return "" if content is None else _string(content)
    if content is None:
        return f"<think>\n{_string(thoughts)}"
    return f"<think>\n{_string(thoughts)}\n</think>\n{_string(content)}"


def _tool_calls(choice: dict[str, Any]) -> Iterator[dict[str, str | None]]:
    message = choice.get("message")
    given = message.get("tool_calls") if isinstance(message, dict) else None
    for call in given[:MAX_CALLS] if isinstance(given, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        name, arguments = (
            (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (None, None)
        )
        yield {
            "name": name[:SHOWN_CHARS] if isinstance(name, str) else None,
            "arguments": arguments if isinstance(arguments, str) else None,
        }


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} in place of a text")
    return value


def _count_in(usage: Any, name: str) -> int | None:
    value = usage.get(name) if isinstance(usage, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None
