"""URL -> broker."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from gradus.errors import Misuse
from services.broker import Broker, BrokerSettings
from services.broker.memory import MemoryBroker


def open_broker(url: str | None, settings: BrokerSettings | None = None) -> Broker:
    """The broker for `url`; connects when first used.

    None: a queue inside this process. redis://, rediss:// (TLS), redis+sentinel://: a queue shared
    through that Redis. Several of these, with white space between: a queue over all of them
    (`services.broker.shards`). file:/path: that file holds the URLs, which keeps their passwords
    off command lines. Raises Misuse for any other URL, for a file that cannot be used, and when
    redis-py is not installed.
    """
    if url is None:
        return MemoryBroker(settings)
    where = ""
    if url.startswith("file:"):
        file = Path(url.removeprefix("file:"))
        where = f"{file}: "
        try:
            url = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise Misuse(
                f"the file with the broker URL, {file}, cannot be read: {type(error).__name__}"
            ) from None
        if not url:
            raise Misuse(f"{file}: the file must contain a broker URL")
    urls = url.split()
    for scheme in (urlsplit(one).scheme for one in urls or [""]):
        if scheme not in ("redis", "rediss", "redis+sentinel"):
            raise Misuse(
                f"{where}a broker URL starts with redis://, rediss:// or redis+sentinel://, "
                f"not with {scheme or 'nothing'}:"
            )
    try:
        from services.broker.shards import ShardedBroker
        from services.broker.streams import StreamsBroker
    except ModuleNotFoundError as error:
        message = (
            f"{url.partition(':')[0]}:// needs the package {error.name}: pip install"
            " 'gradus-rl[api]'"
        )
        raise Misuse(message) from error
    try:
        return StreamsBroker(urls[0], settings) if len(urls) == 1 else ShardedBroker(urls, settings)
    except ValueError as error:
        raise Misuse(f"the broker URL cannot be read: {error}") from error
