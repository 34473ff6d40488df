"""Bodies that would become far more than their size are refused before a parser makes objects of
them, at every entrance, and answers about them are short."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from gradus.contract import MAX_BATCH
from gradus.json_tokens import CHUNK_BYTES, MAX_VALUE_TOKENS, count_tokens
from gradus.strict_json import parse_strict_json
from services.api import json_object, parse
from services.api.adapters import ADAPTERS, openenv
from services.api.api_keys import BusyConnections, create_key
from services.api.app import create_app
from services.api.authenticate import ANONYMOUS
from services.api.parse import TOKEN_BYTES, BytesInFlight, Reservation, parse_json
from services.api.problems import Refused
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from tests.fake_grader import INFO, SETTINGS

JSON = {"content-type": "application/json"}
LIMIT = 20_000
"""Tokens of a request in these tests."""
LISTS = "[" + "[]," * LIMIT + "1]"
IN_TEXT = json.dumps('{"tests": [' + "[]," * MAX_VALUE_TOKENS + "1]}")
"""It is parsed in the process for large bodies, whose bound is the usual one."""
SECRET, KEY = create_key("op", ["ocaml", "program"], "role=operator")


def fill(text: str, part: str = LISTS) -> str:
    return text.replace("%s", part)


ENTRANCES = {
    "submissions": ("/v1/grade/ocaml", fill('{"submissions": %s}')),
    "a task": (
        "/v1/grade/ocaml/stream",
        fill('{"submissions": [{"id": "a", "completion": "x", "task": {"tests": %s}}]}'),
    ),
    "a job": ("/v1/jobs/ocaml", fill('{"submissions": %s}')),
    "an operator's": ("/v1/queues/ocaml/cancel", fill('{"jobs": %s}')),
    "slime": ("/slime/ocaml", fill('{"response": "x", "label": {"tests": %s}}')),
    "a label of text": ("/slime/ocaml", fill('{"response": "x", "label": %s}', IN_TEXT)),
    "a row": ("/nemo_gym/ocaml/verify", fill('{"response": %s}')),
    "metrics": ("/nemo_gym/ocaml/aggregate_metrics", fill('{"verify_responses": %s}')),
}


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setattr(parse, "MAX_TOKENS", LIMIT)
    broker = MemoryBroker()
    await broker.heartbeat("one", INFO, 600)
    async with open_client(monkeypatch, broker) as client:
        yield client


@asynccontextmanager
async def open_client(
    monkeypatch: pytest.MonkeyPatch, broker: MemoryBroker
) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.setattr(parse, "MAX_VALUE_TOKENS", LIMIT)
    app = create_app(broker, ApiSettings(adapters=ADAPTERS, keys=KEY.line(), **SETTINGS))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test", auth=("any", SECRET)
    ) as client:
        yield client
    assert app.state.api.in_flight.held == 0


@pytest.mark.parametrize("entrance", ENTRANCES)
async def test_a_body_of_too_many_tokens_is_a_413_with_the_figure(
    client: httpx.AsyncClient, entrance: str
) -> None:
    path, text = ENTRANCES[entrance]
    response = await client.post(path, content=text, headers=JSON)
    assert response.status_code == 413, response.text
    limit = MAX_VALUE_TOKENS if IN_TEXT in text else LIMIT
    assert f"the JSON has more than {limit} strings" in response.text


@pytest.mark.parametrize(
    "document",
    [
        {"submissions": [[]] * (LIMIT // 4)},
        {"submissions": [[]] * MAX_BATCH},
        {"submissions": [{str(number): 1 for number in range(4000)}]},
        {str(number): 1 for number in range(4000)},
        {
            "submissions": [
                {"id": "a", "completion": "x", "task": {"tests": "x", "packages": [[]] * 5000}}
            ]
        },
        {"submissions": [{"id": "a", "completion": "x", "task": {str(n): 1 for n in range(4000)}}]},
    ],
    ids=["many", "a batch", "names", "names at the top", "a list in a task", "names in a task"],
)
async def test_an_answer_lists_at_most_20_mistakes(
    client: httpx.AsyncClient, document: dict[str, Any]
) -> None:
    response = await client.post("/v1/grade/ocaml", json=document)
    assert response.status_code in (413, 422)
    assert 1 <= len(response.json()["errors"]) <= 20
    assert len(response.content) < 10_000


@pytest.mark.parametrize(
    ("path", "limit"), [("/v1/grade/ocaml", 64), ("/slime/ocaml", 1000)], ids=["core", "adapter"]
)
async def test_a_body_of_many_names_is_read_up_to_the_bound(
    client: httpx.AsyncClient, path: str, limit: int
) -> None:
    names = ",".join(f'"{number}": 1' for number in range(limit + 1))
    response = await client.post(path, content=f"{{{names}, no JSON", headers=JSON)
    assert response.status_code == 422
    assert f"Should have at most {limit} fields" in response.text


@pytest.mark.parametrize(
    "task",
    [
        '{"tests": "x\\ud800"}',
        '{"tests": "x", "\\ud800": 1}',
        '{"tests": "x", "packages": ["\\ud800"]}',
    ],
)
async def test_half_a_surrogate_pair_in_a_task_is_a_422(
    client: httpx.AsyncClient, task: str
) -> None:
    response = await client.post(
        "/slime/ocaml", content=fill('{"response": "x", "label": %s}', task), headers=JSON
    )
    assert response.status_code == 422, response.text


def repeat(item: str, n: int = 300_000) -> str:
    return f"[{','.join([item] * (n // len(item)))}]"


ROW = '{"response": {"output": %s}, "task": {"tests": "x"}, "more": %s}'
CASE = '{"input": {"stdin": "1"}, "output": {"stdout": "2"}}'
DENSE = {
    "slime": ("/slime/ocaml", '{"response": "x", "label": {"tests": "x"}, "more": %s}'),
    "a session": ("/nemo_gym/ocaml/seed_session", '{"more": %s}'),
    "a row": ("/nemo_gym/ocaml/verify", ROW % ("[]", "%s")),
    "metrics": ("/nemo_gym/ocaml/aggregate_metrics", '{"verify_responses": [{"more": %s}]}'),
    "labels": ("/openrlhf/ocaml/get_reward", '{"query": [], "prompts": [], "labels": %s}'),
    "a program": ("/sandbox_fusion/run_code", '{"code": "", "language": "c", "files": %s}'),
}
SPARSE = {
    "output": ("/nemo_gym/ocaml/verify", ROW % ("%s", "1"), '{"type": "reasoning", "id": "x"}'),
    "rollouts": ("/nemo_gym/ocaml/aggregate_metrics", '{"verify_responses": %s}', '{"r": 1.5}'),
    "queries": (
        "/openrlhf/ocaml/get_reward",
        '{"query": %s, "prompts": %s, "labels": %s}',
        '"a"',
    ),
    "newlines": ("/slime/ocaml", '{"label": {"tests": "x"}, "more": %s}', r'"\n\n\n"'),
}


@pytest.mark.parametrize(
    ("path", "text", "item"),
    [
        *[(path, text, item) for path, text in DENSE.values() for item in ("[]", "1.5", '"a"')],
        *SPARSE.values(),
    ],
)
async def test_the_memory_of_an_adapter_s_body_is_that_of_its_texts(
    monkeypatch: pytest.MonkeyPatch, path: str, text: str, item: str
) -> None:
    """Beside them one value may be objects, which has `MAX_VALUE_TOKENS` at most."""
    body = fill(text, repeat(item)).encode()
    async with open_client(monkeypatch, MemoryBroker()) as client:
        await client.post(path, content=b"{}", headers=JSON)
        tracemalloc.start()
        response = await client.post(path, content=body, headers=JSON)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert response.status_code in (200, 413, 422, 503), response.text
    assert peak < 4 * len(body) + LIMIT * TOKEN_BYTES


ITEMS = ("[]", "{}", '{"": 0}', '"ab"', "1.5", "[0]", '"\u20ac"', '{"a": {"b": 1}}', '"\U0001f600"')


@pytest.mark.parametrize("item", ITEMS)
def test_a_token_takes_no_more_memory_than_is_counted(item: str) -> None:
    data = ("[" + ",".join([item] * 30_000) + "]").encode()
    counted = len(data) + count_tokens(data) * TOKEN_BYTES
    tracemalloc.start()
    parsed = parse_json(data)
    objects = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert parsed
    assert objects < counted


def test_counting_takes_a_chunk_of_memory_however_long_the_body_is() -> None:
    data = b'{"a": "' + b'\\"x' * (8 * CHUNK_BYTES) + b'"}'
    tracemalloc.start()
    assert count_tokens(data) == 5
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * CHUNK_BYTES


TEXT = json.dumps({"tests": [1] * 8000})
"""JSON in a text: its tokens are within one string of the body."""
TEXTS = {
    "/slime/ocaml": {"label": TEXT, "response": "x"},
    "/openrlhf/ocaml/get_reward": {"query": ["x"], "prompts": [""], "labels": [TEXT]},
    "/nemo_gym/ocaml/verify": {"task": TEXT, "response": {"output": []}},
    "/sandbox_fusion/submit": {
        "config": {"language": "c", "provided_data": f"[{TEXT}]"},
        "completion": "x",
    },
}


@pytest.mark.parametrize("path", TEXTS)
async def test_json_in_a_text_of_a_small_body_is_parsed_outside_of_the_event_loop(
    client: httpx.AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One such text of 250 KB stalled the loop for 160 ms."""
    parsed = []

    def record(text: str) -> Any:
        parsed.append(text)
        return parse_strict_json(text)

    monkeypatch.setattr(json_object, "parse_strict_json", record)
    response = await client.post(path, json=TEXTS[path])
    assert response.status_code == 422
    assert parsed
    assert TEXT not in parsed


