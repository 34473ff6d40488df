"""The routes that grade, and the steps of their requests, one module per step: `authenticate`,
`parse`, `validate`, `dispatch`, `answer`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from gradus.contract import GRADER_NAME
from services.api import schema
from services.api.answer import NdjsonStream, collect_results, render_results
from services.api.authenticate import KeyedRoute, authorize_grader, check_limits
from services.api.dispatch import Batch
from services.api.packed import PackedRequest
from services.api.parse import Reservation, parse_body, parse_fair_share
from services.api.state import get_api
from services.api.validate import KnownGrader

GraderPath = Annotated[str, Path(pattern=GRADER_NAME)]
router = APIRouter(prefix="/v1", route_class=KeyedRoute, responses=schema.PROBLEMS)


@router.post("/grade/{grader}", responses={200: schema.RESULTS}, openapi_extra=schema.GRADE_BODY)
async def grade(grader: GraderPath, request: Request) -> Response:
    """One result per submission, in order; faults are items, not errors."""
    batch = await dispatch_request(grader, request)
    results = await collect_results(batch, request)
    return await render_results(request, results)


@router.post(
    "/grade/{grader}/stream",
    status_code=200,
    response_class=NdjsonStream,
    responses={200: schema.STREAM},
    openapi_extra=schema.GRADE_BODY,
)
async def stream(grader: GraderPath, request: Request) -> Response:
    """Stream the results as NDJSON: one line per submission as soon as it is finished, in order of
    completion."""
    api = get_api(request)
    batch = await dispatch_request(grader, request)
    return NdjsonStream(api.dispatcher, batch, api.settings.heartbeat_s)


async def dispatch_request(name: str, request: Request) -> Batch:
    """Read a request to the grader `name` and queue it. Raises Misuse, QueueFull, QueueFault."""
    api = get_api(request)
    grader = await authorize_grader(request, name)
    grade_request, reservation = await parse_body(
        request, api.settings, api.in_flight, grader.parse_request
    )
    return await dispatch_valid(request, grader, grade_request, reservation)


async def dispatch_valid(
    connection: HTTPConnection,
    grader: KnownGrader,
    grade_request: PackedRequest,
    reservation: Reservation,
) -> Batch:
    """Queue a valid request within the limits of its key. Raises Misuse, QueueFull, QueueFault."""
    n_submissions = len(grade_request.submissions)
    connection.state.log_fields |= {"n_submissions": n_submissions}
    fair_share = parse_fair_share(connection.headers, connection.state.key.name)
    check_limits(connection, fair_share, n_submissions)
    return await get_api(connection).dispatcher.start_batch(
        grader.description, grade_request, fair_share, reservation
    )
