"""Reads and validates a grading request: media type, size, time, JSON, tasks, and the headers of its fair share."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

import pydantic_core
from fastapi import Request
from pydantic import ValidationError

from gradus.contract import GradeRequest
from gradus.errors import Misuse, TooLarge
from gradus.tasks.base import MAX_TEXT_CHARS
from services.api.known_grader import KnownGrader
from services.api.problems import Refused, refused_fields, refused_model
from services.api.settings import ApiSettings
from services.broker import DEFAULT_FAIR_SHARE, FairShare, Priority

RUN_NAME = r"[A-Za-z0-9][A-Za-z0-9_.:/@+\-]{0,63}"
PRIORITIES = [priority.value for priority in Priority]
_END_OF_TEXT = re.compile(rb'(?<!\\)"')


async def read_request(request: Request, grader: KnownGrader, settings: ApiSettings) -> GradeRequest:
    """The request in the body, its tasks valid for `grader`. Raises a Misuse: 400, 408, 413, 415, 422."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "send the request as `Content-Type: application/json`")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(415, "send the request without Content-Encoding")
    limit, told = settings.max_body_bytes, request.headers.get("content-length", "")
    too_large = TooLarge(f"the body is larger than {limit} bytes; send the submissions in several requests")
    if told.isdecimal() and int(told) > limit:
        raise too_large
    chunks = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            # Counted while it comes: a chunked body tells no length, and a told length may be a lie.
            async for chunk in request.stream():
                chunks += chunk
                if len(chunks) > limit:
                    raise too_large
    except TimeoutError:
        raise Refused(408, f"the body had not arrived after {settings.body_timeout_s:g} s") from None
    body = bytes(chunks)
    try:
        asked = GradeRequest.model_validate_json(body)
    except ValidationError as error:
        raise refused_model(error) from None
    tasks = [submission.task for submission in asked.submissions]
    if _may_hold_bad_text(body) or not all(map(grader.is_valid_task, tasks)):
        grader.refuse_mistakes(tasks)
    if b"NaN" in body or b"Infinity" in body:
        # They are no JSON; where the task's schema takes any value they would get through.
        try:
            pydantic_core.from_json(body, allow_inf_nan=False)
        except ValueError:
            raise refused_fields(400, [((), "NaN and Infinity are no JSON numbers")]) from None
    return asked


def _may_hold_bad_text(body: bytes) -> bool:
    """Whether a text in `body` may hold NUL or more than `MAX_TEXT_CHARS` characters; False is certain.

    A longer text covers one of these blocks, and in a text every quote has a backslash before it.
    """
    block = MAX_TEXT_CHARS // 2
    whole_blocks = range(0, len(body) - block + 1, block)
    return b"\\u0000" in body or not all(_END_OF_TEXT.search(body, start, start + block) for start in whole_blocks)


def parse_fair_share(headers: Mapping[str, str], owner: str = DEFAULT_FAIR_SHARE.run) -> FairShare:
    """The fair share that `Gradus-Run` and `Gradus-Priority` name. `owner`: the name of the API key.

    The same run under two keys is two runs. The headers' old names, `run` and `priority`, count where their values are
    valid: RFC 9218 has a `Priority` of its own. Raises Misuse for an invalid value of a new name.
    """
    run, old_run = headers.get("gradus-run"), headers.get("run", "")
    if run is None:
        run = old_run if re.fullmatch(RUN_NAME, old_run) else None
    elif not re.fullmatch(RUN_NAME, run):
        raise Misuse(
            "header `Gradus-Run`: a name of 1 to 64 letters, digits and `_.:/@+-`, starting with a letter or digit"
        )
    priority, old_priority = headers.get("gradus-priority"), headers.get("priority")
    if priority is None:
        priority = old_priority if old_priority in PRIORITIES else DEFAULT_FAIR_SHARE.priority
    elif priority not in PRIORITIES:
        raise Misuse("header `Gradus-Priority`: `evaluation` or `training`")
    return FairShare(owner if run is None else f"{owner} {run}", Priority(priority))
