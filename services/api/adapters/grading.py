"""Grading for adapters: completions that a client sent take the same steps as a request to
`/v1/grade`, with its keys, limits and queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from fastapi import Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from gradus.contract import Faulted, Graded
from gradus.errors import Misuse
from gradus.integrations.core import Completion, parse_task
from gradus.json_tokens import MAX_TOKENS, count_tokens
from gradus.row_reader import parse_strict_json
from gradus.tasks.base import clean_text
from services.api.answer import collect_results
from services.api.authenticate import authorize_grader
from services.api.dispatch import Batch
from services.api.grading import dispatch_valid
from services.api.packed import PackedRequest
from services.api.parse import (
    TOKEN_BYTES,
    Reservation,
    parse_body,
    parse_object,
    run_outside_loop,
)
from services.api.problems import build_unavailable
from services.api.state import get_api
from services.api.validate import KnownGrader

Results = list[Graded | Faulted]


async def read_json(request: Request) -> tuple[dict[str, Any], Reservation]:
    """Return the object in the body of a request, and its bytes in flight.

    Raises a Misuse: 400, 408, 413, 415, 422, 429.
    """
    api = get_api(request)
    return await parse_body(request, api.settings, api.in_flight, parse_object)


async def dispatch_completions(
    connection: HTTPConnection,
    name: str,
    completions: Sequence[Completion],
    deadline_s: float,
    reservation: Reservation,
) -> Batch:
    """Queue completions for the grader `name`. Raises Misuse, QueueFull, QueueFault."""
    grader = await authorize_grader(connection, name)
    rows = connection.app.state.tasks.get_tasks(name)
    tasks = _TaskParser()
    build = partial(_build_request, grader, completions, deadline_s, rows, tasks)
    grade_request = await run_outside_loop(reservation.n_bytes, build)
    reservation.grow(tasks.n_tokens * TOKEN_BYTES)
    return await dispatch_valid(connection, grader, grade_request, reservation)


class _TaskParser:
    """Parser of the tasks of one request that are JSON texts, within one limit of tokens for all:
    the tokens of the body are those around such texts."""

    def __init__(self) -> None:
        self.n_tokens = 0

    def __call__(self, text: str) -> Any:
        """Return the value of a text. Raises ValueError, and TooLarge past the limit."""
        data = text.encode(errors="surrogatepass")
        self.n_tokens = count_tokens(data, MAX_TOKENS, self.n_tokens)
        return parse_strict_json(text)


def _build_request(
    grader: KnownGrader,
    completions: Sequence[Completion],
    deadline_s: float,
    rows: Mapping[str, Mapping[str, Any]],
    parse: Callable[[str], Any],
) -> PackedRequest:
    submissions = []
    for number, (task, text, prompt) in enumerate(completions):
        submission = {
            "id": str(number),
            "task": parse_task(task, rows, parse),
            "completion": clean_text(text),
        }
        if grader.description.reads_prompt and isinstance(prompt, str):
            submission["prompt"] = clean_text(prompt)
        submissions.append(submission)
    return grader.parse_request({"submissions": submissions, "deadline_s": deadline_s})


async def grade(
    request: Request,
    grader: str,
    completions: Sequence[Completion],
    deadline_s: float,
    reservation: Reservation,
) -> Results:
    """Return one result per completion, in order. Raises Misuse, QueueFull, QueueFault, and
    ClientDisconnect."""
    batch = await dispatch_completions(request, grader, completions, deadline_s, reservation)
    return await collect_results(batch, request)


def build_fault_response(results: Results) -> Response | None:
    """Return status 503 if a result is a fault, so that no client reads a reward; else None."""
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
    """Return the value at a path of names. Raises Misuse where it is missing."""
    for depth, name in enumerate(path, start=1):
        if not isinstance(body, dict) or body.get(name) is None:
            raise Misuse(f"{'.'.join(path[:depth])}: Field required")
        body = body[name]
    return body
