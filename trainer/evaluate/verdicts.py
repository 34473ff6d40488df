"""Facts of one record: whether it is judged, its stage and cause, its code, and whether it
declines.

Read from a record's stage, flags, diagnostics and completion; no compiler is asked again. What only
some languages have is in `gradus.languages`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from gradus.contract import Stage
from gradus.errors import Misuse
from gradus.extract import extract
from gradus.languages import load_language

Record = Mapping[str, Any]
Test = Callable[[Record], bool]

PASSED = "passed"
NAME_CHARS = 80
_ENDS = (
    ("ran out of stack", "stack"),
    ("ended with an exception", "exception"),
    ("failed an assertion", "assertion"),
    ("did not run to their end", "ended early"),
)
"""How tests end, as graders report it in numbers; the first that is reported counts."""
_TYPES = (("Syntax error", "syntax"), ("Unbound module", "unbound module"), ("Unbound", "unbound"))


def is_judged(record: Record) -> bool:
    """It has a verdict."""
    return (
        record.get("status", "graded") == "graded"
        and record.get("fault") is None
        and record["reward"] is not None
    )


def is_passed(record: Record) -> bool:
    return record.get("passed") is True


# ------------------------------------------------------------------------------------------ stages


def get_outcome_stage(record: Record) -> str:
    """`passed`, or the furthest stage that was reached."""
    return PASSED if is_passed(record) else str(record["stage"])


def get_stage_rank(stage: str, stages: Sequence[str]) -> int:
    """Later stages have higher ranks; `passed` has the highest, and what is no stage -1.

    `stages` are the grader's in their order; every other one of the contract follows in its order.
    """
    order = list(map(str, dict.fromkeys((*stages, *Stage, PASSED))))
    return order.index(stage) if stage in order else -1


def select_typical(verdicts: Sequence[Record], stages: Sequence[str]) -> Record | None:
    """Return the middle one by how far they came, then by reward; the lower of two. None where
    there is none.

    `stages` are the grader's in their order.
    """
    ranked = sorted(
        verdicts,
        key=lambda record: (get_stage_rank(get_outcome_stage(record), stages), record["reward"]),
    )
    return ranked[(len(ranked) - 1) // 2] if ranked else None


def build_rate_test(rule: str, stages: Sequence[str]) -> Test:
    """Return whether a verdict counts for a rate, by the rule that `GraderDescription.rates` has
    for it.

    Raises Misuse for a malformed rule, or one that names another grader's stage.
    """
    kind, _, stage = rule.partition(":")
    if rule == "passed":
        return is_passed
    if kind not in ("past", "clean") or stage not in stages:
        raise Misuse(
            f"{rule!r} is no rule of a rate: passed, past:STAGE or clean:STAGE of"
            f" {', '.join(stages)}"
        )
    place = list(stages).index(stage)
    reached = stages[place + 1 :] if kind == "past" else stages[place:]
    return lambda record: (
        record.get("stage") in reached
        and (
            kind == "past"
            or not any(diagnostic.get("stage") == stage for diagnostic in _list_diagnostics(record))
        )
    )


def _list_diagnostics(record: Record) -> list[Mapping[str, Any]]:
    diagnostics = []
    for diagnostic in record.get("diagnostics") or ():
        if isinstance(diagnostic, Mapping):
            diagnostics.append(diagnostic)
    return diagnostics


def _list_errors(record: Record, stage: str | None) -> list[Mapping[str, Any]]:
    errors = []
    for diagnostic in _list_diagnostics(record):
        if diagnostic.get("severity") == "error" and diagnostic.get("stage") == stage:
            errors.append(diagnostic)
    return errors


# ------------------------------------------------------------------------------------------ causes


def find_cause(record: Record) -> str:
    """Return what stopped a completion, in words that can be counted: `types:unbound`,
    `tests:limit`, `degenerate:stub`.

    `passed` where nothing did; `generation:KIND` and `fault:KIND` for generation errors and faults.
    Errors in words that are not known here are counted by their stage alone.
    """
    is_lost = record.get("status") == "generation_error"
    trouble = record.get("error" if is_lost else "fault")
    if is_lost or trouble is not None:
        kind = trouble.get("kind") if isinstance(trouble, Mapping) else None
        return f"{'generation' if is_lost else 'fault'}:{kind or 'unknown'}"
    if is_passed(record):
        return PASSED
    flags = []
    for flag in record.get("flags") or ():
        if isinstance(flag, str):
            flags.append(flag)
    for prefix in ("degenerate:", "forbidden:"):
        for flag in flags:
            if flag.startswith(prefix):
                return flag
    stage = record.get("stage")
    if stage not in [*Stage]:
        return "unknown"
    if any(flag.startswith("limit:") for flag in flags):
        detail = "limit"
    else:
        detail = _find_detail(record, str(stage))
    return f"{stage}:{detail}" if detail else str(stage)


def _find_detail(record: Record, stage: str) -> str:
    errors = _list_errors(record, stage)
    messages = [str(error.get("message") or "") for error in errors]
    code = str(errors[0].get("code") or "") if errors else ""
    if stage == "tests":
        report = "\n".join(messages)
        return next((word for text, word in _ENDS if text in report), code)
    if not errors:
        return ""
    if stage == "types":
        return next(
            (word for text, word in _TYPES if messages[0].startswith(text)), code or "mismatch"
        )
    return code or ("syntax" if stage == "check" else "")


def list_invented_names(record: Record, grader: str) -> list[str]:
    """Return the name of each of the compiler's errors that reports one as missing."""
    errors = _list_errors(record, load_language(grader).names_stage)
    names = []
    for error in errors:
        name = extract_invented_name(error, grader)
        if name is not None:
            names.append(name)
    return names


def extract_invented_name(error: Record, grader: str) -> str | None:
    """Return the name that an error says does not exist, with what it was looked for in; None for
    other errors."""
    code = error.get("code")
    message = str(error.get("message") or "")
    name = load_language(grader).missing_name(message, code if isinstance(code, str) else None)
    return name[:NAME_CHARS] if name is not None else None


# -------------------------------------------------------------------------------------------- code


def extract_code(completion: str, fences: Collection[str]) -> str:
    """Return the code of a completion as graders extract it, without a task's declared names;
    `fences` are the info strings of the grader's blocks."""
    return extract(completion, fences).text


def count_lines(code: str) -> int:
    """Return the number of lines that are not blank."""
    return sum(bool(line.strip()) for line in code.split("\n"))
