"""API keys as configured: name, hash, graders and limits. No key is stored in the clear.

One line per key, `NAME sha256:HEX GRADERS [LIMIT ...]`, with commas between graders or `*` for all;
`#` starts a comment. Limits are `expires=2027-01-31` (the end of that day, UTC), `per_minute=600`
(submissions, in each API process) and `priority=training` (no evaluation); `role=operator` allows
the routes of `services.api.queues`. Keys are generated here, long and random, so that a plain
SHA-256 suffices: no dictionary attack is possible.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path

from gradus.contract import GRADER_NAME
from gradus.errors import Misuse
from services.api.problems import Refused
from services.broker.jobs import RETRY_AFTER_S
from services.secret_file import read_secret_file

_LINE = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.\-]{0,63})\s+sha256:(?P<hash>[0-9a-fA-F]{64})\s+(?P<graders>\S+)"
    r"(\s+expires=(?P<expires>\d{4}-\d\d-\d\d)|\s+per_minute=(?P<per_minute>[1-9]\d{0,8})|\s+priority=(?P<priority>training)"
    r"|\s+role=(?P<role>operator))*"
)
RELOAD_S = 1.0  # seconds between checks for a changed file of keys
log = logging.getLogger("gradus.api")


def compute_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ApiKey:
    name: str
    key_hash: str
    graders: frozenset[str] | None = None
    """None: all."""
    expires: date | None = None
    """Last day, UTC, on which the key is valid."""
    per_minute: int | None = None
    """Submissions a minute in each API process, on average; a burst of one minute's worth is
    allowed."""
    training_only: bool = False
    is_operator: bool = False
    """Whether the key may read queues, change their state, cancel all jobs and handle dead
    letters."""

    @property
    def has_expired(self) -> bool:
        return self.expires is not None and datetime.now(UTC).date() > self.expires

    def can_use(self, grader: str) -> bool:
        return self.graders is None or grader in self.graders

    def line(self) -> str:
        graders = "*" if self.graders is None else ",".join(sorted(self.graders))
        limits = f" expires={self.expires}" if self.expires else ""
        limits += f" per_minute={self.per_minute}" if self.per_minute else ""
        limits += " priority=training" * self.training_only + " role=operator" * self.is_operator
        return f"{self.name} sha256:{self.key_hash} {graders}{limits}"


def find_key(keys: Iterable[ApiKey], secret: str) -> ApiKey | None:
    key_hash = compute_hash(secret)
    # Every hash is compared, so that the duration reveals nothing about them.
    matches = [key for key in keys if hmac.compare_digest(key_hash, key.key_hash)]
    return matches[0] if matches else None


def create_key(name: str, graders: Iterable[str], limits: str = "") -> tuple[str, ApiKey]:
    """Return a new secret, which is stored nowhere, and its key without it. `limits`: as in the
    key's line. Raises Misuse."""
    secret = f"gradus_{secrets.token_urlsafe(32)}"
    grader_names = ",".join(graders) or "*"
    return secret, parse_key(
        f"{name} sha256:{compute_hash(secret)} {grader_names} {limits}", "the new key"
    )


def parse_key(line: str, source: str) -> ApiKey:
    """Raise Misuse that names `source` and what is wrong; it repeats no more than the key's
    name."""
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise Misuse(
            f"{source}: a key is `NAME sha256:HEX GRADERS`, a name of letters, digits, `_`, `.` and"
            " `-`, 64 hex digits, and graders with commas between or `*`, then limits such as"
            " `expires=2027-01-31`, `per_minute=600`, `priority=training` and `role=operator`;"
            " `gradus keys new NAME` prints one"
        )
    graders = None if match["graders"] == "*" else frozenset(match["graders"].split(","))
    for grader in graders or ():
        if not re.fullmatch(GRADER_NAME, grader):
            raise Misuse(
                f"{source}: key {match['name']}: {grader!r} cannot be the name of a grader"
            )
    try:
        expires = date.fromisoformat(match["expires"]) if match["expires"] else None
    except ValueError:
        raise Misuse(f"{source}: key {match['name']}: {match['expires']} is no date") from None
    per_minute = int(match["per_minute"]) if match["per_minute"] else None
    return ApiKey(
        match["name"],
        match["hash"].lower(),
        graders,
        expires,
        per_minute,
        training_only=bool(match["priority"]),
        is_operator=bool(match["role"]),
    )


