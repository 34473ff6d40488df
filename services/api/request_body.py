"""Bodies of requests: media type, size and time limits, the bound of all bodies together, strict
JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jiter
from fastapi import Request

from gradus.errors import TooLarge
from services.api.problems import Refused, make_field_refusal
from services.api.settings import ApiSettings
from services.broker.jobs import RETRY_AFTER_S

LARGE_BYTES = 256 * 1024
"""Size from which on a body is parsed and hashed outside the event loop, which meanwhile serves
other requests."""
_PARSER = ThreadPoolExecutor(1, thread_name_prefix="parse")
T = TypeVar("T")


class BytesInFlight:
    """Bytes of the requests that this process reads or has not answered yet, at most `limit`."""

    def __init__(self, limit: int) -> None:
        self.held = 0
        self._limit = limit

    def hold(self, n_bytes: int) -> None:
        """Raise Refused (429) when the bound would be passed."""
        if self.held + n_bytes > self._limit:
            message = f"requests of more than {self._limit} bytes are in flight; try again later"
            raise Refused(429, message, retry_after_s=RETRY_AFTER_S, bound="bytes")
        self.held += n_bytes


class Body:
    """The body of one request; its bytes count as in flight until it is deleted, with the batch
    that was made of it."""

    def __init__(self, in_flight: BytesInFlight) -> None:
        self.data = b""
        self.n_bytes = 0
        self._in_flight = in_flight

    def grow(self, n_bytes: int) -> None:
        self._in_flight.hold(n_bytes)
        self.n_bytes += n_bytes

    def __del__(self) -> None:
        self._in_flight.held -= self.n_bytes


async def read_body(request: Request, settings: ApiSettings, in_flight: BytesInFlight) -> Body:
    """Return the body of a JSON request. Raises a Misuse: 408, 413, 415, 429."""
    if (
        request.headers.get("content-type", "").partition(";")[0].strip().lower()
        != "application/json"
    ):
        raise Refused(415, "send the request as `Content-Type: application/json`")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise Refused(415, "send the request without Content-Encoding")
    limit = settings.max_body_bytes
    content_length = request.headers.get("content-length", "")
    too_large = TooLarge(
        f"the body is larger than {limit} bytes; send the submissions in several requests"
    )
    if content_length.isdecimal() and int(content_length) > limit:
        raise too_large
    body = Body(in_flight)
    chunks = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            # Counted while it comes: a chunked body tells no length, and a told length may be a
            # lie.
            async for chunk in request.stream():
                chunks += chunk
                if len(chunks) > limit:
                    raise too_large
                body.grow(len(chunk))
    except TimeoutError:
        raise Refused(
            408, f"the body had not arrived after {settings.body_timeout_s:g} s"
        ) from None
    body.data = bytes(chunks)
    return body


async def run_outside_loop(n_bytes: int, work: Callable[..., T], *args: Any) -> T:
    """Return `work(*args)`. Large bodies are parsed one at a time in a dedicated thread."""
    if n_bytes < LARGE_BYTES:
        return work(*args)
    return await asyncio.get_running_loop().run_in_executor(_PARSER, work, *args)


def refuse_lax_json(data: bytes) -> None:
    """Raise Refused (400) for duplicate names in an object, NaN and Infinity, which other parsers
    read differently."""
    try:
        jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        duplicate = "duplicate key" in str(error)
        message = (
            "an object has the same name twice"
            if duplicate
            else "NaN and Infinity are no JSON numbers"
        )
        raise make_field_refusal(400, [((), message)]) from None