# ----------------------------------------------------------------------------------------- OpenEnv


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(parse, "MAX_TOKENS", LIMIT)
    settings = ApiSettings(adapters=("openenv",), max_bytes_in_flight=200_000, **SETTINGS)
    with (
        TestClient(create_app(MemoryBroker(), settings)) as client,
        client.websocket_connect("/openenv/ocaml/ws") as session,
    ):
        yield session


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (fill('{"type": "reset", "data": {"task": %s}}'), "VALIDATION_ERROR"),
        (fill('{"type": "reset", "data": {"prompt": "%s"}}', "x" * 200_000), "CAPACITY_REACHED"),
        (fill('{"type": "reset", "data": {"seed": %s}}', "1" * 5000), "INVALID_JSON"),
        ('{"type": "reset", "data": {"task": NaN}}', "INVALID_JSON"),
        ('{"type": "reset", "data": {"task": {}, "episode_id": [1]}}', "VALIDATION_ERROR"),
        ('{"type": "reset", "data": [1]}', "INVALID_JSON"),
        ("[" * 10_000, "INVALID_JSON"),
        ('{"type": "state", "type": "reset"}', "INVALID_JSON"),
    ],
)
def test_a_frame_is_bounded_and_counted_as_a_body_is(session: Any, text: str, code: str) -> None:
    session.send_text(text)
    assert session.receive_json()["data"]["code"] == code
    session.send_text('{"type": "state"}')
    assert session.receive_json()["type"] == "state"


