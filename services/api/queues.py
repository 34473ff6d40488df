"""The routes of operators: counts, pausing, cancelling and dead letters of queues, for keys with
`role=operator`.

They are no part of the contract with clients and so not in the OpenAPI document;
docs/operate/queue.md lists them.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response

from services.api.authenticate import KeyedRoute, authorize_grader
from services.api.parse import parse_body, parse_model
from services.api.problems import Refused
from services.api.state import get_api
from services.broker import Broker, QueueState, queue_commands
from services.broker.workers import list_workers

MAX_JOBS = 1000  # jobs of each state in one response
router = APIRouter(prefix="/v1/queues", route_class=KeyedRoute, include_in_schema=False)
Body = TypeVar("Body", bound=BaseModel)


class Change(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: QueueState


class Cancelling(BaseModel):
    model_config = ConfigDict(extra="forbid")

    jobs: Annotated[list[str], Field(max_length=20_000, fail_fast=True)] = []
    run: str = ""


async def _get_broker(request: Request, grader: str | None = None) -> Broker:
    """Return the broker, for an operator. Raises Refused (403) for other keys, UnknownGrader."""
    if not request.state.key.is_operator:
        raise Refused(403, "only an API key with `role=operator` may do this")
    if grader is not None:
        await authorize_grader(request, grader)
    return get_api(request).broker


async def _read_body(request: Request, model: type[Body]) -> Body:
    api = get_api(request)
    parse = partial(parse_model, model)
    body, _ = await parse_body(request, api.settings, api.in_flight, parse)
    return body


@router.get("")
async def list_queues(request: Request) -> Response:
    """By grader: live workers, slots, jobs by state, dead letters, state. And the workers, those
    that died in the last hour too."""
    broker = await _get_broker(request)
    rows = await queue_commands.count_jobs(broker, get_api(request).registry.known)
    can_use = request.state.key.can_use
    queues = {name: row for name, row in rows.items() if can_use(name)}
    workers = []
    for worker in await list_workers(broker):
        if can_use(worker.grader.partition("@")[0]):
            workers.append(worker.model_dump(exclude={"ttl_s", "ended"}) | {"cause": worker.cause})
    return JSONResponse({"queues": queues, "workers": workers})


@router.put("/{grader}")
async def set_state(grader: str, request: Request) -> Response:
    """Pause, drain or open a queue: `{"state": "paused"}`, `draining` or `open`."""
    broker = await _get_broker(request, grader)
    state = (await _read_body(request, Change)).state
    await broker.set_queue_state(grader, state)
    return JSONResponse({"state": state})


@router.get("/{grader}/jobs")
async def jobs(grader: str, request: Request) -> Response:
    """Running and queued jobs, the first `MAX_JOBS` of each."""
    broker = await _get_broker(request, grader)
    rows = []
    for job in await broker.list_unfinished(grader, MAX_JOBS):
        state = "running" if job.is_running else "queued"
        rows.append({"id": job.id, "runs": job.runs, "state": state, "starts": job.starts})
    return JSONResponse({"jobs": rows})


@router.post("/{grader}/cancel")
async def cancel(grader: str, request: Request) -> Response:
    """Cancel jobs, `{"jobs": ["..."]}`, or those that one run alone waits for, `{"run": "..."}`."""
    broker = await _get_broker(request, grader)
    body = await _read_body(request, Cancelling)
    return JSONResponse(
        {"cancelled": await queue_commands.cancel(broker, grader, body.jobs, body.run)}
    )


@router.get("/{grader}/dead-letters")
async def dead_letters(grader: str, request: Request) -> Response:
    letters = await (await _get_broker(request, grader)).dead_letters(grader)
    return JSONResponse(
        {"dead_letters": [{"job": letter.job.id, "history": letter.history} for letter in letters]}
    )


@router.delete("/{grader}/dead-letters")
async def purge(grader: str, request: Request) -> Response:
    return JSONResponse(
        {"deleted": await queue_commands.purge(await _get_broker(request, grader), grader)}
    )


@router.get("/{grader}/dead-letters/{job}")
async def get_dead_letter(grader: str, job: str, request: Request) -> Response:
    """One dead letter with its payload: submission, task and rubric."""
    letter = await queue_commands.get_dead_letter(await _get_broker(request, grader), grader, job)
    return JSONResponse(
        {"job": job, "history": letter.history, "payload": _decode_payload(letter.job.payload)}
    )


def _decode_payload(text: str) -> Any:
    """Return the payload as JSON, or as text if it is no JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text


@router.post("/{grader}/dead-letters/{job}/requeue")
async def requeue(grader: str, job: str, request: Request) -> Response:
    await queue_commands.requeue(await _get_broker(request, grader), grader, job)
    return JSONResponse({"requeued": 1})