def parse_keys(text: str, source: str) -> list[ApiKey]:
    """Return the keys of a configuration text. Raises Misuse for a malformed line, and for a name
    or hash used twice."""
    keys: list[ApiKey] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line := line.partition("#")[0].strip():
            keys.append(parse_key(line, f"{source}, line {number}"))
    for taken in ([key.name for key in keys], [key.key_hash for key in keys]):
        if len(set(taken)) < len(taken):
            raise Misuse(f"{source}: a name or a hash occurs twice")
    return keys


def read_keys(keys: str, keys_file: Path | None) -> list[ApiKey]:
    """Return all keys that the settings name. Raises Misuse, also for a file that is named and
    holds none."""
    api_keys = parse_keys(keys.replace(";", "\n"), "GRADUS_API_KEYS")
    if keys_file is not None:
        source = f"GRADUS_API_KEYS_FILE {keys_file}"
        in_file = parse_keys(read_secret_file(keys_file, "GRADUS_API_KEYS_FILE"), source)
        if not in_file:
            # A file that was emptied by mistake must not open the service to everybody.
            raise Misuse(f"{source} holds no key; `gradus keys new NAME` prints one")
        api_keys += in_file
    return api_keys


class WatchedKeys:
    """The keys of the settings; those of the file are read again when it changes.

    While the file cannot be read, the last keys stay valid, and the log has a warning.
    """

    def __init__(self, read: Callable[[], list[ApiKey]], file: Path | None) -> None:
        self._read = read
        self._file = file
        self._keys = read()
        self._changed_at = self._read_stamp()
        self._next_look = time.monotonic() + RELOAD_S

    def _read_stamp(self) -> int:
        try:
            return self._file.stat().st_mtime_ns if self._file else 0
        except OSError:
            return -1

    def load_current(self) -> list[ApiKey]:
        if self._file and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + RELOAD_S
            if (changed_at := self._read_stamp()) != self._changed_at:
                self._changed_at = changed_at
                try:
                    self._keys = self._read()
                    log.info("keys read again", extra={"fields": {"n_keys": len(self._keys)}})
                except Misuse as misuse:
                    log.warning("the file of keys cannot be used, the last keys stay: %s", misuse)
        return self._keys


class Quotas:
    """Submissions that keys have left, in this process: a bucket per key that fills by `per_minute`
    in a minute."""

    def __init__(self) -> None:
        # (submissions left, time of `time.monotonic`) by name of the key.
        self._buckets: dict[str, tuple[float, float]] = {}

    def take(self, key: ApiKey, n_submissions: int) -> float:
        """Take submissions from the quota and return 0; if it has too few, return the seconds until
        it has enough.

        A request of more than a minute's worth needs a full bucket, and leaves a debt.
        """
        if key.per_minute is None:
            return 0.0
        now = time.monotonic()
        tokens, at = self._buckets.get(key.name, (float(key.per_minute), now))
        tokens = min(tokens + (now - at) * key.per_minute / 60, key.per_minute)
        missing = min(n_submissions, key.per_minute) - tokens
        self._buckets[key.name] = (tokens if missing > 0 else tokens - n_submissions, now)
        return max(missing * 60 / key.per_minute, 0.0)


class BusyConnections:
    """Connections with a request or a session under way, by API key. One key may have half of those
    that the server accepts: it closes idle ones to accept others, and busy ones never."""

    def __init__(self) -> None:
        self.max_connections = sys.maxsize
        """Connections that the server accepts."""
        self._n_by_key: Counter[str] = Counter()

    @contextmanager
    def hold(self, key: ApiKey) -> Iterator[None]:
        """Hold one. Raises Refused (429) where the key has its half; a service without keys knows
        no halves."""
        limit = self.max_connections // 2
        if key.key_hash and self._n_by_key[key.name] >= limit:
            message = f"this API key has {limit} requests and sessions open at this process"
            raise Refused(429, message, retry_after_s=RETRY_AFTER_S, bound="connections")
        self._n_by_key[key.name] += 1
        try:
            yield
        finally:
            self._n_by_key[key.name] -= 1
            if not self._n_by_key[key.name]:
                del self._n_by_key[key.name]
