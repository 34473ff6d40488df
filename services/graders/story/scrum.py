"""The seven quantities of GRPO-for-SCRUM's reward, as its version of 7 July 2025 computes them,
oddities included.

For comparing with rewards that were trained on; `story/weighted@1` is the one to train with. Knows
no model.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.graders.story.facts import ScrumFacts

Vectors = NDArray[np.float32]

SIMILAR = 0.8
_OPENING = re.compile(r"(?:(?:\*\*|[*\-•–]|\d+[.)])\s*)*+as an?\b", re.IGNORECASE)
_WISH = re.compile(r"i want\b", re.IGNORECASE)
_END = re.compile(r"so that\b.", re.IGNORECASE)
_TRAILING = "".join(mark for mark in string.punctuation if mark != "'")
_CLAUSES = ("as a", "i want", "so that")


@dataclass(frozen=True, slots=True)
class ScrumTexts:
    lines: tuple[str, ...]
    """Lines that are not blank behind the first `</think>`."""
    clean: tuple[str, ...]
    """Those lines in lower case without punctuation at the end."""
    issues: tuple[str, ...]


def scrum_texts(
    completion: str, references: Sequence[str], max_characters: int, max_lines: int
) -> ScrumTexts:
    """What is compared. Its authors had no limits; a text with more characters has no lines
    here."""
    text = re.split("</think>", completion, maxsplit=1, flags=re.IGNORECASE)[-1]
    said = text.splitlines() if len(text) <= max_characters else []
    lines = tuple(line.strip() for line in said if line.strip())[:max_lines]
    clean = tuple(line.lower().rstrip(_TRAILING + string.whitespace) for line in lines)
    issues = (reference.strip().strip('"') for reference in references)
    return ScrumTexts(lines, clean, tuple(filter(None, issues)))


def scrum_facts(texts: ScrumTexts, embed: Callable[[Sequence[str]], Vectors]) -> ScrumFacts:
    """`embed`: texts -> unit rows, in order."""
    count = math.exp(-abs(len(texts.lines) - len(texts.issues)) / 2)
    if not texts.lines or not texts.issues:
        return ScrumFacts(0.0, 0.0, 0.0, count, 0.0, 0.0, 0.0)
    vectors = embed([*texts.issues, *texts.lines, *texts.clean])
    issues, lines, clean = np.split(vectors, np.cumsum([len(texts.issues), len(texts.lines)]))
    usual = _mean([len(issue.split()) for issue in texts.issues])
    return ScrumFacts(
        regex=_mean([float(_is_story(line)) for line in texts.clean]),
        clause=_mean([_clause_share(line) for line in texts.clean]),
        coverage=_coverage(issues @ lines.T),
        count=count,
        length=_mean(
            [max(0.0, 1 - ((len(line.split()) - usual) / usual) ** 2) for line in texts.clean]
        ),
        redundancy=-int((np.triu(clean @ clean.T, 1) > SIMILAR).sum()) / len(clean),
        extraneous=_mean([_clause_share(line.lower()) for line in texts.lines]) - 1,
    )


def _is_story(line: str) -> bool:
    """Bullets, `as a` or `as an`, a role without a comma, perhaps a comma, `i want`, text, `so
    that`, text.

    One pattern would say so as well, and take hours for a line of many wants: the first `i want`
    decides.
    """
    opening = _OPENING.match(line)
    wish = _WISH.search(line, opening.end()) if opening else None
    if opening is None or wish is None:
        return False
    before = line[opening.end() : wish.start()]
    role = before.rstrip().removesuffix(",")
    named = "," not in role and bool(role or (before and "," not in before))
    return named and _END.search(line, wish.end() + 1) is not None


def _clause_share(line: str) -> float:
    return sum(clause in line for clause in _CLAUSES) / len(_CLAUSES)


def _coverage(cosines: Vectors) -> float:
    """Greedy in the order of the issues; a line that is used has -1 from then on, and is chosen
    when none is left."""
    left = cosines.astype(np.float64)
    chosen = []
    for issue in range(len(left)):
        line = int(left[issue].argmax())
        chosen.append(float(left[issue, line]))
        left[:, line] = -1.0
    return _mean(chosen)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
