"""The OCaml grader with a second compiler, OCaml 5.3: the same verdicts on cases and attacks.

`deploy/setup/ocaml5.sh` builds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradus.contract import OcamlSubmission
from gradus.errors import InternalFault
from services.attacks.code import CodeCorpus
from services.graders.ocaml.grader import OcamlGrader
from tests.verdict_cases import OnlyCold, WrittenCase, written_cases

PREFIX = Path(os.environ.get("GRADUS_OCAML_5", "/opt/ocaml-5.3.0"))
RUBRIC = "ocaml/graduated@1"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PREFIX / "bin/ocamlfind").exists(), reason="OCaml 5.3 is not built"),
]


@pytest.fixture(scope="module")
def graders() -> Iterator[dict[str, OcamlGrader]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{PREFIX / 'bin'}{os.pathsep}{os.environ['PATH']}")
        graders = {"warm": OcamlGrader(), "cold": OnlyCold()}
        yield graders
    for grader in graders.values():
        grader.warm.close()


def find_difference(grader: OcamlGrader, case: WrittenCase) -> str | None:
    """Return how the verdict differs from what is written down; None where it does not."""
    submission = OcamlSubmission(
        id="case", prompt=case.prompt, completion=case.completion, task=case.task
    )
    try:
        result = grader.grade(submission, RUBRIC, 0)
    except InternalFault as fault:
        return None if case.fault is not None else fault.message
    if case.expect is None:
        return f"{case.name}: not a fault"
    try:
        case.expect.check(result)
    except AssertionError:
        return f"{case.name}: {result}"
    return None


@pytest.mark.parametrize("way", ["warm", "cold"])
def test_cases_have_the_same_verdicts(graders: dict[str, OcamlGrader], way: str) -> None:
    assert graders[way].toolchain.version.startswith("5.3.")
    cases = [parameter.values[0] for parameter in written_cases("ocaml")]
    chosen = cases if way == "warm" else cases[::5]
    assert list(filter(None, (find_difference(graders[way], case) for case in chosen))) == []


def test_attacks_earn_nothing(graders: dict[str, OcamlGrader]) -> None:
    corpus = CodeCorpus.read("ocaml")
    through = []
    for name, attack in corpus.attacks.items():
        result = graders["warm"].grade(attack.build_submission(), RUBRIC, 0)
        if breach := attack.find_breach(result):
            through.append(f"{name}: {breach}")
    assert through == []
    honest = corpus.honest
    assert graders["warm"].grade(honest.build_submission(), RUBRIC, 0).passed
