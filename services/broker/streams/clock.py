"""The clock of the Redis server, which deadlines are times of: clocks of two machines differ."""

from __future__ import annotations

import time

from services.broker.streams.redis_client import RetryingRedis, parse_info

CHECK_S = 10.0
"""Seconds between looks at the clock: a failover may bring another one."""


class RedisClock:
    def __init__(self, redis: RetryingRedis) -> None:
        self._redis = redis
        self._next_look = 0.0
        self._ahead_s = 0.0
        """Seconds by which the clock is ahead of `time.monotonic`, at most the duration of the last
        look too much: a deadline may come late, never early."""

    async def get_time(self) -> float:
        """Return the seconds since 1970 by the clock of Redis. Raises QueueFault."""
        sent_at = time.monotonic()
        if sent_at >= self._next_look:
            # Not TIME, which users of earlier releases' ACL files may not run.
            server = parse_info(await self._redis.call("INFO", "server"))
            self._ahead_s = int(server["server_time_usec"]) / 1e6 - sent_at
            self._next_look = sent_at + CHECK_S
        return time.monotonic() + self._ahead_s
