"""The queue of many processes, on Redis Streams: one Redis, or one with replicas, but no Redis Cluster.

`layout` lists what lies in Redis, `producer` submits and waits, `consumer` claims and finishes, `operations` is what
is asked about workers and queues, `redis_client` retries, and the scripts are in `services/broker/lua`. Only JSON is
stored; nothing read is executed or unpickled.
"""

from __future__ import annotations

from services.broker import BrokerSettings
from services.broker.streams.consumer import StreamConsumer
from services.broker.streams.operations import StreamOperations
from services.broker.streams.producer import StreamProducer
from services.broker.streams.redis_client import RetryingRedis


class StreamsBroker(StreamProducer, StreamConsumer, StreamOperations):
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
        redis, settings = RetryingRedis(url, prefix=prefix, patience_s=patience_s), settings or BrokerSettings()
        StreamProducer.__init__(self, redis, settings, wait_patience_s=wait_patience_s)
        StreamConsumer.__init__(self, redis, settings)
        StreamOperations.__init__(self, redis)

    async def close(self) -> None:
        await StreamProducer.close(self)
        await self._redis.close()