def test_frames_of_bytes_and_half_surrogate_pairs_get_answers(session: Any) -> None:
    session.send_bytes(b"{}")
    assert session.receive_json()["data"]["code"] == "INVALID_JSON"
    session.send_text('{"type": "reset", "data": {"task": {}, "prompt": "\\ud800"}}')
    assert session.receive_json()["data"]["observation"]["prompt"] == "\ud800"
    session.send_text('{"type": "step", "data": {"completion": "\\ud800"}}')
    assert session.receive_json()["type"] == "error"


def test_a_session_counts_the_frame_with_its_task_until_the_next(session: Any) -> None:
    in_flight = session.app.state.api.in_flight
    for size in (100_000, 10_000):
        task = {"tests": "x" * size}
        session.send_text(json.dumps({"type": "reset", "data": {"task": task}}))
        session.receive_json()
        assert size < in_flight.held < size + 2000


# ------------------------------------------------------------------------------- shares of API keys


def test_a_key_that_holds_all_bytes_leaves_others_their_part() -> None:
    in_flight = BytesInFlight(1000)
    attacks = [Reservation(in_flight, "attacker") for _ in range(5)]
    for attack in attacks[:4]:
        attack.grow(250)
    with pytest.raises(Refused, match="this API key of more than 1000 bytes"):
        attacks[4].grow(1)
    honest = [Reservation(in_flight, "honest") for _ in range(3)]
    honest[0].grow(200)
    honest[1].grow(50)
    with pytest.raises(Refused, match="more than 1000 bytes are in flight"):
        honest[2].grow(1)
    del attack, attacks
    honest[2].grow(750)
    del honest
    assert in_flight.held == 0


