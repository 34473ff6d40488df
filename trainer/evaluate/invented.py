"""Names that do not exist: functions, methods, modules, fields, types and crates that a compiler looked for in vain.

Read from a verdict's diagnostics; how a compiler words them is in `trainer.languages`. A forgotten `use` counts too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from trainer.evaluate.figures import Part, Rate, by_task, ratio_over_tasks, share_over_tasks
from trainer.languages import language_of

Record = Mapping[str, Any]
MOST_NAMES = 20
NAME_CHARS = 80


class Invented(Part):
    """Names that the compiler did not find."""

    answers: Rate | None
    """Share of judged answers with at least one; tasks weigh alike."""
    errors: Rate | None
    """Share of the compiler's errors that say so, of all in all judged answers; None where there were no errors."""
    names: dict[str, int]
    """The most frequent, each with the number of answers that have it."""


def invented_of(verdicts: Sequence[Record], grader: str, seed: int = 0) -> Invented | None:
    """The figures of judged answers; None where the language names none."""
    if language_of(grader).names_stage is None:
        return None
    found = [(record, *_counts(record, grader)) for record in verdicts]
    names = Counter(name for _, _, invented in found for name in {*invented})
    tasks = by_task([{"prompt_id": record["prompt_id"], "all": n, "invented": names} for record, n, names in found])
    return Invented(
        answers=share_over_tasks([[bool(one["invented"]) for one in task] for task in tasks], seed),
        errors=ratio_over_tasks(
            [sum(len(one["invented"]) for one in task) for task in tasks],
            [sum(one["all"] for one in task) for task in tasks],
            seed,
        ),
        names=dict(sorted(names.items(), key=lambda item: (-item[1], item[0]))[:MOST_NAMES]),
    )


def _counts(record: Record, grader: str) -> tuple[int, list[str]]:
    """How many errors the compiler found, and the name that each of those has which speak of one."""
    stage = language_of(grader).names_stage
    errors = [
        remark
        for remark in record.get("diagnostics") or ()
        if isinstance(remark, Mapping) and remark.get("severity") == "error" and remark.get("stage") == stage
    ]
    return len(errors), [name for error in errors if (name := invented_name(error, grader)) is not None]


def invented_name(error: Record, grader: str) -> str | None:
    """The name that an error says does not exist, with what it was looked for in; None where it says no such thing."""
    code = error.get("code")
    message = str(error.get("message") or "")
    name = language_of(grader).missing_name(message, code if isinstance(code, str) else None)
    return name[:NAME_CHARS] if name is not None else None
