"""`PartialEq` written by hand, which could call anything equal to what tests expect. The compiler
says where it stands.

Two lints of clippy name every hand-written implementation, whatever its text looks like:
`missing_trait_methods` those without `ne`, `partialeq_ne_impl` those with it. Derived ones have
neither. It matters where tests compare in the answer's process: `may_be_compared`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from gradus.tasks.rust import RustTask
from services.graders.rust.signature import Signature

LINTS = ("clippy::missing_trait_methods", "clippy::partialeq_ne_impl")
_TELLING = (b"`ne`", b"PartialEq::ne", b"`__iterator_get_unchecked`")
"""Methods by which messages of the first lint are told apart."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an implementation starts."""

    path: str
    line: int
    column: int
    """In characters, 1-based."""
    by_macro: bool


def read_places(messages: bytes, crate: str) -> list[Place]:
    """Return the implementations that the lints name in `messages`, the compiler's JSON. `crate`:
    the crate's folder."""
    counts: Counter[Place] = Counter()
    iterators: Counter[Place] = Counter()
    for line in messages.splitlines():
        if not any(lint.encode() in line for lint in LINTS) or not any(
            method in line for method in _TELLING
        ):
            continue
        message = json.loads(line)
        if (message.get("code") or {}).get("code") not in LINTS or not message["spans"]:
            continue
        span = next(span for span in message["spans"] if span["is_primary"])
        if any(
            child_span["file_name"].startswith(crate)
            for child in message["children"]
            for child_span in child["spans"]
        ):
            continue  # a trait of the answer's own that has a method of this name
        by_macro = span["expansion"] is not None or not span["file_name"].startswith(crate)
        path = span["file_name"].removeprefix(f"{crate}/")
        place = Place(path, span["line_start"], span["column_start"], by_macro)
        (iterators if "`__iterator" in message["message"] else counts)[place] += 1
    # `Iterator` has a method `ne`, too, and one that no answer can write
    return [place for place, times in counts.items() if place.by_macro or times > iterators[place]]


_COMPARING = re.compile(
    r"[=!]=|::\s*assert|\bdebug_assert|\b(?:contains|position|dedup\w*|starts_with|ends_with|eq|ne|lt|le|gt|ge|cmp|max|min"
    r"|sort\w*|is_sorted\w*|Hash\w+|BTree\w+)\b"
)
"""What compares values in tests other than `assert_eq!` and `assert_ne!`."""
_TYPES = re.compile(r"\b(?:struct|enum|type|impl|dyn|trait|mod)\b")
_IMPLEMENTED = re.compile(r"\bPartialEq(?:<\s*(?:Self|(\w+))\s*>)?\s+for\s+(\w+)\b")


def may_be_compared(
    task: RustTask, signature: Signature | None, place: Place, files: Mapping[str, str]
) -> bool:
    """Return whether tests in the answer's process may compare by the implementation at `place`
    otherwise than by the harness's assertions, which know types (`fair`).

    `files`: the answer's, which the compiler accepts.
    """
    if signature is not None:
        return not signature.own_equality and _TYPES.search(task.signature or "") is not None
    if _COMPARING.search(task.tests) is None:
        return False
    lines = files[place.path].splitlines() if place.path in files else []
    head = " ".join(lines[place.line - 1 : place.line + 2])
    match = _IMPLEMENTED.search(head)
    if place.by_macro or match is None or match[1] not in (None, match[2]):
        return True
    name = re.escape(match[2])
    reaching = re.compile(
        rf"\bpub\b[^;{{]*\b{name}\b|\b(?:struct|enum|union|type|trait)\s+(?!{name}\b)\w+[^;}}]*"
        rf"\b{name}\b|\bas\b|\bpub\s+use\b|\bmacro_rules\b"
    )
    return any(reaching.search(text) for text in files.values())
