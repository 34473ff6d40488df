"""API keys as configured: a name, the hash of the key, the graders it may use. No key is kept in the clear.

One line per key, `NAME sha256:HEX GRADERS`, with commas between graders or `*` for all; `#` starts a comment. Keys are
made here, long and random, so that a plain SHA-256 is enough: there is no word list to try.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gradus.contract import GRADER_NAME
from gradus.errors import Misuse

_LINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9_.\-]{0,63})\s+sha256:(?P<hash>[0-9a-fA-F]{64})\s+(?P<graders>\S+)")


def hash_of(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ApiKey:
    name: str
    key_hash: str
    graders: frozenset[str] | None = None
    """None: all."""

    def may_use(self, grader: str) -> bool:
        return self.graders is None or grader in self.graders

    def line(self) -> str:
        graders = "*" if self.graders is None else ",".join(sorted(self.graders))
        return f"{self.name} sha256:{self.key_hash} {graders}"


@dataclass(frozen=True, slots=True)
class KeyRing:
    """The keys of one service. Without any, requests need none."""

    keys: tuple[ApiKey, ...] = ()

    def find(self, key: str) -> ApiKey | None:
        given = hash_of(key)
        # Every hash is compared, so that the time taken does not tell which one was close.
        found = [one for one in self.keys if hmac.compare_digest(given, one.key_hash)]
        return found[0] if found else None


def new_key(name: str, graders: Iterable[str]) -> tuple[str, ApiKey]:
    """A new secret, which is stored nowhere, and its key without it. Raises Misuse for a wrong name or grader."""
    secret = f"gradus_{secrets.token_urlsafe(32)}"
    asked = ",".join(graders) or "*"
    return secret, key_of(f"{name} sha256:{hash_of(secret)} {asked}", "the new key")


def key_of(line: str, where: str) -> ApiKey:
    """Raises Misuse that names `where` and what is wrong; it repeats no more than the key's name."""
    found = _LINE.fullmatch(line.strip())
    if found is None:
        raise Misuse(
            f"{where}: a key is `NAME sha256:HEX GRADERS`, a name of letters, digits, `_`, `.` and `-`, 64 hex digits, "
            "and graders with commas between or `*`; `gradus keys new NAME` prints one"
        )
    graders = None if found["graders"] == "*" else frozenset(found["graders"].split(","))
    for grader in graders or ():
        if not re.fullmatch(GRADER_NAME, grader):
            raise Misuse(f"{where}: key {found['name']}: {grader!r} cannot be the name of a grader")
    return ApiKey(found["name"], found["hash"].lower(), graders)


def keys_in(text: str, where: str) -> list[ApiKey]:
    """The keys of a configuration text. Raises Misuse for a line that is none, and for a name or hash used twice."""
    found: list[ApiKey] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line := line.partition("#")[0].strip():
            found.append(key_of(line, f"{where}, line {number}"))
    for taken in ([key.name for key in found], [key.key_hash for key in found]):
        if len(set(taken)) < len(taken):
            raise Misuse(f"{where}: a name or a hash occurs twice")
    return found


def key_ring(key_hashes: Iterable[str], keys: str, keys_file: Path | None) -> KeyRing:
    """All keys that the settings name. Raises Misuse, also for a file that is named and holds none."""
    ring = [ApiKey(f"hash-{key_hash[:8]}", key_hash) for key_hash in key_hashes]
    ring += keys_in(keys.replace(";", "\n"), "GRADUS_API_KEYS")
    if keys_file is not None:
        where = f"GRADUS_API_KEYS_FILE ({keys_file})"
        try:
            found = keys_in(keys_file.read_text(), where)
        except (OSError, UnicodeDecodeError) as error:
            raise Misuse(f"{where} cannot be read: {type(error).__name__}") from None
        if not found:
            # A file that was emptied by mistake must not open the service to everybody.
            raise Misuse(f"{where} holds no key; `gradus keys new NAME` prints one")
        ring += found
    return KeyRing(tuple(ring))
