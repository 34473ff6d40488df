"""Traces over HTTP: real processes, and a collector that takes what OpenTelemetry's exporter sends
(OTLP, protobuf)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from gradus.contract import Graded, Submission
from gradus.descriptions import GraderDescription, GraderInfo
from gradus.errors import Misuse, SandboxFault
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.jobs import JobPayload
from services.broker.memory import MemoryBroker
from services.tracing import spans
from services.worker import Worker
from tests.chaos.worker import verdict
from tests.fake_grader import HIDDEN, INFO, PROMPT, SETTINGS, submission
from tests.graders import described
from tests.ports import free_port
from tests.redis_server import RedisServer

trace_service = pytest.importorskip("opentelemetry.proto.collector.trace.v1.trace_service_pb2")

GRADE = "/v1/grade/ocaml"
TRACE_ID, SPAN_ID = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"
ANSWER = "let f x = x + 1 (* a secret completion *)"


class Collector:
    """Keeps the spans that it is sent, by name, each with its attributes and its service's name."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                assert self.path == "/v1/traces"
                assert self.headers["content-type"] == "application/x-protobuf"
                collector.bodies.append(body)
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                """Not into the output of the tests."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Collector]:
        thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()

    def spans(self) -> list[dict[str, Any]]:
        found = []
        for body in list(self.bodies):
            for resource in trace_service.ExportTraceServiceRequest.FromString(body).resource_spans:
                service = plain(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    found += [shown(span) | {"service": service} for span in scope.spans]
        return found

    def named(self, name: str) -> dict[str, Any]:
        """The one span of that name; it may take a while to come."""
        give_up_at = time.monotonic() + 60
        while not (found := [span for span in self.spans() if span["name"] == name]):
            assert time.monotonic() < give_up_at, f"no span {name!r} came"
            time.sleep(0.05)
        assert len(found) == 1
        return found[0]


def plain(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def shown(span: Any) -> dict[str, Any]:
    return {
        "name": span.name,
        "trace": span.trace_id.hex(),
        "id": span.span_id.hex(),
        "parent": span.parent_span_id.hex(),
        "failed": span.status.code == 2,
        "seconds": (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        **plain(span.attributes),
    }


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector that the environment names."""
    with Collector().running() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        yield running


