"""Public tests for tasks that have none: a share of the hidden tests or cases, taken out of them.
Writes no file.

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
from corpus.task_rows import Finding, build_submission, extract_task, replace_task
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
    changes: dict[str, Any]
    """Fields of the task with the parts."""
    parts: tuple[tuple[dict[str, Any], int], ...]
    """Changes that leave one part alone, and the number of its tests."""


def publish(
    rows: Sequence[Row],
    name: GraderName,
    grader: Grader,
    share: float,
    max_public: int,
    seed: int,
    slots: int | None = None,
) -> Iterator[Finding]:
    """Yield the row with its public tests for each row, in order. `max_public`: public tests of a
    row."""
    cuts = [_split_tests(row, name, share, max_public, seed) for row in rows]
    submissions = []
    for row, cut in zip(rows, cuts, strict=True):
        if isinstance(cut, _Cut):
            task = extract_task(row.values, name)
            solution = str(row.values["solution"])
            for changes, _ in cut.parts:
                submissions.append(build_submission(name, solution, {**task, **changes}))
    results = grade_in_order(grader, submissions, grader.info().rubrics[0], slots)
    for row, cut in zip(rows, cuts, strict=True):
        if isinstance(cut, str):
            yield Finding(row, [cut])
            continue
        proven = [_is_proof(next(results), total) for _, total in cut.parts]
        if all(proven):
            yield Finding(replace_task(row, cut.changes))
        else:
            reason = "the reference answer does not pass its tests after the cut"
            yield Finding(row, [reason])


def split_ocaml_tests(tests: str) -> list[str]:
    """Return each `assert` of plain tests, as a test of its own. Raises Unusable for tests
    that define or share anything."""
    starts = [assertions.start() for assertions in _OCAML_ITEM.finditer(tests)]
    if not starts or tests[: starts[0]].strip():
        raise Unusable("tests: are not a list of `let () = assert (...)`")
    assertions = []
    for start, end in zip(starts, [*starts[1:], len(tests)], strict=True):
        body = _OCAML_ITEM.sub("", tests[start:end], count=1).strip().removesuffix(";;").strip()
        for piece in _OCAML_NEXT.split(body):
            if (
                not piece.startswith("assert")
                or "\nlet " in piece
                or piece.count("(") != piece.count(")")
            ):
                raise Unusable("tests: hold more than `assert`s, so they cannot be cut")
            assertions.append(f"let () = {piece.strip().removesuffix(';')}")
    return assertions


def split_rust_tests(tests: str) -> list[str]:
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
    "ocaml": split_ocaml_tests,
    "rust": split_rust_tests,
}


def _split_tests(
    row: Row, name: GraderName, share: float, max_public: int, seed: int
) -> _Cut | str:
    """Return the parts of the row's tests, or why there are none."""
    task = extract_task(row.values, name)
    solution = row.values.get("solution")
    if task.get("public_tests") or task.get("public_cases"):
        return "has public tests already"
    if not isinstance(solution, str) or not solution.strip():
        return "has no tests or no solution"
    single: list[Any]
    try:
        single = _list_cases(task) if name == "program" else _list_tests(task, name)
    except Unusable as unusable:
        return str(unusable)
    number = min(max_public, max(1, round(share * len(single))), len(single) // 2)
    if not number:
        return "has a single test, which stays hidden"
    drawn = set(random.Random(f"{seed}:{row.values.get('id')}").sample(range(len(single)), number))
    hidden = [test for n, test in enumerate(single) if n not in drawn]
    public = [single[n] for n in sorted(drawn)]
    if name == "program":
        changes = {"cases": hidden, "public_cases": public}
        return _Cut(changes, ((changes, len(hidden)), ({"cases": public}, len(public))))
    if name == "rust":  # the imports once
        header = hidden[0][: hidden[0].index("#[test]")]
        without_header = [test.removeprefix(header) for test in hidden]
        text = header + "\n".join(without_header)
    else:
        text = "\n".join(hidden) + "\n"
    alone = [({"tests": test}, 1) for test in public]
    return _Cut({"tests": text, "public_tests": public}, (({"tests": text}, len(hidden)), *alone))


def _list_tests(task: Mapping[str, Any], name: GraderName) -> list[str]:
    tests = task.get("tests")
    if not isinstance(tests, str):
        raise Unusable("has no tests or no solution")
    return list(dict.fromkeys(SINGLE_TESTS[name](tests)))


def _list_cases(task: Mapping[str, Any]) -> list[Any]:
    """Return the cases of a program, each once. Raises Unusable for groups, which earn points
    together."""
    cases = {repr(case): case for case in task.get("cases") or ()}
    if any(isinstance(case, Mapping) and case.get("group") for case in cases.values()):
        raise Unusable("cases: are in groups, which stay whole")
    return list(cases.values())


def _is_proof(result: Graded | Faulted, total: int) -> bool:
    return (
        isinstance(result, Graded)
        and result.passed
        and result.tests is not None
        and result.tests.total == total
    )
