"""Who may ask: bearer keys, of which only the hashes are known here. Knows no users, no scopes and no quotas."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from typing import ClassVar

from gradus.errors import Misuse
from services.api.settings import ApiSettings


class Unauthorized(Misuse):
    """No key, or one that is not known."""

    status: ClassVar[int] = 401


def hash_of(key: str) -> str:
    """What goes into GRADUS_API_KEY_HASHES for this key. Keys are long and random, so a plain SHA-256 is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def check_key(authorization: str | None, key_hashes: Sequence[str]) -> None:
    """Raises Unauthorized unless the header carries a known key, or no keys are set."""
    if not key_hashes:
        return
    scheme, _, key = (authorization or "").partition(" ")
    given = hash_of(key.strip())
    # Every hash is compared, so that the time taken does not tell which one was close.
    known = [hmac.compare_digest(given, expected) for expected in key_hashes]
    if scheme.lower() != "bearer" or not any(known):
        raise Unauthorized("send a known API key in the header `Authorization: Bearer <key>`")


def refuse_open_service(host: str, settings: ApiSettings) -> None:
    """Raises Misuse for a service without keys that others than this machine could reach."""
    if settings.key_hashes or settings.allow_anonymous or _is_loopback(host):
        return
    raise Misuse(
        f"refusing to serve on {host or 'every address'} without API keys: anybody who reaches it could run code here. "
        'Set GRADUS_API_KEY_HASHES to the SHA-256 of a key (printf %s "$KEY" | sha256sum), or bind to 127.0.0.1, or, '
        "inside a network that is closed already (a compose network without published ports), set "
        "GRADUS_API_ALLOW_ANONYMOUS=true"
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
