"""The broker's contract: submit, claim, finish, wait. Payloads and results are opaque JSON.

Two implementations pass one behavioural test suite (`tests/contract/`): `memory.MemoryBroker` for
one process, `streams.StreamsBroker` on Redis Streams for any number. A worker claims a job under a
lease. A lease that is not renewed lapses and another worker claims the job, so a crash loses
nothing; in one process no worker dies alone, so there no lease lapses. A job is finished exactly
once: a second `finish` changes nothing and returns False.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from gradus.descriptions import GraderInfo
from services.broker.jobs import DEFAULT_FAIR_SHARE, Claim, FairShare, Job, Priority, QueueFull

__all__ = [
    "DEAD_AFTER_S",
    "DEATH_KEPT_S",
    "DEFAULT_FAIR_SHARE",
    "KEY_PARTS",
    "LOOK_AHEAD",
    "MAX_DELIVERIES",
    "MIN_TTL_S",
    "MEMORY_PART",
    "REFUSE_AT",
    "SHARE_FROM",
    "SHORTEN_FROM",
    "MAX_FAIR_SHARES",
    "PUT_OFF_TURNS",
    "RENEW_S",
    "RESERVED_PART",
    "TRAINING_PART",
    "Broker",
    "BrokerSettings",
    "Claim",
    "DeadLetter",
    "FairShare",
    "Job",
    "Priority",
    "QueueFull",
    "QueueState",
    "QueueStats",
    "UnfinishedJob",
    "compute_kept_share",
    "count_note_bytes",
]

MAX_DELIVERIES = 3
"""Permitted starts of a job. A job that was started this often without a result kills its workers.

Finish a claim with more `deliveries` at once, with a fault and `dead_letter=True`. The last
permitted start is claimed by itself, by a worker that holds nothing else: that tells the killer
from jobs that only shared its workers.
"""


RENEW_S = 1.0
"""Seconds between renewals of a worker's leases, a quarter of the lease if that is less: its
heartbeat."""
DEAD_AFTER_S = 2.5
"""Seconds without a renewal after which a worker counts as dead, and others claim its jobs before
their leases lapse.

Only where Redis and some worker were up all the while. After an outage the whole lease counts,
without the outage.
"""

DEATH_KEPT_S = 3600.0
"""Seconds for which a worker that ended without leaving is listed."""

PUT_OFF_TURNS = 1000
"""Turns of each other run that go before a job which was put off: it also starts under endless
load."""
TRAINING_PART = 5
"""Training gets a fifth of the jobs that are claimed while jobs of both priorities wait, evaluation
the rest."""
RESERVED_PART = 16
"""A run may queue a sixteenth of the bound (`max_depth`) whatever others have queued, up to twice
the bound in all."""
KEY_PARTS = 4
"""Runs of one API key may together pass the bound by as many such parts: each run has one, and
clients choose the names of runs. A service without keys has no such bound."""
MIN_NOTE_BYTES = 2048
"""Bytes that the note of an asynchronous job counts at least."""
NOTE_PARTS = 4
"""It counts so many times its length: the faults of its submissions may take as much again."""
LOOK_AHEAD = 64
"""Queued jobs of each priority among which small ones are looked for."""
MAX_FAIR_SHARES = 1000
"""Fair shares of one queue whose virtual times are kept; beyond it those without queued jobs are
forgotten."""
REFUSE_AT = 0.9
"""Share of the store's memory from which on new jobs are refused."""
SHARE_FROM = 0.7
"""Share of the store's memory from which on a key may hold `MEMORY_PART` of it only, in payloads of
its unfinished jobs at each process: one key cannot bring the store to `REFUSE_AT`."""
MEMORY_PART = 16
SHORTEN_FROM = 0.5
"""Share of the store's memory from which on results and finished requests are kept for less time:
linearly less, to nothing at `REFUSE_AT`."""
MIN_TTL_S = 60.0
"""Shortest time for which they are kept, so that waiting clients can still read them."""


