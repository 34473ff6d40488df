"""Failures as `application/problem+json`, in one place. Never repeats what was sent, beyond ids and names of fields."""

from __future__ import annotations

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NoReturn

from fastapi import FastAPI, Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from gradus.errors import Fault, Misuse, QueueFault
from gradus.rest import Problem
from gradus.validation import misuse_from_validation_error
from services.broker import QueueFull

MAX_ERRORS = 20
"""Mistakes listed in one answer; the rest is counted."""
MAX_NAME_CHARS = 64
"""A field's name is the caller's text: no more of it than this is repeated."""
CLIENT_CLOSED_REQUEST = 499
"""For the log: the client left before its answer was there (nginx's number)."""


class Refused(Misuse):
    """A misuse that is known as a list of mistakes, each with the field it is in."""

    def __init__(self, status: int, errors: list[dict[str, str]], n_more: int = 0) -> None:
        lines = [f"{error['field']}: {error['message']}" for error in errors]
        super().__init__("; ".join(lines) + (f"; and {n_more} more" if n_more else ""))
        self.answer_status = status
        self.errors = errors


def refuse(error: ValidationError) -> NoReturn:
    """Raises Refused: 400 for what is no JSON, 413 when only sizes are wrong, else 422."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    status = 400 if found[0]["type"] == "json_invalid" else misuse_from_validation_error(error).status
    errors = [
        {"field": shown(item["loc"]), "message": item["msg"].removeprefix("Value error, ")}
        for item in found[:MAX_ERRORS]
    ]
    raise Refused(status, errors, max(len(found) - MAX_ERRORS, 0)) from None


def shown(loc: tuple[int | str, ...]) -> str:
    """The path of a field, with names cut and made printable: they are the caller's text."""
    parts = [str(part) for part in loc]
    shown = [part if len(part) <= MAX_NAME_CHARS else part[:MAX_NAME_CHARS] + "…" for part in parts]
    return ".".join("".join(char if char.isprintable() else "�" for char in part) for part in shown) or "body"


def problem(
    status: int, detail: str, *, errors: list[dict[str, Any]] | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    body = Problem(title=_title(status), status=status, detail=detail, errors=errors)
    return Response(
        body.model_dump_json(exclude_none=True), status, headers=headers, media_type="application/problem+json"
    )


def _title(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def install(app: FastAPI, retry_after_s: int) -> None:
    """Make every expected failure of a route a problem; the unexpected ones are `access.Access`'s."""

    async def away(request: Request, error: Exception) -> Response:
        return unavailable(error, retry_after_s)

    app.add_exception_handler(Misuse, _misuse)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(QueueFull, _full)
    app.add_exception_handler(QueueFault, away)
    app.add_exception_handler(ClientDisconnect, _client_closed_request)


def unavailable(error: Exception, retry_after_s: int) -> Response:
    detail = error.message if isinstance(error, Fault) else "the service is not available"
    return problem(503, detail, headers={"retry-after": str(retry_after_s)})


async def _misuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Misuse)
    status = error.answer_status if isinstance(error, Refused) else error.status
    errors = error.errors if isinstance(error, Refused) else None
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return problem(status, str(error), errors=errors, headers=headers)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    if error.status_code == 405:
        # From the document: Starlette names the methods of the first route that has the path only.
        template = getattr(request.scope.get("route"), "path", "")
        methods = request.app.openapi()["paths"].get(template, {})
        headers["allow"] = ", ".join(sorted(map(str.upper, methods))) or headers.get("Allow", "")
        headers.pop("Allow", None)
    return problem(error.status_code, str(error.detail), headers=headers)


async def _full(request: Request, error: Exception) -> Response:
    assert isinstance(error, QueueFull)
    return problem(429, str(error), headers={"retry-after": str(max(math.ceil(error.retry_after_s), 1))})


async def _client_closed_request(request: Request, error: Exception) -> Response:
    return client_closed_request()


def client_closed_request() -> Response:
    """Reaches nobody."""
    return Response(status_code=CLIENT_CLOSED_REQUEST)
