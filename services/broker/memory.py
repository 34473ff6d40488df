"""The queue of one process, for `gradus serve` without Redis and for tests. Nothing survives the
process.

Queues, turns, cancelling and dead letters work as in `streams`. There are no leases: no worker of
this process dies alone.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left, insort
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from gradus.descriptions import GraderInfo
from services.broker import (
    KEY_PARTS,
    LOOK_AHEAD,
    MAX_FAIR_SHARES,
    MIN_TTL_S,
    PUT_OFF_TURNS,
    RESERVED_PART,
    TRAINING_PART,
    BrokerSettings,
    DeadLetter,
    QueueState,
    QueueStats,
    UnfinishedJob,
    count_note_bytes,
)
from services.broker.jobs import (
    DEFAULT_FAIR_SHARE,
    Claim,
    FairShare,
    Job,
    Priority,
    QueueFull,
)
from services.broker.signing import CANCELLED
from services.broker.waiters import ResultWaiters
from services.broker.workers import summarize_workers

MAX_KEPT = 100_000
"""Results kept; beyond it the oldest are dropped before their time to live."""
T = TypeVar("T")


class _Tenant(NamedTuple):
    """A tenant in one priority: what takes turns in a queue."""

    priority: Priority
    name: str


@dataclass(slots=True)
class _Entry:
    """A job between submission and answer."""

    job: Job
    priority: Priority
    virtual_time: int = 0
    tenant: _Tenant | None = None
    """Whose jobs it takes turns with; none after it was given back."""
    time_in_tenant: int = 0
    waiters: int = 1
    """Submits that have not been cancelled."""
    runs: set[str] = field(default_factory=set)
    """Runs of these submits."""
    starts: int = 0
    token: str = ""
    """That of the claim; empty while the job is queued."""
    history: list[str] = field(default_factory=list)

    @property
    def place(self) -> tuple[bool, int, str]:
        """Sort key of a queued job: evaluation first, then virtual time, then id."""
        return *_get_rank(self.priority, self.virtual_time), self.job.id

    @property
    def place_in_tenant(self) -> tuple[int, str]:
        return self.time_in_tenant, self.job.id


def _get_rank(priority: Priority, virtual_time: int) -> tuple[bool, int]:
    return priority is not Priority.EVALUATION, virtual_time


def _remove(entries: list[_Entry], entry: _Entry, place: str) -> None:
    """Remove `entry` from `entries`, sorted by the attribute `place`."""
    get_place = attrgetter(place)
    del entries[bisect_left(entries, get_place(entry), key=get_place)]


@dataclass(slots=True)
class _Turns:
    """Virtual times of start-time fair queuing.

    The next job gets the virtual time after that of the last one of the same name, or after that
    of the job claimed last, whichever is later: names alternate, and a late one neither waits for
    another's backlog nor catches up on its own.
    """

    now: int = 0
    """Time of the job claimed last."""
    _last: dict[str, int] = field(default_factory=dict)

    def compute_next(self, name: str) -> int:
        return max(self.now, self._last.get(name, 0)) + 1

    def give(self, name: str) -> int:
        if len(self._last) > MAX_FAIR_SHARES:
            self._last = {other: time for other, time in self._last.items() if time > self.now}
        self._last[name] = self.compute_next(name)
        return self._last[name]

    def advance(self, time: int) -> None:
        self.now = max(self.now, time)

    def count_backlog(self, name: str) -> int:
        """Return jobs of this name that are queued, and those that it cancelled since the queue was
        last empty."""
        return max(0, self._last.get(name, 0) - self.now)


@dataclass(slots=True)
class _FairQueue:
    """The queued jobs of one grader: tenants take turns, and the runs of each take its turns
    in turns."""

    jobs: list[_Entry] = field(default_factory=list)
    """Sorted by place."""
    _jobs_of_tenants: defaultdict[_Tenant, list[_Entry]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Sorted by place in the tenant."""
    _turns_of_tenants: defaultdict[Priority, _Turns] = field(
        default_factory=lambda: defaultdict(_Turns)
    )
    _turns_of_runs: defaultdict[_Tenant, _Turns] = field(
        default_factory=lambda: defaultdict(_Turns)
    )
    _n_claimed: int = 0
    """Jobs that were claimed while evaluation was next and training waited."""

    def join(self, entry: _Entry, fair_share: FairShare) -> None:
        tenant = _Tenant(fair_share.priority, fair_share.tenant)
        entry.priority = fair_share.priority
        entry.virtual_time = self._turns_of_tenants[tenant.priority].give(tenant.name)
        self.add(entry)
        self._join_tenant(entry, tenant, fair_share.run)

    def _join_tenant(self, entry: _Entry, tenant: _Tenant, run: str) -> None:
        entry.tenant = tenant
        entry.time_in_tenant = self._turns_of_runs[tenant].give(run)
        insort(self._jobs_of_tenants[tenant], entry, key=attrgetter("place_in_tenant"))

    def _leave_tenant(self, entry: _Entry) -> None:
        if entry.tenant is not None:
            _remove(self._jobs_of_tenants[entry.tenant], entry, "place_in_tenant")
            entry.tenant = None

    def add(self, entry: _Entry) -> None:
        insort(self.jobs, entry, key=attrgetter("place"))

    def remove(self, entry: _Entry) -> None:
        _remove(self.jobs, entry, "place")
        self._leave_tenant(entry)

    def postpone(self, entry: _Entry) -> None:
        entry.virtual_time = self._turns_of_tenants[entry.priority].now + PUT_OFF_TURNS
        self.add(entry)

    def move_up(self, entry: _Entry, fair_share: FairShare) -> None:
        """Give a queued job the fair share's next turn if that is earlier than its own."""
        tenant = _Tenant(fair_share.priority, fair_share.tenant)
        time_in_tenant = self._turns_of_runs[tenant].compute_next(fair_share.run)
        rank = _get_rank(
            tenant.priority, self._turns_of_tenants[tenant.priority].compute_next(tenant.name)
        )
        if entry.tenant == tenant and time_in_tenant < entry.time_in_tenant:
            self._leave_tenant(entry)
            self._join_tenant(entry, tenant, fair_share.run)
        elif entry.tenant != tenant and rank < entry.place[:2]:
            self.remove(entry)
            self.join(entry, fair_share)

    def count_backlog(self, fair_share: FairShare) -> int:
        """Return jobs of this run that are queued, and those that it cancelled since the queue was
        last empty."""
        tenant = _Tenant(fair_share.priority, fair_share.tenant)
        of_tenant = self._turns_of_tenants[tenant.priority].count_backlog(tenant.name)
        return min(of_tenant, self._turns_of_runs[tenant].count_backlog(fair_share.run))

    def count_backlog_of_tenant(self, name: str) -> int:
        """Return the same for all runs of a tenant, in both priorities."""
        return sum(turns.count_backlog(name) for turns in self._turns_of_tenants.values())

    def take(self, limit: int, max_bytes: int) -> list[_Entry]:
        """Return the next jobs, of any size where `max_bytes` is 0."""
        taken: list[_Entry] = []
        while len(taken) < limit and self.jobs:
            entry = self._take_small(max_bytes) if max_bytes else self._take_next()
            if entry is None:
                break
            self._turns_of_tenants[entry.priority].advance(entry.virtual_time)
            taken.append(entry)
        return taken

    def _take_small(self, max_bytes: int) -> _Entry | None:
        for first in (0, self._count_evaluation()):
            for entry in self.jobs[first : first + LOOK_AHEAD]:
                if len(entry.job.payload.encode()) <= max_bytes:
                    self.remove(entry)
                    return entry
        return None

    def _take_next(self) -> _Entry:
        first = self.jobs[self._find_next()]
        chosen = self._jobs_of_tenants[first.tenant][0] if first.tenant else first
        _remove(self.jobs, first, "place")
        if chosen is not first:
            _remove(self.jobs, chosen, "place")
            first.virtual_time, chosen.virtual_time = chosen.virtual_time, first.virtual_time
            self.add(first)
        if chosen.tenant:
            self._turns_of_runs[chosen.tenant].advance(chosen.time_in_tenant)
            self._leave_tenant(chosen)
        return chosen

    def _find_next(self) -> int:
        """Return the index of the job whose tenant has the next turn: evaluation first, but each
        fifth one is training's while that waits."""
        n_evaluation = self._count_evaluation()
        if n_evaluation in (0, len(self.jobs)):
            return 0
        self._n_claimed += 1
        return 0 if self._n_claimed % TRAINING_PART else n_evaluation

    def _count_evaluation(self) -> int:
        return bisect_left(self.jobs, (True, 0, ""), key=attrgetter("place"))


