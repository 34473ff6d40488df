"""The adapters' routes over a real server with a trivial grader. tests/integrations runs the
trainers' own clients."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from gradus.descriptions import describe_offline
from gradus.errors import Misuse
from services.api import parse
from services.api.adapters import ADAPTERS
from services.api.api_keys import create_key
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from tests.fake_grader import HIDDEN, INFO, SETTINGS, Service
from tests.ports import free_port

SECRET, KEY = create_key("trainer", ["ocaml"])
TASK = {"tests": HIDDEN}


@pytest.fixture(
    scope="module", autouse=True, params=[parse.LARGE_BYTES, 0], ids=["loop", "process"]
)
def large_bytes(request: pytest.FixtureRequest) -> Iterator[int]:
    """Smallest body that is read in another process: answers are the same."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(parse, "LARGE_BYTES", request.param)
        yield request.param


@pytest.fixture(scope="module")
def nemo_gym_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, nemo_gym_port: int) -> Iterator[Service]:
    files = tmp_path_factory.mktemp("tasks")
    for split, names in (("train", "ab"), ("test", "c")):
        rows = [{"id": name, "prompt": f"prompt {name}", "solution": "s", **TASK} for name in names]
        (files / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {
        "adapters": ADAPTERS,
        "tasks": f"ocaml={files / 'train.jsonl'},ocaml={files / 'test.jsonl'}",
        "nemo_gym_ports": f"ocaml={nemo_gym_port}",
        "keys": KEY.line(),
    }
    with Service(**settings).running() as running:
        yield running


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[httpx.Client]:
    """Sends the key as the password of Basic authentication, as a URL `http://any:KEY@host` makes
    clients do."""
    with httpx.Client(base_url=service.url, auth=("any", SECRET), timeout=30) as found:
        yield found


def verify_row(completion: str, **more: Any) -> dict[str, Any]:
    message = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": completion}],
    }
    response = {"id": "r", "output": [{"type": "reasoning", "summary": []}, message]}
    params = {"input": [{"role": "user", "content": "p"}]}
    return {
        "responses_create_params": params,
        "verifier_metadata": {"task": TASK},
        "response": response,
    } | more


def submit_body(language: str = "rust", **more: Any) -> dict[str, Any]:
    cases = [{"input": {"stdin": "1"}, "output": {"stdout": "2"}}]
    config = {
        "language": language,
        "dataset_type": "CommonOJDataset",
        "provided_data": {"test": cases},
    }
    return {"dataset": "d", "id": 7, "completion": "reward 1", "config": config} | more


ENDPOINTS = {
    "/openrlhf/ocaml/get_reward": lambda text: {
        "query": ["p" + text],
        "prompts": ["p"],
        "labels": [json.dumps(TASK)],
    },
    "/slime/ocaml": lambda text: {"prompt": "p", "response": text, "label": json.dumps(TASK)},
    "/nemo_gym/ocaml/verify": verify_row,
}
REWARD_IN = {
    "/openrlhf/ocaml/get_reward": lambda answer: answer["rewards"][0],
    "/slime/ocaml": lambda answer: answer,
    "/nemo_gym/ocaml/verify": lambda answer: answer["reward"],
}


@pytest.mark.parametrize("path", ENDPOINTS)
def test_the_reward_is_the_grader_s(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json=ENDPOINTS[path]("reward 0.25"))
    assert answer.status_code == 200, answer.text
    assert REWARD_IN[path](answer.json()) == 0.25


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_fault_is_no_answer_with_a_number(client: httpx.Client, path: str) -> None:
    answer = client.post(path, json=ENDPOINTS[path]("fault"))
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"
    assert "the box broke" in answer.json()["detail"]
    assert "reward" not in answer.json()


@pytest.mark.parametrize("path", ENDPOINTS)
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": f"Bearer {SECRET}"}, 200),
        ({"authorization": "Basic " + base64.b64encode(f"x:{SECRET}".encode()).decode()}, 200),
        ({"authorization": "Basic " + base64.b64encode(f"{SECRET}:x".encode()).decode()}, 401),
        ({"authorization": "Basic !"}, 401),
        ({"authorization": f"Digest {SECRET}"}, 401),
        ({}, 401),
    ],
)
def test_a_key_is_required(
    service: Service, path: str, headers: dict[str, str], status: int
) -> None:
    answer = httpx.post(service.url + path, json=ENDPOINTS[path]("reward 1"), headers=headers)
    assert answer.status_code == status


def test_a_key_for_another_grader_is_refused(client: httpx.Client) -> None:
    assert client.post("/slime/rust", json={"response": "x", "label": "{}"}).status_code == 403
    assert client.post("/sandbox_fusion/submit", json=submit_body()).status_code == 403


