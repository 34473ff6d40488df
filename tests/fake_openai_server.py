"""A server that speaks OpenAI's protocol and says what a test wants it to: completions, errors,
garbage, nothing.

It stands for a foreign server. It holds no model; `tests/vllm_server` has a real one.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest import mock

Json = dict[str, Any]


@dataclass
class Reply:
    """What is said to one request."""

    body: bytes
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    breaks_off: bool = False
    """The connection ends in the middle of the body."""


def said(text: str | None, *, chat: bool, finish_reason: Any = "stop", **usage: Any) -> Reply:
    """A completion as the protocol has it."""
    inner: Json = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    counts = {"prompt_tokens": 11, "completion_tokens": len((text or "").split()), **usage}
    choice = {"index": 0, "finish_reason": finish_reason, **inner}
    return Reply(
        json.dumps({"id": "x", "object": "y", "choices": [choice], "usage": counts}).encode()
    )


def refused(status: int, message: str = "no", **headers: str) -> Reply:
    return Reply(json.dumps({"error": {"message": message, "type": "t"}}).encode(), status, headers)


@dataclass
class OpenAiLike:
    """Answers each request with what `answer` returns for (text of the prompt, body, how often it
    was asked before)."""

    answer: Callable[[str, Json, int], Reply | str]
    models: tuple[str, ...] | None = ("m",)
    owner: str = "library"
    """As in `owned_by` of its models."""
    requests: list[tuple[str, Json, dict[str, str]]] = field(default_factory=list)
    """(path, body, headers) of each request for a completion, in the order in which they came."""
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""
    _asked: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def serving(self) -> Iterator[OpenAiLike]:
        server = _Server(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            with mock.patch("openai._base_client.INITIAL_RETRY_DELAY", 0.01):
                yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def reply(self, path: str, body: Json, headers: dict[str, str]) -> Reply:
        chat = path.endswith("/chat/completions")
        text = body["messages"][-1]["content"] if chat else body["prompt"]
        key = json.dumps([text, body.get("seed")])
        with self._lock:
            self.requests.append((path, body, headers))
            before = self._asked.get(key, 0)
            self._asked[key] = before + 1
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            found = self.answer(text, body, before)
            found = said(found, chat=chat) if isinstance(found, str) else found
            time.sleep(found.delay_s)
            return found
        finally:
            with self._lock:
                self.at_once -= 1

    def prompts(self) -> list[str]:
        """What was asked, in order."""
        return [
            body["messages"][-1]["content"] if "messages" in body else body["prompt"]
            for _, body, _ in self.requests
        ]


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of 5, a busy machine lets connections fall that a test then misses


def _handler(like: OpenAiLike) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            models = like.models
            found = {"data": [{"id": name, "owned_by": like.owner} for name in models or ()]}
            self._send(Reply(json.dumps(found).encode()) if models is not None else refused(404))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
            self._send(
                like.reply(
                    self.path, body, {name.lower(): value for name, value in self.headers.items()}
                )
            )

        def _send(self, reply: Reply) -> None:
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("content-length", str(len(reply.body) + 10 * reply.breaks_off))
                self.end_headers()
                self.wfile.write(reply.body)
                if reply.breaks_off:
                    self.close_connection = True
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None: ...

    return Handler
