"""Callbacks of asynchronous jobs: a real receiver on this machine, a real Redis, signatures checked
on their own."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from tests.contract.test_queue_routes import service
from tests.fake_grader import EchoWorker, submission

KEY = b"k" * 32


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    file = tmp_path / "callback.secret"
    file.write_text("whsec_" + base64.b64encode(KEY).decode() + "\n")
    return file


class Receiver:
    """A server that answers with `statuses`, one after the other; the last one again."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.url = ""

    @contextmanager
    def running(self) -> Iterator[Receiver]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                receiver.requests.append((self.path, headers, body))
                left = receiver.statuses
                self.send_response(left.pop(0) if len(left) > 1 else left[0])
                self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.url = f"http://127.0.0.1:{server.server_port}"
            yield self
            server.shutdown()


async def received(receiver: Receiver, number: int) -> None:
    async with asyncio.timeout(20):
        while len(receiver.requests) < number:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def is_signed(headers: dict[str, str], body: bytes) -> bool:
    """As https://www.standardwebhooks.com has it, written here a second time."""
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    right = base64.b64encode(hmac.new(KEY, content, hashlib.sha256).digest()).decode()
    return headers["webhook-signature"] == f"v1,{right}"


async def test_results_are_sent_signed_until_the_receiver_takes_them(
    redis_url: str, secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.api.callbacks.PAUSES_S", (0.01,) * 5)
    with Receiver(500, 302, 204).running() as receiver:
        settings = {"callback_origins": receiver.url, "callback_secret_file": secret_file}
        async with service(redis_url, **settings) as (client, broker), EchoWorker(broker).working():
            sent = {"submissions": [submission("a"), submission("b", "fault")]}
            headers = {"Gradus-Callback": f"{receiver.url}/done?run=1"}
            accepted = await client.post("/v1/jobs/ocaml", json=sent, headers=headers)
            await received(receiver, 3)
            status = (await client.get(accepted.headers["location"])).json()
            await asyncio.sleep(0.2)
    assert len(receiver.requests) == 3, (
        "a redirect was followed, or a callback sent again after it was taken"
    )
    for path, got, body in receiver.requests:
        assert (path, got["content-type"]) == ("/done?run=1", "application/json")
        assert got["webhook-id"] == accepted.json()["id"]
        assert abs(time.time() - int(got["webhook-timestamp"])) < 60
        assert is_signed(got, body)
        assert not is_signed(got, body + b" ")
        assert json.loads(body) == status
    assert [one["status"] for one in status["results"]] == ["graded", "faulted"]


async def test_a_receiver_that_never_takes_it_is_given_up_and_one_that_is_gone_at_once(
    redis_url: str,
    secret_file: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("services.api.callbacks.PAUSES_S", (0.01,) * 2)
    with Receiver(500).running() as failing, Receiver(410).running() as gone:
        settings = {
            "callback_origins": f"{failing.url},{gone.url}",
            "callback_secret_file": secret_file,
        }
        async with service(redis_url, **settings) as (client, broker), EchoWorker(broker).working():
            for receiver in (failing, gone):
                sent = {"submissions": [submission("a")]}
                await client.post(
                    "/v1/jobs/ocaml",
                    json=sent,
                    headers={"Gradus-Callback": f"{receiver.url}/secret"},
                )
            async with asyncio.timeout(20):
                while "failed: 500" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
    assert (len(failing.requests), len(gone.requests)) == (3, 1)
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("http://169.254.169.254/latest", 403),
        ("http://127.0.0.1:6379/", 403),
        ("http://hooks.example:8443/x", 403),
        ("https://hooks.example/x", 403),
        ("https://hooks.example:8444/x", 403),
        ("https://hooks.example:8443.evil.example/x", 422),
        ("https://hooks.example:8443@evil.example/x", 422),
        ("https://evil.example\\@hooks.example:8443/x", 422),
        ("https://user:password@hooks.example:8443/x", 422),
        ("file:///etc/passwd", 422),
        ("gopher://hooks.example:8443/x", 422),
        ("hooks.example:8443", 422),
        ("", 422),
        ("https://hooks.example:8443/" + "x" * 2048, 422),
    ],
)
async def test_no_other_origin_is_called(
    redis_url: str, secret_file: Path, url: str, status: int
) -> None:
    settings = {
        "callback_origins": "https://hooks.example:8443",
        "callback_secret_file": secret_file,
    }
    async with service(redis_url, **settings) as (client, broker):
        sent = {"submissions": [submission("a")]}
        answer = await client.post("/v1/jobs/ocaml", json=sent, headers={"Gradus-Callback": url})
        assert answer.status_code == status, answer.text
        assert "password" not in answer.text.replace("user, password and", "")
        assert await broker.depth("ocaml") == 0


async def test_callbacks_are_off_unless_origins_are_listed(redis_url: str) -> None:
    async with service(redis_url) as (client, _):
        sent = {"submissions": [submission("a")]}
        answer = await client.post(
            "/v1/jobs/ocaml", json=sent, headers={"Gradus-Callback": "https://hooks.example"}
        )
        assert answer.status_code == 403


@pytest.mark.parametrize(
    "origins", ["hooks.example", "https://hooks.example/path", "ftp://x", "https://a:b@x", "*"]
)
def test_an_origin_that_is_none_starts_no_service(origins: str, secret_file: Path) -> None:
    with pytest.raises(Misuse, match="CALLBACK_ORIGINS"):
        create_app(
            MemoryBroker(), ApiSettings(callback_origins=origins, callback_secret_file=secret_file)
        )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text", [None, "", "whsec_", "whsec_c2hvcnQ=", base64.b64encode(KEY).decode(), "whsec_!!"]
)
def test_callbacks_without_a_secret_start_no_service(text: str | None, tmp_path: Path) -> None:
    file = None
    if text is not None:
        file = tmp_path / "secret"
        file.write_text(text)
    with pytest.raises(Misuse, match="CALLBACK_SECRET_FILE"):
        create_app(
            MemoryBroker(), ApiSettings(callback_origins=("https://x",), callback_secret_file=file)
        )
