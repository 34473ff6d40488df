"""The warm way must come to the verdicts of the stock compiler: on our tasks, their mutants, and the public corpora."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

import pytest

from gradus.contract import OcamlTask
from gradus.resources import configs
from services.facts import Facts
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.trial import Trial
from tests.attack.fuzz_ocaml import sources
from tests.e2e import ocaml_corpora


def seen(facts: Facts) -> tuple[object, ...]:
    """What both ways must agree on; the words of diagnostics may differ."""
    return facts.stage, round(facts.typed_share, 6), facts.compiled, facts.tests, sorted(facts.flags)


def differences(grader: OcamlGrader, pairs: Iterator[tuple[str, OcamlTask, str]]) -> list[str]:
    found = []
    for name, task, code in pairs:
        warm, cold = (seen(way.facts(Trial(task, code, 0))) for way in (grader.warm, grader.cold))
        if warm != cold:
            found.append(f"{name}: warm {warm}, cold {cold}")
    return found


def our_answers() -> Iterator[tuple[str, OcamlTask, str]]:
    rows = [json.loads(line) for line in (configs() / "tasks" / "ocaml.jsonl").read_text().splitlines()]
    for row in random.Random(3).sample(rows, 40):
        for declared in (True, False):
            task = OcamlTask(tests=row["tests"], signature=row["signature"] if declared else None)
            for which in ("solution", "stub"):
                yield f"{row['id']} {which} {'' if declared else 'un'}declared", task, row[which]


def mutants() -> Iterator[tuple[str, OcamlTask, str]]:
    for number, (row, source) in enumerate(sources(seed=11, number=80)):
        task = OcamlTask(tests=row["tests"], signature=row["signature"])
        if source.strip() and len(source) < 4000:
            yield f"mutant {number} of {row['id']}", task, source


def corpora() -> Iterator[tuple[str, OcamlTask, str]]:
    for record in ocaml_corpora.records():
        for which in ("solution", "stub"):
            task = ocaml_corpora.submission(record, which).task
            if set(task.packages) <= {"ounit2"} and not task.files:
                yield f"{record['id']} {which}", task, record[which]


def test_on_our_tasks_both_ways_agree(ocaml_grader: OcamlGrader) -> None:
    assert differences(ocaml_grader, our_answers()) == []


def test_on_mutants_both_ways_agree(ocaml_grader: OcamlGrader) -> None:
    assert differences(ocaml_grader, mutants()) == []


@pytest.mark.skipif(not ocaml_corpora.DATA.is_dir(), reason="the corpora are not beside this checkout")
def test_on_the_public_corpora_both_ways_agree(ocaml_grader: OcamlGrader) -> None:
    assert differences(ocaml_grader, corpora()) == []
