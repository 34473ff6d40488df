"""Public tests for tasks that have none: a share of the hidden tests, taken out of them. Writes no
file.

What is taken out is no longer counted. A row is changed only if the reference answer passes both
parts, with as many tests as were cut.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from corpus.drafts import Unusable
from corpus.task_validation import fenced
from gradus.contract import Faulted, Graded, GraderName, Submission, submission_class
from gradus.row_reader import Row
from gradus.tasks import TASKS
from services.graders.base import Grader
from services.local_grading import grade_in_order

_OCAML_ITEM = re.compile(r"^let\s*\(\s*\)\s*=", re.MULTILINE)
_OCAML_NEXT = re.compile(r";\s*(?=assert\b)")
_RUST_ITEM = re.compile(r"^#\[test\]\s*\nfn [^\n]*(?:\{\n.*?^\}|\})\n?", re.MULTILINE | re.DOTALL)
_RUST_HEADER = re.compile(r"(?:\s|use [^;]*;|//[^\n]*\n)*")


@dataclass(frozen=True, slots=True)
class PublishingResult:
    """A row after publishing: with public tests, or as it was for a reason."""

    row: Row
    values: Mapping[str, Any]
    problem: str | None = None
    """Why the row has no new public tests."""


@dataclass(frozen=True, slots=True)
class _Cut:
    public: tuple[str, ...]
    hidden: str
    left: int
    """Tests in `hidden`."""


def publish(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader,
    share: float,
    most: int,
    seed: int,
    slots: int | None = None,
) -> Iterator[PublishingResult]:
    """One result per row, in order. Rows that have public tests stay as they are. `most`: public
    tests of a row."""
    cuts = [_cut_of(row, name, share, most, seed) for row in rows]
    asked = [
        one
        for row, cut in zip(rows, cuts, strict=True)
        if isinstance(cut, _Cut)
        for one in _asked(row, name, cut)
    ]
    results = grade_in_order(grader, asked, grader.info().rubrics[0], slots)
    for row, cut in zip(rows, cuts, strict=True):
        if not isinstance(cut, _Cut):
            yield PublishingResult(row, row.values, cut)
            continue
        totals = [cut.left, *(1 for _ in cut.public)]
        proven = [_proves(next(results), total) for total in totals]
        if all(proven):
            yield PublishingResult(
                row, _with_fields(row, {"tests": cut.hidden, "public_tests": [*cut.public]})
            )
        else:
            yield PublishingResult(
                row, row.values, "the reference answer does not pass its tests after the cut"
            )


def ocaml_tests(tests: str) -> list[str]:
    """Each `assert` of plain tests, as a test of its own. Raises Unusable for tests that define or
    share anything."""
    starts = [found.start() for found in _OCAML_ITEM.finditer(tests)]
    if not starts or tests[: starts[0]].strip():
        raise Unusable("tests: are not a list of `let () = assert (...)`")
    found = []
    for start, end in zip(starts, [*starts[1:], len(tests)], strict=True):
        body = _OCAML_ITEM.sub("", tests[start:end], count=1).strip().removesuffix(";;").strip()
        for piece in _OCAML_NEXT.split(body):
            if (
                not piece.startswith("assert")
                or "\nlet " in piece
                or piece.count("(") != piece.count(")")
            ):
                raise Unusable("tests: hold more than `assert`s, so they cannot be cut")
            found.append(f"let () = {piece.strip().removesuffix(';')}")
    return found


def rust_tests(tests: str) -> list[str]:
    """Each `#[test]` function behind the imports of the file. Raises Unusable for files with other
    items."""
    items = list(_RUST_ITEM.finditer(tests))
    header = tests[: items[0].start()] if items else ""
    between = _RUST_ITEM.sub("", tests[len(header) :])
    if not items or between.strip() or not _RUST_HEADER.fullmatch(header):
        raise Unusable(
            "tests: hold more than imports and `#[test]` functions, so they cannot be cut"
        )
    return [header + item[0] for item in items]


SINGLE_TESTS: Mapping[GraderName, Callable[[str], list[str]]] = {
    "ocaml": ocaml_tests,
    "rust": rust_tests,
}


def _cut_of(row: Row, name: GraderName, share: float, most: int, seed: int) -> _Cut | str:
    """The parts of the row's tests, or why there are none."""
    fields = _fields(row)
    tests, solution = fields.get("tests"), row.values.get("solution")
    if row.problem or fields.get("public_tests"):
        return row.problem or "has public tests already"
    if not isinstance(tests, str) or not isinstance(solution, str) or not solution.strip():
        return "has no tests or no solution"
    try:
        single = list(dict.fromkeys(SINGLE_TESTS[name](tests)))
    except Unusable as unusable:
        return str(unusable)
    number = min(most, max(1, round(share * len(single))), len(single) // 2)
    if not number:
        return "has a single test, which stays hidden"
    drawn = set(random.Random(f"{seed}:{row.values.get('id')}").sample(range(len(single)), number))
    hidden = [test for n, test in enumerate(single) if n not in drawn]
    return _Cut(tuple(single[n] for n in sorted(drawn)), _joined(name, hidden), len(hidden))


def _joined(name: GraderName, tests: Sequence[str]) -> str:
    if name == "rust":  # the imports once
        header = tests[0][: tests[0].index("#[test]")]
        return header + "\n".join(test.removeprefix(header) for test in tests)
    return "\n".join(tests) + "\n"


def _fields(row: Row) -> dict[str, Any]:
    task = row.values.get("task")
    return dict(task) if isinstance(task, Mapping) else dict(row.values)


def _with_fields(row: Row, given: Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(row.values.get("task"), Mapping):
        return {**row.values, "task": {**_fields(row), **given}}
    return {**row.values, **given}


def _asked(row: Row, name: GraderName, cut: _Cut) -> Iterator[Submission]:
    """The reference answer, against the hidden part and against each public test."""
    fields = {
        key: value
        for key, value in _fields(row).items()
        if key in TASKS[name].model_fields and value
    }
    completion = fenced(name, str(row.values["solution"]))
    for number, tests in enumerate((cut.hidden, *cut.public)):
        given = {"id": str(number), "completion": completion, "task": {**fields, "tests": tests}}
        yield submission_class(name).model_validate(given)


def _proves(result: Graded | Faulted, total: int) -> bool:
    return (
        isinstance(result, Graded)
        and result.passed
        and result.tests is not None
        and result.tests.total == total
    )
