"""Bodies of requests: media type, size and time limits, and texts that need a closer look."""

from __future__ import annotations

import asyncio
import re

from fastapi import Request

from gradus.errors import TooLarge
from gradus.tasks.base import MAX_TEXT_CHARS
from services.api.problems import Refused
from services.api.settings import ApiSettings

_END_OF_TEXT = re.compile(rb'(?<!\\)"')


async def read_body(request: Request, settings: ApiSettings) -> bytes:
    """The body of a JSON request. Raises a Misuse: 408, 413, 415."""
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
    return bytes(chunks)


def may_hold_bad_text(body: bytes) -> bool:
    """Whether a text in `body` may hold NUL or more than `MAX_TEXT_CHARS` characters; False is certain.

    A longer text covers one of these blocks, and in a text every quote has a backslash before it.
    """
    block = MAX_TEXT_CHARS // 2
    whole_blocks = range(0, len(body) - block + 1, block)
    return b"\\u0000" in body or not all(_END_OF_TEXT.search(body, start, start + block) for start in whole_blocks)