@pytest.mark.parametrize(
    ("path", "body", "status", "part"),
    [
        ("/slime/ocaml", {"response": "x"}, 422, "label"),
        ("/slime/ocaml", {"response": ["x"], "label": "{}"}, 422, "response"),
        ("/slime/ocaml", {"response": "x", "label": "nope"}, 422, "no task with the id 'nope'"),
        ("/slime/ocaml", {"response": "x", "label": {"test": "x"}}, 422, "tests"),
        ("/slime/cobol", {"response": "x", "label": "{}"}, 404, "cobol"),
        ("/slime/ocaml", [], 422, "object"),
        (
            "/openrlhf/ocaml/get_reward",
            {"query": ["a"], "prompts": [], "labels": []},
            422,
            "same length",
        ),
        (
            "/openrlhf/ocaml/get_reward",
            {"query": [1], "prompts": ["a"], "labels": ["b"]},
            422,
            "texts",
        ),
        ("/openrlhf/ocaml/get_reward", {"query": "a"}, 422, "query: must be a list"),
        ("/nemo_gym/ocaml/verify", {"response": {}}, 422, "task"),
        ("/nemo_gym/ocaml/verify", {"task": TASK}, 422, "response"),
        ("/nemo_gym/ocaml/verify", {"task": TASK, "response": "x"}, 422, "Responses API"),
        (
            "/nemo_gym/ocaml/verify",
            {"task": TASK, "response": {"output": "x"}},
            422,
            "Responses API",
        ),
        (
            "/nemo_gym/ocaml/verify",
            {"task": TASK, "response": {"output": [{"type": "message"}]}},
            422,
            "Responses API",
        ),
        ("/nemo_gym/ocaml/aggregate_metrics", {"verify_responses": [1]}, 422, "objects"),
        (
            "/nemo_gym/ocaml/aggregate_metrics",
            {"verify_responses": [{"_ng_task_index": []}]},
            422,
            "integer",
        ),
        ("/sandbox_fusion/submit", submit_body("python"), 403, "may not use the grader program"),
        ("/sandbox_fusion/submit", submit_body("ocaml"), 403, "may not use the grader program"),
        ("/sandbox_fusion/submit", submit_body(config=None), 422, "config"),
        (
            "/sandbox_fusion/submit",
            submit_body(config={"language": "rust", "provided_data": 7}),
            422,
            "stdin",
        ),
    ],
)
def test_what_cannot_be_graded_is_refused(
    client: httpx.Client, path: str, body: Any, status: int, part: str
) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert part in answer.json()["detail"]
    assert "secret_oracle" not in answer.text


@pytest.mark.parametrize("schema", [{"type": "object"}, {"properties": None}, {"properties": 1}])
async def test_a_language_may_be_the_name_of_a_grader_with_any_schema(
    schema: dict[str, Any],
) -> None:
    """A grader of another distribution announces the schema that it likes."""
    changes = {"name": "prover", "task_schema": schema}
    description = describe_offline("ocaml").model_copy(update=changes)
    info = INFO.model_copy(update={"name": "prover"})
    broker = MemoryBroker()
    await broker.heartbeat("one", info, 600)
    await broker.save_note(f"grader:{info.grader}", description.model_dump_json(), 600)
    app = create_app(broker, ApiSettings(adapters=ADAPTERS, **SETTINGS))
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        answer = await client.post("/sandbox_fusion/submit", json=submit_body("prover"))
    assert answer.status_code == 503, answer.text
    assert "no program grader is running" in answer.json()["detail"]


