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
from gradus.integrations.core import Completion, parse_task
from gradus.row_reader import parse_strict_json
from gradus.tasks.base import clean_text
from services.api.api_keys import ApiKey
from services.api.dispatch import Batch
from services.api.grade_request import parse_fair_share
from services.api.grading import collect_results
from services.api.problems import Refused, build_unavailable, make_model_refusal
from services.api.request_body import Body, read_body
from services.api.routing import check_limits, check_scope
from services.api.state import Api

Results = list[Graded | Faulted]


async def read_json(request: Request) -> tuple[dict[str, Any], Body]:
    """Return the object in the body of a request, and the body, which counts as in flight until it
    is deleted.

    Raises a Misuse: 400, 408, 413, 415, 422, 429.
    """
    api: Api = request.app.state.api
    body = await read_body(request, api.settings, api.in_flight)
    try:
        document = parse_strict_json(body.data.decode())
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    body.data = b""
    if not isinstance(document, dict):
        raise Misuse("the body must be a JSON object")
    return document, body


async def start_batch(
    app: Any,
    headers: Any,
    key: ApiKey,
    grader: str,
    completions: Sequence[Completion],
    deadline_s: float,
    body: Body,
) -> Batch:
    """Queue completions, whose texts must be texts. Raises Misuse, QueueFull, QueueFault."""
    api: Api = app.state.api
    known_grader = await api.registry.find_known(grader)
    check_scope(key, grader)
    rows = app.state.tasks.get_tasks(grader)
    reads_prompt = known_grader.description.reads_prompt
    submissions = [
        {
            "id": str(number),
            "task": parse_task(task, rows),
            "completion": clean_text(text),
            "prompt": clean_text(prompt) if reads_prompt and isinstance(prompt, str) else "",
        }
        for number, (task, text, prompt) in enumerate(completions)
    ]
    try:
        grade_request = GradeRequest.model_validate(
            {"submissions": submissions, "deadline_s": deadline_s}
        )
    except ValidationError as error:
        raise make_model_refusal(error) from None
    known_grader.refuse_mistakes([submission.task for submission in grade_request.submissions])
    fair_share = parse_fair_share(headers, key.name)
    check_limits(api, key, fair_share, len(completions))
    return await api.dispatcher.start_batch(
        known_grader.description, grade_request, fair_share, body
    )


async def grade(
    request: Request, grader: str, completions: Sequence[Completion], deadline_s: float, body: Body
) -> Results:
    """Return one result per completion, in order. Raises Misuse, QueueFull, QueueFault, and
    ClientDisconnect."""
    request.state.log_fields |= {"grader": grader, "n_submissions": len(completions)}
    batch = await start_batch(
        request.app, request.headers, request.state.key, grader, completions, deadline_s, body
    )
    return await collect_results(batch, request)


def build_fault_response(results: Results) -> Response | None:
    """Return the response 503 for results that hold a fault, so that no client reads a number; None
    where there is none."""
    faults = [result.fault.message for result in results if isinstance(result, Faulted)]
    return build_unavailable(faults[0]) if faults else None


def get_list(body: dict[str, Any], name: str) -> list[Any]:
    """Return the list in a field of a body; empty where there is none. Raises Misuse for another
    type."""
    items = body.get(name)
    if items is not None and not isinstance(items, list):
        raise Misuse(f"{name}: must be a list")
    return items or []


def get_text_field(body: dict[str, Any], name: str) -> str:
    """Return the text in a field of a body. Raises Misuse where there is none."""
    text = body.get(name)
    if not isinstance(text, str):
        raise Misuse(f"{name}: must be a text")
    return text


def get_field(body: Any, *path: str) -> Any:
    """Return what is at a path of names. Raises Misuse where it is missing."""
    for depth, name in enumerate(path, start=1):
        if not isinstance(body, dict) or body.get(name) is None:
            raise Misuse(f"{'.'.join(path[:depth])}: Field required")
        body = body[name]
    return body
