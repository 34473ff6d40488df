"""Content of `Job.payload`: encoded by the API, decoded by a worker, opaque to the broker."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field

from gradus.contract import RawSubmission, RubricName


class JobPayload(BaseModel):
    """One submission, its rubric and its deadline."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    submission: RawSubmission
    """The submission as it was sent; only the grader knows the type of its task."""
    rubric: RubricName
    deadline: Annotated[float, Field(allow_inf_nan=False)]
    """Unix seconds. A job that is claimed later ends in a `deadline` fault."""
    traceparent: Annotated[str, Field(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")] | None = None
    """W3C trace context of the request that queued the job, when requests are traced."""

    def encode(self) -> str:
        # Left out where there is none: workers of releases that do not know the field refuse it.
        return self.model_dump_json(exclude={"traceparent"} if self.traceparent is None else None)

    @classmethod
    def decode(cls, payload: str) -> Self:
        """Raises ValidationError for anything but what `encode` made."""
        return cls.model_validate_json(payload)
