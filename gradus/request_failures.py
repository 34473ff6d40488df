"""Why an HTTP request to a grading service brought no results, and whether a retry may."""

from __future__ import annotations

from dataclasses import dataclass

import httpx
from pydantic import ValidationError

from gradus.errors import FaultKind, Misuse, TooLarge, UnknownGrader

RETRIED = frozenset({408, 425, 429, 502, 503, 504})
"""HTTP statuses after which a request is sent again."""


@dataclass(frozen=True, slots=True)
class RequestFailure:
    kind: FaultKind
    message: str
    final: bool = False
    """A retry would bring the same."""
    defect: bool = False
    """A retry would probably bring the same."""
    retry_after_s: float | None = None


def describe_failure(
    url: str, cause: httpx.Response | httpx.RequestError | ValidationError
) -> RequestFailure:
    """Return the failure that an answer of the service at `url`, or its absence, means. `QUEUE`:
    the service is away or busy.

    Raises Misuse for a status that blames the caller.
    """
    if isinstance(cause, ValidationError):
        return RequestFailure(
            FaultKind.INTERNAL, f"{url} does not answer as a Gradus service does", final=True
        )
    if isinstance(cause, httpx.ReadTimeout):
        silence_s = cause.request.extensions["timeout"]["read"]
        return RequestFailure(FaultKind.QUEUE, f"{url} hangs: it sent nothing for {silence_s:g} s")
    if isinstance(cause, httpx.RequestError):
        why = str(cause) or type(cause).__name__
        start = "start one with `gradus serve`"
        return RequestFailure(
            FaultKind.QUEUE, f"no grading service answers at {url} ({why}): {start}"
        )
    status = cause.status_code
    try:
        detail = cause.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = cause.reason_phrase
    message = f"{url} answered {status}: {detail}"
    if status in RETRIED:
        retry_after = cause.headers.get("retry-after", "")
        is_told = status == 429 and retry_after.isdigit()
        return RequestFailure(
            FaultKind.QUEUE, message, retry_after_s=float(retry_after) if is_told else None
        )
    if status >= 500:
        return RequestFailure(
            FaultKind.INTERNAL, message, final=status != 500, defect=status == 500
        )
    kinds: dict[int, type[Misuse]] = {413: TooLarge, 404: UnknownGrader}
    raise kinds.get(status, Misuse)(message)
