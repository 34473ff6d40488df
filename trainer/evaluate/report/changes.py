"""What differs between two short texts, word by word, for marking it on a page. Judges nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

MOST_TOKENS = 800
"""Longer texts are shown without marks: comparing them takes quadratic time."""
LEAST_LIKENESS = 0.4
"""Below this nearly everything is marked, which tells a reader nothing."""
TOKEN = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    changed: bool


def changed_spans(before: str, after: str) -> tuple[list[Span], list[Span]]:
    """Both texts in spans, with those marked that the other does not have in that place."""
    first, last = TOKEN.findall(before), TOKEN.findall(after)
    matcher = SequenceMatcher(None, first, last, autojunk=False)
    comparable = max(len(first), len(last)) <= MOST_TOKENS
    if not comparable or matcher.ratio() < LEAST_LIKENESS:
        return [Span(before, changed=False)], [Span(after, changed=False)]
    left, right = [], []
    for tag, start_1, end_1, start_2, end_2 in matcher.get_opcodes():
        left.append(Span("".join(first[start_1:end_1]), tag != "equal"))
        right.append(Span("".join(last[start_2:end_2]), tag != "equal"))
    return [span for span in left if span.text], [span for span in right if span.text]
