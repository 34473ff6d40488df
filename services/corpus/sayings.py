"""What a grader found, in words for a prompt or for the reply of a tool. Adds nothing to the result."""

from __future__ import annotations

from gradus.contract import Diagnostic, Graded

MAX_CHARS = 4000


def said(result: Graded) -> str:
    """The stage reached, the tests that pass, and each diagnostic with its place; at most `MAX_CHARS` characters."""
    lines = [f"all {result.tests.total} tests pass" if result.passed and result.tests else _progress(result)]
    lines += [_line(diagnostic) for diagnostic in result.diagnostics]
    told = [flag for flag in result.flags if flag.startswith(("limit:", "forbidden:"))]
    lines += [f"flags: {', '.join(told)}"] if told else []
    text = "\n".join(lines)
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "\n..."


def _progress(result: Graded) -> str:
    if result.tests is None:
        return f"came as far as: {result.stage.value}; no test ran"
    return f"{result.tests.passed} of {result.tests.total} tests pass"


def _line(diagnostic: Diagnostic) -> str:
    place = ""
    if diagnostic.line is not None:
        column = f", column {diagnostic.column}" if diagnostic.column is not None else ""
        place = f"line {diagnostic.line}{column}: "
    code = f"[{diagnostic.code}]" if diagnostic.code else ""
    return f"{diagnostic.stage.value}: {place}{diagnostic.severity.value}{code}: {diagnostic.message}"
