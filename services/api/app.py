"""`create_app`: the service, and its routes for jobs, graders, health and metrics; `grading` has
the routes that grade."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Request
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import JSONResponse, Response

from gradus.descriptions import GraderList
from gradus.errors import UnknownGrader
from services.api import grading, pages, problems, queues, schema
from services.api.access_log import AccessLogMiddleware
from services.api.answer import render_json
from services.api.authenticate import KeyedRoute, LeanRoute
from services.api.grading import GraderPath, dispatch_request
from services.api.metrics import Waiting
from services.api.settings import ApiSettings
from services.api.state import Api, get_api
from services.broker import Broker

keyed = APIRouter(prefix="/v1", route_class=KeyedRoute, responses=schema.PROBLEMS)
keyless = APIRouter(route_class=LeanRoute)


def create_app(broker: Broker, settings: ApiSettings) -> FastAPI:
    """Return the service on this broker, which the caller closes."""
    api = Api(broker, settings)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await api.jobs.close()
        if api.spans:
            await asyncio.to_thread(api.spans.close)

    app = FastAPI(
        title="Gradus", version=schema.VERSION, lifespan=lifespan, docs_url=None, redoc_url=None
    )
    app.state.api = api
    app.router.routes.extend(grading.router.routes)
    if settings.adapters:
        from services.api.adapters import install

        install(app, settings.adapters, settings.tasks)
    app.router.routes.extend([*keyed.routes, *keyless.routes, *queues.router.routes])
    app.router.routes.extend(pages.router.routes)
    if settings.docs:
        app.router.routes.extend(pages.install_docs().routes)
    app.add_middleware(AccessLogMiddleware, metrics=api.metrics, spans=api.spans)
    problems.install(app)
    schema.install(app, api.registry)
    return app


@keyed.post(
    "/jobs/{name}",
    status_code=202,
    responses={202: schema.ACCEPTED},
    openapi_extra=schema.GRADE_BODY,
)
async def start_job(name: GraderPath, request: Request) -> Response:
    """Grade in the background; `name` is the grader's. Ask for the results at the address in
    `Location`."""
    batch = await dispatch_request(name, request)
    job_id = await get_api(request).jobs.start(batch)
    return render_json(schema.Accepted(id=job_id), 202, {"location": f"/v1/jobs/{job_id}"})


@keyed.get("/jobs/{name}", responses={200: schema.STATUS})
async def job_status(name: str, request: Request) -> Response:
    """How far it is; `name` is the job's id. With the results, in order, once all are there."""
    return render_json(await get_api(request).jobs.get_status(name, request.state.key.can_use))


@keyed.delete("/jobs/{name}", responses={200: schema.CANCELLED})
async def cancel_job(name: str, request: Request) -> Response:
    """Cancel a job; `name` is the job's id. Submissions without a result get a fault; asking again
    changes nothing."""
    return render_json(await get_api(request).jobs.cancel(name, request.state.key.can_use))


@keyed.get("/graders", responses={200: schema.GRADERS})
async def graders(request: Request) -> Response:
    """The graders that have a live worker."""
    live = await get_api(request).registry.list_live()
    return render_json(GraderList(graders=tuple(live)))


@keyed.get("/graders/{grader}", responses={200: schema.DESCRIPTION})
async def described(grader: GraderPath, request: Request) -> Response:
    """What a live grader says of itself: the schema of its tasks, stages, rates and components."""
    registry = get_api(request).registry
    known_grader = await registry.find_known(grader)
    if await registry.is_absent(grader):
        raise UnknownGrader(
            f"no live worker describes the grader {grader!r}: start one with `gradus worker"
            f" {grader}`"
        )
    return render_json(known_grader.description)


@keyless.get("/healthz")
async def healthz(request: Request) -> Response:
    """This process answers."""
    return JSONResponse({"status": "ok"})


@keyless.get("/readyz", responses=schema.PROBLEMS)
async def readyz(request: Request) -> Response:
    """This process works and reaches the queue, and the graders in
    `GRADUS_API_REQUIRED_GRADERS` live. Graders that bring no results show in `/metrics`."""
    api = get_api(request)
    live = sorted({info.name for info in await api.registry.list_live()})
    missing = [grader for grader in api.settings.required_graders if grader not in live]
    if missing:
        reason = f"no live worker that has proved its sandbox for: {', '.join(missing)}"
        return problems.build_unavailable(reason)
    return JSONResponse({"status": "ready", "graders": live})


@keyless.get("/metrics", response_class=Response, responses={200: schema.EXPOSITION})
async def metrics(request: Request) -> Response:
    """Counters and gauges of the API and the queue in the Prometheus text format."""
    api = get_api(request)
    text = await api.metrics.render_exposition(api.broker, api.registry, _measure_waits(api))
    return Response(text, media_type=CONTENT_TYPE_LATEST)


def _measure_waits(api: Api) -> dict[str, Waiting]:
    """Return the jobs that this process waits for now, by known grader."""
    now = time.monotonic()
    waits = {}
    for grader in api.registry.known:
        batches = []
        for batch in api.dispatcher.batches:
            if batch.grader == grader and batch.jobs:
                batches.append(batch)
        oldest = min((batch.began_at for batch in batches), default=now)
        # Batches of a burst are served in turn: while results arrive, one that waits long is no
        # stall.
        stalled_since = max(oldest, api.dispatcher.last_result_at.get(grader, oldest))
        stalled_s = now - stalled_since if batches else 0.0
        waits[grader] = Waiting(sum(len(batch.jobs) for batch in batches), now - oldest, stalled_s)
    return waits
