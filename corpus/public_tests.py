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

from corpus.drafts import Unusable
from corpus.task_rows import Finding, submission_of, task_of, with_task
from gradus.contract import Faulted, Graded, GraderName
from gradus.row_reader import Row
from services.graders.base import Grader
from services.local_grading import grade_in_order

_OCAML_ITEM = re.compile(r"^let\s*\(\s*\)\s*=", re.MULTILINE)
_OCAML_NEXT = re.compile(r";\s*(?=assert\b)")
_RUST_ITEM = re.compile(r"^#\[test\]\s*\nfn [^\n]*(?:\{\n.*?^\}|\})\n?", re.MULTILINE | re.DOTALL)
_RUST_HEADER = re.compile(r"(?:\s|use [^;]*;|//[^\n]*\n)*")


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
) -> Iterator[Finding]:
    """Yield the row with its public tests for each row, in order. `most`: public tests of a row."""
    cuts = [_cut(row, name, share, most, seed) for row in rows]
    asked = []
    for row, cut in zip(rows, cuts, strict=True):
        if isinstance(cut, _Cut):
            task = task_of(row.values, name)
            solution = str(row.values["solution"])
            for tests in (cut.hidden, *cut.public):
                asked.append(submission_of(name, solution, {**task, "tests": tests}))
    results = grade_in_order(grader, asked, grader.info().rubrics[0], slots)
    for row, cut in zip(rows, cuts, strict=True):
        if isinstance(cut, str):
            yield Finding(row, [cut])
            continue
        totals = [cut.left, *(1 for _ in cut.public)]
        proven = [_proves(next(results), total) for total in totals]
        if all(proven):
            changes = {"tests": cut.hidden, "public_tests": [*cut.public]}
            yield Finding(with_task(row, changes))
        else:
            why = "the reference answer does not pass its tests after the cut"
            yield Finding(row, [why])


def ocaml_tests(tests: str) -> list[str]:
    """Return each `assert` of plain tests, as a test of its own. Raises Unusable for tests
    that define or share anything."""
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
    """Return each `#[test]` function behind the imports of the file. Raises Unusable for
    files with other items."""
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


def _cut(row: Row, name: GraderName, share: float, most: int, seed: int) -> _Cut | str:
    """Return the parts of the row's tests, or why there are none."""
    task = task_of(row.values, name)
    tests = task.get("tests")
    solution = row.values.get("solution")
    if task.get("public_tests"):
        return "has public tests already"
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


def _proves(result: Graded | Faulted, total: int) -> bool:
    return (
        isinstance(result, Graded)
        and result.passed
        and result.tests is not None
        and result.tests.total == total
    )
