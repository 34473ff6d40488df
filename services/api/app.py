"""`create_app`: the routes of the service, a few lines each over `grading` and `jobs`. Starts no server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Container
from contextlib import asynccontextmanager
from typing import Annotated, cast

from fastapi import APIRouter, FastAPI, Path, Request
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from gradus.contract import GRADER_NAME, Faulted, Graded, GradeRequest, RawSubmission
from gradus.descriptions import GraderList
from gradus.errors import QueueFault
from gradus.rest import GradeResponse
from services.api import problems, schema
from services.api.access_log import AccessLogMiddleware
from services.api.auth import check_key, check_scope
from services.api.dispatch import Batch, GradingDispatcher
from services.api.grader_registry import GraderRegistry, Known
from services.api.jobs import Jobs
from services.api.lean_routing import LeanRoute
from services.api.metrics import Metrics
from services.api.problems import MAX_NAME_CHARS
from services.api.request_body import read_request
from services.api.scheduling_headers import parse_fair_share
from services.api.settings import ApiSettings
from services.api.streaming import NdjsonStream, cancel_on_disconnect
from services.api.tracing_middleware import TracingMiddleware
from services.broker import Broker, FairShare
from services.tracing import spans


class Api:
    """What the routes of one app share."""

    def __init__(self, broker: Broker, settings: ApiSettings) -> None:
        self.spans = spans("gradus-api")
        self.broker = broker
        self.settings = settings
        self.keys = settings.key_ring()
        self.metrics = Metrics()
        self.registry = GraderRegistry(broker, settings.registry_ttl_s, settings.worker_grace_s)
        self.grading = GradingDispatcher(broker, self.registry, self.metrics)
        self.jobs = Jobs(broker, self.grading, settings.job_ttl_s)

    def not_ready_reason(self, live: Container[str]) -> str | None:
        """Why this service is not ready; None when it is."""
        required = self.settings.required_graders
        missing = [grader for grader in required or self.registry.names if grader not in live]
        if missing and (required or not live):
            return f"no live worker that has proved its sandbox for: {', '.join(missing)}"
        limit_s = self.settings.ready_stall_timeout_s
        if stalled := [name for name in self.registry.names if self.grading.waiting(name).stalled_s > limit_s]:
            return f"submissions wait and no result came for {limit_s:g} s from: {', '.join(stalled)}"
        return None


def create_app(broker: Broker, settings: ApiSettings) -> FastAPI:
    """The service over this broker, which stays the caller's to close."""
    api = Api(broker, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await api.jobs.close()
        if api.spans:
            await asyncio.to_thread(api.spans.close)

    app = FastAPI(title="Gradus", version=schema.VERSION, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.api = api
    app.router.routes.extend([*graded.routes, *watched.routes])
    app.add_middleware(AccessLogMiddleware, metrics=api.metrics)
    if api.spans:
        app.add_middleware(TracingMiddleware, spans=api.spans)
    problems.install(app, settings.retry_after_s)
    schema.install(app, api.registry)
    return app


def _api(request: Request) -> Api:
    return cast(Api, request.app.state.api)


class KeyedRoute(LeanRoute):
    """Asks for a key first."""

    async def answer(self, request: Request, path_params: dict[str, str]) -> Response:
        api = _api(request)
        request.state.key = check_key(request.headers.get("authorization"), api.keys)
        if api.keys.keys:
            request.state.log_fields = {"key": request.state.key.name}
        return await super().answer(request, path_params)


graded = APIRouter(prefix="/v1", route_class=KeyedRoute, responses=schema.PROBLEMS)
watched = APIRouter(route_class=LeanRoute)

GraderPath = Annotated[str, Path(pattern=GRADER_NAME)]


async def _request(name: str, request: Request) -> tuple[Known, GradeRequest]:
    api = _api(request)
    grader = await api.registry.known(name[:MAX_NAME_CHARS])
    check_scope(request.state.key, name)
    asked = await read_request(request, grader.schema, api.settings)
    fields = {"grader": name, "n_submissions": len(asked.submissions)}
    request.state.log_fields = getattr(request.state, "log_fields", {}) | fields
    return grader, asked


def _fair_share(request: Request) -> FairShare:
    key_name = request.state.key.name if _api(request).keys.keys else None
    return parse_fair_share(request.headers, key_name)


def _json(model: BaseModel, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(model.model_dump_json(), status, headers=headers, media_type="application/json")


# --------------------------------------------------------------------------------------------------------- grading


@graded.post("/grade/{grader}", responses={200: schema.RESULTS}, openapi_extra=schema.GRADE_BODY)
async def grade(grader: GraderPath, request: Request) -> Response:
    """One result per submission, in order; faults are items, not errors."""
    api = _api(request)
    known, asked = await _request(grader, request)
    batch = await api.grading.begin(known, asked, _fair_share(request))
    results = await cancel_on_disconnect(request.receive, _settled(api, batch, asked.submissions))
    return problems.client_closed_request() if results is None else _json(GradeResponse(results=tuple(results)))


async def _settled(api: Api, batch: Batch, submissions: tuple[RawSubmission, ...]) -> list[Graded | Faulted]:
    found: dict[str, Graded | Faulted] = {}

    def keep(result: Graded | Faulted) -> None:
        found[result.id] = result

    async with api.grading.cancel_on_exit(batch):
        await api.grading.settle(batch, keep)
    return [found[submission.id] for submission in submissions]


@graded.post(
    "/grade/{grader}/stream",
    status_code=200,
    response_class=NdjsonStream,
    responses={200: schema.STREAM},
    openapi_extra=schema.GRADE_BODY,
)
async def stream(grader: GraderPath, request: Request) -> Response:
    """The same results as NDJSON, each as soon as it is there, in order of completion."""
    api = _api(request)
    known, asked = await _request(grader, request)
    batch = await api.grading.begin(known, asked, _fair_share(request))

    async def produce(put: Callable[[bytes], None]) -> None:
        def send(result: Graded | Faulted) -> None:
            put(result.model_dump_json().encode() + b"\n")

        async with api.grading.cancel_on_exit(batch):
            try:
                await api.grading.settle(batch, send)
            except QueueFault as fault:
                # The status is out already; what has no verdict is said item by item.
                api.grading.fail(batch, fault, send)

    return NdjsonStream(produce, api.settings.heartbeat_s)


# ------------------------------------------------------------------------------------------------------------ jobs


@graded.post("/jobs/{name}", status_code=202, responses={202: schema.ACCEPTED}, openapi_extra=schema.GRADE_BODY)
async def start_job(name: GraderPath, request: Request) -> Response:
    """Grade in the background; `name` is the grader's. Ask for the results at the address in `Location`."""
    api = _api(request)
    known, asked = await _request(name, request)
    job_id = await api.jobs.start(known, asked, _fair_share(request))
    return _json(schema.Accepted(id=job_id), 202, {"location": f"/v1/jobs/{job_id}"})


@graded.get("/jobs/{name}", responses={200: schema.STATUS})
async def job_status(name: str, request: Request) -> Response:
    """How far it is; `name` is the job's id. With the results, in order, once all are there."""
    return _json(await _api(request).jobs.status(name, request.state.key.may_use))


# ------------------------------------------------------------------------------------------------------ operations


@graded.get("/graders", responses={200: schema.GRADERS})
async def graders(request: Request) -> Response:
    """The graders that have a live worker."""
    return _json(GraderList(graders=tuple(await _api(request).registry.live())))


@graded.get("/graders/{grader}", responses={200: schema.DESCRIPTION})
async def described(grader: GraderPath, request: Request) -> Response:
    """What a live grader says of itself: the schema of its tasks, stages, rates and components."""
    return _json(await _api(request).registry.description(grader[:MAX_NAME_CHARS]))


@watched.get("/healthz")
async def healthz(request: Request) -> Response:
    """This process answers."""
    return JSONResponse({"status": "ok"})


@watched.get("/readyz", responses=schema.PROBLEMS)
async def readyz(request: Request) -> Response:
    """The broker answers, the graders that are required have proved themselves and live, and results come."""
    api = _api(request)
    live = sorted({info.name for info in await api.registry.live()})
    if not_ready_reason := api.not_ready_reason(live):
        return problems.problem(503, not_ready_reason, headers={"retry-after": str(api.settings.retry_after_s)})
    return JSONResponse({"status": "ready", "graders": live})


@watched.get("/metrics", response_class=Response, responses={200: schema.EXPOSITION})
async def metrics(request: Request) -> Response:
    """For Prometheus."""
    api = _api(request)
    waits = {name: api.grading.waiting(name) for name in api.registry.names}
    return Response(await api.metrics.exposition(api.broker, api.registry, waits), media_type=CONTENT_TYPE_LATEST)
