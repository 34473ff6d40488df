"""Names that do not exist: shares from records made by hand, and diagnostics that are hostile or
none of ours."""

from __future__ import annotations

from typing import Any

import pytest
from report_runs import RIGHT, record_of, verdict

from gradus.contract import Diagnostic, Severity, Stage
from gradus.descriptions import describe_offline
from trainer.evaluate.breakdowns import (
    MOST_NAMES,
    HallucinatedNames,
    compute_details,
    measure_invented_names,
)
from trainer.evaluate.verdicts import NAME_CHARS, extract_invented_name
from trainer.rewards.judge import Record

OCAML = describe_offline("ocaml")
RUST = describe_offline("rust")


def remark(message: str, code: str | None = None, **changed: Any) -> Diagnostic:
    return Diagnostic(
        **{
            "stage": Stage.CHECK,
            "severity": Severity.ERROR,
            "code": code,
            "message": message,
            **changed,
        }
    )


def missing(name: str) -> Diagnostic:
    return remark(f"cannot find function `{name}` in this scope: not found in this scope", "E0425")


MISMATCH = remark("mismatched types: expected `u32`, found `&str`", "E0308")


def answer(task: str, *remarks: Diagnostic) -> Record:
    result = verdict(0.1, stage=Stage.CHECK, diagnostics=remarks, grader="rust@1")
    return record_of(
        result, mode="greedy", task_id=task, kind=None, sample=0, prompt="?", completion="x"
    )


def test_the_shares_of_hand_made_answers_are_exactly_these() -> None:
    records = [
        answer("a", missing("foo"), missing("foo"), missing("bar"), MISMATCH),
        answer("a", MISMATCH),
        answer("b", missing("foo")),
        answer("c"),
    ]
    found = compute_details(records, RUST).invented
    assert found is not None
    assert found.answers is not None
    # Half of a's answers, b's one, not c's; tasks weigh alike.
    assert found.answers.value == pytest.approx((0.5 + 1 + 0) / 3)
    assert found.names == {"foo": 2, "bar": 1}, "each answer counts once"


def test_without_errors_no_name_is_invented() -> None:
    found = measure_invented_names([answer("a")], "rust")
    assert found is not None
    assert found.answers is not None
    assert (found.answers.value, found.names) == (0.0, {})
    assert measure_invented_names([], "rust") == HallucinatedNames(answers=None, names={})
    assert measure_invented_names([answer("a")], "story") is None


def test_warnings_other_stages_and_faults_do_not_count() -> None:
    silent = [
        answer("a", missing("foo").model_copy(update={"severity": Severity.WARNING})),
        answer("b", missing("foo").model_copy(update={"stage": Stage.TESTS})),
    ]
    found = measure_invented_names(silent, "rust")
    assert found is not None
    assert found.names == {}


def test_many_names_are_cut_to_the_most_frequent() -> None:
    names = [missing(f"f{n}") for n in range(MOST_NAMES + 5)]
    records = [answer(str(n), *names[: n + 1]) for n in range(MOST_NAMES + 5)]
    found = measure_invented_names(records, "rust")
    assert found is not None
    assert list(found.names.items())[:2] == [("f0", MOST_NAMES + 5), ("f1", MOST_NAMES + 4)]
    assert len(found.names) == MOST_NAMES


@pytest.mark.parametrize(
    "error",
    [
        {},
        {"message": None, "code": 7},
        {"message": 7, "code": ["E0425"]},
        {"message": "", "code": "E0425"},
        {"message": "cannot find function `` in this scope", "code": "E0425"},
        {"message": "cannot find function `" + "x" * 100_000, "code": "E0425"},
        {"message": "cannot find " + "a " * 50_000, "code": "E0425"},
        {"message": "no " + "a " * 50_000 + "named", "code": "E0599"},
        {"message": "Unbound value", "code": None},
        {"message": "There is no field", "code": None},
    ],
)
def test_an_error_that_names_nothing_invents_nothing(error: dict[str, Any]) -> None:
    assert extract_invented_name(error, "rust") is None
    assert extract_invented_name(error, "ocaml") is None


def test_long_names_are_cut_and_both_spellings_of_ocaml_are_read() -> None:
    long = {"message": f"cannot find value `{'x' * 9999}` in this scope", "code": "E0425"}
    assert extract_invented_name(long, "rust") == "x" * NAME_CHARS
    assert (
        extract_invented_name({"message": 'Unbound value "lenght"\nHint: no'}, "ocaml") == "lenght"
    )
    assert (
        extract_invented_name({"message": 'There is no field "b" within type "t"'}, "ocaml") == "b"
    )


def test_records_without_diagnostics_are_read() -> None:
    bare = record_of(
        RIGHT, mode="greedy", task_id="a", kind=None, sample=0, prompt="?", completion="x"
    )
    for given in (None, "no list", [7, None, "x"]):
        assert compute_details([{**bare, "diagnostics": given}], OCAML).invented is not None
