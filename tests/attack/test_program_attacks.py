"""Hostile programs: no unearned credit, the host as it was, the grader as able as before.

What the entries of `program/corpus.yaml` mean is in `services/attacks/code.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from services.attacks.code import Attack, CodeCorpus
from services.graders.program.grader import ProgramGrader
from services.sandbox.nested_boxes import NestedBoxes
from tests.attack.host_state import Batch, chosen_attacks, representatives, watched

CORPUS = CodeCorpus.read("program")
ATTACKS, HONEST = CORPUS.attacks, CORPUS.honest
RUBRIC = "program/graduated@1"
VARIANT = "usual"


def attacks() -> Iterator[Any]:
    often = set(representatives(ATTACKS.values()))
    for name, attack in ATTACKS.items():
        marks = () if name in often else pytest.mark.slow
        yield pytest.param(attack, VARIANT, id=name, marks=marks)


def attempt(program_grader: ProgramGrader, folder: Path, attack: Attack, slot: int) -> None:
    language = attack.task.get("language", "python")
    if language not in program_grader.languages:
        pytest.skip(f"{language} is not installed")
    with watched(folder) as host:
        submission = attack.build_submission(host.fill_in(attack.source))
        result = program_grader.grade(submission, RUBRIC, slot)
    assert attack.find_breach(result) is None, result
    assert not result.passed, result
    told = "\n".join(diagnostic.message for diagnostic in result.diagnostics)
    assert "424242" not in told
    assert "848484" not in told


@pytest.fixture(scope="module")
def batch(
    program_grader: ProgramGrader,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("attacks")
    attempts = {}
    for number, (attack, variant) in enumerate(chosen_attacks(request)):
        run = partial(attempt, program_grader, folder / str(number), attack)
        attempts[attack.name, variant] = run
    with closing(Batch(attempts)) as batch:
        yield batch


@pytest.mark.parametrize(("attack", "variant"), attacks())
def test_an_attack_earns_nothing_and_leaves_the_host_as_it_was(
    batch: Batch, attack: Attack, variant: str
) -> None:
    batch.result(attack, variant)


def test_after_all_attacks_no_process_is_left_and_the_right_answer_passes(
    batch: Batch, program_grader: ProgramGrader
) -> None:
    batch.wait_for_all()
    if isinstance(program_grader.boxes.cases, NestedBoxes):
        program_grader.boxes.cases.close()
    batch.assert_no_process_is_left()
    assert program_grader.grade(HONEST.build_submission(), RUBRIC, 0).reward == 1.0


def test_there_are_many() -> None:
    assert len(ATTACKS) >= 60
