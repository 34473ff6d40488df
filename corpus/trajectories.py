"""Repair trajectories: an attempt is checked, the grader says what is wrong, the next one is
better, the last is right.

Every reply of the tool is what the grader says of exactly that code, graded here and now. What the
assistant says in between is put together from these replies and from the lines that change: nothing
is made up, and no model is asked. How a trajectory is written down is in `trajectory_formats`
and `agent_format`.
"""

from __future__ import annotations

import difflib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os.path import commonprefix

from pydantic import ValidationError

from corpus.mutation import Edit
from corpus.task_rows import build_submission, extract_task, wrap_in_fence
from gradus.contract import Faulted, Graded, GraderName, Stage, Submission
from gradus.feedback import LANGUAGES, SPECIAL, render_verdict, reply
from gradus.row_reader import Row
from gradus.tasks.base import Task
from gradus.validation import explain
from services.graders.base import Grader
from services.local_grading import grade_in_order

_BATCH = 16
_SHOWN_LINES = 6
DESCRIBING = ("group", "licence", "license", "source")
"""Columns of a row that its trajectory keeps."""


_Try = tuple[str, Graded]
"""Code and its verdict."""
_Others = list[tuple[int, str]]
"""How late a mistake shows, and the code that has it."""
_Stubs = dict[tuple[str, str], _Others]
"""Group and right answer -> the broken ones."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the tool."""

    thought: str
    code: str
    result: Graded
    reply: str
    """The whole result in words."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    id: str
    language: str
    request: str
    """What the user asks."""
    steps: tuple[Step, ...]
    """Attempts in their order; the last one passes all tests."""
    thought: str
    answer: str
    """What the assistant says at the end: the right file in a fenced block."""
    task: Task


@dataclass(slots=True)
class TrajectoryResult:
    """The trajectory made of one row, or why there is none."""

    row: Row
    trajectory: Trajectory | None = None
    problem: str | None = None


def build_trajectories(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader,
    attempts: int = 1,
    slots: int | None = None,
) -> Iterator[TrajectoryResult]:
    """Yield one for each row with `stub` and `solution`, in order.

    With more than one attempt, the first has the mistakes of other rows of the same `group` too,
    and each attempt has one less: every step is one towards the answer.
    """
    stubs: _Stubs = defaultdict(list)
    for row in rows:
        if isinstance(row.values.get("stub"), str) and row.values.get("group"):
            stubs[_get_group_key(row)].append((_compute_depth(row), row.values["stub"]))
    for start in range(0, len(rows), _BATCH):
        batch = rows[start : start + _BATCH]
        results = [TrajectoryResult(row) for row in batch]
        candidates: list[tuple[int, str, Submission]] = []
        for at, row in enumerate(batch):
            try:
                task = extract_task(row.values, name)
                for code in _list_codes(row, stubs, attempts):
                    candidates.append((at, code, build_submission(name, code, task)))
            except ValidationError as error:
                results[at].problem = explain(error)
            except ValueError as error:
                results[at].problem = str(error)
        submissions = [submission for _, _, submission in candidates]
        verdicts = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
        graded: dict[int, list[_Try]] = defaultdict(list)
        for (at, code, _), verdict in zip(candidates, verdicts, strict=True):
            if isinstance(verdict, Faulted):
                results[at].problem = verdict.fault.message
            else:
                graded[at].append((code, verdict))
        for at, result in enumerate(results):
            if result.problem is None:
                _set_trajectory(result, name, graded[at])
            yield result


def _list_codes(row: Row, stubs: _Stubs, attempts: int) -> list[str]:
    """Broken answers and then the right one. Raises ValueError when the row has none."""
    solution = row.values.get("solution")
    prompt = row.values.get("prompt")
    if row.problem is not None:
        raise ValueError(row.problem)
    for text in (row.values.get("stub"), solution, prompt):
        if not isinstance(text, str) or not text.strip():
            raise ValueError(
                "has no prompt, no stub (the broken code) or no solution (the right one)"
            )
    codes = [*_generate_attempts(row, stubs[_get_group_key(row)], attempts), str(solution)]
    if any(SPECIAL.search(text) for text in (*codes, str(prompt))):
        raise ValueError(
            "holds a text like <|end|>, which models read as a sign of their chat format"
        )
    return codes


def _get_group_key(row: Row) -> tuple[str, str]:
    return str(row.values.get("group", "")), str(row.values.get("solution", ""))


def _generate_attempts(row: Row, other_stubs: _Others, number: int) -> list[str]:
    """Codes with mistakes, each with one less than the one before, in the order in which a compiler
    lets them be seen.

    The mistakes are the row's own and those of others of its group that are elsewhere in the text.
    """
    solution, stub = str(row.values["solution"]), str(row.values["stub"])
    mistakes = [(_compute_depth(row), _find_mistake(solution, stub))]
    # rows of a group begin at different ones, so that they do not all meet the same
    turn = sum(stub.encode()) % max(len(other_stubs), 1)
    for depth, other in [*other_stubs[turn:], *other_stubs[:turn]]:
        new = _find_mistake(solution, other)
        if len(mistakes) < number and all(
            new.end < edit.start or edit.end < new.start for _, edit in mistakes
        ):
            mistakes.append((depth, new))
    inorder = [edit for _, edit in sorted(mistakes, key=lambda pair: (pair[0], pair[1].start))]
    codes = []
    for at in range(len(inorder)):
        code = solution
        for mistake in sorted(inorder[at:], key=lambda edit: edit.start, reverse=True):
            code = mistake.apply(code)
        codes.append(code)
    return codes


def _compute_depth(row: Row) -> int:
    """Return how late a mistake shows: words that are missing hide all others, types what tests
    find, all these what lints."""
    tags = row.values.get("tags")
    if not isinstance(tags, list):
        return 1
    if "mutation:lint" in tags:
        return 3
    if "mutation:syntax" in tags:
        return 0
    return 2 if "stage:tests" in tags else 1


def _find_mistake(solution: str, stub: str) -> Edit:
    """Return the one place where `stub` differs from `solution`."""
    start = len(commonprefix([solution, stub]))
    tail_length = len(commonprefix([solution[start:][::-1], stub[start:][::-1]]))
    return Edit("", start, len(solution) - tail_length, stub[start : len(stub) - tail_length])


def _set_trajectory(result: TrajectoryResult, name: GraderName, graded: Sequence[_Try]) -> None:
    """Set the trajectory, or the problem."""
    row = result.row
    *broken, (answer, last) = graded
    if not last.passed:
        result.problem = f"its solution does not pass: {render_verdict(last)}"
        return
    if _is_right(broken[-1][1]):
        result.problem = "its stub passes all tests: there is nothing to repair"
        return
    tries = [(code, verdict) for code, verdict in broken if not _is_right(verdict)]
    request = _render_request(row, name, *tries[0])
    steps: list[Step] = []
    for code, verdict in [*tries, (answer, last)]:
        thought = _render_thought(steps[-1] if steps else None, code, request)
        steps.append(Step(thought, code, verdict, reply(verdict)))
    thought = f"The check says: {steps[-1].reply.splitlines()[0]}. This is the answer."
    task = build_submission(name, answer, extract_task(row.values, name)).task
    result.trajectory = Trajectory(
        str(row.values.get("id", "")),
        LANGUAGES[name],
        request,
        tuple(steps),
        thought,
        wrap_in_fence(name, answer),
        task,
    )


def _is_right(result: Graded) -> bool:
    """Return whether all tests pass, and clippy has no warnings."""
    return result.passed and all(
        diagnostic.stage is not Stage.CLIPPY for diagnostic in result.diagnostics
    )


def _render_request(row: Row, name: GraderName, code: str, result: Graded) -> str:
    """Return the row's prompt; one that shows the row's own broken code and its message shows the
    first attempt's instead."""
    prompt = str(row.values.get("prompt", ""))
    stub = str(row.values.get("stub", ""))
    message = str(row.values.get("message", ""))
    if code == stub or wrap_in_fence(name, stub) not in prompt:
        return prompt
    shown = prompt.replace(wrap_in_fence(name, stub), wrap_in_fence(name, code))
    if message:
        shown = shown.replace(message, reply(result))
    return shown


def _render_thought(before: Step | None, code: str, request: str) -> str:
    if before is None:
        is_given = code.strip() in request
        return "First I check the code as it stands." if is_given else "I check a first attempt."
    lines = before.code.splitlines()
    new_lines = code.splitlines()
    changed = 0
    for number, (old, new) in enumerate(zip(lines, new_lines, strict=False), start=1):
        if old != new:
            changed = number
            break
    # What was said of the line that changes first, or else what was said first.
    total, *complaints = filter(None, before.reply.splitlines())
    of_line = [remark for remark in complaints if re.search(rf": line {changed}[,:]", remark)]
    complaint = [*of_line, *complaints, total][0]
    compared = difflib.unified_diff(lines, new_lines, lineterm="", n=0)
    changes = [line for line in compared if not line.startswith(("---", "+++", "@@"))]
    shown = changes[:_SHOWN_LINES]
    if len(changes) > _SHOWN_LINES:
        shown.append("...")
    return "\n".join([f"The check says: {complaint}", "I change:", *shown])
