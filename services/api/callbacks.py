"""Callbacks: the results of an asynchronous job, sent to a URL of its client when they are there.

Only origins that the operator lists are called, and no redirect is followed, so that no client can
have this service call what only it can reach. Requests are signed as Standard Webhooks says
(https://www.standardwebhooks.com), for which receivers find libraries.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import httpx

from gradus.errors import GradusError, Misuse
from services.api.problems import Refused

log = logging.getLogger("gradus.api")

HEADER = "gradus-callback"
PAUSES_S = (1.0, 5.0, 30.0, 120.0, 600.0)
"""Seconds between the attempts."""
TIMEOUT_S = 10.0
"""Longest wait for a connection, and for the response."""
AT_ONCE = 16
"""Callbacks that are sent at one time."""
MAX_URL_CHARS = 2048
SECRET_PREFIX = "whsec_"  # noqa: S105
LEAST_SECRET_BYTES = 24


class Callbacks:
    def __init__(self, origins: Sequence[str], secret_file: Path | None) -> None:
        """`origins`: what may be called, such as `https://host:8443`. Raises Misuse for one that is
        none."""
        self._origins = {origin_of(one, "GRADUS_API_CALLBACK_ORIGINS") for one in origins}
        self._secret = secret_in(secret_file) if origins else b""
        self._sending = asyncio.Semaphore(AT_ONCE)

    def url_in(self, header: str | None) -> httpx.URL | None:
        """The URL of the header; None without a header. Raises Refused: 403 for an origin that is
        not listed, 422."""
        if header is None:
            return None
        if len(header) > MAX_URL_CHARS:
            raise Refused(422, f"header `Gradus-Callback`: longer than {MAX_URL_CHARS} characters")
        try:
            origin = origin_of(header, "header `Gradus-Callback`", any_path=True)
        except Misuse as misuse:
            raise Refused(422, str(misuse)) from None
        if origin not in self._origins:
            raise Refused(
                403, "header `Gradus-Callback`: the operator allows no callbacks to this origin"
            )
        return httpx.URL(header)

    async def send(self, url: httpx.URL, job_id: str, read: Callable[[], Awaitable[str]]) -> None:
        """POST what `read` returns until the receiver answers 2xx, or 410, or the attempts are used
        up."""
        for pause_s in (*PAUSES_S, None):
            try:
                async with self._sending:
                    outcome = await self._attempt(url, job_id, (await read()).encode())
            except GradusError as error:  # the queue is away, or forgot the job
                outcome = type(error).__name__
            if outcome.startswith("2") or outcome == "410":
                return
            if pause_s is not None:
                await asyncio.sleep(pause_s)
        log.warning("the callback of job %s to %s failed: %s", job_id, url.host, outcome)

    async def _attempt(self, url: httpx.URL, job_id: str, body: bytes) -> str:
        """The status of the response, or the type of the error."""
        now = str(int(time.time()))
        headers = {
            "content-type": "application/json",
            "webhook-id": job_id,
            "webhook-timestamp": now,
            "webhook-signature": f"v1,{self.signature(job_id, now, body)}",
        }
        # Without the environment: a proxy or netrc there is not meant for addresses that clients
        # choose.
        client = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, follow_redirects=False)
        try:
            async with (
                asyncio.timeout(2 * TIMEOUT_S),
                client,
                client.stream("POST", url, content=body, headers=headers) as answer,
            ):
                return str(answer.status_code)  # the body is not read: it may be endless
        except (httpx.HTTPError, OSError, TimeoutError) as error:
            return type(error).__name__

    def signature(self, job_id: str, timestamp: str, body: bytes) -> str:
        signed = b".".join((job_id.encode(), timestamp.encode(), body))
        return base64.b64encode(hmac.digest(self._secret, signed, "sha256")).decode()


def origin_of(url: str, where: str, *, any_path: bool = False) -> tuple[str, str, int]:
    """Scheme, host and port, as the HTTP client reads them. Raises Misuse that names `where`, and
    not the URL."""
    try:
        read = httpx.URL(url)
    except httpx.InvalidURL:
        raise Misuse(f"{where}: not a URL") from None
    if read.scheme not in ("http", "https") or not read.host or read.userinfo or read.fragment:
        raise Misuse(f"{where}: an http or https URL without user, password and fragment")
    if not any_path and (read.path not in ("", "/") or read.query):
        raise Misuse(f"{where}: an origin such as https://host:8443, without a path")
    return read.scheme, read.host, read.port or (443 if read.scheme == "https" else 80)


def secret_in(file: Path | None) -> bytes:
    """The secret of signatures. Raises Misuse, which repeats nothing of it."""
    if file is None:
        raise Misuse(
            "GRADUS_API_CALLBACK_ORIGINS needs GRADUS_API_CALLBACK_SECRET_FILE: callbacks are"
            " signed"
        )
    try:
        text = file.read_text().strip()
        secret = base64.b64decode(text.removeprefix(SECRET_PREFIX), validate=True)
    except (OSError, ValueError) as error:
        raise Misuse(
            f"GRADUS_API_CALLBACK_SECRET_FILE ({file}) cannot be read: {type(error).__name__}"
        ) from None
    if not text.startswith(SECRET_PREFIX) or len(secret) < LEAST_SECRET_BYTES:
        raise Misuse(
            f"GRADUS_API_CALLBACK_SECRET_FILE ({file}): a secret is `{SECRET_PREFIX}` and"
            f" {LEAST_SECRET_BYTES} random bytes or more in base64"
        )
    return secret