def count_note_bytes(text: str) -> int:
    """Return the bytes that the note of an asynchronous job counts against its API key's bound."""
    return max(NOTE_PARTS * len(text), MIN_NOTE_BYTES)


def compute_kept_share(fill: float) -> float:
    """Return the share of its time to live for which a text is kept. `fill`: used share of the
    store's memory."""
    return min(max((REFUSE_AT - fill) / (REFUSE_AT - SHORTEN_FROM), 0.0), 1.0)


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Lease, bounds and times to live of a broker."""

    lease_s: float = 30.0
    max_depth: int = 20_000
    """Jobs queued or running per grader."""
    max_note_bytes: int = 32 * 1024 * 1024
    """Bytes that the asynchronous jobs of one API key count: some 100,000 submissions."""
    result_ttl_s: float = 3600.0
    """Seconds to keep cached results (verdicts)."""
    uncached_ttl_s: float = 300.0
    """Seconds to keep results that are not cached (faults), so that waiting clients can still read
    them."""
    max_dead_letters: int = 100
    """Dead letters kept per grader."""
    dead_letter_ttl_s: float = 7 * 86_400.0
    """Seconds to keep dead letters after the newest one; in Redis only."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that killed its workers or could not be read, kept for operators."""

    job: Job
    history: tuple[str, ...]
    """Ends of the starts before the last: `<unix seconds> <worker> let its lease lapse`, or `...
    gave it back`."""


class QueueState(StrEnum):
    """What an operator wants of one grader's queue; it lasts for a week."""

    OPEN = "open"
    PAUSED = "paused"
    """Queued jobs are not started; running ones end, and new ones are accepted."""
    DRAINING = "draining"
    """New jobs are refused as if the queue were full; queued and running ones end."""


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Job counts of one grader's queue, by state."""

    queued: int
    running: int
    """Claimed and not finished; the lease may have lapsed."""
    restarted: int
    """Running jobs that an earlier worker lost; counted up to 1,000."""
    dead_letters: int


@dataclass(frozen=True, slots=True)
class UnfinishedJob:
    """A job between submission and result, as operators see it."""

    id: str
    runs: tuple[str, ...]
    """Runs whose requests wait for it, sorted."""
    is_running: bool
    starts: int