def test_a_body_that_two_parsers_would_read_differently_is_refused(client: httpx.Client) -> None:
    for text in ('{"response": "x", "response": "y"}', '{"label": NaN}', "{", '"' + "[" * 100_000):
        answer = client.post(
            "/slime/ocaml", content=text, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 400


def test_a_task_is_named_by_its_id(client: httpx.Client) -> None:
    answer = client.post(
        "/slime/ocaml", json={"prompt": "p", "response": "reward 0.5", "label": "c"}
    )
    assert (answer.status_code, answer.json()) == (200, 0.5)


def test_text_that_the_contract_refuses_is_a_verdict(client: httpx.Client) -> None:
    body = json.dumps({"response": "reward 1 \ud800\0", "label": "a"})
    assert (
        client.post(
            "/slime/ocaml", content=body, headers={"content-type": "application/json"}
        ).json()
        == 1.0
    )


# ---------------------------------------------------------------------------------------- NeMo Gym


def test_nemo_gym_gets_failure_rows_on_a_port_of_its_own(
    service: Service, nemo_gym_port: int
) -> None:
    with httpx.Client(base_url=f"http://127.0.0.1:{nemo_gym_port}", auth=("x", SECRET)) as client:
        assert client.post("/seed_session", json=verify_row("")).json() == {}
        assert client.get("/reverify_mode").json() == "stateless"
        row = verify_row("fault", kept="yes")
        answer = client.post("/verify", json=row).json()
        assert answer == row | {
            "reward": 0.0,
            "_ng_failure_class": "judge_failed",
            "_ng_failure_judge_error": "the box broke",
            "mask_sample": True,
            "instance_config": {"mask_sample": True},
            "failure_kind": "provider_unavailable",
            "failure_reason": "the box broke",
        }
        again = client.post(
            "/verify", json=answer | {"response": verify_row("reward 1")["response"]}
        )
        assert again.json()["reward"] == 1.0
        assert "mask_sample" not in again.json()
        assert again.json()["instance_config"] == {}
        assert httpx.post(f"http://127.0.0.1:{nemo_gym_port}/verify", json=row).status_code == 401


def test_a_port_for_nemo_gym_can_answer_faults_with_a_status() -> None:
    port = free_port()
    settings = {"nemo_gym_ports": f"ocaml={port}", "nemo_gym_faults": "status"}
    with Service(adapters=("nemo_gym",), **settings).running():
        url = f"http://127.0.0.1:{port}/verify"
        assert httpx.post(url, json=verify_row("fault")).status_code == 503
        assert httpx.post(url, json=verify_row("reward 1")).json()["reward"] == 1.0


def test_nemo_gym_gets_components_and_numbers(client: httpx.Client) -> None:
    row = verify_row("reward 0.5", kept="yes")
    answer = client.post("/nemo_gym/ocaml/verify", json=row).json()
    assert {name: answer[name] for name in row} == row
    assert answer["reward_components"] == {"tests": 0.5}
    assert (answer["stage"], answer["passed"], answer["fault"]) == ("tests", 0.0, 0.0)


def test_metrics_leave_failure_rows_out(client: httpx.Client) -> None:
    graded = [
        {"_ng_task_index": task, "_ng_rollout_index": 0, "reward": reward}
        for task, reward in ((0, 1), (0, 0), (1, 0.5))
    ]
    failure = {"_ng_task_index": 1, "reward": 0.0, "_ng_failure_class": "judge_failed"}
    masked = {"_ng_task_index": 1, "reward": 0.0, "mask_sample": True}
    answer = client.post(
        "/nemo_gym/ocaml/aggregate_metrics", json={"verify_responses": [*graded, failure, masked]}
    ).json()
    assert answer["key_metrics"] == {"mean/reward": 0.5}
    assert [one["mean/reward"] for one in answer["group_level_metrics"]] == [0.5, 0.5]
    assert answer["group_level_metrics"][0]["std/reward"] == pytest.approx(0.7071, abs=1e-4)
    empty = client.post("/nemo_gym/ocaml/aggregate_metrics", json={"verify_responses": []}).json()
    assert empty == {"group_level_metrics": [], "agent_metrics": {}, "key_metrics": {}}


# ----------------------------------------------------------------------------------------- OpenEnv


@pytest.fixture
def sockets(tmp_path: Path) -> TestClient:
    """A client of the application itself. No worker is alive, so each step is a fault."""
    file = tmp_path / "train.jsonl"
    file.write_text(
        "".join(
            json.dumps({"id": name, "prompt": f"prompt {name}", **TASK}) + "\n" for name in "ab"
        )
    )
    settings = ApiSettings(
        adapters=("openenv",), tasks=f"ocaml={file}", keys=KEY.line(), **SETTINGS
    )
    return TestClient(create_app(MemoryBroker(), settings))


def frame(kind: str, **data: Any) -> str:
    return json.dumps({"type": kind, "data": data})


def test_a_session_of_openenv(sockets: TestClient) -> None:
    with sockets.websocket_connect(
        "/openenv/ocaml/ws", headers={"authorization": f"Bearer {SECRET}"}
    ) as session:

        def answer(text: str) -> tuple[str, dict[str, Any]]:
            session.send_text(text)
            found = session.receive_json()
            return found["type"], found["data"]

        for wrong in (
            "{",
            "7",
            frame("dance"),
            frame("step", completion="x"),
            frame("reset", split="other"),
        ):
            assert answer(wrong)[0] == "error"
        for wrong in (
            frame("reset", index=2),
            frame("reset", index="a"),
            frame("reset", task="no such id"),
        ):
            assert answer(wrong)[0] == ("observation" if "no such id" in wrong else "error")
        assert answer(frame("step", completion="x"))[1]["code"] == "VALIDATION_ERROR"
        kind, data = answer(frame("reset", split="train", index=1, episode_id="e"))
        assert data["observation"] == {
            "id": "b",
            "split": "train",
            "index": 1,
            "prompt": "prompt b",
        }
        assert (kind, data["reward"], data["done"]) == ("observation", None, False)
        assert answer(frame("reset", seed=5))[1]["observation"]["id"] == "b"
        assert answer(frame("step"))[1]["code"] == "VALIDATION_ERROR"
        kind, data = answer(frame("step", completion="x"))
        assert (kind, data["code"]) == ("error", "EXECUTION_ERROR")
        assert "gradus worker ocaml" in data["message"]
        assert answer(frame("state"))[1]["step_count"] == 1
        session.send_text(frame("close"))
        with pytest.raises(WebSocketDisconnect):
            session.receive_json()


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}])
def test_a_session_needs_a_key(sockets: TestClient, headers: dict[str, str]) -> None:
    with (
        pytest.raises(WebSocketDisconnect),
        sockets.websocket_connect("/openenv/ocaml/ws", headers=headers),
    ):
        pass


