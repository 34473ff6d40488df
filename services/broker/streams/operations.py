"""Live workers, notes, counts and dead letters: what is kept in Redis beside the jobs on their
way."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from pydantic import ValidationError

from gradus.descriptions import GraderInfo
from services.broker import (
    DEATH_KEPT_S,
    MIN_TTL_S,
    BrokerSettings,
    DeadLetter,
    FairShare,
    Job,
    QueueState,
    QueueStats,
    UnfinishedJob,
    count_note_bytes,
)
from services.broker.signing import CANCELLED
from services.broker.streams import layout
from services.broker.streams.clock import RedisClock
from services.broker.streams.memory import RedisMemory
from services.broker.streams.redis_client import (
    LOAD,
    RetryingRedis,
    parse_fields,
    split_chunks,
    to_ms,
)
from services.broker.streams.redis_faults import NoMemory, NoPermission
from services.broker.streams.scripts import (
    DEPTH,
    HEARTBEAT,
    KEEP_JOB,
    REVOKE,
    STATS,
    UNFINISHED,
    VERSION,
    WORKERS,
    build_library,
)
from services.broker.workers import summarize_workers

log = logging.getLogger(__name__)


class StreamOperations:
    _redis: RetryingRedis
    _settings: BrokerSettings
    memory: RedisMemory
    clock: RedisClock

    async def get_time(self) -> float:
        return await self.clock.get_time()

    async def probe(self) -> None:
        """Return once the master of the keys answers. Raises QueueFault. In a cluster that is not
        before a key that does not exist is its own: not while they move."""
        await self._redis.call("EXISTS", f"{self._redis.prefix}probe")

    async def migrate(self) -> str:
        try:
            await self._redis.call(*LOAD, build_library())
        except NoPermission as refusal:
            raise NoPermission(
                "this user of Redis may not load functions: use the URL of the user `api`"
                " (redis-api.url of `make secrets`)",
                retryable=False,
            ) from refusal
        return f"gradus_{VERSION}"

    async def results(self, job_ids: Sequence[str]) -> dict[str, str]:
        results: dict[str, str] = {}
        for chunk in split_chunks(job_ids):
            keys = []
            for kind in ("uncached", "result"):
                for job_id in chunk:
                    keys.append(self._redis.key(kind, job_id))
            texts = zip(2 * chunk, await self._redis.call("MGET", *keys), strict=True)
            results.update((job_id, text) for job_id, text in texts if text is not None)
        return results

    async def save_note(self, key: str, text: str, ttl_s: float, *, replace: bool = True) -> None:
        condition = () if replace else ("NX",)
        await self._redis.call(
            "SET", self._redis.key("note", key), text, "PX", to_ms(ttl_s), *condition
        )

    async def keep_job(
        self, job_id: str, text: str, ttl_s: float, fair_share: FairShare, deadline: float
    ) -> bool:
        past = await self.get_time() - MIN_TTL_S
        try:
            return bool(
                await self._redis.run(
                    KEEP_JOB,
                    [self._redis.key("kept", fair_share.key)],
                    self._redis.prefix,
                    job_id,
                    text,
                    to_ms(ttl_s),
                    deadline,
                    past,
                    count_note_bytes(text),
                    self._settings.max_note_bytes,
                    layout.JOB_TTL_MS,
                )
            )
        except NoMemory:
            return False

    async def get_notes(self, keys: Sequence[str]) -> dict[str, str]:
        notes: dict[str, str] = {}
        for chunk in split_chunks(keys):
            texts = await self._redis.call("MGET", *(self._redis.key("note", key) for key in chunk))
            notes.update(
                (key, text) for key, text in zip(chunk, texts, strict=True) if text is not None
            )
        return notes

    async def list_unfinished(self, grader: str, limit: int | None = None) -> list[UnfinishedJob]:
        count = () if limit is None else ("COUNT", limit)
        entries = await self._redis.call(
            "XRANGE", self._redis.key("jobs", grader), "-", "+", *count
        )
        job_ids = [parse_fields(entry).get("id", "") for _, entry in entries]
        job_ids += await self._redis.call(
            "ZRANGE", self._redis.key("queue", grader), 0, (limit or 0) - 1
        )
        jobs = {}
        for chunk in split_chunks(job_ids):
            args = (self._redis.prefix, self._redis.key("inbox", ""), *chunk)
            for job_id, is_running, starts, runs in await self._redis.run(UNFINISHED, [], *args):
                names = tuple(sorted({*runs.split("\n")} - {""}))
                jobs[job_id] = UnfinishedJob(job_id, names, bool(is_running), starts)
        return list(jobs.values())

    async def revoke(self, grader: str, job_ids: Iterable[str], run: str = "") -> int:
        fixed = (
            self._redis.prefix,
            self._redis.key("inbox", ""),
            CANCELLED,
            to_ms(self._settings.uncached_ttl_s),
        )
        queue = [self._redis.key("queue", grader)]
        n_ended = 0
        for chunk in split_chunks(job_ids):
            n_ended += await self._redis.run(REVOKE, queue, *fixed, layout.MAX_INBOX, run, *chunk)
        return n_ended

    async def heartbeat(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        # so that a Redis user can be kept from registering other graders
        worker = f"{info.name}:{worker}"
        keys = [f"{self._redis.prefix}workers", self._redis.key("worker", worker)]
        ttl_ms = to_ms(ttl_s) if ttl_s > 0 else 0
        times = (ttl_ms, layout.JOB_TTL_MS, to_ms(DEATH_KEPT_S))
        await self._redis.run(HEARTBEAT, keys, worker, info.model_dump_json(), *times)

    async def graders(self) -> list[GraderInfo]:
        registered = []
        for worker, text, number in await self._redis.run(WORKERS, [], self._redis.prefix):
            try:
                info = GraderInfo.model_validate_json(text, extra="ignore")
            except ValidationError as error:  # a worker of another release: the others still count
                log.warning("cannot read the registration of worker %s: %s", worker, error)
                continue
            if worker.startswith(f"{info.name}:"):
                counts = {"workers": info.workers * number, "slots": info.slots * number}
                registered.append((worker, info.model_copy(update=counts)))
        return summarize_workers(registered)

    async def get_registrations(self) -> dict[str, float]:
        key = f"{self._redis.prefix}workers"
        scores = parse_fields(await self._redis.call("ZRANGE", key, 0, -1, "WITHSCORES"))
        return {name: float(end_ms) / 1000 for name, end_ms in scores.items()}

    async def depth(self, grader: str) -> int:
        return int(await self._redis.run(DEPTH, self._redis.keys(("queue", "jobs"), grader)))

    async def get_queue_stats(self, grader: str) -> QueueStats:
        keys = self._redis.keys(("queue", "jobs", "dead"), grader)
        return QueueStats(*await self._redis.run(STATS, keys, layout.GROUP))

    async def get_memory_fill(self) -> float:
        await self.memory.is_full()
        return self.memory.fill

    async def dead_letters(self, grader: str) -> list[DeadLetter]:
        entries = await self._redis.call("XRANGE", self._redis.key("dead", grader), "-", "+")
        letters = [parse_fields(entry) for _, entry in entries]
        letters_read = []
        for letter in letters:
            letters_read.append(
                DeadLetter(
                    Job(letter["id"], grader, letter["payload"]),
                    tuple(letter["history"].splitlines()),
                )
            )
        return letters_read

    async def remove_dead_letters(self, grader: str, job_ids: Iterable[str]) -> None:
        key = self._redis.key("dead", grader)
        unwanted = set(job_ids)
        entries = []
        for entry, letter in await self._redis.call("XRANGE", key, "-", "+"):
            if parse_fields(letter)["id"] in unwanted:
                entries.append(entry)
        if entries:
            await self._redis.call("XDEL", key, *entries)

    async def get_queue_state(self, grader: str) -> QueueState:
        return QueueState(
            await self._redis.call("GET", self._redis.key("state", grader)) or QueueState.OPEN
        )

    async def set_queue_state(self, grader: str, state: QueueState) -> None:
        await self._redis.call(
            "SET", self._redis.key("state", grader), state.value, "PX", layout.STATE_TTL_MS
        )
