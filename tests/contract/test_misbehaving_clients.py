"""A real server among slow and broken clients: the good ones are served, the bad ones are cut
off."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from wsproto.events import AcceptConnection, CloseConnection, Event, Ping, Pong, TextMessage

from gradus.rest import Problem
from services.api import connection_timeouts
from services.api.connection_timeouts import MAX_SMALL_CHUNKS, SMALL_BYTES
from tests.fake_grader import Service, submission
from tests.misbehaving_clients import KINDS, ROUTE, Kind, a_crowd, hanging, head, request
from tests.websocket_client import WebSocketClient

LITTLE_PATIENCE = {"header_timeout_s": 1.0, "body_timeout_s": 1.0, "send_timeout_s": 1.0}
MUCH_PATIENCE = {"header_timeout_s": 600.0, "body_timeout_s": 600.0, "send_timeout_s": 600.0}


def connections(client: httpx.Client, url: str) -> int:
    found = re.search(
        r"^gradus_api_connections (\d+)", client.get(f"{url}/metrics").text, re.MULTILINE
    )
    assert found is not None
    return int(found[1])


def until_connections(client: httpx.Client, url: str, are_right: Callable[[int], bool]) -> None:
    give_up_at = time.monotonic() + 120
    while not are_right(number := connections(client, url)):
        assert time.monotonic() < give_up_at, f"{number} connections"
        time.sleep(0.05)


def ask(client: httpx.Client, url: str, n_requests: int) -> list[float]:
    rewards = []
    for index in range(n_requests):
        sent = {"submissions": [submission("good", f"reward {index / n_requests}")]}
        rewards.append(client.post(f"{url}{ROUTE}", json=sent).json()["results"][0]["reward"])
    return rewards


def test_while_bad_clients_hang_every_request_of_a_good_one_is_answered() -> None:
    with (
        Service(**MUCH_PATIENCE).running() as here,
        httpx.Client(timeout=60) as good,
        a_crowd(here.url, number=12),
    ):
        until_connections(
            good, here.url, lambda number: number >= 8
        )  # half-closed ones leave at once
        assert ask(good, here.url, 20) == [index / 20 for index in range(20)]
        assert connections(good, here.url) >= 8


def is_cut_off(kind: Kind) -> None:
    with (
        Service(**LITTLE_PATIENCE).running() as here,
        httpx.Client(timeout=60) as good,
        hanging(here.url, kind),
        hanging(here.url, kind),
    ):
        ask(good, here.url, 2)
        until_connections(good, here.url, lambda number: number == 1)


@pytest.fixture(scope="module")
def cut_off() -> Iterator[dict[Kind, Future[None]]]:
    """Two bad clients of each kind at a service of their own, all kinds at the same time: they
    mostly wait."""
    with ThreadPoolExecutor(len(KINDS)) as pool:
        yield {kind: pool.submit(is_cut_off, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_client_is_cut_off(cut_off: dict[Kind, Future[None]], kind: Kind) -> None:
    cut_off[kind].result()


def test_a_slow_answer_is_not_a_slow_client() -> None:
    with Service(**LITTLE_PATIENCE).running() as here, httpx.Client(timeout=60) as client:
        sent = {"submissions": [submission("held", "hold")], "deadline_s": 1.5}
        result = client.post(f"{here.url}{ROUTE}", json=sent).json()["results"][0]
    assert result["fault"]["kind"] == "deadline"


def test_a_session_outlives_the_timeout_of_headers() -> None:
    service = Service(header_timeout_s=2.0, adapters=("openenv",))

    async def ask_late(url: httpx.URL) -> Event:
        reader, writer = await asyncio.open_connection(url.host, url.port)
        session = WebSocketClient(reader, writer)
        assert isinstance(await session.open("/openenv/ocaml/ws"), AcceptConnection)
        await asyncio.sleep(2.5)
        await session.send(TextMessage('{"type": "state"}'))
        answer = await session.receive()
        writer.close()
        return answer

    with service.running() as here, httpx.Client(timeout=60) as client:
        answer = asyncio.run(ask_late(httpx.URL(here.url)))
        assert isinstance(answer, TextMessage)
        assert '"state"' in answer.data
        until_connections(client, here.url, lambda number: number == 1)


def ask_over(connection: socket.socket, sent: bytes) -> bytes:
    """The answer, as far as it came."""
    connection.sendall(sent)
    answer = b""
    while b'"status":"graded"' not in answer and (received := connection.recv(65536)):
        answer += received
    return answer


@pytest.mark.slow
def test_a_connection_may_idle_for_longer_than_a_head_may_take_and_not_for_ever() -> None:
    with Service(header_timeout_s=0.5, keep_alive_s=2).running() as here:
        address = httpx.URL(here.url)
        with socket.create_connection((address.host, address.port)) as connection:
            assert ask_over(connection, request("reward 1")).startswith(b"HTTP/1.1 200 ")
            time.sleep(0.7)
            assert ask_over(connection, request("reward 1")).startswith(b"HTTP/1.1 200 ")
            assert connection.recv(1) == b"", "the service closes it in the end"


def test_the_next_head_of_a_connection_must_come_in_time_too() -> None:
    with Service(header_timeout_s=0.3, keep_alive_s=600).running() as here:
        address = httpx.URL(here.url)
        with socket.create_connection((address.host, address.port)) as connection:
            assert ask_over(connection, request("reward 1")).startswith(b"HTTP/1.1 200 ")
            connection.sendall(b"POST / HTTP/1.1\r\n")
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""


NO_HTTP = {
    "no request line": b"nonsense\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "two hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    "two lengths": head(2).replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n{}"),
    # as long as just is too much: what a service has not read makes it reset the connection
    "a head without end": b"GET / HTTP/1.1\r\nHost: x\r\nA: ".ljust(64 * 1024 + 1, b"a"),
    "chunks of one byte": (
        b"POST /v1/grade/ocaml HTTP/1.1\r\nHost: [::1]\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * (MAX_SMALL_CHUNKS + 1)
    ),
    "a chunk of no size": (
        b"POST /v1/grade/ocaml HTTP/1.1\r\nHost: [::1]\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n"
    ),
}


@pytest.fixture(scope="module")
def here() -> Iterator[tuple[str, int]]:
    """Host and port of a service with the usual settings."""
    with Service().running() as service:
        address = httpx.URL(service.url)
        assert address.port is not None
        yield address.host, address.port


@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP.keys())
def test_what_is_no_http_is_a_problem_too(here: tuple[str, int], sent: bytes) -> None:
    with socket.create_connection(here) as connection:
        connection.sendall(sent)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    status, _, body = answer.partition(b"\r\n\r\n")
    assert status.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"content-type: application/problem+json" in status.lower()
    assert Problem.model_validate_json(body).status == 400


async def test_a_body_of_large_chunks_and_some_small_ones_is_read(here: tuple[str, int]) -> None:
    async def cut() -> AsyncIterator[bytes]:
        text = json.dumps({"submissions": [submission("a")]}).encode()
        for start in range(len(text)):
            yield text[start : start + 1]
        for _ in range(2 * MAX_SMALL_CHUNKS):
            yield b" " * SMALL_BYTES

    host, port = here
    url = f"http://{host}:{port}/v1/grade/ocaml"
    async with httpx.AsyncClient(trust_env=False) as client:
        headers = {"content-type": "application/json"}
        answer = await client.post(url, content=cut(), headers=headers)
    assert answer.json()["results"][0]["status"] == "graded"


FRAMES: dict[str, Event] = {
    "pings": Ping(b"x"),
    "pongs": Pong(b"x"),
    "texts": TextMessage('{"type": "state"}'),
    "parts of a message": TextMessage(" ", message_finished=False),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES.keys())
async def test_a_session_of_very_many_small_frames_is_closed_and_another_goes_on(
    frame: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """256 KiB of them held the event loop for 0.2 s, and as texts for 0.8 s."""
    monkeypatch.setattr(connection_timeouts, "MAX_SMALL_FRAMES_PER_S", 100)
    with Service(adapters=("openenv",)).running() as here:
        address = httpx.URL(here.url)
        sessions = []
        for _ in range(2):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            session = WebSocketClient(reader, writer)
            assert isinstance(await session.open("/openenv/ocaml/ws"), AcceptConnection)
            sessions.append(session)
        flooding, other = sessions
        with suppress(ConnectionError):
            await flooding.send_many(frame, 5000)
            while not isinstance(await flooding.receive(), CloseConnection):
                pass
        await other.send(TextMessage('{"type": "state"}'))
        assert isinstance(await other.receive(), TextMessage)
        for session in sessions:
            session.close()


def test_a_handshake_whose_host_is_no_ascii_is_a_problem() -> None:
    service = Service(adapters=("openenv",))
    with service.running() as here:
        address = httpx.URL(here.url)
        handshake = (
            b"GET /openenv/ocaml/ws HTTP/1.1\r\nHost: \xff\r\nConnection: Upgrade\r\n"
            b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAA\r\n\r\n"
        )
        with socket.create_connection((address.host, address.port)) as connection:
            connection.sendall(handshake)
            assert connection.recv(65_536).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_client_that_would_rather_speak_http_2_is_served_and_loses_no_body(
    here: tuple[str, int],
) -> None:
    """As Java's client asks at first, and `curl --http2`."""
    wish = (
        b"\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings:"
        b" AAMAAABk\r\nContent-Type:"
    )
    with socket.create_connection(here) as connection:
        for _ in range(2):
            answer = ask_over(connection, request("reward 1").replace(b"\r\nContent-Type:", wish))
            assert answer.startswith(b"HTTP/1.1 200 ")
            assert b'"status":"graded"' in answer