class Broker(Protocol):
    """Every method raises QueueFault when the store stays unreachable for longer than its retries
    last."""

    @property
    def lease_s(self) -> float:
        """Seconds after which an unrenewed claim can be claimed by another worker. Renew as
        `RENEW_S` says."""

    async def get_time(self) -> float:
        """Return the time of the store's clock in seconds. Deadlines are times of this clock: those
        of two machines differ."""

    async def submit(
        self, jobs: Sequence[Job], fair_share: FairShare = DEFAULT_FAIR_SHARE
    ) -> dict[str, str]:
        """Queue those of `jobs` (of one grader) that are neither queued, running nor answered.

        Returns the cached results, by job id. A job that another run queued already moves up if
        this fair share's next turn is sooner. Raises QueueFull when the queue would pass its bound,
        or its store has little memory left; then nothing was queued.
        """

    def wait(self, job_ids: Iterable[str], timeout_s: float) -> AsyncIterator[tuple[str, str]]:
        """Yield (job id, result) as each of these submitted jobs is finished, each id once, in
        order of completion.

        Ends when all are yielded or after `timeout_s`; ids that were not yielded have no result
        yet.
        """

    async def results(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Return the stored results, by job id. An unfinished job has none, nor one whose result's
        time to live is over."""

    async def save_note(self, key: str, text: str, ttl_s: float, *, replace: bool = True) -> None:
        """Store a text under `key`, in a name space of its own: the jobs of a request, a
        description.

        Without `replace` a text that is there already stays.
        """

    async def keep_job(
        self, job_id: str, text: str, ttl_s: float, fair_share: FairShare, deadline: float
    ) -> bool:
        """Store the note `job:ID` of an asynchronous job within `max_note_bytes` of its API key.

        Where it has no room, notes of the key's jobs whose deadlines passed `MIN_TTL_S` ago are
        dropped, with what is stored of their ends (`done:ID`). Returns False where others leave no
        room either; then nothing is stored. `deadline`: of the store's clock.
        """

    async def get_notes(self, keys: Sequence[str]) -> dict[str, str]:
        """Return the texts of `save_note`, by key; none after its time to live."""

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        """Withdraw one `submit` of each of these unfinished jobs; a queued job without any left is
        dropped.

        Of a running one `renew` reports to the worker that it is unwanted; if that worker dies it
        is not restarted.
        """

    async def list_unfinished(self, grader: str, limit: int | None = None) -> list[UnfinishedJob]:
        """Return up to `limit` running jobs, oldest first, and up to `limit` queued ones, in the
        order of their tenants' turns. Runs of a tenant start its jobs in another order."""

    async def revoke(self, grader: str, job_ids: Iterable[str], run: str = "") -> int:
        """End unfinished jobs for all clients: each gets the result `signing.CANCELLED`. Returns
        their number.

        A queued job is dropped, a running one becomes unwanted, as by `cancel`. `run`: only jobs
        that this run alone waits for.
        """

    async def claim(
        self, grader: str, worker: str, limit: int, wait_s: float, max_bytes: int = 0
    ) -> list[Claim]:
        """Claim up to `limit` jobs, lapsed leases of other workers included; wait up to `wait_s`
        for the first.

        `max_bytes`: only jobs with a payload of at most so many bytes, which are among the next
        `LOOK_AHEAD` of their priority. 0: of any size.

        Each claim counts as a start, unless its lease lapses and its worker renews it later. Let a
        call run to its end: the jobs of a cancelled one stay claimed until their leases lapse.
        """

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        """Restart the leases of `claims`; returns those whose job is unwanted."""

    async def finish(
        self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False
    ) -> bool:
        """Deliver the result to every waiting client. `cache` keeps it for later ones (verdicts
        yes, faults no).

        `dead_letter` keeps the job among the dead letters. False: the claim had lapsed and another
        worker finished the job; nothing was changed.
        """

    async def release(self, claim: Claim, *, put_off: bool = False) -> None:
        """Return the job unfinished to its old place in the queue, or behind `PUT_OFF_TURNS` turns
        of the others.

        An unwanted job is dropped.
        """

    async def heartbeat(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        """Register a live worker and its grader for `ttl_s`. ttl_s = 0 removes it."""

    async def graders(self) -> list[GraderInfo]:
        """Return the graders of live workers, one entry per grader revision, with `workers` and
        `slots` summarize_workers."""

    async def get_registrations(self) -> dict[str, float]:
        """Return the time at which each registration ends, by `GRADER:WORKER`. Workers that ended
        without leaving stay for an hour."""

    async def depth(self, grader: str) -> int:
        """Return jobs queued or running."""

    async def get_queue_stats(self, grader: str) -> QueueStats: ...

    async def get_memory_fill(self) -> float:
        """Return the used share of the memory that the store may use, at most a few seconds old; 0
        without a limit."""

    async def dead_letters(self, grader: str) -> list[DeadLetter]:
        """Return the newest `max_dead_letters` dead letters, oldest first."""

    async def remove_dead_letters(self, grader: str, job_ids: Iterable[str]) -> None:
        """Forget the dead letters of these jobs."""

    async def get_queue_state(self, grader: str) -> QueueState: ...

    async def set_queue_state(self, grader: str, state: QueueState) -> None: ...

    async def migrate(self) -> str:
        """Load what this release needs into the store, beside what others need. Returns its name.
        Raises QueueFault, for a user without the right too."""

    async def close(self) -> None: ...
