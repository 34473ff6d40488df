"""Hostile OCaml answers, one file each: no unearned credit, the host as it was, the grader as able as before.

What the comment at the head of a file means is in `gradus/attacks.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.attacks import OCAML, Attack, load_attacks
from gradus.contract import Graded
from services.graders.base.code import CodeFacts as Facts
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.trial import Trial
from tests.attack.host import descendants, watched

ATTACKS = {attack.name: attack for attack in load_attacks(OCAML.grader)}
RUBRIC = "ocaml/graduated@1"
VARIANTS = ("declared assert", "undeclared ounit2", "cold undeclared assert")


class OnlyCold(OcamlGrader):
    def _judged(self, trial: Trial) -> Facts:
        return self.cold.facts(trial)


def attacks() -> Iterator[Any]:
    for attack in ATTACKS.values():
        for variant in VARIANTS:
            # with packages there is one way only, the cold one
            if variant == VARIANTS[0] or "packages" not in attack.task:
                yield pytest.param(attack, variant, id=f"{attack.name}-{variant}")


def grader_for(attack: Attack, variant: str, usual: OcamlGrader, tmp_path: Path) -> OcamlGrader:
    if attack.wall_s is not None:
        settings = usual.config.model_dump()
        settings["run"]["wall_s"] = attack.wall_s
        file = tmp_path / "ocaml.yaml"
        file.write_text(yaml.safe_dump(settings))
        return OcamlGrader(file, usual.sandbox)
    return OnlyCold(sandbox=usual.sandbox) if variant.startswith("cold") else usual


def grade(grader: OcamlGrader, completion: str, attack: Attack, variant: str) -> Graded:
    declared, suite = "undeclared" not in variant, "ounit2" in variant
    return grader.grade(attack.submission(completion, declared=declared, suite=suite), RUBRIC, 0)


@pytest.mark.parametrize(("attack", "variant"), attacks())
def test_an_attack_earns_nothing_and_leaves_the_host_as_it_was(
    ocaml_grader: OcamlGrader, tmp_path: Path, attack: Attack, variant: str
) -> None:
    grader = grader_for(attack, variant, ocaml_grader, tmp_path)
    usual = OCAML.honest(**attack.task)
    assert grade(ocaml_grader, OCAML.right, usual, VARIANTS[0]).passed  # makes the standing boxes, too
    before = descendants()
    with watched(tmp_path) as host:
        result = grade(grader, host.fill_in(attack.source), attack, variant)
    assert attack.got_through(result) is None, result
    assert not result.passed, result
    assert grade(grader, OCAML.right, usual, variant).passed
    assert descendants() <= before


def test_every_attack_is_an_answer_without_fences() -> None:
    assert len(ATTACKS) >= 70
    assert [attack.name for attack in ATTACKS.values() if "```" in attack.source] == []
