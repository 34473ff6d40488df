"""Whether a completion declines: by the form that its prompt declared, or by its phrases where none was. Pure.

What stands behind the thoughts decides. Asks nothing; the asks that declare a form are in `declining`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from gradus.descriptions import GraderDescription, description_of
from trainer.evaluate.figures import Rate, by_task, share_over_tasks
from trainer.evaluate.stages import grader_of, stage_order

_LINE = re.compile(r"^[ \t*_`>]*CANNOT:[ \t*_`]*(?P<reason>\S[^\n]*)", re.MULTILINE)
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)
PHRASES = (
    *("i cannot", "i can't", "i can not", "i am unable", "i'm unable", "i am not able", "i'm not able", "i won't"),
    *("i will not", "i must decline", "i have to decline", "i am sorry", "i'm sorry", "sorry, but", "i apologize"),
    *("as an ai", "cannot assist", "can't assist", "cannot help", "can't help", "unable to help", "unable to assist"),
    *("cannot be done", "can't be done", "cannot be implemented", "can't be implemented", "is not possible to"),
    *("it's not possible", "it isn't possible", "this is impossible"),
)
"""In small letters, with plain apostrophes; one of them anywhere behind the thoughts."""

Answered = Literal["code", "declined", "neither"]


def answered(completion: str) -> Answered:
    """What an answer to `DECLINE_INSTRUCTION` is. Both forms at once are neither."""
    visible = _visible(completion)
    has_code, declines = bool(_FENCE.search(visible)), bool(_LINE.search(visible))
    return "neither" if has_code is declines else "code" if has_code else "declined"


def _visible(completion: str) -> str:
    before, mark, after = completion.rpartition("</think>")
    return after if mark else (before + after).partition("<think>")[0]


def is_declined(record: Mapping[str, Any], description: GraderDescription | None = None) -> bool:
    """Whether a judged answer to a task that can be done declines it.

    It has no fenced block, did not get past the first stage behind `extract`, and says `CANNOT:` or one of `PHRASES`
    behind its thoughts.
    """
    description = description or description_of(grader_of([record]))
    if record["passed"] is True or record.get("stage") not in stage_order(description.stages)[:2]:
        return False
    visible = _visible(str(record["completion"]))
    if _FENCE.search(visible):
        return False
    said = visible.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return bool(_LINE.search(visible)) or any(phrase in said for phrase in PHRASES)


def declined_of(verdicts: Sequence[Mapping[str, Any]], description: GraderDescription, seed: int) -> Rate | None:
    """The share of judged answers that decline; None where answers are no code."""
    if not description.fences:
        return None
    return share_over_tasks([[is_declined(record, description) for record in task] for task in by_task(verdicts)], seed)
