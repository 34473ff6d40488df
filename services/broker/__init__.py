"""The broker's contract: submit, claim, finish, wait. Knows nothing of grading: payloads and results are opaque JSON.

Two implementations pass one behavioural test suite (`tests/contract/`): `memory.MemoryBroker` for one process,
`streams.StreamsBroker` on Redis Streams for any number. A job is claimed under a lease; a lease that is not renewed
lapses and the job is claimed again by somebody else, so a crash loses nothing. A job is finished exactly once: the
finisher that comes second is told so and changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gradus.contract import GraderInfo

MAX_DELIVERIES = 3
"""A job that was started this often without an answer kills its workers and must not be started again.

A claim with more `deliveries` is to be finished at once, with a fault and `dead_letter=True`. The last permitted start is
handed out by itself, to a worker that holds nothing else: that tells the killer from jobs that only shared its workers.
"""


MAX_FAIR_SHARES = 1000
"""Lanes of one queue whose last turns are kept; beyond it those that have none to come are forgotten."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """How long a broker keeps things, and how many."""

    lease_s: float = 30.0
    max_depth: int = 20_000
    """Jobs queued or running per grader."""
    result_ttl_s: float = 3600.0
    """Of results to cache."""
    uncached_ttl_s: float = 300.0
    """Of the others: long enough for whoever waits to read them."""
    max_dead_letters: int = 100
    """Dead letters per grader."""
    retry_after_s: float = 5.0
    """What a QueueFull advises."""


@dataclass(frozen=True, slots=True)
class Job:
    """One submission on its way through the queue."""

    id: str
    """Content hash: two jobs with the same id are the same work."""
    grader: str
    """Name of the grader, which is the name of its queue."""
    payload: str
    """JSON that the worker understands."""


class Priority(StrEnum):
    """Whose jobs come first within a grader's queue, whatever their runs."""

    EVALUATION = "evaluation"
    TRAINING = "training"


@dataclass(frozen=True, slots=True)
class FairShare:
    """Which turns a submission takes. Runs of one priority take turns, job by job, however many each has queued."""

    run: str = "default"
    priority: Priority = Priority.TRAINING


DEFAULT_FAIR_SHARE = FairShare()


@dataclass(frozen=True, slots=True)
class Claim:
    """A job that a worker holds under a lease."""

    job: Job
    token: str
    """What the broker needs to renew and finish; opaque."""
    deliveries: int
    """1 for the first time; more after a worker died or gave the job back. See `MAX_DELIVERIES`."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that was buried, for people to look at."""

    job: Job
    history: tuple[str, ...]
    """How each start before the last claim ended: `<unix seconds> <worker> let its lease lapse`, or `... gave it back`.
    """


@dataclass(frozen=True, slots=True)
class QueueStats:
    """How many jobs of one grader are where."""

    queued: int
    running: int
    """Under a lease, or one that lapsed and is not claimed again yet."""
    restarted: int
    """Of those running: lost by a worker before. At most a thousand are counted."""
    buried: int


class Broker(Protocol):
    """Raises QueueFault wherever the store behind it is away for longer than its retries last."""

    @property
    def lease_s(self) -> float:
        """An unrenewed claim is claimable by others after this long. Renew at a quarter of it."""
        ...

    async def submit(self, jobs: Sequence[Job], fair_share: FairShare = DEFAULT_FAIR_SHARE) -> dict[str, str]:
        """Queue `jobs` whose id is neither queued, running nor answered already; all of one grader.

        Returns the cached results, by job id, of those that were answered already. A job that another run queued
        already moves up if it is this fair_share's turn sooner. Raises QueueFull when the queue would pass its bound; then
        nothing was queued.
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

    async def results(self, job_ids: Sequence[str]) -> dict[str, str]:
        """`result` of many at once: by job id, without those that have none."""
        ...

    async def put_note(self, key: str, text: str, ttl_s: float) -> None:
        """Keep a small text: which jobs one asynchronous request stands for, what a grader is.

        The keys are a name space of their own. What was under `key` is replaced.
        """
        ...

    async def get_note(self, key: str) -> str | None:
        """What was remembered under `key`; None once its time is over."""
        ...

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        """This waiter gives up these jobs, which it submitted and has no answer to; a queued one is dropped.

        Unless somebody else wants it: every `submit` counts as one wish. Of a job that runs already the worker is told
        when it renews, and stops it; if that worker dies, nobody starts the job again.
        """
        ...

    async def claim(self, grader: str, worker: str, limit: int, wait_s: float) -> list[Claim]:
        """Take up to `limit` jobs, waiting up to `wait_s` for the first one; lapsed leases of others included.

        Start every job that you take: each claim counts as a start. Do not cancel a call under way, let it run out:
        what it was about to return would lie until its lease lapses.
        """
        ...

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Start the leases of `claims` anew; those whose job nobody wants any more."""
        ...

    async def finish(self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False) -> bool:
        """Answer the job to everyone who waits. `cache` keeps the result for later askers (verdicts yes, faults no).

        `dead_letter` also keeps the job itself among the dead letters, for people to look at.
        False: the claim had lapsed and somebody else finished the job; nothing was changed.
        """
        ...

    async def release(self, claim: Claim) -> None:
        """Return the job unfinished: another worker may claim it at once. Its turn is still to come: it is the next.

        A job that nobody wants any more is dropped.
        """
        ...

    async def heartbeat(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        """A live worker tells what it grades; forgotten after `ttl_s` without another call. ttl_s = 0: it leaves."""
        ...

    async def graders(self) -> list[GraderInfo]:
        """What live workers announced, one entry per grader revision, with `workers` and `slots` summarize_workers."""
        ...

    async def depth(self, grader: str) -> int:
        """Jobs queued or running."""
        ...

    async def queue_stats(self, grader: str) -> QueueStats:
        """For operators."""
        ...

    async def dead_letters(self, grader: str) -> list[DeadLetter]:
        """The dead letters of `grader`, oldest first; only the newest are kept."""
        ...

    async def close(self) -> None: ...


def grader_of(jobs: Sequence[Job]) -> str:
    """The one grader that all of `jobs` (at least one) are for."""
    graders = {job.grader for job in jobs}
    if len(graders) != 1:
        raise ValueError(f"jobs of one submit must be for one grader, not for {sorted(graders)}")
    return graders.pop()


class QueueFull(Exception):
    """The queue of this grader is at its bound: the caller should come back after `retry_after_s`."""

    def __init__(self, grader: str, retry_after_s: float) -> None:
        super().__init__(f"the queue of grader {grader!r} is full; try again in {retry_after_s:.0f} s")
        self.retry_after_s = retry_after_s
