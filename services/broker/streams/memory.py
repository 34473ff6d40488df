"""Memory of the Redis server: before it is full, results are kept for less time, and then new work
is refused.

Work that was accepted is always finished: its results may take Redis past `maxmemory` (scripts.py).
"""

from __future__ import annotations

import asyncio
import time

from gradus.errors import QueueFault
from services.broker import MIN_TTL_S, REFUSE_AT, SHORTEN_FROM, compute_kept_share
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

    async def is_full(self) -> bool:
        """Return whether new jobs are to be refused; looks at most once in `CHECK_S` seconds, and
        shortens the cache."""
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + CHECK_S
            await self._measure_fill()
        return self.fill >= REFUSE_AT

    async def _measure_fill(self) -> None:
        try:
            async with asyncio.timeout(CHECK_S):
                values = parse_info(await self._redis.call("INFO", "memory"))
        except (
            QueueFault,
            TimeoutError,
        ):  # away, or a user without the right: the next command says so, or Redis refuses at 100 %
            return
        limit = int(values.get("maxmemory", 0))
        self.fill = int(values["used_memory"]) / limit if limit else 0.0
        if self.fill > SHORTEN_FROM:
            share = max(compute_kept_share(self.fill), 0.001)
            await self._redis.run(
                SHORTEN, [self.shortening[0]], f"{share:.3f}", to_ms(10 * CHECK_S)
            )
