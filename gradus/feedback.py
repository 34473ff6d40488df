"""A verdict as text for a model: the reply of a tool, the prompt of a repair task, the next turn of an evaluation.

Training and evaluation share these texts. They show only what the result holds, so nothing of hidden tests.
"""

from __future__ import annotations

import re

from gradus.contract import Diagnostic, Graded, GraderName

MAX_CHARS = 4000
LANGUAGES = {"ocaml": "OCaml", "rust": "Rust"}
"""Names of languages by the grader's name. Other graders of code are called by their own name."""
MISTAKE = "code has a mistake. Find it, and answer with the whole corrected file."
SAID = "# What the compiler and the tests say"
SPECIAL = re.compile(r"<\|\w{1,40}\|>")
"""What models read as the end of a message or the like, wherever it stands."""


def render_verdict(result: Graded) -> str:
    """The stage reached, the tests that pass, and each diagnostic with its place; at most `MAX_CHARS` characters."""
    if result.tests is None:
        progress = f"came as far as: {result.stage.value}; no test ran"
    elif result.passed:
        progress = f"all {result.tests.total} tests pass"
    else:
        progress = f"{result.tests.passed} of {result.tests.total} tests pass"
    lines = [progress, *map(_line, result.diagnostics)]
    told = [flag for flag in result.flags if flag.startswith(("limit:", "forbidden:"))]
    lines += [f"flags: {', '.join(told)}"] if told else []
    text = "\n".join(lines)
    return text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + "\n..."


def reply(result: Graded) -> str:
    """`render_verdict` without tokens of a chat format, which a compiler's message may quote from the answer."""
    return SPECIAL.sub("<...>", render_verdict(result))


def repair_turn(name: GraderName, message: str) -> str:
    """The user's next turn after an answer that did not pass; `message` is what `reply` makes of its verdict."""
    return f"This {LANGUAGES.get(name, name)} {MISTAKE}\n\n{quoted_message(message)}"


def quoted_message(message: str) -> str:
    """The part of a prompt that shows what the grader says."""
    return f"{SAID}\n\n```\n{message}\n```"


def _line(diagnostic: Diagnostic) -> str:
    place = ""
    if diagnostic.line is not None:
        column = f", column {diagnostic.column}" if diagnostic.column is not None else ""
        place = f"line {diagnostic.line}{column}: "
    code = f"[{diagnostic.code}]" if diagnostic.code else ""
    return f"{diagnostic.stage.value}: {place}{diagnostic.severity.value}{code}: {diagnostic.message}"
