"""Why a completion did not pass, in a few words that can be counted: `types:unbound`, `tests:limit`, `degenerate:stub`.

Read from a record's stage, flags and diagnostics; no compiler is asked again. What a grader says in another way than
is known here is counted by its stage alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gradus.contract import Stage

PASSED = "passed"
_ENDS = (
    ("ran out of stack", "stack"),
    ("ended with an exception", "exception"),
    ("failed an assertion", "assertion"),
    ("did not run to their end", "ended early"),
)
"""How tests end, as graders report it in numbers; the first that is said counts."""
_TYPES = (("Syntax error", "syntax"), ("Unbound module", "unbound module"), ("Unbound", "unbound"))


def cause_of(record: Mapping[str, Any]) -> str:
    """What stopped a completion, or `passed`; the same words for faults and generation errors, by their kind."""
    if record.get("status") == "generation_error":
        return f"generation:{_kind(record.get('error'))}"
    if record.get("fault") is not None:
        return f"fault:{_kind(record.get('fault'))}"
    if record.get("passed") is True:
        return PASSED
    flags = [flag for flag in record.get("flags") or () if isinstance(flag, str)]
    for prefix in ("degenerate:", "forbidden:"):
        for flag in flags:
            if flag.startswith(prefix):
                return flag
    stage = record.get("stage")
    if stage not in [*Stage]:
        return "unknown"
    if any(flag.startswith("limit:") for flag in flags):
        return f"{stage}:limit"
    remarks = [remark for remark in record.get("diagnostics") or () if isinstance(remark, Mapping)]
    errors = [remark for remark in remarks if remark.get("severity") == "error" and remark.get("stage") == stage]
    detail = _detail(str(stage), errors)
    return f"{stage}:{detail}" if detail else str(stage)


def _kind(trouble: Any) -> str:
    return str(trouble.get("kind") or "unknown") if isinstance(trouble, Mapping) else "unknown"


def _detail(stage: str, errors: list[Mapping[str, Any]]) -> str:
    said = [str(error.get("message") or "") for error in errors]
    if stage == "tests":
        return next((word for text, word in _ENDS if any(text in message for message in said)), "")
    if not errors:
        return ""
    first, code = said[0], errors[0].get("code")
    if stage == "types":
        return next((word for text, word in _TYPES if first.startswith(text)), str(code) if code else "mismatch")
    if stage == "check":
        return str(code) if code else "syntax"
    return str(code) if code else ""
