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

import statistics
from array import array
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from gradus.contract import Faulted, FaultReport, Graded
from gradus.errors import FaultKind, Misuse, TooLarge
from gradus.integrations.core import Completion, build_metrics
from services.api.adapters.grading import grade, read_json
from services.api.authenticate import KeyedRoute
from services.api.json_object import JsonObject, encode_ascii, parse_value
from services.api.parse import run_outside_loop
from services.api.problems import build_unavailable

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
NO_OUTPUT = "response.output: must be a list of items as in OpenAI's Responses API"
MAX_METRICS = 100_000
"""Rollouts of one request, and metrics of its single tasks."""
Columns = dict[str, "array[float]"]
"""The numbers of rollouts, by name."""
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
    iter_completions = partial(_iter_completion, row)
    [result] = await grade(request, grader, iter_completions, DEADLINE_S, reservation)
    if isinstance(result, Faulted) and not request.scope.get(FAILURE_ROWS):
        return build_unavailable(result.fault.message)
    answer = await run_outside_loop(reservation, _encode_answer, row, result)
    return Response(answer, media_type="application/json")


def _encode_answer(row: JsonObject, result: Graded | Faulted) -> bytes:
    """Return the row with a result, and without those of earlier tries."""
    for name in list(row.members):
        if name.startswith("_ng_failure_") or name in OF_AN_EARLIER_TRY:
            del row.members[name]
    config = row.find_object("instance_config")
    if config is not None:
        config.members.pop("mask_sample", None)
    if isinstance(result, Faulted):
        added = build_failure_fields(result.fault)
        config = config or JsonObject({})
        config.members["mask_sample"] = b"true"
    else:
        added = {
            "reward": result.reward,
            "reward_components": dict(result.components),
            "stage": result.stage.value,
            **build_metrics(result),
        }
    if config is not None:
        row.members["instance_config"] = config.encode()
    return row.encode(added)


def _iter_completion(row: JsonObject) -> Iterator[Completion]:
    metadata = row.find_object("verifier_metadata")
    task = None
    if metadata is not None:
        task = metadata.get("task")
    if task is None:
        task = parse_value(row.require("task"))
    yield Completion(task, _extract_output_text(row))


def build_failure_fields(fault: FaultReport) -> dict[str, Any]:
    """Return what makes a row one that no metric and no loss counts, beside its
    `instance_config`."""
    return {
        "reward": 0.0,
        "mask_sample": True,
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
    answer = await run_outside_loop(reservation, _aggregate, document)
    return Response(answer, media_type="application/json")


def _aggregate(document: JsonObject) -> bytes:
    """Return the metrics. Of each rollout its numbers stay in memory, and of each task the text of
    its metrics."""
    tasks: dict[int, Columns] = {}
    n_columns = 0
    for n_rollouts, text in enumerate(document.iter_list("verify_responses"), 1):
        rollout = parse_value(text)
        if not isinstance(rollout, dict):
            raise Misuse("verify_responses: must be a list of objects")
        if "_ng_failure_class" in rollout or rollout.get("mask_sample") is True:
            continue
        index = rollout.get(TASK_INDEX, 0)
        if not isinstance(index, int):
            raise Misuse(f"verify_responses: {TASK_INDEX}: must be an integer")
        columns = tasks.setdefault(index, {})
        n_columns += _add_numbers(columns, rollout)
        if max(n_rollouts, n_columns) > MAX_METRICS:
            raise TooLarge(
                f"verify_responses: more than {MAX_METRICS} rollouts, or metrics of single tasks"
            )
    overall = _compute_statistics(_join_columns(tasks.values()))
    groups = bytearray()
    for index in sorted(tasks):
        group = {TASK_INDEX: index, **_compute_statistics(tasks[index])}
        groups += b", " + encode_ascii(group)
    means = {name: value for name, value in overall.items() if name.startswith("mean/")}
    members = {"group_level_metrics": b"".join([b"[", groups[2:], b"]"])}
    added = {"agent_metrics": overall, "key_metrics": means}
    return JsonObject(members).encode(added)


def _add_numbers(columns: Columns, rollout: Mapping[str, Any]) -> int:
    """Add the numbers of a rollout to its task's. Returns how many names of them are new."""
    n_before = len(columns)
    for name, value in rollout.items():
        if isinstance(value, int | float) and name not in (TASK_INDEX, ROLLOUT_INDEX):
            if abs(value) > MAX_NUMBER:
                raise Misuse(f"verify_responses: a number is larger than {MAX_NUMBER:g}")
            columns.setdefault(name, array("d")).append(value)
    return len(columns) - n_before


def _join_columns(tasks: Iterable[Columns]) -> Columns:
    joined: Columns = {}
    for columns in tasks:
        for name, values in columns.items():
            joined.setdefault(name, array("d")).extend(values)
    return joined


def _compute_statistics(columns: Columns) -> dict[str, float]:
    summary = {}
    for name, values in columns.items():
        summary[f"mean/{name}"] = statistics.fmean(values)
        summary[f"max/{name}"] = max(values)
        summary[f"min/{name}"] = min(values)
        summary[f"median/{name}"] = statistics.median(values)
        summary[f"std/{name}"] = statistics.stdev(values) if len(values) > 1 else 0.0
    return summary


def _extract_output_text(row: JsonObject) -> str:
    """Return the text of the last message in the output of a response of OpenAI's Responses API;
    empty without a message.

    Raises Misuse for what is no such response: read as an empty answer, it would earn 0.
    """
    row.require("response")
    response = row.find_object("response") or JsonObject({})
    last_message = {"content": ""}
    try:
        response.require("output")
        for text in response.iter_list("output"):
            item = parse_value(text)
            if item.get("type") == "message":
                last_message = item
        content = last_message["content"]
        if isinstance(content, str):
            return content
        return "".join(part.get("text") or "" for part in content)
    except (TypeError, KeyError, AttributeError, Misuse):
        raise Misuse(NO_OUTPUT) from None


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
