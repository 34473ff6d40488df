"""Grading for adapters: completions that a client sent take the same steps as a request to
`/v1/grade`, with its keys, limits and queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fastapi import Request
from starlette.requests import HTTPConnection
from starlette.responses import Response

from gradus.contract import Faulted, Graded
from gradus.integrations.core import Completion, parse_task
from gradus.tasks.base import clean_text
from services.api.adapters.task_files import TaskFiles
from services.api.answer import collect_results
from services.api.authenticate import authorize_grader
from services.api.dispatch import Batch
from services.api.grading import dispatch_valid
from services.api.json_object import JsonObject, parse_object, parse_value
from services.api.packed import PackedRequest
from services.api.parse import (
    LARGE_BYTES,
    TOKEN_BYTES,
    Reservation,
    parse_body,
    run_outside_loop,
)
from services.api.problems import build_unavailable
from services.api.state import get_api
from services.api.validate import KnownGrader

Results = list[Graded | Faulted]
IterCompletions = Callable[[], Iterable[Completion]]
"""A function of a module, or a partial one: large bodies are read in another process."""


async def read_json(request: Request) -> tuple[JsonObject, Reservation]:
    """Return the object in the body of a request, and its bytes in flight.

    Raises a Misuse: 400, 408, 413, 415, 422, 429.
    """
    api = get_api(request)
    document, reservation = await parse_body(request, api.settings, api.in_flight, parse_object)
    count_texts(document, reservation)
    return document, reservation


def count_texts(document: JsonObject, reservation: Reservation) -> None:
    """Let a small body count what its texts become where they are JSON: 250 KB of a label that is a
    text stalled the event loop for 160 ms. Raises Refused (429).

    That work then is done in the process for large bodies.
    """
    if reservation.n_bytes < LARGE_BYTES:
        reservation.grow(min(TOKEN_BYTES * document.count_separators(), LARGE_BYTES))


async def dispatch_completions(
    connection: HTTPConnection,
    name: str,
    iter_completions: IterCompletions,
    deadline_s: float,
    reservation: Reservation,
) -> Batch:
    """Queue completions for the grader `name`, each of which is made into texts before the next is
    read. Raises Misuse, QueueFull, QueueFault."""
    grader = await authorize_grader(connection, name)
    tasks = connection.app.state.tasks
    grade_request = await run_outside_loop(
        reservation, _pack_request, grader, iter_completions, tasks, deadline_s
    )
    return await dispatch_valid(connection, grader, grade_request, reservation)


def _pack_request(
    grader: KnownGrader, iter_completions: IterCompletions, tasks: TaskFiles, deadline_s: float
) -> PackedRequest:
    return grader.pack_request(_iter_submissions(grader, iter_completions, tasks), deadline_s)


def _iter_submissions(
    grader: KnownGrader, iter_completions: IterCompletions, tasks: TaskFiles
) -> Iterator[dict[str, Any]]:
    rows = tasks.get_tasks(grader.description.name)
    for number, (task, text, prompt) in enumerate(iter_completions()):
        submission = {
            "id": str(number),
            "task": parse_task(task, rows, _parse_text),
            "completion": clean_text(text),
        }
        if grader.description.reads_prompt and isinstance(prompt, str):
            submission["prompt"] = clean_text(prompt)
        yield submission


def _parse_text(text: str) -> Any:
    return parse_value(text.encode(errors="surrogatepass"))


async def grade(
    request: Request,
    grader: str,
    iter_completions: IterCompletions,
    deadline_s: float,
    reservation: Reservation,
) -> Results:
    """Return one result per completion, in order. Raises Misuse, QueueFull, QueueFault, and
    ClientDisconnect."""
    batch = await dispatch_completions(request, grader, iter_completions, deadline_s, reservation)
    return await collect_results(batch, request)


def build_fault_response(results: Results) -> Response | None:
    """Return status 503 if a result is a fault, so that no client reads a reward; else None."""
    faults = [result.fault.message for result in results if isinstance(result, Faulted)]
    return build_unavailable(faults[0]) if faults else None
