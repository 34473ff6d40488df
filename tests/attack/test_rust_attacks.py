"""Hostile Rust answers, one file each: no unearned credit, the host as it was, the grader as able
as before.

What the comment at the head of a file means is in `services/attacks/code.py`. `rust_files.yaml`
holds whole completions try where files of an answer can be put. The attacks are graded in several
slots at once, each on a host of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gradus.contract import Graded
from services.attacks.code import Attack, CodeCorpus
from services.graders.rust.grader import RustGrader
from tests.attack.host_state import SLOTS, Batch, chosen_attacks, representatives, watched

CORPUS = CodeCorpus.read("rust")
ATTACKS, HONEST = CORPUS.attacks, CORPUS.honest
FILES = yaml.safe_load((Path(__file__).parent / "rust_files.yaml").read_text())
RUBRIC = "rust/graduated@1"
VARIANTS = ("declared", "undeclared glob")
OWN_CPU_S = 20.0
"""CPU time, outside of boxes, that no answer may cost the grader: far more than any needs."""


def attacks() -> Iterator[Any]:
    everything = [*ATTACKS.values()]
    everything += [CORPUS.attack(said) for said in FILES if "refused" not in said]
    # an answer that does not compile meets no tests, so that their variant does not matter
    meeting_tests = [attack for attack in everything if "check" not in attack.stages]
    often = {
        "declared": representatives(everything),
        "undeclared glob": representatives(meeting_tests)[::6],
    }
    for attack in everything:
        for variant in VARIANTS:
            marks = () if attack.name in often[variant] else pytest.mark.slow
            yield pytest.param(attack, variant, id=f"{attack.name}-{variant}", marks=marks)


def grade(grader: RustGrader, completion: str, attack: Attack, variant: str, slot: int) -> Graded:
    task = {} if variant == "declared" else {"signature": None, "tests": attack.suite}
    return grader.grade(attack.build_submission(completion, **task), RUBRIC, slot)


def lines_of_the_tests(attack: Attack) -> set[str]:
    """Lines that are long enough to stand nowhere else."""
    text = f"{attack.task['tests']}\n{attack.suite}"
    return {
        line
        for line in map(str.strip, text.splitlines())
        if len(line) > 12 and not line.startswith("use ")
    }


def attempt(
    usual: RustGrader, impatient: RustGrader, folder: Path, attack: Attack, variant: str, slot: int
) -> None:
    grader = usual if attack.wall_s is None else impatient
    started = time.thread_time()
    with watched(folder) as host:
        result = grade(grader, host.fill_in(attack.source), attack, variant, slot)
        # both variants use the same boxes: the right answer after each attack of one variant shows
        # that they are sound
        assert variant != VARIANTS[0] or grade(grader, HONEST.source, HONEST, variant, slot).passed
    assert time.thread_time() - started < OWN_CPU_S
    assert attack.find_breach(result) is None, result
    assert not result.passed, result
    told = "\n".join(diagnostic.message for diagnostic in result.diagnostics)
    assert [line for line in lines_of_the_tests(attack) if line in told] == []


@pytest.fixture(scope="module")
def impatient(
    rust_grader: RustGrader, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RustGrader]:
    """A grader that waits for attacks which sleep as long as they need at least."""
    settings = rust_grader.config.model_dump()
    settings["run"]["wall_s"] = min(
        attack.wall_s for attack in ATTACKS.values() if attack.wall_s is not None
    )
    file = tmp_path_factory.mktemp("impatient") / "rust.yaml"
    file.write_text(yaml.safe_dump(settings))
    with closing(RustGrader(file, rust_grader.sandbox)) as grader:
        yield grader


@pytest.fixture(scope="module")
def batch(
    rust_grader: RustGrader,
    impatient: RustGrader,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Batch]:
    folder = tmp_path_factory.mktemp("attacks")
    # the compilers stand before the first attack: answers of each variant need others
    for grader, variant, slot in product((rust_grader, impatient), VARIANTS, range(SLOTS)):
        assert grade(grader, HONEST.source, HONEST, variant, slot).passed
    attempts = {
        (attack.name, variant): partial(
            attempt, rust_grader, impatient, folder / str(number), attack, variant
        )
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
    batch: Batch, rust_grader: RustGrader, impatient: RustGrader
) -> None:
    batch.wait_for_all()
    rust_grader.close_idle_runs()
    impatient.close_idle_runs()
    batch.assert_no_process_is_left()
    for variant, slot in product(VARIANTS, range(SLOTS)):
        assert grade(rust_grader, HONEST.source, HONEST, variant, slot).passed


@pytest.mark.parametrize(
    "said", [said for said in FILES if "refused" in said], ids=lambda said: said["name"]
)
def test_what_no_grader_could_read_is_refused_at_the_door(said: dict[str, str]) -> None:
    attack = CORPUS.attack({"must not": "", **said})
    with pytest.raises(ValidationError, match=said["refused"]):
        attack.build_submission()


def test_every_attack_is_an_answer_without_fences() -> None:
    assert len(ATTACKS) >= 80
    assert [attack.name for attack in ATTACKS.values() if "```" in attack.source] == []
