"""Hostile OCaml answers, one file each: no unearned credit, the host as it was, the grader as able
as before.

What the comment at the head of a file means is in `services/attacks/code.py`. The attacks are
graded in several slots at once, each on a host of its own, and a right answer after each of them:
honest answers beside hostile ones lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import Graded
from services.attacks.code import Attack, CodeCorpus
from services.graders.ocaml.grader import OcamlGrader
from tests.attack.host_state import SLOTS, Batch, chosen_attacks, representatives, watched
from tests.verdict_cases import OnlyCold

CORPUS = CodeCorpus.read("ocaml")
ATTACKS, HONEST = CORPUS.attacks, CORPUS.honest
RUBRIC = "ocaml/graduated@1"
VARIANTS = [
    " ".join(words)
    for words in product(("warm", "cold"), ("declared", "undeclared"), ("assert", "ounit2"))
]
OFTEN = ("warm declared assert", "warm undeclared ounit2", "cold undeclared assert")
"""`make test` runs a representative of each class of attacks in the first of these variants, and
some in the others; `make test-slow` runs every attack in every variant."""

NEEDS_SIGNATURE = ("exceptions_of_two_modules_are_one",)
"""Attacks on what a signature alone says: which exceptions are to differ."""


def attacks() -> Iterator[Any]:
    often = representatives(ATTACKS.values())
    chosen = {OFTEN[0]: often, OFTEN[1]: often[::3], OFTEN[2]: often[1::3]}
    for attack in ATTACKS.values():
        # with packages there is one way only, the cold one
        variants = OFTEN[:1] if "packages" in attack.task else VARIANTS
        for variant in variants:
            if attack.name in NEEDS_SIGNATURE and "undeclared" in variant:
                continue
            marks = () if attack.name in chosen.get(variant, ()) else pytest.mark.slow
            yield pytest.param(attack, variant, id=f"{attack.name}-{variant}", marks=marks)


def grade(
    grader: OcamlGrader, completion: str, attack: Attack, variant: str, slot: int, **more: Any
) -> Graded:
    task: dict[str, Any] = {"tests": attack.suite} if "ounit2" in variant else {}
    if "undeclared" in variant:
        task["signature"] = None
    return grader.grade(attack.build_submission(completion, **task, **more), RUBRIC, slot)


def attempt(
    graders: dict[str, OcamlGrader], folder: Path, attack: Attack, variant: str, slot: int
) -> None:
    way = variant if attack.wall_s is None else "impatient"
    with watched(folder) as host:
        result = grade(graders[way], host.fill_in(attack.source), attack, variant, slot)
    assert attack.find_breach(result) is None, result
    assert not result.passed, result
    # The cold way has nothing that stands from one answer to the next.
    warm = OFTEN[0] if "cold" in variant else variant
    assert grade(graders[warm], HONEST.source, HONEST, warm, slot).passed


@pytest.fixture(scope="module")
def batch(
    ocaml_grader: OcamlGrader,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("attacks")
    settings = ocaml_grader.config.model_dump()
    settings["run"]["wall_s"] = min(
        attack.wall_s for attack in ATTACKS.values() if attack.wall_s is not None
    )
    (folder / "ocaml.yaml").write_text(yaml.safe_dump(settings))
    cold = OnlyCold(sandbox=ocaml_grader.sandbox)
    graders = {
        **{variant: cold if "cold" in variant else ocaml_grader for variant in VARIANTS},
        "impatient": OnlyCold(folder / "ocaml.yaml", ocaml_grader.sandbox),
    }
    for variant, slot in product(graders, range(SLOTS)):  # the boxes stand before the first attack
        assert grade(graders[variant], HONEST.source, HONEST, variant, slot).passed
    attempts = {
        (attack.name, variant): partial(attempt, graders, folder / str(number), attack, variant)
        for number, (attack, variant) in enumerate(chosen_attacks(request))
    }
    with closing(Batch(attempts)) as batch:
        yield batch


@pytest.mark.parametrize(("attack", "variant"), attacks())
def test_an_attack_earns_nothing_and_leaves_the_host_as_it_was(
    batch: Batch, attack: Attack, variant: str
) -> None:
    batch.result(attack, variant)


def test_after_all_attacks_no_process_is_left_and_right_answers_pass(
    batch: Batch, ocaml_grader: OcamlGrader
) -> None:
    for slot in range(
        SLOTS
    ):  # compiles the tests, too, so that no compiler child waits for more answers
        assert grade(ocaml_grader, HONEST.source, HONEST, "warm undeclared ounit2", slot).passed
    batch.assert_no_process_is_left()
    for task in ({}, {"packages": ["unix"]}):
        assert grade(
            OnlyCold(sandbox=ocaml_grader.sandbox), HONEST.source, HONEST, VARIANTS[-1], 0, **task
        ).passed


def test_every_attack_is_an_answer_without_fences() -> None:
    assert len(ATTACKS) >= 70
    assert [attack.name for attack in ATTACKS.values() if "```" in attack.source] == []
