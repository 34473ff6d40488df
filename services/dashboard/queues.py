"""Queues on the page: forwards an operator's requests to the API, with the dashboard's API key."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gradus.errors import Misuse
from services.dashboard.auth import read_token_file

# What may follow `/v1/queues`.
PATH = re.compile(
    r"(/[a-z][a-z0-9_]{0,31}(/jobs|/cancel|/dead-letters(/[A-Za-z0-9_][A-Za-z0-9_.:\-]{0,127}(/requeue)?)?)?)?"
)
METHODS = ["GET", "PUT", "POST", "DELETE"]
MAX_BODY_BYTES = 4096
TIMEOUT_S = 10.0


class Queues:
    """Client of the API at `url`, with `key`, which needs `role=operator`."""

    def __init__(self, url: str, key: str) -> None:
        self._url = f"{url.rstrip('/')}/v1/queues"
        self._headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}

    async def handle_request(self, request: Request) -> Response:
        path = request.path_params["path"]
        if not PATH.fullmatch(path):
            raise HTTPException(404, "there is no such queue, job or dead letter")
        if request.method != "GET":
            refuse_foreign_page(request)
        body = await read_bounded_body(request)
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT_S, headers=self._headers) as client:
                response = await client.request(request.method, f"{self._url}{path}", content=body)
        except (httpx.HTTPError, OSError) as error:
            raise HTTPException(502, f"the API does not answer: {type(error).__name__}") from None
        if response.status_code in (401, 403):  # the page would ask for its own token
            raise HTTPException(
                502, "the API refuses the dashboard's key: its line needs `role=operator`"
            )
        return Response(
            response.content, response.status_code, media_type=response.headers.get("content-type")
        )


async def read_bounded_body(request: Request) -> bytes:
    """Read the body. Raises HTTPException (413) for more than MAX_BODY_BYTES."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
    return body


def refuse_foreign_page(request: Request) -> None:
    """Raise HTTPException (403) for a request by a page of another origin."""
    origin = request.headers.get("origin")
    try:
        host = urlsplit(origin).netloc if origin is not None else None
    except ValueError:
        host = ""  # `http://[` is no origin of this page
    if host is not None and host != request.headers.get("host"):
        raise HTTPException(403, "this request comes from a page of another origin")


def create_queues(api: str | None, key_file: Path | None) -> Queues | None:
    """Return a client of the API, or None without one. Raises Misuse without a key, and for a key
    file that cannot be used."""
    if api is None:
        return None
    if key_file is None:
        raise Misuse(
            "--api needs --api-key-file, a file with an API key whose line has `role=operator`"
        )
    return Queues(api, read_token_file(key_file, "--api-key-file"))
