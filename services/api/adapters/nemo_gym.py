"""NeMo Gym's resources server: `/seed_session`, `/verify`, `/aggregate_metrics` and
`/reverify_mode`.

They are at `/nemo_gym/GRADER` for clients that take a path, such as verifiers' `resources_url`.
There a fault is status 503. NeMo Gym itself addresses a server by host and port alone:
`--nemo-gym-port GRADER=PORT` serves the same at the root of a port. There a fault is NeMo Gym's
failure row: reward 0.0 with `_ng_failure_class`, which NeMo Gym writes to its file of failures and
leaves out of metrics, and with `mask_sample`, by which NeMo-RL leaves the sample out of its loss.
NeMo-RL reads that in `instance_config`, NeMo Gym 0.7 at the top. Clients that read none of these
must use the path, or a port with `GRADUS_API_NEMO_GYM_FAULTS=status`.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gradus.contract import FaultReport, Graded
from gradus.errors import FaultKind, Misuse
from gradus.integrations.core import Completion, build_metrics
from services.api.adapters.grading import (
    build_fault_response,
    get_field,
    get_list,
    grade,
    read_json,
)
from services.api.authenticate import KeyedRoute
from services.api.parse import run_outside_loop

DEADLINE_S = 55.0
FAILURE_ROWS = "gradus.failure_rows"
FAILURE_KINDS = {
    FaultKind.SANDBOX: "provider_unavailable",
    FaultKind.DEADLINE: "transport_timeout",
    FaultKind.QUEUE: "transport_unreachable",
    FaultKind.WORKER: "transport_peer_drop",
    FaultKind.INTERNAL: "verifier_error",
}
"""Kinds of faults in the vocabulary of NeMo Gym 0.7 (`nemo_gym.failure_kinds`)."""
OF_AN_EARLIER_TRY = ("mask_sample", "failure_kind", "failure_reason")
MAX_NUMBER = 1e150
"""Largest number of which metrics are made: the square of a larger one overflows."""
TASK_INDEX = "_ng_task_index"
ROLLOUT_INDEX = "_ng_rollout_index"
router = APIRouter(prefix="/nemo_gym/{grader}", route_class=KeyedRoute, include_in_schema=False)


@router.post("/seed_session")
async def seed_session(grader: str, request: Request) -> Response:
    """Sessions have no state."""
    await read_json(request)
    return JSONResponse({})


@router.get("/reverify_mode")
async def get_reverify_mode(grader: str, request: Request) -> Response:
    return JSONResponse("stateless")


@router.post("/verify")
async def verify(grader: str, request: Request) -> Response:
    """The row with its reward, components and metrics. The task is `verifier_metadata.task`, else
    `task`."""
    row, reservation = await read_json(request)
    for name in list(row):
        if name.startswith("_ng_failure_") or name in OF_AN_EARLIER_TRY:
            del row[name]
    if isinstance(row.get("instance_config"), dict):
        row["instance_config"].pop("mask_sample", None)
    metadata = row.get("verifier_metadata")
    task = metadata.get("task") if isinstance(metadata, dict) else None
    completion = Completion(
        task if task is not None else get_field(row, "task"),
        _extract_output_text(get_field(row, "response")),
    )
    [result] = await grade(request, grader, [completion], DEADLINE_S, reservation)
    if isinstance(result, Graded):
        details = {
            "reward_components": dict(result.components),
            "stage": result.stage.value,
            **build_metrics(result),
        }
        answer = row | {"reward": result.reward} | details
        return await run_outside_loop(reservation.n_bytes, _render_json, answer)
    if request.scope.get(FAILURE_ROWS):
        answer = row | build_failure_fields(row, result.fault)
        return await run_outside_loop(reservation.n_bytes, _render_json, answer)
    return build_fault_response([result]) or Response(status_code=503)


def _render_json(value: dict[str, Any]) -> Response:
    """Return a JSON response in ASCII: a row may hold half a surrogate pair, as its model wrote it,
    which has no UTF-8."""
    return Response(json.dumps(value, allow_nan=False), media_type="application/json")


def build_failure_fields(row: Mapping[str, Any], fault: FaultReport) -> dict[str, Any]:
    """Return what makes a row one that no metric and no loss counts."""
    config = row.get("instance_config")
    return {
        "reward": 0.0,
        "mask_sample": True,
        "instance_config": {**(config if isinstance(config, dict) else {}), "mask_sample": True},
        "failure_kind": FAILURE_KINDS[fault.kind],
        "failure_reason": fault.message,
        "_ng_failure_class": "judge_failed",
        "_ng_failure_judge_error": fault.message,
    }


@router.post("/aggregate_metrics")
async def aggregate_metrics(grader: str, request: Request) -> Response:
    """Mean, max, min, median and standard deviation of each number, over all rollouts and for each
    task."""
    document, reservation = await read_json(request)
    return await run_outside_loop(reservation.n_bytes, _aggregate, document)


def _aggregate(document: dict[str, Any]) -> Response:
    responses = get_list(document, "verify_responses")
    if not all(isinstance(response, dict) for response in responses):
        raise Misuse("verify_responses: must be a list of objects")
    graded = []
    tasks: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for response in responses:
        if "_ng_failure_class" in response or response.get("mask_sample") is True:
            continue
        graded.append(response)
        index = response.get(TASK_INDEX, 0)
        if not isinstance(index, int):
            raise Misuse(f"verify_responses: {TASK_INDEX}: must be an integer")
        tasks[index].append(response)
    overall = _compute_statistics(graded)
    return _render_json(
        {
            "group_level_metrics": [
                {TASK_INDEX: index, **_compute_statistics(tasks[index])} for index in sorted(tasks)
            ],
            "agent_metrics": overall,
            "key_metrics": {
                name: value for name, value in overall.items() if name.startswith("mean/")
            },
        }
    )


def _compute_statistics(responses: list[dict[str, Any]]) -> dict[str, float]:
    columns: dict[str, list[float]] = defaultdict(list)
    for response in responses:
        for name, value in response.items():
            if isinstance(value, int | float) and name not in (TASK_INDEX, ROLLOUT_INDEX):
                if abs(value) > MAX_NUMBER:
                    raise Misuse(f"verify_responses: a number is larger than {MAX_NUMBER:g}")
                columns[name].append(float(value))
    summary = {}
    for name, values in columns.items():
        summary[f"mean/{name}"] = statistics.fmean(values)
        summary[f"max/{name}"] = max(values)
        summary[f"min/{name}"] = min(values)
        summary[f"median/{name}"] = statistics.median(values)
        summary[f"std/{name}"] = statistics.stdev(values) if len(values) > 1 else 0.0
    return summary


def _extract_output_text(response: Any) -> str:
    """Return the text of the last message in the output of a response of OpenAI's Responses API;
    empty without a message.

    Raises Misuse for what is no such response: read as an empty answer, it would earn 0.
    """
    try:
        messages = [item for item in response["output"] if item.get("type") == "message"]
        parts = messages[-1]["content"] if messages else ""
        if isinstance(parts, str):
            return parts
        return "".join(part.get("text") or "" for part in parts)
    except (TypeError, KeyError, AttributeError):
        raise Misuse(
            "response.output: must be a list of items as in OpenAI's Responses API"
        ) from None


def serve_at_roots(app: ASGIApp, graders: Mapping[int, str], failure_rows: bool) -> ASGIApp:
    """Return `app`, with each grader's adapter also at the root of its port. There faults are
    failure rows, if `failure_rows`."""

    async def handle_at_root(scope: Scope, receive: Receive, send: Send) -> None:
        grader = graders.get(scope["server"][1]) if scope["type"] == "http" else None
        if grader is not None:
            path = f"/nemo_gym/{grader}{scope['path']}"
            scope = {**scope, "path": path, "raw_path": path.encode(), FAILURE_ROWS: failure_rows}
        await app(scope, receive, send)

    return handle_at_root
