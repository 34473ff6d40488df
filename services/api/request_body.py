"""Reads and validates the body of a grading request: media type, size, time, JSON, tasks."""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import ClassVar

import pydantic_core
from fastapi import Request
from pydantic import ValidationError

from gradus.contract import GradeRequest
from gradus.errors import Misuse, TooLarge
from services.api.problems import MAX_ERRORS, Refused, refuse, shown
from services.api.settings import ApiSettings
from services.api.task_schema import TaskSchema


class NotJson(Misuse):
    """The media type or the encoding of the body is not plain JSON."""

    status: ClassVar[int] = 415


class TooSlow(Misuse):
    """The body did not arrive in time."""

    status: ClassVar[int] = 408


async def read_request(request: Request, schema: TaskSchema, settings: ApiSettings) -> GradeRequest:
    """Raises a Misuse that fits: 415, 413, 408, 400, 422."""
    _check_type(request)
    body = await _read(request, settings)
    try:
        asked = GradeRequest.model_validate_json(body)
    except ValidationError as error:
        refuse(error)
    _check_tasks(asked, schema, body)
    _check_numbers(body)
    return asked


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise NotJson("send the request as `Content-Type: application/json`")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise NotJson("send the request without Content-Encoding")


async def _read(request: Request, settings: ApiSettings) -> bytes:
    told = request.headers.get("content-length", "")
    _check_length(int(told) if told.isdecimal() else 0, settings)
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            return await _collect(request, settings)
    except TimeoutError:
        raise TooSlow(f"the body had not arrived after {settings.body_timeout_s:g} s") from None


async def _collect(request: Request, settings: ApiSettings) -> bytes:
    # Counted while it comes: a chunked body tells no length, and a told length may be a lie.
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        _check_length(len(body), settings)
    return bytes(body)


def _check_length(n_bytes: int, settings: ApiSettings) -> None:
    if n_bytes > settings.max_body_bytes:
        raise TooLarge(
            f"the body is larger than {settings.max_body_bytes} bytes; send the submissions in several requests"
        )


def _check_tasks(asked: GradeRequest, schema: TaskSchema, body: bytes) -> None:
    mistakes = schema.mistakes(asked.submissions, body)
    first = list(islice(mistakes, MAX_ERRORS))
    if first:
        errors = [{"field": shown(one.at), "message": one.message} for one in first]
        rest = list(mistakes)
        status = TooLarge.status if all(one.is_size for one in (*first, *rest)) else Misuse.status
        raise Refused(status, errors, len(rest))


def _check_numbers(body: bytes) -> None:
    """NaN and Infinity are no JSON; where the contract takes any value (`team_context`) they would get through."""
    if b"NaN" in body or b"Infinity" in body:
        try:
            pydantic_core.from_json(body, allow_inf_nan=False)
        except ValueError:
            raise Refused(400, [{"field": "body", "message": "NaN and Infinity are no JSON numbers"}]) from None
