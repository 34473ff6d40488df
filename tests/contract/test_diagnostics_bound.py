"""Diagnostics of an answer take a bounded part of a result, whichever grader reports them."""

from __future__ import annotations

import json

import pytest

from gradus.contract import MAX_RESULT_BYTES, Diagnostic, OcamlSubmission, Stage
from services.graders.base.grader import MAX_DIAGNOSTICS_BYTES, clip_diagnostics
from services.graders.ocaml.grader import OcamlGrader

LONG = "x" * 3000
FIELDS = "; ".join(f"f{number}: int" for number in range(2000))
METHODS = " ".join(f"method m{number} = {number}" for number in range(500))
SIGNATURE = "val f : int -> int"
ANSWERS = {
    "one mistake 16,000 times": ("let t = true\n" + "let _:int=t\n" * 16_000, SIGNATURE),
    "long names": ("\n".join(f"let a{n} = {LONG}{n}" for n in range(60)), SIGNATURE),
    "a type with many methods": (
        f"let o = object {METHODS} end\n" + "let _ : int = o\n" * 60,
        SIGNATURE,
    ),
    "a type with many fields": (
        f"type t = {{ {FIELDS} }}\n" + "let _ : t = 1\n" * 60,
        SIGNATURE,
    ),
    "many names that are refused": (
        "\n".join(f'external e{n} : int -> int = "e{n}"' for n in range(2000)),
        SIGNATURE,
    ),
    "many declared names that are missing": (
        "let g x = x",
        "\n".join(f"val f{n}{LONG} : int -> int" for n in range(200)),
    ),
    "a long value that public tests show": (
        r"let f _ = String.make 100000 (Char.chr 1)",
        "val f : int -> string",
    ),
}


@pytest.mark.parametrize("name", list(ANSWERS))
def test_a_result_of_ocaml_is_bounded(ocaml_grader: OcamlGrader, name: str) -> None:
    code, signature = ANSWERS[name]
    called = signature.split()[1]
    expected = '"1"' if "string" in signature else "1"
    # control characters take six bytes each in a result
    public = f"let () = assert ({called[:1]} 1 = {expected}) (*{chr(1) * 1900}*)"
    task = {"tests": f"let () = assert ({called} 1 = {expected})", "signature": signature}
    if name == "a long value that public tests show":
        task["public_tests"] = [public] * 3
    submission = {"id": "i" * 256, "completion": f"```ocaml\n{code}\n```", "task": task}
    result = ocaml_grader.grade(OcamlSubmission.model_validate(submission), "ocaml/graduated@1", 0)
    assert not result.passed
    assert result.diagnostics
    assert len(json.dumps(json.loads(result.model_dump_json()))) <= MAX_RESULT_BYTES


def test_diagnostics_beyond_the_bound_are_counted() -> None:
    one = Diagnostic(stage=Stage.TYPES, message="\x01" * 1000)
    kept = clip_diagnostics((one,) * 20_000)
    assert sum(len(d.model_dump_json()) for d in kept[:-1]) <= MAX_DIAGNOSTICS_BYTES
    assert kept[-1].message == f"and {20_000 - len(kept) + 1} more"


def test_few_diagnostics_stay_as_they_are() -> None:
    few = (Diagnostic(stage=Stage.TESTS, message="2 of 2 tests failed an assertion"),) * 3
    assert clip_diagnostics(few) == few
