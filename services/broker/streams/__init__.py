"""The queue of many processes, on Redis Streams: one Redis, or one with replicas, but no Redis Cluster.

`redis_keys` lists what lies in Redis, `producer` submits and waits, `consumer` claims and finishes, `redis_client`
retries, and the scripts are in `services/broker/lua`. Only JSON is stored; nothing read is executed or unpickled.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Sequence

from pydantic import ValidationError

from gradus.descriptions import GraderInfo
from services.broker import DEFAULT_FAIR_SHARE, BrokerSettings, Claim, DeadLetter, FairShare, Job, QueueStats
from services.broker.streams.consumer import StreamConsumer
from services.broker.streams.producer import StreamProducer, chunked
from services.broker.streams.redis_client import RetryingRedis, Script, fields
from services.broker.streams.redis_keys import GROUP, JOB_TTL_S, Keys, ms
from services.broker.worker_summary import summarize_workers

log = logging.getLogger(__name__)

HEARTBEAT, DEPTH, STATS = Script("heartbeat"), Script("depth"), Script("stats")


class StreamsBroker:
    """See `services.broker.Broker`. Belongs to one event loop; connects when first used."""

    def __init__(
        self,
        url: str,
        settings: BrokerSettings | None = None,
        *,
        prefix: str = "gradus:",
        patience_s: float = 5.0,
        wait_patience_s: float = 30.0,
    ) -> None:
        """While Redis is unreachable, a call retries for `patience_s` seconds, a wait for `wait_patience_s`.

        Raises ValueError when `url` is no Redis URL.
        """
        self._settings = settings or BrokerSettings()
        self._keys = Keys(prefix)
        self._redis = RetryingRedis(url, patience_s=patience_s)
        self._producer = StreamProducer(self._redis, self._keys, self._settings, wait_patience_s=wait_patience_s)
        self._consumer = StreamConsumer(self._redis, self._keys, self._settings)

    @property
    def lease_s(self) -> float:
        return self._settings.lease_s

    async def submit(self, jobs: Sequence[Job], fair_share: FairShare = DEFAULT_FAIR_SHARE) -> dict[str, str]:
        return await self._producer.submit(jobs, fair_share)

    def wait(self, job_ids: Iterable[str], timeout_s: float) -> AsyncIterator[tuple[str, str]]:
        return self._producer.wait(job_ids, timeout_s)

    async def result(self, job_id: str) -> str | None:
        return (await self.results([job_id])).get(job_id)

    async def results(self, job_ids: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for chunk in chunked(job_ids):
            asked = [(job_id, cache) for cache in (False, True) for job_id in chunk]
            texts = await self._redis.call("MGET", *(self._keys.result(job_id, cache=cache) for job_id, cache in asked))
            found.update((job_id, text) for (job_id, _), text in zip(asked, texts, strict=True) if text is not None)
        return found

    async def put_note(self, key: str, text: str, ttl_s: float) -> None:
        await self._redis.call("SET", self._keys.note(key), text, "PX", ms(ttl_s))

    async def get_note(self, key: str) -> str | None:
        text: str | None = await self._redis.call("GET", self._keys.note(key))
        return text

    async def cancel(self, grader: str, job_ids: Iterable[str]) -> None:
        await self._producer.cancel(grader, job_ids)

    async def claim(self, grader: str, worker: str, limit: int, wait_s: float) -> list[Claim]:
        return await self._consumer.claim(grader, worker, limit, wait_s)

    async def renew(self, claims: Sequence[Claim]) -> list[Claim]:
        return await self._consumer.renew(claims)

    async def finish(self, claim: Claim, result: str, *, cache: bool, dead_letter: bool = False) -> bool:
        return await self._consumer.finish(claim, result, cache=cache, dead_letter=dead_letter)

    async def release(self, claim: Claim) -> None:
        await self._consumer.release(claim)

    async def heartbeat(self, worker: str, info: GraderInfo, ttl_s: float) -> None:
        ttl_ms = ms(ttl_s) if ttl_s > 0 else 0
        keys = [self._keys.workers, self._keys.worker(worker)]
        await self._redis.run(HEARTBEAT, keys, worker, info.model_dump_json(), ttl_ms, ms(JOB_TTL_S))

    async def graders(self) -> list[GraderInfo]:
        names: list[str] = await self._redis.call("ZRANGE", self._keys.workers, 0, -1)
        if not names:
            return []
        texts: list[str | None] = await self._redis.call("MGET", *map(self._keys.worker, names))
        announced = [(name, _info(name, text)) for name, text in zip(names, texts, strict=True) if text is not None]
        return summarize_workers((name, info) for name, info in announced if info is not None)

    async def depth(self, grader: str) -> int:
        return int(await self._redis.run(DEPTH, [self._keys.queue(grader), self._keys.jobs(grader)]))

    async def queue_stats(self, grader: str) -> QueueStats:
        keys = [self._keys.queue(grader), self._keys.jobs(grader), self._keys.dead(grader)]
        return QueueStats(*await self._redis.run(STATS, keys, GROUP))

    async def dead_letters(self, grader: str) -> list[DeadLetter]:
        letters = await self._redis.call("XRANGE", self._keys.dead(grader), "-", "+")
        told = [fields(letter) for _, letter in letters]
        return [DeadLetter(Job(one["id"], grader, one["payload"]), tuple(one["history"].splitlines())) for one in told]

    async def close(self) -> None:
        await self._producer.close()
        await self._redis.close()


def _info(worker: str, text: str) -> GraderInfo | None:
    """None for a worker of another release whose registration cannot be read: the others still count."""
    try:
        return GraderInfo.model_validate_json(text)
    except ValidationError as error:
        log.warning("worker %s announced what this release cannot read: %s", worker, error)
        return None
