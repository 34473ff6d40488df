"""What the REST API is sent and answers, besides submissions and results: typed requests, jobs,
problems."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from gradus.contract import MAX_BATCH, SUBMISSIONS, GradeRequest, Result
from gradus.tasks.base import Wire

REQUESTS: Mapping[str, type[GradeRequest]] = {
    name: create_model(
        f"{submission.__name__.removesuffix('Submission')}GradeRequest",
        __base__=GradeRequest,
        __module__=__name__,
        submissions=(Annotated[tuple[submission, ...], Field(max_length=MAX_BATCH)], ...),  # type: ignore[valid-type, arg-type]
    )
    for name, submission in SUBMISSIONS.items()
}
"""The wire's documented requests; `GradeRequest` and the announced schema of the task accept the
same."""


class GradeResponse(Wire):
    results: tuple[Result, ...]


class JobState(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


class JobStatus(Wire):
    """Answer of `GET /v1/jobs/{id}`; `results` are there once every submission has one."""

    id: str
    status: JobState
    done: int
    total: int
    results: tuple[Result, ...] | None = None


class Problem(BaseModel):
    """RFC 9457 problem details, `application/problem+json`: every 4xx and 5xx answer."""

    model_config = ConfigDict(extra="allow")
    type: str = "about:blank"
    title: str
    status: int
    detail: str
    errors: list[dict[str, Any]] | None = None
