"""Memory of the Redis server: before it is full, results are kept for less time, then keys that
hold much of it queue no more, and then new work of all is refused.

Work that was accepted is always finished: its results may take Redis past `maxmemory` (scripts.py).
"""

from __future__ import annotations

import asyncio
import time

from gradus.errors import QueueFault
from services.broker import (
    MEMORY_PART,
    MIN_TTL_S,
    REFUSE_AT,
    SHARE_FROM,
    SHORTEN_FROM,
    compute_kept_share,
)
from services.broker.streams.redis_client import RetryingRedis, parse_info, to_ms
from services.broker.streams.scripts import SHORTEN

CHECK_S = 1.0
"""Seconds between looks at the memory."""


class RedisMemory:
    def __init__(self, redis: RetryingRedis) -> None:
        self._redis = redis
        self.shortening = (f"{redis.prefix}share", to_ms(MIN_TTL_S))
        """Key of the share of their time to live for which results are kept, and the shortest time
        in ms."""
        self.next_look = 0.0
        self.fill = 0.0
        """Used share of `maxmemory` at the last look; 0 without a `maxmemory`."""
        self._limit = 0
        """Bytes of `maxmemory`; 0 without one."""
        self._n_sent = 0
        """Bytes of payloads since the last look."""

    async def is_full(self, n_bytes: int = 0) -> bool:
        """Return whether new jobs are to be refused; looks once in `CHECK_S` seconds, or more often
        where much is sent, and shortens the cache. `n_bytes`: of payloads that are sent next."""
        self._n_sent += n_bytes
        if time.monotonic() >= self.next_look or MEMORY_PART * self._n_sent > self._limit > 0:
            self.next_look = time.monotonic() + CHECK_S
            self._n_sent = n_bytes
            await self._measure_fill()
        return self.fill >= REFUSE_AT

    def is_part_full(self, n_held: int) -> bool:
        """Return whether memory is short and an API key whose payloads take so many bytes, those
        that are sent next included, holds more than its part."""
        n_used = self.fill * self._limit + self._n_sent
        return SHARE_FROM * self._limit < n_used and 0 < self._limit < MEMORY_PART * n_held

    async def _measure_fill(self) -> None:
        try:
            async with asyncio.timeout(CHECK_S):
                values = parse_info(await self._redis.call("INFO", "memory"))
        except (
            QueueFault,
            TimeoutError,
        ):  # away, or a user without the right: the next command says so, or Redis refuses at 100 %
            return
        self._limit = int(values.get("maxmemory", 0))
        self.fill = int(values["used_memory"]) / self._limit if self._limit else 0.0
        if self.fill > SHORTEN_FROM:
            share = max(compute_kept_share(self.fill), 0.001)
            await self._redis.run(
                SHORTEN, [self.shortening[0]], f"{share:.3f}", to_ms(10 * CHECK_S)
            )
