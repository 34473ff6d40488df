"""A verdict as text for a model: the reply of a tool, the prompt of a repair task, the next turn of
a conversation.

Training and evaluation share these texts. They show the result and the model's own answer: nothing
of hidden tests and nothing of reference stories. Public tests that fail are among the diagnostics
of the result.
"""

from __future__ import annotations

import re

from gradus.contract import Diagnostic, Graded, GraderName
from gradus.extract import extract
from gradus.tasks import get_task_class

MAX_CHARS = 4000
MAX_EXCERPT = 160  # longest line of code to quote, in characters
LANGUAGES = {"ocaml": "OCaml", "rust": "Rust"}
"""Names of languages by grader. Other graders of code have the language's name."""
MISTAKE = "code has a mistake. Find it, and answer with the whole corrected file."
SAID = "# What the compiler and the tests say"
SPECIAL = re.compile(r"<\|\w{1,40}\|>")
"""Tokens of chat formats, which a model would read as the end of a message."""


STORIES = "These user stories can be improved. Answer with the whole corrected list."
REVIEW = "# What the review says"
STORY_REMARKS = {
    "coverage": (
        0.36,
        "wants that the sprint needs are missing, or say something else than it needs",
    ),
    "roles": (0.2, "roles are not those that the sprint is for"),
    "clauses": (0.09, "benefits are missing, repeat the want, or do not follow from it"),
    "format": (0.05, "lines are no stories: As a ROLE, I want WANT, so that BENEFIT."),
    "tampering": (-0.02, "text is hidden, or addresses a judge"),
}
"""Remarks on components of `story/weighted`: name -> value below which the remark holds, and the
remark."""


def render_verdict(result: Graded, code: str | None = None) -> str:
    """Return the stage reached, the tests that pass, and each diagnostic with its place; at most
    `MAX_CHARS` characters.

    `code` is the extracted answer: with it, a diagnostic with a line quotes that line.
    """
    if result.rubric.startswith("story/"):
        progress = _render_story_progress(result)
    elif result.tests is None:
        progress = f"came as far as: {result.stage.value}; no test ran"
    elif result.passed:
        progress = f"all {result.tests.total} tests pass"
    else:
        progress = f"{result.tests.passed} of {result.tests.total} tests pass"
    source = code.split("\n") if code is not None else []
    lines = [
        progress,
        *(
            _render_diagnostic(diagnostic) + _render_excerpt(diagnostic, source)
            for diagnostic in result.diagnostics
        ),
    ]
    flags = [flag for flag in result.flags if flag.startswith(("limit:", "forbidden:"))]
    if flags:
        lines.append(f"flags: {', '.join(flags)}")
    text = "\n".join(lines)
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS] + "\n..."
    return text


def reply(result: Graded, code: str | None = None) -> str:
    """`render_verdict` without tokens of a chat format, which a compiler's message may quote from
    the answer."""
    return SPECIAL.sub("<...>", render_verdict(result, code))


def render_next_turn(name: GraderName, result: Graded, completion: str) -> str:
    """Return the user's turn after a completion that was graded and did not pass."""
    message = reply(result, extract_single_block(name, completion))
    if name == "story":
        return f"{STORIES}\n\n{REVIEW}\n\n```\n{message}\n```"
    return f"This {LANGUAGES.get(name, name)} {MISTAKE}\n\n{render_grader_message(message)}"


def extract_single_block(name: GraderName, completion: str) -> str | None:
    """Return the code of a completion with one block or without a fence; None for others, of which
    only the grader knows how it reads them."""
    fences = get_task_class(name).FENCES
    answer = extract(completion, fences) if fences else None
    if answer is None or answer.blocks > 1 or answer.files:
        return None
    return answer.text


def render_grader_message(message: str) -> str:
    return f"{SAID}\n\n```\n{message}\n```"


def _render_diagnostic(diagnostic: Diagnostic) -> str:
    place = ""
    if diagnostic.line is not None:
        column = f", column {diagnostic.column}" if diagnostic.column is not None else ""
        place = f"line {diagnostic.line}{column}: "
    code = f"[{diagnostic.code}]" if diagnostic.code else ""
    return (
        f"{diagnostic.stage.value}: {place}{diagnostic.severity.value}{code}: {diagnostic.message}"
    )


def _render_excerpt(diagnostic: Diagnostic, source: list[str]) -> str:
    """Return the line that a diagnostic is about, and a mark below its column; empty where the line
    is unknown."""
    if diagnostic.line is None or not 1 <= diagnostic.line <= len(source):
        return ""
    line = source[diagnostic.line - 1][:MAX_EXCERPT]
    gutter = f"{diagnostic.line} | "
    column = diagnostic.column or 0
    if 1 <= column <= len(line) + 1:
        mark = "\n" + " " * (len(gutter) + column - 1) + "^"
    else:
        mark = ""
    return f"\n{gutter}{line}{mark}"


def _render_story_progress(result: Graded) -> str:
    remarks = []
    for name, (threshold, remark) in STORY_REMARKS.items():
        if name in result.components and result.components[name] < threshold:
            remarks.append(f"- {remark}")
    return "\n".join([f"reward {result.reward:.2f} of 1", *remarks])
