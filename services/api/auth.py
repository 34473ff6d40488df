"""Authentication and authorization: bearer keys, each with the graders it may use."""

from __future__ import annotations

from typing import ClassVar

from gradus.errors import Misuse
from services.api.api_keys import ApiKey, KeyRing
from services.api.settings import ApiSettings
from services.http_server import is_loopback

ANYBODY = ApiKey("anybody", "")
"""The key of every request to a service without keys."""


class Unauthorized(Misuse):
    """No key, or one that is not known."""

    status: ClassVar[int] = 401


class Forbidden(Misuse):
    """A known key that may not ask for this."""

    status: ClassVar[int] = 403


def check_key(authorization: str | None, ring: KeyRing) -> ApiKey:
    """The key that the header carries. Raises Unauthorized for none or an unknown one, unless no keys are set."""
    if not ring.keys:
        return ANYBODY
    scheme, _, given = (authorization or "").partition(" ")
    key = ring.find(given.strip())
    if scheme.lower() != "bearer" or key is None:
        raise Unauthorized("send a known API key in the header `Authorization: Bearer <key>`")
    return key


def check_scope(key: ApiKey, grader: str) -> None:
    """Raises Forbidden."""
    if not key.may_use(grader):
        allowed = ", ".join(sorted(key.graders or ()))
        raise Forbidden(f"this API key may not use the grader {grader}; it may use: {allowed}")


def refuse_open_service(host: str, settings: ApiSettings) -> None:
    """Raises Misuse for a service without keys that others than this machine could reach."""
    if settings.key_ring().keys or settings.allow_anonymous or is_loopback(host):
        return
    raise Misuse(
        f"refusing to serve on {host or 'every address'} without API keys: anybody who reaches it could run code here. "
        "Make a key with `gradus keys new NAME` and name the file that holds its line in GRADUS_API_KEYS_FILE, or bind "
        "to 127.0.0.1, or, inside a network that is closed already (a compose network without published ports), set "
        "GRADUS_API_ALLOW_ANONYMOUS=true"
    )
