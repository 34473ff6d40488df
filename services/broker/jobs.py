"""The words of the queue: a job, its payload, its fair share and the claim of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from gradus.contract import RawSubmission, RubricName


@dataclass(frozen=True, slots=True)
class Job:
    """One submission on its way through the queue."""

    id: str
    """Content hash: two jobs with the same id are the same work."""
    grader: str
    """Name of the grader and of its queue."""
    payload: str
    """A `JobPayload`, opaque to the broker."""


class JobTerms(BaseModel):
    """What the payloads of one request have in common."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rubric: RubricName
    deadline: Annotated[float, Field(allow_inf_nan=False)]
    """Seconds of the store's clock (`Broker.get_time`). A job that is claimed later ends in a
    `deadline` fault."""
    grader: str
    """name@revision by which the job's id was made; only its verdicts are cached."""
    traceparent: (
        Annotated[str, Field(pattern=r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")] | None
    ) = None
    """W3C trace context of the request that queued the job, when requests are traced."""

    def encode_payload(self, submission: str) -> str:
        """Return the `JobPayload` of a submission. `submission`: its JSON."""
        return f'{{"submission": {submission}, {self.model_dump_json()[1:]}'


class JobPayload(JobTerms):
    """One submission, its rubric and its deadline: encoded by the API, decoded by a worker.

    Releases of one major version work side by side: read payloads with `parse_payload`, and add
    only fields with a default that a worker may ignore.
    """

    submission: RawSubmission
    """The submission as it was sent; only the grader knows the type of its task."""


def parse_payload(text: str) -> JobPayload:
    """Return the payload without fields that this release does not know, at any depth. Raises
    ValidationError."""
    return JobPayload.model_validate_json(text, extra="ignore")


class Priority(StrEnum):
    """Class of jobs within a grader's queue: evaluation comes first, but for the part that is
    training's."""

    EVALUATION = "evaluation"
    TRAINING = "training"


@dataclass(frozen=True, slots=True)
class FairShare:
    """Fair-queuing key of a submission. Within a priority, tenants take turns job by job, whatever
    their backlogs, and the runs of a tenant take its turns in the same way."""

    run: str = "default"
    """Name of the API key, or that and the run's with a space between."""
    priority: Priority = Priority.TRAINING

    @property
    def key(self) -> str:
        return self.run.partition(" ")[0]

    @property
    def has_key(self) -> bool:
        return self.key != DEFAULT_FAIR_SHARE.key

    @property
    def tenant(self) -> str:
        """What takes turns in a queue: the API key, or the run in a service without keys."""
        return self.key if self.has_key else self.run


DEFAULT_FAIR_SHARE = FairShare()
RETRY_AFTER_S = 5
"""What a service that is full or cannot answer now advises, in seconds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a worker holds under a lease."""

    job: Job
    token: str
    """Opaque; identifies the lease in `renew`, `finish` and `release`."""
    deliveries: int
    """Starts of the job, this one included: 1 at first, more after a worker died or released it.
    See MAX_DELIVERIES."""
    claimed_at: float
    """Seconds of the store's clock, to compare with the deadline."""


BOUNDS = {
    "queue": "is full, at twice its bound (GRADUS_QUEUE_MAX_DEPTH)",
    "run": "is full (GRADUS_QUEUE_MAX_DEPTH), and so is the part that is reserved for this run",
    "key_part": "is full (GRADUS_QUEUE_MAX_DEPTH), and so is the part for all runs of this API key",
    "key_memory": "holds this API key's part of Redis' memory, which is short: await results",
    "draining": "takes no new jobs, as an operator wants it (`gradus queue resume` opens it)",
    "notes": "takes no more asynchronous jobs of this API key until deadlines of others pass",
    "memory": "is full: Redis is near its `maxmemory`",
}
"""What a queue says that refuses jobs, by the bound that they would pass."""


class QueueFull(Exception):
    """The queue of this grader is at a bound: submit again after `RETRY_AFTER_S`."""

    def __init__(self, grader: str, bound: str) -> None:
        """`bound`: a key of `BOUNDS`."""
        self.bound = bound
        super().__init__(
            f"the queue of grader {grader!r} {BOUNDS[bound]}; try again in {RETRY_AFTER_S} s"
        )
