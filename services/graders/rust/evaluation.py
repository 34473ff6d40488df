"""Rust: names that do not exist, by the errors of rustc 1.95."""

from __future__ import annotations

import re
from collections.abc import Mapping

from gradus.languages import Language

_NAME = r"`(?P<name>[^`]+)`"
_NOT_FOUND = re.compile(
    rf"cannot find (?:[a-z ,]+ )?{_NAME} in (?:(?:[a-z ]+ )?`(?P<owner>[^`]+)`)?"
)
_NOT_A_MEMBER = re.compile(rf"[a-z ]+ {_NAME} is not a member of trait `(?P<owner>[^`]+)`")
_NO_FIELD = re.compile(rf"[a-z ]+ `[^`]+` (?:has no|does not have a) field named {_NAME}")
NAME_ERRORS: Mapping[str | None, re.Pattern[str]] = {
    **dict.fromkeys(("E0405", "E0412", "E0422", "E0425", "E0433", "E0531", "E0576"), _NOT_FOUND),
    **dict.fromkeys(("E0407", "E0437", "E0438"), _NOT_A_MEMBER),
    **dict.fromkeys(("E0026", "E0559", "E0560"), _NO_FIELD),
    "E0220": re.compile(rf"associated [a-z]+ {_NAME} not found"),
    "E0432": re.compile(rf"unresolved imports? {_NAME}"),
    "E0463": re.compile(rf"can't find crate for {_NAME}"),
    "E0583": re.compile(rf"file not found for module {_NAME}"),
    "E0599": re.compile(rf"no [a-z ,]+ named {_NAME} found"),
    "E0609": re.compile(rf"no field {_NAME} on"),
    "E0635": re.compile(rf"unknown feature {_NAME}"),
    None: re.compile(rf"cannot find (?:macro|attribute|derive macro) {_NAME} in"),
}
"""Patterns of messages by the error's code; macros, attributes and derives have no code."""


def find_missing_name(message: str, code: str | None) -> str | None:
    """Return the name, with what it was looked for in, that an error of rustc reports as missing.

    A name that exists and is something else (E0423) or private (E0603), a lifetime and a label have
    none.
    """
    pattern = NAME_ERRORS.get(code)
    match = pattern.match(message) if pattern else None
    if match is None:
        return None
    owner = match.groupdict().get("owner")
    return f"{owner}::{match['name']}" if owner else match["name"]


LANGUAGE = Language("check", find_missing_name)
