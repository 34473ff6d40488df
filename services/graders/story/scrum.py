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


def build_scrum_facts(
    completion: str,
    references: Sequence[str],
    embed: Callable[[Sequence[str]], Vectors],
    *,
    max_characters: int,
    max_lines: int,
) -> ScrumFacts:
    """Return what is weighed of the lines that are not blank behind the first `</think>`. Its
    authors had no limits; a text with more characters has no lines here. `embed`: texts -> unit
    rows, in order."""
    text = re.split("</think>", completion, maxsplit=1, flags=re.IGNORECASE)[-1]
    all_lines = text.splitlines() if len(text) <= max_characters else []
    lines = [line.strip() for line in all_lines if line.strip()][:max_lines]
    plain = [line.lower().rstrip(_TRAILING + string.whitespace) for line in lines]
    issues = [*filter(None, (reference.strip().strip('"') for reference in references))]
    count = math.exp(-abs(len(lines) - len(issues)) / 2)
    if not lines or not issues:
        return ScrumFacts(0.0, 0.0, 0.0, count, 0.0, 0.0, 0.0)
    vectors = embed([*issues, *lines, *plain])
    of_issues, of_lines, of_plain = np.split(vectors, np.cumsum([len(issues), len(lines)]))
    usual = _compute_mean([len(issue.split()) for issue in issues])
    return ScrumFacts(
        regex=_compute_mean([float(_is_story(line)) for line in plain]),
        clause=_compute_mean([_compute_clause_share(line) for line in plain]),
        coverage=_compute_coverage(of_issues @ of_lines.T),
        count=count,
        length=_compute_mean(
            [max(0.0, 1 - ((len(line.split()) - usual) / usual) ** 2) for line in plain]
        ),
        redundancy=-int((np.triu(of_plain @ of_plain.T, 1) > SIMILAR).sum()) / len(plain),
        extraneous=_compute_mean([_compute_clause_share(line.lower()) for line in lines]) - 1,
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


def _compute_clause_share(line: str) -> float:
    return sum(clause in line for clause in _CLAUSES) / len(_CLAUSES)


def _compute_coverage(cosines: Vectors) -> float:
    """Greedy in the order of the issues; a line that is used has -1 from then on, and is chosen
    when none is left."""
    remaining = cosines.astype(np.float64)
    chosen = []
    for issue in range(len(remaining)):
        line = int(remaining[issue].argmax())
        chosen.append(float(remaining[issue, line]))
        remaining[:, line] = -1.0
    return _compute_mean(chosen)


def _compute_mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
