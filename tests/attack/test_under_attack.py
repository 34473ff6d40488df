"""Answers that burn their limits beside honest ones, which lose nothing by it; and sources broken
at random."""

from __future__ import annotations

from gradus.contract import OcamlSubmission
from services.attacks.code import CodeCorpus
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order
from tests.attack.fuzz_ocaml import fuzz
from tests.attack.fuzz_ocaml_bypasses import fuzz as bypasses

BURNS = {
    "in the compiler": (
        "let d0 x = (x, x)\n"
        + "\n".join(f"let d{n} x = d{n - 1} (d{n - 1} x)" for n in range(1, 8))
        + "\nlet double x = d7 x"
    ),
    "at the start": "let () = while true do () done\nlet double x = x + x",
    "in a test": "let rec double x = double (x + 1)",
    "in the collector": (
        "let rec double x = ignore (List.init 10_000 (fun y -> [ x; y ])); double x"
    ),
    "at the limit of memory": (
        "let rec double x = try ignore (Bytes.create 400_000_000); double x with _ -> double x"
    ),
}


def test_answers_that_burn_their_limits_cost_what_these_say_and_take_nothing_from_their_neighbours(
    ocaml_grader: OcamlGrader,
) -> None:
    honest_attack = CodeCorpus.read("ocaml").honest
    task = {name: honest_attack.task[name] for name in ("signature", "tests")}
    asked = []
    for number, burner in enumerate(BURNS.values()):
        for name, text in (("burns", burner), ("honest", honest_attack.source)):
            submission = {
                "id": f"{name} {number}",
                "completion": f"(* {number} *) {text}",
                "task": task,
            }
            asked.append(OcamlSubmission.model_validate(submission))
    all_of_them = grade_in_order(ocaml_grader, asked, "ocaml/graduated@1", slots=2)
    results = [result for result in all_of_them if result.status == "graded"]
    assert len(results) == len(asked)
    burners = results[::2]
    honest = results[1::2]
    assert [result.id for result in honest if not result.passed] == []
    for result in burners:
        assert any(flag.startswith("limit:") for flag in result.flags), result.id
    # 2 s for the compiler or for the run, and what is counted besides: the start of a child, a tick
    # of the clock
    assert {result.id: result.cpu_ms for result in burners if result.cpu_ms > 2200} == {}


def test_no_source_however_broken_is_a_fault(ocaml_grader: OcamlGrader) -> None:
    wrong = [
        (problem, source)
        for _, problem, source in fuzz(ocaml_grader, seed=7, number=250)
        if problem
    ]
    assert wrong == []


def test_no_way_of_naming_a_forbidden_value_reaches_it(ocaml_grader: OcamlGrader) -> None:
    outcomes = list(bypasses(ocaml_grader, seed=7, number=250))
    assert [(problem, program.source) for _, problem, program in outcomes if problem] == []
    refused = [outcome for outcome, _, _ in outcomes if outcome == "forbidden: refused"]
    assert (
        len(refused) > len(outcomes) / 2
    )  # most programs would do what they are meant to, were it allowed
