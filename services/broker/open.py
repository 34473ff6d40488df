"""From a URL to a broker. Knows which there are; connects to nothing yet."""

from __future__ import annotations

from urllib.parse import urlsplit

from gradus.errors import Misuse
from services.broker import Broker, Terms
from services.broker.memory import MemoryBroker


def open_broker(url: str | None, terms: Terms | None = None) -> Broker:
    """None: a queue inside this process. redis://, rediss:// (TLS) or redis+sentinel://: one shared through that Redis.

    Raises Misuse for any other URL, and when redis-py is not installed.
    """
    if url is None:
        return MemoryBroker(terms)
    scheme = urlsplit(url).scheme
    if scheme not in ("redis", "rediss", "redis+sentinel"):
        raise Misuse(
            f"a broker URL starts with redis://, rediss:// or redis+sentinel://, not with {scheme or 'nothing'}:"
        )
    try:
        from services.broker.streams import StreamsBroker
    except ModuleNotFoundError as error:
        raise Misuse(f"{scheme}:// needs the package {error.name}: pip install 'gradus[api]'") from error
    try:
        return StreamsBroker(url, terms)
    except ValueError as error:
        raise Misuse(f"the broker URL cannot be read: {error}") from error
