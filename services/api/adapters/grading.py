"""Grading for adapters: completions that a client sent take the same steps as a request to
`/v1/grade`, with its keys, limits and queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from fastapi import Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from gradus.contract import Faulted, Graded
from gradus.integrations.core import Completion, parse_task
from gradus.tasks.base import clean_text
from services.api.answer import collect_results
from services.api.authenticate import authorize_grader
from services.api.dispatch import Batch
from services.api.grading import dispatch_valid
from services.api.json_object import JsonObject, parse_object, parse_value
from services.api.parse import Reservation, parse_body, run_outside_loop
from services.api.problems import build_unavailable
from services.api.state import get_api

Results = list[Graded | Faulted]


async def read_json(request: Request) -> tuple[JsonObject, Reservation]:
    """Return the object in the body of a request, and its bytes in flight.

    Raises a Misuse: 400, 408, 413, 415, 422, 429.
    """
    api = get_api(request)
    return await parse_body(request, api.settings, api.in_flight, parse_object)


async def dispatch_completions(
    connection: HTTPConnection,
    name: str,
    completions: Iterable[Completion],
    deadline_s: float,
    reservation: Reservation,
) -> Batch:
    """Queue completions for the grader `name`, each of which is made into texts before the next is
    read. Raises Misuse, QueueFull, QueueFault."""
    grader = await authorize_grader(connection, name)
    rows = connection.app.state.tasks.get_tasks(name)
    submissions = _iter_submissions(completions, rows, reads_prompt=grader.description.reads_prompt)
    build = partial(grader.pack_request, submissions, deadline_s)
    grade_request = await run_outside_loop(reservation.n_bytes, build)
    return await dispatch_valid(connection, grader, grade_request, reservation)


def _iter_submissions(
    completions: Iterable[Completion], rows: Mapping[str, Mapping[str, Any]], *, reads_prompt: bool
) -> Iterator[dict[str, Any]]:
    for number, (task, text, prompt) in enumerate(completions):
        submission = {
            "id": str(number),
            "task": parse_task(task, rows, _parse_text),
            "completion": clean_text(text),
        }
        if reads_prompt and isinstance(prompt, str):
            submission["prompt"] = clean_text(prompt)
        yield submission


def _parse_text(text: str) -> Any:
    return parse_value(text.encode(errors="surrogatepass"))


async def grade(
    request: Request,
    grader: str,
    completions: Iterable[Completion],
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
