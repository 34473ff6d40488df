"""URL -> broker."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from gradus.errors import Misuse
from services.broker import Broker, BrokerSettings
from services.secret_file import read_secret_file

SCHEMES = ("redis", "rediss", "redis+sentinel", "redis+cluster", "rediss+cluster")


def open_broker(url: str, settings: BrokerSettings | None = None) -> Broker:
    """Return the broker on the Redis of `url`; it connects when first used.

    Schemes are in `SCHEMES`, rediss for TLS; file:/path: that file holds the URL, which keeps its
    password off command lines. Raises Misuse for any other URL, for a file that cannot be used, and
    when redis-py is not installed.
    """
    prefix = ""
    if url.startswith("file:"):
        file = Path(url.removeprefix("file:"))
        prefix = f"{file}: "
        url = read_secret_file(file, "the file with the broker URL").strip()
        if len(url.split()) != 1:
            raise Misuse(f"{file}: the file must contain one broker URL")
    scheme = urlsplit(url).scheme
    if scheme not in SCHEMES:
        starts = ", ".join(f"{name}://" for name in SCHEMES)
        raise Misuse(f"{prefix}a broker URL starts with {starts}, not with {scheme or 'nothing'}:")
    try:
        from services.broker.partitioned import PartitionedBroker
        from services.broker.streams import StreamsBroker
    except ModuleNotFoundError as error:
        raise Misuse(
            f"{scheme}:// needs the package {error.name}: pip install 'gradus-rl[api]'"
        ) from error
    try:
        broker = PartitionedBroker if scheme.endswith("+cluster") else StreamsBroker
        return broker(url, settings)
    except ValueError as error:
        raise Misuse(f"the broker URL cannot be read: {error}") from error