@pytest.fixture(autouse=True)
def _quick_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that stops waits for its claim to run out."""
    monkeypatch.setattr("services.worker.CLAIM_WAIT_S", 0.1)


def sent(*submissions: dict[str, Any]) -> dict[str, Any]:
    return {"submissions": list(submissions), "deadline_s": 60}


class Grades:
    """A grader that knows its own answer, and breaks on every other."""

    waiting_slots = None

    def description(self) -> GraderDescription:
        return described(self.info())

    def info(self) -> GraderInfo:
        return INFO

    def self_test(self) -> None:
        """Nothing is run here."""

    def grade(self, submission: Submission, rubric: str, slot: int) -> Graded:
        if submission.completion != ANSWER:
            raise SandboxFault("the box broke", retryable=False)
        return verdict(submission.id, submission.completion, rubric)


async def ask(
    *asked: tuple[str, dict[str, Any]], headers: dict[str, str] | None = None
) -> list[httpx.Response]:
    """Through an API and a worker of this process, which send their spans before they end."""
    broker = MemoryBroker()
    app = create_app(broker, ApiSettings(**(SETTINGS | {"worker_grace_s": 60})))
    traced = spans("gradus-worker")
    stop = asyncio.Event()
    working = asyncio.create_task(Worker(Grades(), broker, slots=2, spans=traced).run(stop))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test"
    ) as client:
        answers = [await client.post(path, json=body, headers=headers) for path, body in asked]
    stop.set()
    await working
    async with app.router.lifespan_context(app):
        pass
    if traced:
        await asyncio.to_thread(traced.close)
    return answers


# --------------------------------------------------------------------------------------- processes


@contextmanager
def processes(*commands: list[str]) -> Iterator[None]:
    """`gradus ...` for each command, until the block is left."""
    running = [
        subprocess.Popen([sys.executable, "-m", "gradus", *one], stderr=subprocess.DEVNULL)
        for one in commands
    ]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


@pytest.mark.slow
def test_a_grade_in_a_worker_is_a_child_of_the_request_and_that_of_the_caller(
    collector: Collector, redis_server: Callable[..., RedisServer], ocaml_grader: object
) -> None:
    """`ocaml_grader` is asked for because it skips where there is no OCaml."""
    redis = redis_server().url
    port = free_port()
    task = {"tests": "let () = assert (f 1 = 2) (* a secret test *)"}
    body = sent({"id": "a", "prompt": PROMPT, "completion": ANSWER, "task": task})
    with processes(
        ["serve", "--redis", redis, "--port", str(port)], ["worker", "ocaml", "--redis", redis]
    ):
        url = f"http://127.0.0.1:{port}"
        while not listed(url):
            time.sleep(0.1)
        answer = httpx.post(
            f"{url}{GRADE}", json=body, headers={"traceparent": TRACEPARENT}, timeout=60
        )
        assert answer.json()["results"][0]["passed"]
        request, grade = collector.named("POST /v1/grade/{grader}"), collector.named("grade ocaml")
    assert (request["trace"], request["parent"]) == (TRACE_ID, SPAN_ID)
    assert (grade["trace"], grade["parent"]) == (TRACE_ID, request["id"])
    assert (request["service"], grade["service"]) == ("gradus-api", "gradus-worker")
    assert grade["seconds"] > 0
    assert (grade["gradus.stage"], grade["gradus.passed"]) == ("tests", True)
    for body_sent in collector.bodies:
        assert b"secret" not in body_sent


def listed(url: str) -> bool:
    with suppress(httpx.TransportError):
        return bool(httpx.get(f"{url}/v1/graders").json().get("graders"))
    return False


# ---------------------------------------------------------------------- in a process


async def test_a_span_tells_outcomes_and_no_texts(collector: Collector) -> None:
    wrong = submission("secret-id", "a secret answer", task={"tests": f"secret {HIDDEN}"})
    [answer] = await ask((GRADE, sent(wrong)), headers={"Gradus-Run": "secret"})
    assert answer.json()["results"][0]["status"] == "faulted"
    request, grade = collector.named("POST /v1/grade/{grader}"), collector.named("grade ocaml")
    assert request["http.response.status_code"] == 200
    assert (request["gradus.grader"], request["gradus.n_submissions"], request["failed"]) == (
        "ocaml",
        1,
        False,
    )
    assert (grade["gradus.fault"], grade["gradus.status"], grade["failed"]) == (
        "sandbox",
        "faulted",
        True,
    )
    for body in collector.bodies:
        assert b"secret" not in body
        assert PROMPT.encode() not in body


@pytest.mark.parametrize("route", [f"{GRADE}/stream", "/v1/jobs/ocaml"])
async def test_streams_and_jobs_have_their_grades_as_children_too(
    collector: Collector, route: str
) -> None:
    await ask((route, sent(submission("a", ANSWER))), headers={"traceparent": TRACEPARENT})
    [request] = [span for span in collector.spans() if span["name"].startswith("POST")]
    if route != "/v1/jobs/ocaml":  # which is answered before its grade is done
        assert collector.named("grade ocaml")["parent"] == request["id"]
    assert request["parent"] == SPAN_ID


async def test_misuse_and_unknown_paths_have_spans_without_the_callers_words(
    collector: Collector,
) -> None:
    await ask(
        (GRADE, {"secret": 1}), ("/v1/grade/secret", {}), ("/v1/secret/path", {}), ("/secret", {})
    )
    found = sorted((span["name"], span["http.response.status_code"]) for span in collector.spans())
    assert found == [
        ("POST /v1/grade/{grader}", 404),
        ("POST /v1/grade/{grader}", 422),
        ("POST unmatched", 404),
    ]
    assert b"secret" not in b"".join(collector.bodies)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "nonsense",
        TRACEPARENT[:-1],
        f"00-{'0' * 32}-{SPAN_ID}-01",
        f"ff-{TRACE_ID}-{SPAN_ID}-01",
        "0" * 10_000,
    ],
)
async def test_a_traceparent_that_is_none_begins_a_trace_of_its_own(
    collector: Collector, header: str
) -> None:
    await ask((GRADE, sent(submission("a", ANSWER))), headers={"traceparent": header})
    request = collector.named("POST /v1/grade/{grader}")
    assert request["parent"] == ""
    assert collector.named("grade ocaml")["parent"] == request["id"]


async def test_a_trace_that_the_caller_does_not_sample_is_not_sent(collector: Collector) -> None:
    await ask(
        (GRADE, sent(submission("a", ANSWER))),
        headers={"traceparent": f"00-{TRACE_ID}-{SPAN_ID}-00"},
    )
    assert collector.spans() == []


@pytest.mark.slow
async def test_a_collector_that_is_away_harms_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    [answer] = await ask((GRADE, sent(submission("a", ANSWER))))
    assert answer.json()["results"][0]["status"] == "graded"


async def test_the_name_of_the_service_can_be_given(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "graders-of-team-a")
    await ask((GRADE, sent(submission("a", ANSWER))))
    assert {span["service"] for span in collector.spans()} == {"graders-of-team-a"}


# ---------------------------------------------------------------------- on and off

OFF: list[dict[str, str]] = [
    {},
    {"OTEL_SERVICE_NAME": "x"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_TRACES_EXPORTER": "none"},
    {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_SDK_DISABLED": "true"},
]


@pytest.mark.parametrize("environment", OFF)
async def test_without_a_collector_there_are_no_spans_and_jobs_carry_none(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert spans("x") is None
    broker = MemoryBroker()
    await broker.heartbeat("w", INFO, 60)
    app = create_app(broker, ApiSettings(**SETTINGS))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://test"
    ) as client:
        await client.post(
            "/v1/jobs/ocaml", json=sent(submission("a")), headers={"traceparent": TRACEPARENT}
        )
        [claim] = await broker.claim("ocaml", "w", 1, 1)
        await app.state.api.jobs.close()
    assert JobPayload.model_validate_json(claim.job.payload).traceparent is None


@pytest.mark.parametrize(
    "environment",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {
            "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
        },
    ],
)
def test_what_cannot_be_done_is_refused_at_start(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Misuse, match="OTEL_"):
        create_app(MemoryBroker(), ApiSettings())


@pytest.mark.parametrize("traceparent", ["x", TRACEPARENT + "0", TRACEPARENT.upper(), ""])
def test_a_payload_with_another_traceparent_is_none(traceparent: str) -> None:
    payload = {"submission": submission("a"), "rubric": "r/r@1", "deadline": 1.0, "grader": "r@1"}
    assert (
        JobPayload.model_validate_json(
            json.dumps(payload | {"traceparent": TRACEPARENT})
        ).traceparent
        == TRACEPARENT
    )
    with pytest.raises(ValueError, match="traceparent"):
        JobPayload.model_validate_json(json.dumps(payload | {"traceparent": traceparent}))


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_collector_opentelemetry_is_not_imported() -> None:
    script = """
import sys
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
import services.embedded, services.worker
create_app(MemoryBroker(), ApiSettings())
print([name for name in sys.modules if name.startswith(("opentelemetry.sdk", "opentelemetry.exporter"))])
"""  # noqa: E501
    done = python(script)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_traces_without_the_packages_say_which_extra_has_them() -> None:
    script = """
import sys
sys.modules["opentelemetry.sdk"] = None
sys.argv = ["gradus", "serve", "--redis", "redis://127.0.0.1:9/0", "--port", "0"]
from gradus.cli import main
main()
"""
    done = python(script, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'gradus-rl[otel]'" in done.stderr
    assert "Traceback" not in done.stderr
