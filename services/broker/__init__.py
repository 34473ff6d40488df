"""The broker's contract: submit, claim, finish, wait. Knows nothing of grading: payloads and results are opaque JSON texts.

Two implementations pass one behavioural test suite (`tests/contract/`): `memory.MemoryBroker` for one process,
`streams.StreamsBroker` on Redis Streams for any number. A job is claimed under a lease; a lease that is not renewed
lapses and the job is claimed again by somebody else, so a crash loses nothing. A job is finished exactly once: the
finisher that comes second is told so and changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gradus.contract import GraderInfo


@dataclass(frozen=True, slots=True)
class Job:
    """One submission on its way through the queue."""

    id: str
    """Content hash: two jobs with the same id are the same work."""
    grader: str
    """Name of the grader, which is the name of its queue."""
    payload: str
    """JSON that the worker understands."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a worker holds under a lease."""

    job: Job
    token: str
    """What the broker needs to renew and finish; opaque."""
    deliveries: int
    """1 for the first time; more after a worker died or gave the job back."""


class Broker(Protocol):
    """Raises QueueFault wherever the store behind it is away for longer than its retries last."""

    lease_s: float
    """An unrenewed claim is claimable by others after this long. Renew at a quarter of it."""

    async def submit(self, jobs: Sequence[Job]) -> None:
        """Queue `jobs` whose id is neither queued, running nor answered already; all of one grader.

        Raises QueueFull when the queue would pass its bound; then nothing was queued.
        """
        ...

    def wait(self, job_ids: Iterable[str], timeout_s: float) -> AsyncIterator[tuple[str, str]]:
        """Yield (job id, result) as each of these submitted jobs is finished, each id once, in order of completion.

        Ends when all are yielded or after `timeout_s`, whichever is first; what is missing then has no result yet.
        """
        ...

    async def result(self, job_id: str) -> str | None:
        """The stored result of a finished job; None when there is none (yet, or any more)."""
        ...

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        """This waiter gives these jobs up; a queued job that nobody else waits for is dropped."""
        ...

    async def claim(self, grader: str, worker: str, limit: int, wait_s: float) -> list[Claim]:
        """Take up to `limit` jobs, waiting up to `wait_s` for the first one; lapsed leases of others included."""
        ...

    async def renew(self, claims: Sequence[Claim]) -> None:
        """Start the leases of `claims` anew."""
        ...

    async def finish(self, claim: Claim, result: str, *, cache: bool) -> bool:
        """Answer the job to everyone who waits. `cache` keeps the result for later askers (verdicts yes, faults no).

        False: the claim had lapsed and somebody else finished the job; nothing was changed.
        """
        ...

    async def give_back(self, claim: Claim) -> None:
        """Return the job unfinished: another worker may claim it at once."""
        ...

    async def announce(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        """A live worker tells what it grades; forgotten after `ttl_s` without a new announcement. ttl_s = 0: it leaves."""
        ...

    async def graders(self) -> list[GraderInfo]:
        """What live workers announced, one entry per grader revision, with `workers` and `slots` summed."""
        ...

    async def depth(self, grader: str) -> int:
        """Jobs queued or running."""
        ...

    async def close(self) -> None: ...


class QueueFull(Exception):
    """The queue of this grader is at its bound: the caller should come back after `retry_after_s`."""

    def __init__(self, grader: str, retry_after_s: float) -> None:
        super().__init__(f"the queue of grader {grader!r} is full; try again in {retry_after_s:.0f} s")
        self.retry_after_s = retry_after_s