# ---------------------------------------------------------------------------------------- settings


def test_no_adapter_is_served_or_imported_unless_it_is_named() -> None:
    paths = {
        getattr(route, "path", "")
        for route in create_app(MemoryBroker(), ApiSettings()).router.routes
    }
    assert not any(name in path for name in ADAPTERS for path in paths)


def test_the_openapi_document_is_that_of_the_contract_alone(
    service: Service, client: httpx.Client
) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert all(path.startswith(("/v1/", "/healthz", "/readyz", "/metrics")) for path in paths), (
        list(paths)
    )


@pytest.mark.parametrize(
    ("argv", "part"),
    [
        (("--adapters", "nope"), "there is no adapter 'nope'"),
        (("--adapters", "openenv", "--tasks", "nope"), "tasks"),
        (("--adapters", "openenv", "--tasks", "ocaml=nope.jsonl"), "nope.jsonl: cannot be read"),
        (("--nemo-gym-port", "ocaml=0"), "--adapters nemo_gym"),
        (("--adapters", "nemo_gym", "--nemo-gym-port", "ocaml=x"), "nemo_gym_ports"),
    ],
)
def test_wrong_options_say_what_is_wrong(
    gradus: Any, redis_url: str, argv: tuple[str, ...], part: str
) -> None:
    done = gradus("serve", "--port", "0", "--redis", redis_url, *argv)
    assert done.status == 2
    assert part in done.err


def test_an_id_twice_in_the_files_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "twice.jsonl"
    file.write_text((json.dumps({"id": "a", **TASK}) + "\n") * 2)
    with pytest.raises(Misuse, match="twice.jsonl:2"):
        create_app(MemoryBroker(), ApiSettings(adapters=("slime",), tasks=f"ocaml={file}"))


@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_client_that_leaves_is_no_defect(
    service: Service, client: httpx.Client, path: str
) -> None:
    with pytest.raises(httpx.ReadTimeout):
        client.post(path, json=ENDPOINTS[path](f"hold {path}"), timeout=0.3)
    template = path.replace("ocaml", "{grader}")
    for _ in range(100):
        lines = [
            line
            for line in client.get("/metrics").text.splitlines()
            if f'route="{template}"' in line
        ]
        if any('status="499"' in line for line in lines):
            break
        time.sleep(0.1)
    statuses = set(re.findall(r'status="(\d+)"', "\n".join(lines)))
    assert "499" in statuses
    assert "500" not in statuses


def test_a_surrogate_that_a_model_wrote_is_a_verdict_and_comes_back(client: httpx.Client) -> None:
    body = json.dumps(verify_row("reward 1 \ud800"))
    response = client.post(
        "/nemo_gym/ocaml/verify", content=body, headers={"content-type": "application/json"}
    )
    assert response.status_code == 200
    assert response.json()["response"]["output"][1]["content"][0]["text"] == "reward 1 \ud800"


@pytest.mark.parametrize("number", ["1e308", "1" + "0" * 400])
def test_numbers_too_large_for_metrics_are_refused(client: httpx.Client, number: str) -> None:
    body = f'{{"verify_responses": [{{"reward": {number}}}, {{"reward": {number}}}]}}'
    response = client.post(
        "/nemo_gym/ocaml/aggregate_metrics",
        content=body,
        headers={"content-type": "application/json"},
    )
    assert response.status_code == 422


@pytest.mark.parametrize("is_text", [False, True])
def test_a_deep_task_is_refused(client: httpx.Client, is_text: bool) -> None:
    deep = '{"tests": ' + "[" * 600 + "]" * 600 + "}"
    label = json.dumps(deep) if is_text else deep
    response = client.post(
        "/slime/ocaml",
        content=f'{{"label": {label}, "response": "reward 1"}}',
        headers={"content-type": "application/json"},
    )
    assert response.status_code == (422 if is_text else 400)
