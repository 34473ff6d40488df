"""Grading for adapters: what a peer sent becomes a batch like that of `/v1/grade`, with its keys,
limits and queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import Request
from pydantic import ValidationError
from starlette.responses import Response

from gradus.contract import Faulted, Graded, GradeRequest
from gradus.errors import Misuse
from gradus.integrations.core import Completion, task_of
from gradus.row_reader import strict_json
from gradus.tasks.base import cleaned
from services.api.api_keys import ApiKey
from services.api.dispatch import Batch
from services.api.grade_request import parse_fair_share
from services.api.grading import results_of
from services.api.problems import Refused, refused_model, unavailable
from services.api.request_body import Body, read_body
from services.api.routing import check_limits, check_scope
from services.api.state import Api

Results = list[Graded | Faulted]


async def read_json(request: Request) -> tuple[dict[str, Any], Body]:
    """The object in the body of a request, and the body, which counts as in flight until it is
    deleted.

    Raises a Misuse: 400, 408, 413, 415, 422, 429.
    """
    api: Api = request.app.state.api
    body = await read_body(request, api.settings, api.in_flight)
    try:
        found = strict_json(body.data.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    body.data = b""
    if not isinstance(found, dict):
        raise Misuse("the body must be a JSON object")
    return found, body


async def begin(
    app: Any,
    headers: Any,
    key: ApiKey,
    grader: str,
    given: Sequence[Completion],
    deadline_s: float,
    body: Body,
) -> Batch:
    """Queue completions, whose texts must be texts. Raises Misuse, QueueFull, QueueFault."""
    api: Api = app.state.api
    known = await api.registry.find_known(grader)
    check_scope(key, grader)
    rows = app.state.tasks.by_id(grader)
    reads_prompt = known.description.reads_prompt
    submissions = [
        {
            "id": str(number),
            "task": task_of(task, rows),
            "completion": cleaned(text),
            "prompt": cleaned(prompt) if reads_prompt and isinstance(prompt, str) else "",
        }
        for number, (task, text, prompt) in enumerate(given)
    ]
    try:
        asked = GradeRequest.model_validate({"submissions": submissions, "deadline_s": deadline_s})
    except ValidationError as error:
        raise refused_model(error) from None
    known.refuse_mistakes([submission.task for submission in asked.submissions])
    fair_share = parse_fair_share(headers, key.name)
    check_limits(api, key, fair_share, len(given))
    return await api.dispatcher.begin(known.description, asked, fair_share, body)


async def grade(
    request: Request, grader: str, given: Sequence[Completion], deadline_s: float, body: Body
) -> Results:
    """One result per completion, in order. Raises Misuse, QueueFull, QueueFault, and
    ClientDisconnect."""
    request.state.log_fields |= {"grader": grader, "n_submissions": len(given)}
    batch = await begin(
        request.app, request.headers, request.state.key, grader, given, deadline_s, body
    )
    return await results_of(batch, request)


def refused_faults(results: Results) -> Response | None:
    """The response 503 for results that hold a fault, so that no client reads a number; None where
    there is none."""
    faults = [result.fault.message for result in results if isinstance(result, Faulted)]
    return unavailable(faults[0]) if faults else None


def listed(body: dict[str, Any], name: str) -> list[Any]:
    """The list in a field of a body; empty where there is none. Raises Misuse for another type."""
    found = body.get(name)
    if found is not None and not isinstance(found, list):
        raise Misuse(f"{name}: must be a list")
    return found or []


def text_field(body: dict[str, Any], name: str) -> str:
    """The text in a field of a body. Raises Misuse where there is none."""
    found = body.get(name)
    if not isinstance(found, str):
        raise Misuse(f"{name}: must be a text")
    return found


def field(body: Any, *path: str) -> Any:
    """What is at a path of names. Raises Misuse where it is missing."""
    for depth, name in enumerate(path, start=1):
        if not isinstance(body, dict) or body.get(name) is None:
            raise Misuse(f"{'.'.join(path[:depth])}: Field required")
        body = body[name]
    return body
