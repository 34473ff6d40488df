"""Signatures of results: with the secrets of graders, an API accepts a result only from a worker of
its grader.

Secrets are lines `NAME SECRET` in a file: the API has all of them, a worker its own. A signed
result is the signature in hex, a space and the result's JSON; the signature covers the job's id, so
that no result serves for another job.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path

from gradus.contract import build_faulted
from gradus.errors import FaultKind, Misuse
from services.secret_file import read_secret_file

MIN_CHARS = 32
"""Shortest secret, in characters."""

CANCELLED = build_faulted(
    "-", FaultKind.QUEUE, "cancelled by an operator", retryable=False
).model_dump_json()
"""The result of a job that an operator cancelled: a fault, which needs no signature."""

Secrets = Mapping[str, bytes]
"""The secrets by the name of their grader."""


def read_secrets(file: Path | None) -> Secrets | None:
    """Return the secrets in `file`; None without a file. Raises Misuse, which repeats no secret."""
    if file is None:
        return None
    text = read_secret_file(file, "the file with the secrets of graders")
    lines = [line.split() for line in text.splitlines() if line.strip()]
    if any(len(line) != 2 or len(line[1]) < MIN_CHARS for line in lines):
        raise Misuse(
            f"{file}: a line is `NAME SECRET`, with a secret of at least {MIN_CHARS} characters"
        )
    return {name: secret.encode() for name, secret in lines}


def sign_result(result: str, job_id: str, secret: bytes) -> str:
    return f"{_compute_signature(result, job_id, secret)} {result}"


def verify_result(text: str, job_id: str, secrets: Secrets | None) -> str | None:
    """Return the result in `text`; None where `secrets` are in use and it has no signature of the
    job's grader.

    A forged `CANCELLED` gives what a forged line gives anyway: a fault.
    """
    signature, _, result = text.partition(" ") if not text.startswith("{") else ("", "", text)
    if secrets is None or text == CANCELLED:
        return result
    secret = secrets.get(job_id.partition(":")[0])
    if secret is None or not hmac.compare_digest(
        signature.encode(), _compute_signature(result, job_id, secret).encode()
    ):
        return None
    return result


def _compute_signature(result: str, job_id: str, secret: bytes) -> str:
    return hmac.digest(secret, f"{job_id} {result}".encode(), "sha256").hex()
