"""Failures as `application/problem+json` (RFC 9457). They repeat nothing of a request but ids and
names of fields."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from http.client import responses
from typing import Any

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gradus.errors import Misuse, QueueFault
from gradus.rest import Problem
from gradus.validation import convert_validation_error
from services.broker.jobs import RETRY_AFTER_S, QueueFull

MAX_ERRORS = 20  # mistakes listed in one answer; the search for more ends with the next one
MAX_NAME_CHARS = 64  # a field's name is the caller's text: no more of it than this is repeated
JSON_MESSAGES = {
    "model_type": "Input should be an object",
    "tuple_type": "Input should be a valid array",
    "list_type": "Input should be a valid array",
    "dict_type": "Input should be an object",
}
# Status in the log of a request whose client left before the response; nginx has the same number.
CLIENT_CLOSED_REQUEST = 499


class Refused(Misuse):
    """Misuse with its own HTTP status. `errors`: field and message of each mistake."""

    def __init__(
        self,
        status: int,
        detail: str,
        errors: list[dict[str, str]] | None = None,
        *,
        retry_after_s: float | None = None,
        bound: str = "",
    ) -> None:
        """`bound`: what is full, where the status is 429."""
        super().__init__(detail)
        self.bound = bound
        self.answer_status = status
        self.errors = errors
        self.headers = {"www-authenticate": "Bearer"} if status == 401 else {}
        if retry_after_s is not None:
            self.headers["retry-after"] = str(max(math.ceil(retry_after_s), 1))

    def __reduce__(self) -> tuple[Any, ...]:
        """A refusal is raised in the process that reads large bodies, too."""
        return type(self), (self.answer_status, str(self), self.errors), self.__dict__


def make_field_refusal(
    status: int, mistakes: Sequence[tuple[tuple[int | str, ...], str]]
) -> Refused:
    """Return the refusal of a request for `mistakes`, each the path of a field and what is wrong
    with it."""
    errors = []
    for path, message in mistakes[:MAX_ERRORS]:
        errors.append({"field": format_path(path), "message": message})
    lines = [f"{error['field']}: {error['message']}" for error in errors]
    if len(mistakes) > MAX_ERRORS:
        lines.append("and more")
    return Refused(status, "; ".join(lines), errors)


def make_model_refusal(error: ValidationError) -> Refused:
    """Return the refusal of a body: 413 when only sizes are wrong, else 422."""
    return make_field_refusal(convert_validation_error(error).status, list_mistakes(error))


def list_mistakes(error: ValidationError) -> list[tuple[tuple[int | str, ...], str]]:
    """Return the path of each field that is wrong, and what is wrong with it, in JSON's words."""
    mistakes = []
    for item in error.errors(include_url=False, include_context=False, include_input=False):
        message = JSON_MESSAGES.get(item["type"], item["msg"])
        mistakes.append((item["loc"], message.removeprefix("Value error, ")))
    return mistakes


def format_path(path: tuple[int | str, ...]) -> str:
    """Return the path of a field, with names cut and made printable: they are the caller's text."""
    parts = [str(part) for part in path]
    cut = [part if len(part) <= MAX_NAME_CHARS else part[:MAX_NAME_CHARS] + "…" for part in parts]
    named = ".".join(cut) or "body"
    return "".join(char if char.isprintable() else "�" for char in named)


def build_problem(
    status: int,
    detail: str,
    *,
    errors: list[dict[str, Any]] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    title = responses.get(status, "Error")
    body = Problem(title=title, status=status, detail=detail, errors=errors)
    return Response(
        body.model_dump_json(exclude_none=True),
        status,
        headers=headers,
        media_type="application/problem+json",
    )


def build_unavailable(detail: str, retry_after_s: int = RETRY_AFTER_S) -> Response:
    return build_problem(503, detail, headers={"retry-after": str(retry_after_s)})


def install(app: FastAPI) -> None:
    """Answer every expected failure of a route with a problem; `AccessLogMiddleware` answers
    unexpected ones."""

    @app.exception_handler(Misuse)
    async def handle_misuse(request: Request, error: Misuse) -> Response:
        if isinstance(error, Refused):
            if error.bound:
                app.state.api.metrics.record_refusal(error.bound)
            return build_problem(
                error.answer_status, str(error), errors=error.errors, headers=error.headers
            )
        return build_problem(error.status, str(error))

    @app.exception_handler(HTTPException)
    async def handle_http(request: Request, error: HTTPException) -> Response:
        headers = dict(error.headers or {})
        matched = request.scope.get("route")  # FastAPI's own, such as /openapi.json, set none
        if error.status_code == 405 and matched is not None:
            # Starlette names the methods of the first route that has the path only.
            allowed: set[str] = set()
            for route in app.routes:
                if isinstance(route, APIRoute) and route.path == matched.path:
                    allowed.update(route.methods or ())
            headers["Allow"] = ", ".join(sorted(allowed))
        return build_problem(error.status_code, str(error.detail), headers=headers)

    @app.exception_handler(QueueFull)
    async def handle_full_queue(request: Request, error: QueueFull) -> Response:
        app.state.api.metrics.record_refusal(error.bound)
        return build_problem(429, str(error), headers={"retry-after": str(RETRY_AFTER_S)})

    @app.exception_handler(QueueFault)
    async def handle_queue_fault(request: Request, error: QueueFault) -> Response:
        return build_unavailable(error.message)

    @app.exception_handler(ClientDisconnect)
    async def handle_disconnect(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)  # only the log shows it
