"""Rewriting tests changes no verdict: references, stubs and mutants earn what the stock compiler
shows of them, test by test where it can tell."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from corpus.mutation import select_edits
from corpus.ocaml_mutations import OcamlMutations
from gradus.extract import extract
from gradus.resources import configs
from gradus.tasks.ocaml import Framework, OcamlTask
from services.graders.ocaml.attempt import GradingAttempt, is_warm_eligible
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.syntax import SYNTAX, find_needed_names
from tests import stock_ocaml
from tests.e2e import ocaml_corpora
from tests.verdict_cases import WrittenCase, written_cases

ROWS = [json.loads(line) for line in (configs() / "tasks/ocaml.jsonl").read_text().splitlines()]
MUTANTS = 3
UNLIKE_STOCK = {
    "apart: memory that an answer has not written is zero",
    "apart: tests that seed the generator of random numbers seed the answer's",
    "apart: an answer may be opened in any way",
    "ounit: skipped cases are not counted",
}
"""Cases in which we differ on purpose: fresh memory is cleared, tests have a generator of their
own, an answer that is opened cannot take a name of the tests, and `todo` is no failure."""

COUNTED_OTHERWISE = {"ocaml-065-union-find, answer 4: we count (8, 11), the stock compiler (4, 11)"}
"""Wrong answers of whose asserts others fail: where the first half of an `&&` is compared outside,
the second is evaluated too, and changes what later asserts see."""


def has_package(name: str) -> bool:
    found = subprocess.run(["ocamlfind", "query", name], capture_output=True, check=False)
    return found.returncode == 0


def find_differences(
    grader: OcamlGrader, folder: Path, answers: Iterator[tuple[str, OcamlTask, list[str]]]
) -> tuple[list[str], int]:
    """Return the answers that are judged otherwise, and the number of tasks whose tests were
    counted. The first answer to a task is its reference."""
    differences = []
    counted = 0
    for number, (name, task, codes) in enumerate(answers):
        reference = stock_ocaml.run(folder / f"{number}-reference", task, codes[0])
        counted += reference is not None and reference.counts is not None
        way = grader.warm if is_warm_eligible(task) else grader.cold
        for which, code in enumerate(codes):
            place = folder / f"{number}-{which}"
            if difference := stock_ocaml.find_difference(way, place, task, code, reference):
                differences.append(f"{name}, answer {which}: {difference}")
    return differences, counted


def build_task(row: dict[str, str]) -> OcamlTask:
    task = {name: row[name] for name in ("tests", "signature", "limits") if name in row}
    return OcamlTask.model_validate(task)


def shipped(
    rows: list[dict[str, str]], grader: OcamlGrader
) -> Iterator[tuple[str, OcamlTask, list[str]]]:
    mutations = OcamlMutations(grader.toolchain, grader.sandbox)
    for row in rows:
        edits = mutations.find_edits(row["solution"])
        chosen = select_edits(row["solution"], edits, MUTANTS, row["id"])
        mutants = [edit.apply(row["solution"]) for edit in chosen]
        yield row["id"], build_task(row), [row["solution"], row["stub"], *mutants]


PARTS = [
    pytest.param(ROWS[::50], id="few"),
    *(
        pytest.param(
            ROWS[part::12],
            id=f"part {part}",
            marks=[pytest.mark.slow, *([pytest.mark.whole] if part % 3 else [])],
        )
        for part in range(12)
    ),
]


@pytest.mark.parametrize("rows", PARTS)
def test_answers_to_shipped_tasks_are_judged_as_stock_ocaml_does(
    ocaml_grader: OcamlGrader, tmp_path: Path, rows: list[dict[str, str]]
) -> None:
    differences, counted = find_differences(ocaml_grader, tmp_path, shipped(rows, ocaml_grader))
    assert set(differences) <= COUNTED_OTHERWISE
    assert counted > len(rows) / 2


def is_plain(case: WrittenCase) -> bool:
    """Whether stock OCaml runs the case: an answer that passes, without a suite it cannot link."""
    task = OcamlTask.model_validate(case.task)
    is_suite = GradingAttempt(task, "", 0).framework is Framework.OUNIT2
    passes = case.expect is not None and case.expect.passed
    return passes and (not is_suite or has_package("ounit2"))


def cases() -> Iterator[tuple[str, OcamlTask, list[str]]]:
    for parameter in written_cases("ocaml"):
        [case] = parameter.values
        if is_plain(case) and parameter.id not in UNLIKE_STOCK:
            task = OcamlTask.model_validate(case.task)
            answer = extract(case.completion, task.FENCES, SYNTAX, partial(find_needed_names, task))
            yield str(parameter.id), task, [answer.text]


@pytest.mark.slow
def test_cases_that_pass_pass_in_stock_ocaml(ocaml_grader: OcamlGrader, tmp_path: Path) -> None:
    differences, counted = find_differences(ocaml_grader, tmp_path, cases())
    assert differences == []
    assert counted


def suites() -> Iterator[tuple[str, OcamlTask, list[str]]]:
    missing = ocaml_corpora.missing_packages()
    for record in ocaml_corpora.records():
        submissions = [ocaml_corpora.submission(record, which) for which in ("solution", "stub")]
        task = submissions[0].task
        if not set(missing).intersection(task.packages):
            yield record["id"], task, [record["solution"], record["stub"]]


@pytest.mark.slow
@pytest.mark.skipif(not ocaml_corpora.DATA.is_dir(), reason="the corpora are not here")
@pytest.mark.skipif(not has_package("ounit2"), reason="OUnit2 is not installed")
def test_suites_of_the_corpora_are_judged_as_stock_ocaml_does(
    ocaml_grader: OcamlGrader, tmp_path: Path
) -> None:
    differences, counted = find_differences(ocaml_grader, tmp_path, suites())
    assert differences == []
    assert counted
