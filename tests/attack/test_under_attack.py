"""Half of the load hostile, half honest; and sources that nobody would write. Honest answers lose nothing by either."""

from __future__ import annotations

from gradus.attacks import OCAML, load_attacks
from services.graders.ocaml.grader import OcamlGrader
from services.offline import grade_in_order
from tests.attack.fuzz_ocaml import fuzz


def test_honest_answers_beside_hostile_ones_all_pass(ocaml_grader: OcamlGrader) -> None:
    attacks = [attack for attack in load_attacks(OCAML.grader) if attack.wall_s is None]
    honest = OCAML.honest()
    asked = []
    for number, attack in enumerate(attacks):
        # a comment makes each honest answer work of its own
        text = f"(* {number} *) {OCAML.right}"
        asked += [attack.submission(), honest.submission(text).model_copy(update={"id": f"honest-{number}"})]
    results = list(grade_in_order(ocaml_grader, asked, "ocaml/graduated@1", slots=2))
    assert [result.id for result in results[1::2] if result.status == "faulted" or not result.passed] == []
    got = {attack.name: attack.got_through(result) for attack, result in zip(attacks, results[::2], strict=True)}
    assert {name: problem for name, problem in got.items() if problem} == {}


def test_no_source_however_broken_is_a_fault(ocaml_grader: OcamlGrader) -> None:
    wrong = [(problem, source) for _, problem, source in fuzz(ocaml_grader, seed=7, number=250) if problem]
    assert wrong == []
