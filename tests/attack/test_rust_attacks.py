"""Hostile Rust answers, one file each: no unearned credit, the host as it was, the grader as able as before.

What the comment at the head of a file means is in `services/attacks/code.py`. `rust_files.yaml` holds whole completions
that try where files of an answer can be put.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gradus.contract import Graded
from gradus.errors import Fault
from services.attacks.code import RUST, Attack, attack_of, load_attacks
from services.graders.rust.grader import RustGrader
from tests.attack.host import descendants, watched

ATTACKS = {attack.name: attack for attack in load_attacks(RUST.grader)}
FILES = yaml.safe_load((Path(__file__).parent / "rust_files.yaml").read_text())
RUBRIC = "rust/graduated@1"
VARIANTS = ("declared", "undeclared glob")
OWN_CPU_S = 20.0
"""CPU time, outside of boxes, that no answer may cost the grader: far more than any needs."""


@pytest.fixture(scope="module")
def rust_grader() -> RustGrader:
    """The Rust grader in its real boxes."""
    try:
        grader = RustGrader()
    except Fault as fault:
        pytest.skip(f"the Rust grader cannot start here: {fault.message}")
    grade(grader, RUST.right, RUST.honest(), "declared")  # its boxes are standing before the first attack
    return grader


def attacks() -> Iterator[Any]:
    completions = [attack_of(RUST, said["name"], said["completion"], said) for said in FILES if "refused" not in said]
    for attack in (*ATTACKS.values(), *completions):
        for variant in VARIANTS:
            yield pytest.param(attack, variant, id=f"{attack.name}-{variant}")


@contextmanager
def grader_for(attack: Attack, usual: RustGrader, tmp_path: Path) -> Iterator[RustGrader]:
    if attack.wall_s is None:
        yield usual
        return
    settings = usual.config.model_dump()
    settings["run"]["wall_s"] = attack.wall_s
    file = tmp_path / "rust.yaml"
    file.write_text(yaml.safe_dump(settings))
    with closing(RustGrader(file, usual.sandbox)) as grader:
        yield grader


def grade(grader: RustGrader, completion: str, attack: Attack, variant: str) -> Graded:
    declared = variant == "declared"
    return grader.grade(attack.submission(completion, declared=declared, suite=not declared), RUBRIC, 0)


def lines_of_the_tests(attack: Attack) -> set[str]:
    """Lines long enough to be nobody else's."""
    text = f"{attack.tests}\n{attack.suite}"
    return {line for line in map(str.strip, text.splitlines()) if len(line) > 12 and not line.startswith("use ")}


@pytest.mark.parametrize(("attack", "variant"), attacks())
def test_an_attack_earns_nothing_and_leaves_the_host_as_it_was(
    rust_grader: RustGrader, tmp_path: Path, attack: Attack, variant: str
) -> None:
    before = descendants()
    started = time.process_time()
    with grader_for(attack, rust_grader, tmp_path) as grader, watched(tmp_path) as host:
        result = grade(grader, host.fill_in(attack.source), attack, variant)
        assert grade(grader, RUST.right, RUST.honest(), variant).passed
    assert time.process_time() - started < OWN_CPU_S
    assert attack.got_through(result) is None, result
    assert not result.passed, result
    told = "\n".join(diagnostic.message for diagnostic in result.diagnostics)
    assert [line for line in lines_of_the_tests(attack) if line in told] == []
    assert descendants() <= before


@pytest.mark.parametrize("said", [said for said in FILES if "refused" in said], ids=lambda said: said["name"])
def test_what_no_grader_could_read_is_refused_at_the_door(said: dict[str, str]) -> None:
    attack = attack_of(RUST, said["name"], said["completion"], said)
    with pytest.raises(ValidationError, match=said["refused"]):
        attack.submission()


def test_every_attack_is_an_answer_without_fences() -> None:
    assert len(ATTACKS) >= 80
    assert [attack.name for attack in ATTACKS.values() if "```" in attack.source] == []
