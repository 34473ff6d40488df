"""Made-up requests at the routes that the OpenAPI document leaves out: adapters, operators' routes,
OpenEnv's sessions and the dashboard. No answer is a failure of ours, and every one comes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from dashboard_server import LivePage
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from report_runs import hostile_run, rich_run
from starlette.testclient import TestClient

from services.api.adapters import ADAPTERS
from services.api.api_keys import create_key
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from tests.fake_grader import SETTINGS, Service

pytestmark = pytest.mark.slow
SECRET, KEY = create_key("fuzz", [], "role=operator")
ANSWER_S = 30.0
FUZZED = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
# fmt: off
NAMES = [
    "task", "label", "tests", "response", "query", "prompts", "labels", "prompt",
    "completion", "verifier_metadata", "output", "type", "content", "text", "config",
    "language", "provided_data", "test", "test_cases", "input", "stdin", "stdout", "code",
    "files", "run_timeout", "memory_limit_MB", "verify_responses", "reward",
    "mask_sample", "instance_config", "_ng_task_index", "_ng_failure_class", "jobs",
    "run", "data", "split", "index", "seed", "episode_id", "role", "id", "compile_timeout",
]
# fmt: on
TEXTS = st.text(st.characters(), max_size=12) | st.sampled_from(
    ["ocaml", "python", "cpp", "message", "output_text", "assistant", "reward 1", "{}", "[]", "\0"]
    + ["\ud800", "x" * 5000, '{"tests": "x"}', "```ocaml\nlet x = 1\n```", "..", "/", "%00", "%"]
)
NUMBERS = (
    st.integers(-2, 3)
    | st.sampled_from([10**30, -(10**400), 1e308, 1.5, -0.0])
    | st.floats(allow_nan=False, allow_infinity=False)
)
DEEP = st.integers(1, 120).map(lambda depth: json.loads("[" * depth + "]" * depth))
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | DEEP,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(NAMES) | TEXTS, inner, max_size=6)
    ),
    max_leaves=20,
)
DOCUMENTS = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8)
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "task": st.just({"tests": "x"}) | VALUES,
        "label": st.just({"tests": "x"}) | VALUES,
        "response": st.just("reward 1")
        | st.just({"output": [{"type": "message", "content": "reward 1"}]})
        | st.fixed_dictionaries({"output": VALUES})
        | VALUES,
        "query": st.lists(TEXTS | VALUES, max_size=2),
        "prompts": st.lists(TEXTS | VALUES, max_size=2),
        "labels": st.lists(st.just({"tests": "x"}) | VALUES, max_size=2),
        "verify_responses": st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES), max_size=3),
        "completion": TEXTS | VALUES,
        "code": TEXTS | VALUES,
        "language": TEXTS | VALUES,
        "config": st.fixed_dictionaries(
            {}, optional={"language": TEXTS, "provided_data": VALUES, "run_timeout": VALUES}
        ),
        "verifier_metadata": VALUES,
        "instance_config": VALUES,
    },
)
BODIES = (ROWS | DOCUMENTS | VALUES).map(lambda value: json.dumps(value).encode()) | st.binary()
POSTS = (
    "/slime/ocaml",
    "/openrlhf/ocaml/get_reward",
    "/nemo_gym/ocaml/seed_session",
    "/nemo_gym/ocaml/verify",
    "/nemo_gym/ocaml/aggregate_metrics",
    "/sandbox_fusion/submit",
    "/sandbox_fusion/run_code",
    "/v1/queues/ocaml/cancel",
    "/v1/grade/ocaml",
)


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    service = Service(keys=KEY.line(), adapters=ADAPTERS)
    with service.running() as here, httpx.Client(timeout=ANSWER_S, trust_env=False) as client:
        client.base_url = httpx.URL(here.url)
        client.headers["authorization"] = f"Bearer {SECRET}"
        client.headers["content-type"] = "application/json"
        yield client


def check(response: httpx.Response) -> None:
    """A fault of the trivial grader, or of one that does not run, is 503 and says so."""
    assert response.status_code < 500 or (response.status_code == 503 and response.json()["detail"])


@pytest.mark.parametrize("path", POSTS)
def test_no_body_breaks_a_route(client: httpx.Client, path: str) -> None:
    @FUZZED
    @given(BODIES)
    def send(body: bytes) -> None:
        check(client.post(path, content=body))

    send()


def test_every_route_with_a_body_is_fuzzed() -> None:
    """Those of the OpenAPI document are in test_schemathesis."""
    app = create_app(MemoryBroker(), ApiSettings(adapters=ADAPTERS))
    paths = set()
    for route in app.routes:
        is_documented = getattr(route, "include_in_schema", False)
        if "POST" in (getattr(route, "methods", None) or ()) and not is_documented:
            paths.add(getattr(route, "path", "").replace("{grader}", "ocaml"))
    # Requeueing reads no body; test_no_path_breaks_the_service sends it.
    assert paths - set(POSTS) == {"/v1/queues/ocaml/dead-letters/{job}/requeue"}


SEGMENTS = st.sampled_from(["ocaml", "jobs", "dead-letters", "requeue", "cancel", "pause"]) | TEXTS


@FUZZED
@given(
    st.sampled_from(["GET", "POST", "DELETE", "PUT"]),
    st.sampled_from(["/v1/queues", "/v1/jobs", "/v1/graders", "/nemo_gym", "/openenv", ""]),
    st.lists(SEGMENTS, max_size=4),
    BODIES,
)
def test_no_path_breaks_the_service(
    client: httpx.Client, method: str, start: str, segments: list[str], body: bytes
) -> None:
    parts = [quote(part.encode("utf-8", "surrogatepass"), safe="") for part in segments]
    path = "/".join([start, *parts])
    check(client.request(method, path or "/", content=body))


FRAMES = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["reset", "step", "state"]) | VALUES,
        "data": ROWS | DOCUMENTS | VALUES,
    },
).map(json.dumps) | st.text(st.characters(codec="utf-8"))


def test_no_frame_ends_a_session() -> None:
    app = create_app(MemoryBroker(), ApiSettings(adapters=("openenv",), **SETTINGS))
    with TestClient(app) as client, client.websocket_connect("/openenv/ocaml/ws") as session:

        @FUZZED
        @given(FRAMES)
        def send(frame: str) -> None:
            session.send_text(frame)
            assert session.receive_json()["type"] in ("observation", "state", "error")

        send()


HEADERS = st.dictionaries(
    st.sampled_from(
        ["origin", "cookie", "authorization", "referer", "content-type", "if-none-match"]
    ),
    st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=20)
    | st.sampled_from(["http://[", "http://", "null", "Bearer", "token=", "https://a:99999"]),
    max_size=3,
)
PAGES = ("/", "/enter", "/api/runs", "/api/run", "/api/group", "/api/samples", "/api/changes")


@pytest.fixture(scope="module", params=[None, "correct-horse-battery-staple"])
def page(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    runs = tmp_path_factory.mktemp("runs")
    rich_run(runs / "rich")
    hostile_run(runs / "hostile")
    live = LivePage(runs, token=request.param)
    with live.running(), httpx.Client(timeout=ANSWER_S, trust_env=False) as client:
        client.base_url = httpx.URL(live.url)
        yield client


@pytest.mark.parametrize("path", PAGES)
def test_no_query_or_header_breaks_the_dashboard(page: httpx.Client, path: str) -> None:
    names = st.sampled_from(["run", "name", "key", "step", "since", "after", "group", "token", "n"])
    queries = st.dictionaries(
        names, TEXTS | st.sampled_from(["rich", "hostile", "-1", "1e9", "9" * 400]), max_size=4
    )

    @FUZZED
    @given(st.sampled_from(["GET", "POST"]), queries, HEADERS, st.binary(max_size=60))
    def send(method: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> None:
        encoded = []
        for name, value in query.items():
            encoded.append(f"{name}={quote(value.encode('utf-8', 'surrogatepass'), safe='')}")
        raw = {name: value.encode("latin-1") for name, value in headers.items()}
        with page.stream(method, f"{path}?{'&'.join(encoded)}", headers=raw, content=body) as got:
            assert got.status_code < 500

    send()


def test_every_page_is_fuzzed(tmp_path: Path) -> None:
    from services.dashboard.app import create_app as create_dashboard
    from services.dashboard.runs import Runs

    paths = {getattr(route, "path", "") for route in create_dashboard(Runs(tmp_path)).routes}
    assert paths == {*PAGES, "/style.css", "/page.js", "/healthz", "/metrics"}