def test_many_keys_together_hold_twice_the_limit_at_most() -> None:
    in_flight = BytesInFlight(1000)
    reservations = [Reservation(in_flight, f"key {number}") for number in range(9)]
    for reservation in reservations[:8]:
        reservation.grow(250)
    with pytest.raises(Refused, match="more than 1000 bytes are in flight"):
        reservations[8].grow(1)


def test_the_sessions_of_one_key_shut_out_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(openenv, "MAX_SESSIONS", 1)
    other_secret, other = create_key("other", ["ocaml"])
    settings = ApiSettings(adapters=("openenv",), keys=f"{KEY.line()};{other.line()}", **SETTINGS)
    client = TestClient(create_app(MemoryBroker(), settings))
    headers = [{"authorization": f"Bearer {secret}"} for secret in (SECRET, other_secret)]
    with client, client.websocket_connect("/openenv/ocaml/ws", headers=headers[0]):
        with client.websocket_connect("/openenv/ocaml/ws", headers=headers[0]) as second:
            assert "this API key has 1 open" in second.receive_json()["data"]["message"]
        with client.websocket_connect("/openenv/ocaml/ws", headers=headers[1]) as others:
            others.send_text('{"type": "state"}')
            assert others.receive_json()["type"] == "state"


def test_a_key_has_half_of_the_busy_connections() -> None:
    connections = BusyConnections()
    connections.max_connections = 4
    _, other = create_key("other", ["ocaml"])
    with ExitStack() as held:
        for key in (KEY, KEY, other, other, *[ANONYMOUS] * 9):
            held.enter_context(connections.hold(key))
        with pytest.raises(Refused, match="2 requests and sessions open"):
            held.enter_context(connections.hold(KEY))
    with connections.hold(KEY), connections.hold(KEY):
        pass


@pytest.mark.parametrize("path", ["/v1/graders", "/v1/queues", "/v1/jobs/a", "/slime/ocaml"])
async def test_a_key_that_holds_its_half_is_told_so_at_every_route(
    client: httpx.AsyncClient, path: str
) -> None:
    """272 requests of one key, all of them for the same work, had all connections of a process, and
    those of other keys were closed."""
    transport: Any = client._transport
    connections = transport.app.state.api.busy_connections
    connections.max_connections = 2
    method = "POST" if path.startswith("/slime") else "GET"
    with connections.hold(KEY):
        response = await client.request(method, path)
        assert response.status_code == 429
        assert "this API key has 1 requests and sessions open" in response.text
        assert (await client.get("/healthz")).status_code == 200
    assert (await client.request(method, path)).status_code != 429


def test_a_session_is_a_busy_connection_until_it_ends() -> None:
    app = create_app(
        MemoryBroker(), ApiSettings(adapters=("openenv",), keys=KEY.line(), **SETTINGS)
    )
    connections = app.state.api.busy_connections
    connections.max_connections = 2
    headers = {"authorization": f"Bearer {SECRET}"}
    with TestClient(app) as client:
        with client.websocket_connect("/openenv/ocaml/ws", headers=headers) as first:
            first.send_text('{"type": "state"}')
            assert first.receive_json()["type"] == "state"
            with client.websocket_connect("/openenv/ocaml/ws", headers=headers) as second:
                assert second.receive_json()["data"]["code"] == "CAPACITY_REACHED"
        with connections.hold(KEY):
            pass