@dataclass(slots=True)
class _Queue:
    """The jobs of one grader."""

    dead_letters: deque[DeadLetter]
    queued: _FairQueue = field(default_factory=_FairQueue)
    running: dict[str, _Entry] = field(default_factory=dict)
    """By job id, oldest first."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    state: QueueState = QueueState.OPEN

    def __len__(self) -> int:
        return len(self.queued.jobs) + len(self.running)

    async def wait_for_change(self, until: float) -> None:
        """Wait for a change, at most until then."""
        self.changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self.changed.wait()


class _Expiring(Generic[T]):
    """Values by key, each for its time to live."""

    def __init__(self) -> None:
        self._items: dict[str, tuple[T, float]] = {}

    def add(self, key: str, value: T, ttl_s: float) -> None:
        self.drop(key)
        self._items[key] = (value, time.monotonic() + ttl_s)
        while self._items:
            oldest = next(iter(self._items))
            if len(self._items) <= MAX_KEPT and self.find([oldest]):
                break
            del self._items[oldest]

    def find(self, keys: Iterable[str]) -> dict[str, T]:
        now = time.monotonic()
        items = {key: self._items[key] for key in keys if key in self._items}
        return {key: value for key, (value, until) in items.items() if until > now}

    def get_all(self) -> dict[str, T]:
        return self.find(list(self._items))

    def get_ends(self) -> dict[str, float]:
        """Return when each value is over, of `time.monotonic`."""
        return {key: self._items[key][1] for key in self.get_all()}

    def drop(self, key: str) -> None:
        self._items.pop(key, None)


class MemoryBroker:
    """See `services.broker.Broker`. Belongs to one event loop; nothing in it awaits but `wait` and
    `claim`."""

    def __init__(self, settings: BrokerSettings | None = None) -> None:
        self._settings = settings or BrokerSettings()
        self.lease_s = self._settings.lease_s
        self._queues = defaultdict[str, _Queue](
            lambda: _Queue(deque(maxlen=self._settings.max_dead_letters))
        )
        self._entries: dict[str, _Entry] = {}
        self._results = _Expiring[tuple[str, bool]]()
        """Results, and whether they are cached."""
        self._notes = _Expiring[str]()
        self._kept = defaultdict[str, set[tuple[float, int, str]]](set)
        """Deadline, counted bytes and id of asynchronous jobs, by API key."""
        self._workers = _Expiring[GraderInfo]()
        self._waiters = ResultWaiters()
        self._tokens = count(1)
        self._started_at = time.time() - time.monotonic()

    def _get_time(self) -> float:
        return self._started_at + time.monotonic()

    async def get_time(self) -> float:
        return self._get_time()

    # ------------------------------------------------------------------------------------ producer

    async def submit(
        self, jobs: Sequence[Job], fair_share: FairShare = DEFAULT_FAIR_SHARE
    ) -> dict[str, str]:
        if not jobs:
            return {}
        stored_results = self._results.find(job.id for job in jobs)
        answered = {
            job_id: result for job_id, (result, is_cached) in stored_results.items() if is_cached
        }
        unanswered = {job.id: job for job in jobs if job.id not in answered}
        new = [job for job in unanswered.values() if job.id not in self._entries]
        grader = jobs[0].grader
        queue = self._queues[grader]
        bound = self._settings.max_depth
        depth = len(queue) + len(new)
        has_reserve = queue.queued.count_backlog(fair_share) + len(new) <= bound // RESERVED_PART
        if new and queue.state is QueueState.DRAINING:
            raise QueueFull(grader, "draining")
        if new and depth > 2 * bound:
            raise QueueFull(grader, "queue")
        if new and depth > bound and not has_reserve:
            raise QueueFull(grader, "run")
        key_bound = bound + KEY_PARTS * (bound // RESERVED_PART)
        backlog = queue.queued.count_backlog_of_tenant(fair_share.tenant) if depth > bound else 0
        has_key_part = backlog + len(new) <= key_bound or not fair_share.has_key
        if new and depth > bound and not has_key_part:
            raise QueueFull(grader, "key_part")
        if not queue.queued.jobs:
            queue.queued = _FairQueue()  # virtual times start anew
        for job_id in unanswered:
            self._results.drop(job_id)  # a fault, of an earlier try or because it was revoked
        for entry in [self._entries[job_id] for job_id in unanswered if job_id in self._entries]:
            entry.waiters += 1
            entry.runs.add(fair_share.run)
            if not entry.token:
                queue.queued.move_up(entry, fair_share)
        for job in new:
            entry = _Entry(job, fair_share.priority, runs={fair_share.run})
            self._entries[job.id] = entry
            queue.queued.join(entry, fair_share)
        queue.changed.set()
        return answered

    def wait(self, job_ids: Iterable[str], timeout_s: float) -> AsyncIterator[tuple[str, str]]:
        return self._waiters.wait(job_ids, timeout_s, self._deliver_stored)

    async def _deliver_stored(self, job_ids: Sequence[str]) -> None:
        for job_id, result in (await self.results(job_ids)).items():
            self._waiters.deliver(job_id, result)

    async def results(self, job_ids: Sequence[str]) -> dict[str, str]:
        return {job_id: result for job_id, (result, _) in self._results.find(job_ids).items()}

    async def save_note(self, key: str, text: str, ttl_s: float, *, replace: bool = True) -> None:
        if replace or not self._notes.find([key]):
            self._notes.add(key, text, ttl_s)

    async def keep_job(
        self, job_id: str, text: str, ttl_s: float, fair_share: FairShare, deadline: float
    ) -> bool:
        kept = self._kept[fair_share.key]
        past = self._get_time() - MIN_TTL_S
        n_bytes = count_note_bytes(text)
        held = n_bytes
        for ended, size, other in sorted(kept, reverse=True):
            if ended < past and held + size > self._settings.max_note_bytes:
                kept.remove((ended, size, other))
                self._notes.drop(f"job:{other}")
                self._notes.drop(f"done:{other}")
            else:
                held += size
        if held > self._settings.max_note_bytes:
            return False
        kept.add((deadline, n_bytes, job_id))
        self._notes.add(f"job:{job_id}", text, ttl_s)
        return True

    async def get_notes(self, keys: Sequence[str]) -> dict[str, str]:
        return self._notes.find(keys)

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        queue = self._queues[grader]
        for job_id in dict.fromkeys(job_ids):
            entry = self._entries.get(job_id)
            if entry is None:
                continue
            entry.waiters = max(0, entry.waiters - 1)
            if not entry.waiters:
                entry.runs.clear()
            if not entry.waiters and not entry.token:
                queue.queued.remove(entry)
                del self._entries[job_id]

    async def list_unfinished(self, grader: str, limit: int | None = None) -> list[UnfinishedJob]:
        queue = self._queues[grader]
        return [
            UnfinishedJob(entry.job.id, tuple(sorted(entry.runs)), bool(entry.token), entry.starts)
            for entry in [*list(queue.running.values())[:limit], *queue.queued.jobs[:limit]]
        ]

    async def revoke(self, grader: str, job_ids: Iterable[str], run: str = "") -> int:
        entries = [self._entries[job_id] for job_id in job_ids if job_id in self._entries]
        active = [
            candidate
            for candidate in entries
            if candidate.waiters and candidate.job.grader == grader
        ]
        matches = [candidate for candidate in active if not run or candidate.runs == {run}]
        for entry in matches:
            self._results.add(entry.job.id, (CANCELLED, False), self._settings.uncached_ttl_s)
            self._waiters.deliver(entry.job.id, CANCELLED)
            entry.waiters = 1
            await self.cancel(grader, [entry.job.id])
        return len(matches)

    async def depth(self, grader: str) -> int:
        return len(self._queues[grader])

    async def get_queue_stats(self, grader: str) -> QueueStats:
        queue = self._queues[grader]
        return QueueStats(
            queued=len(queue.queued.jobs),
            running=len(queue.running),
            restarted=0,
            dead_letters=len(queue.dead_letters),
        )

    async def get_memory_fill(self) -> float:
        return 0.0

    # ------------------------------------------------------------------------------------ consumer

    async def claim(
        self, grader: str, worker: str, limit: int, wait_s: float, max_bytes: int = 0
    ) -> list[Claim]:
        queue = self._queues[grader]
        until = time.monotonic() + wait_s
        while True:
            taken = []
            if queue.state is not QueueState.PAUSED:
                taken = queue.queued.take(limit, max_bytes)
            if taken or time.monotonic() >= until:
                return [self._start(queue, entry, worker) for entry in taken]
            await queue.wait_for_change(until)

    def _start(self, queue: _Queue, entry: _Entry, worker: str) -> Claim:
        entry.starts += 1
        entry.token = f"{next(self._tokens)} {worker}"
        queue.running[entry.job.id] = entry
        return Claim(entry.job, entry.token, entry.starts, self._get_time())

    def _find_entry(self, claim: Claim) -> _Entry | None:
        """Return the job of the claim; None where it is finished or was released."""
        entry = self._entries.get(claim.job.id)
        return entry if entry is not None and entry.token == claim.token else None

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        leases = [(claim, self._find_entry(claim)) for claim in claims]
        return [claim for claim, entry in leases if entry is not None and not entry.waiters]

    async def finish(
        self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False
    ) -> bool:
        job = claim.job
        queue = self._queues[job.grader]
        entry = self._find_entry(claim)
        if entry is None:
            return False
        del queue.running[job.id], self._entries[job.id]
        if dead_letter:
            queue.dead_letters.append(DeadLetter(entry.job, tuple(entry.history)))
        ttl_s = self._settings.result_ttl_s if cache else self._settings.uncached_ttl_s
        self._results.add(job.id, (result, cache), ttl_s)
        self._waiters.deliver(job.id, result)
        return True

    async def release(self, claim: Claim, *, put_off: bool = False) -> None:
        queue = self._queues[claim.job.grader]
        entry = self._find_entry(claim)
        if entry is None:
            return
        del queue.running[claim.job.id]
        queue.changed.set()
        if not entry.waiters:
            del self._entries[claim.job.id]
            return
        worker = entry.token.partition(" ")[2]
        action = "put it off" if put_off else "gave it back"
        entry.history.append(f"{self._get_time():.3f} {worker} {action}")
        entry.token = ""
        if put_off:
            queue.queued.postpone(entry)
        else:
            queue.queued.add(entry)

    async def dead_letters(self, grader: str) -> list[DeadLetter]:
        return list(self._queues[grader].dead_letters)

    async def remove_dead_letters(self, grader: str, job_ids: Iterable[str]) -> None:
        letters = self._queues[grader].dead_letters
        unwanted = set(job_ids)
        remaining = [letter for letter in letters if letter.job.id not in unwanted]
        letters.clear()
        letters.extend(remaining)

    async def get_queue_state(self, grader: str) -> QueueState:
        return self._queues[grader].state

    async def set_queue_state(self, grader: str, state: QueueState) -> None:
        queue = self._queues[grader]
        queue.state = state
        queue.changed.set()

    async def heartbeat(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        self._workers.add(f"{info.name}:{worker}", info, ttl_s)

    async def get_registrations(self) -> dict[str, float]:
        ends = self._workers.get_ends().items()
        return {name: self._started_at + end for name, end in ends}

    async def graders(self) -> list[GraderInfo]:
        return summarize_workers(self._workers.get_all().items())

    async def migrate(self) -> str:
        return "nothing"

    async def close(self) -> None:
        self._waiters.fail("the broker was closed while a client waited")
