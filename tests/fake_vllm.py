"""`VllmLike` speaks as much of vLLM's HTTP as a run needs, without a model; `Relay` stands before
the real one.

For tests of what is said to a generation server: both misbehave at will and at once.
`tests/vllm_server` holds the same code to the real server.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import httpx

LOGPROB = -0.5
"""Of everything."""


@dataclass
class Answering:
    """What both have: a port, a log, and a way for a test to step in."""

    log: list[tuple[str, Any]] = field(default_factory=list)
    """Path and body of each request, in order."""
    before: Callable[[str, Any], Any] = lambda path, body: None
    """Asked before each answer; what it returns is answered instead, as (status, body)."""
    url: str = ""

    def paths(self) -> list[str]:
        return [path for path, _ in self.log]

    def answer(self, method: str, target: str, sent: bytes) -> tuple[int, Any]:
        path = urlsplit(target).path
        body = json.loads(sent) if sent else None
        self.log.append((path, body))
        instead = self.before(path, body)
        return instead if instead is not None else self._usual(method, target, sent)

    def _usual(self, method: str, target: str, sent: bytes) -> tuple[int, Any]:
        raise NotImplementedError

    @contextmanager
    def serving(self) -> Iterator[Any]:
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()


@dataclass
class Relay(Answering):
    """Stands between a run and a real server at `to`."""

    to: str = ""

    def _usual(self, method: str, target: str, sent: bytes) -> tuple[int, Any]:
        headers = {"content-type": "application/json"} if sent else {}
        try:
            got = httpx.request(
                method, self.to + target, content=sent, headers=headers, timeout=300
            )
        except httpx.HTTPError:
            raise ConnectionAbortedError from None  # so the run sees it break off as well
        return got.status_code, got.content


@dataclass
class VllmLike(Answering):
    version: str = "0.32.0"
    settings: dict[str, Any] = field(
        default_factory=lambda: {
            "model_config": {"logprobs_mode": "processed_logprobs", "dtype": "torch.float32"},
            "weight_transfer_config": {"backend": "file"},
            "lora_config": None,
        }
    )
    weight_version: str | None = None
    adapters: list[str] = field(default_factory=list)
    engine_ready: bool = False
    paused: bool = False
    updating: bool = False

    def start_again(self) -> None:
        """As a process that died and came back."""
        self.weight_version = None
        self.adapters = []
        self.engine_ready = False
        self.paused = self.updating = False

    def _usual(self, method: str, target: str, sent: bytes) -> tuple[int, Any]:
        path = urlsplit(target).path
        body = json.loads(sent) if sent else {}
        if path in ("/health", "/reset_prefix_cache"):
            return 200, b""
        if path == "/v1/completions":
            return self._completions(body)
        known = {
            "/version": lambda: {"version": self.version},
            "/server_info": lambda: {"vllm_config": self.settings},
            "/v1/models": lambda: {"data": [{"id": name} for name in ["base", *self.adapters]]},
            "/weight_info": lambda: {"weight_version": self.weight_version or "default"},
        }
        if path in known:
            return 200, known[path]()
        return self._changed(path, body)

    def _changed(self, path: str, body: Any) -> tuple[int, Any]:
        if path == "/init_weight_transfer_engine":
            self.engine_ready = True
        elif path in ("/pause", "/resume"):
            self.paused = path == "/pause"
        elif path == "/start_weight_update":
            if self.updating or not self.engine_ready:
                return 500, {"error": "an update is active, or the engine was not set up"}
            self.updating = True
        elif path in ("/update_weights", "/finish_weight_update"):
            if not self.updating:
                return 500, {"error": "no update was started"}
            if path == "/finish_weight_update":
                self.updating = False
                self.weight_version = body["weight_version"]
        elif path == "/v1/load_lora_adapter":
            self.adapters.append(body["lora_name"])
            return 200, b"Success: LoRA adapter added successfully."
        elif path == "/v1/unload_lora_adapter":
            self.adapters.remove(body["lora_name"])
            return 200, b"Success: LoRA adapter removed successfully."
        return 200, {}

    def _completions(self, body: Any) -> tuple[int, Any]:
        if body["model"] not in ("base", *self.adapters):
            return 404, {"error": "no such model"}
        (prompt,) = body["prompt"]
        rows = [None, *({str(token): {"logprob": LOGPROB}} for token in prompt[1:])]
        one = {
            "prompt_token_ids": prompt,
            "token_ids": [1, 2],
            "logprobs": {"token_logprobs": [LOGPROB] * 2},
        }
        return 200, {
            "choices": [
                {"index": index, "prompt_logprobs": rows, **one}
                for index in range(body.get("n", 1))
            ]
        }


def _handler(answering: Answering) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        # Head and body leave in one packet; as two, the second waits 40 ms for the other side's
        # delayed ACK.
        wbufsize = -1

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("content-length") or 0))
            try:
                status, said = answering.answer(self.command, self.path, sent)
                body = said if isinstance(said, bytes) else json.dumps(said).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True

        def log_message(self, format: str, *arguments: Any) -> None: ...

    return Handler


def slow(delay_s: float, on: str) -> Callable[[str, Any], None]:
    """For `VllmLike.before`: be late at that path."""

    def before(path: str, body: Any) -> None:
        if path == on:
            time.sleep(delay_s)

    return before
