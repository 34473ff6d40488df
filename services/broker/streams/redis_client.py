"""Client of one Redis: retries, scripts, and QueueFault in place of redis-py's errors.

redis-py's own retries stay off: they nest (every command retry reconnects with retries of its own), so their duration
has no bound. `RetryingRedis` retries for `patience_s` instead. redis-py's socket timeout stays off too: it sends
through `asyncio.wait_for`, which on Python 3.11 can swallow a cancellation, so that a cancelled task runs on for ever.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from redis import exceptions as redis_errors
from redis.asyncio.connection import parse_url

from gradus.errors import QueueFault
from services.broker.streams import sentinel
from services.broker.streams.connection_pool import Argument, ConnectionPool
from services.broker.streams.sentinel import Sentinels

LUA = Path(__file__).parents[1] / "lua"
COMMAND_CONNECTIONS = 64
READER_CONNECTIONS = 256
"""Concurrent blocking reads: one per worker and one per API process."""
FIRST_PAUSE_S = 0.02
LAST_PAUSE_S = 0.5


class RedisUnavailable(QueueFault):
    """Redis cannot be reached; the next attempt may succeed."""


class NoGroup(Exception):
    """The stream or its consumer group does not exist."""


class Script:
    """A Lua script of `services/broker/lua`, sent in full only to a Redis that has not seen it."""

    def __init__(self, name: str, *, prelude: str = "") -> None:
        """`prelude`: another file, of functions, that is joined in front."""
        self.name = name
        self.text = "".join((LUA / f"{part}.lua").read_text("utf-8") for part in (prelude, name) if part)
        self.sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()


class RetryingRedis:
    def __init__(self, url: str, *, patience_s: float) -> None:
        """Raises ValueError when `url` cannot be read. Connects when first used."""
        self.patience_s = patience_s
        self._shown = redacted(url)
        self._sentinels = Sentinels(url) if urlsplit(url).scheme == sentinel.SCHEME else None
        where = self._sentinels.master_options if self._sentinels else dict(parse_url(url))
        self._commands = ConnectionPool(where, COMMAND_CONNECTIONS, patience_s)
        self._readers = ConnectionPool(where, READER_CONNECTIONS, patience_s)

    async def call(self, *command: Argument) -> Any:
        """The reply. Retries while Redis is unreachable; raises QueueFault after `patience_s`."""
        return await self.persist(lambda: self._attempt(self._commands, self.patience_s, *command))

    async def run(self, script: Script, keys: list[str], *args: Argument) -> Any:
        """The script's reply, like `call`. It must be idempotent: it runs twice when the first reply is lost."""
        return await self.persist(lambda: self._run_once(script, keys, args))

    async def read(self, block_s: float, *command: Argument) -> Any:
        """One attempt at a command that Redis answers within `block_s`. Raises RedisUnavailable and NoGroup."""
        return await self._attempt(self._readers, block_s + self.patience_s, *command)

    async def persist(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """The outcome of `attempt`, made again after each RedisUnavailable for `patience_s`."""
        give_up_at = time.monotonic() + self.patience_s
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except RedisUnavailable:
                if time.monotonic() + pause_s > give_up_at:
                    raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, LAST_PAUSE_S)

    async def close(self) -> None:
        await self._commands.close()
        await self._readers.close()
        if self._sentinels:
            await self._sentinels.close()

    async def _run_once(self, script: Script, keys: list[str], args: tuple[Argument, ...]) -> Any:
        try:
            return await self._attempt(self._commands, self.patience_s, "EVALSHA", script.sha, len(keys), *keys, *args)
        except redis_errors.NoScriptError:
            return await self._attempt(self._commands, self.patience_s, "EVAL", script.text, len(keys), *keys, *args)

    async def _attempt(self, connections: ConnectionPool, timeout_s: float, *command: Argument) -> Any:
        try:
            async with asyncio.timeout(timeout_s):
                return await connections.ask(command)
        except TimeoutError as error:
            raise self._lost(f"no reply within {timeout_s:.1f} s") from error
        except redis_errors.AuthenticationError as error:
            raise self._refused(error) from error
        except redis_errors.ReadOnlyError as error:
            # It was the master once: what is connected to it must go where the master is now.
            await connections.close_idle()
            raise self._lost(str(error)) from error
        except (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError, EOFError) as error:
            # redis-py lets the system's own errors through from some of the places where a connection can break.
            raise self._lost(str(error) or type(error).__name__) from error
        except redis_errors.NoScriptError:
            raise
        except redis_errors.ResponseError as error:
            if str(error).startswith(("NOGROUP", "UNBLOCKED")):
                raise NoGroup from error
            raise self._refused(error) from error
        except redis_errors.RedisError as error:
            raise self._refused(error) from error

    def _lost(self, why: str) -> RedisUnavailable:
        return RedisUnavailable(
            f"cannot reach Redis at {self._shown} ({why}): check that it runs and that the URL is right, then try again"
        )

    def _refused(self, error: redis_errors.RedisError) -> QueueFault:
        return QueueFault(
            f"Redis at {self._shown} refuses a command ({error}): check its user, password, memory and version",
            retryable=not isinstance(error, redis_errors.AuthenticationError),
        )


def fields(flat: Sequence[str]) -> dict[str, str]:
    """The fields of a stream entry, from its alternating names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def redacted(url: str) -> str:
    """`url` without user, password and query."""
    parts = urlsplit(url)
    login, at, address = parts.netloc.rpartition("@")
    return f"{parts.scheme}://{'***@' if login else at}{address}{parts.path}"
