"""The finer figures from records made by hand, and what is told of single completions: causes,
style, tables, JUnit."""

from __future__ import annotations

import csv
from typing import Any

import pytest
from report_runs import RIGHT, STUCK, UNTYPED, WRONG, XSS, record_of, verdict

from gradus.contract import Diagnostic, Faulted, Graded, Severity, Stage, TestCount
from gradus.descriptions import describe_offline
from services.graders.ocaml.evaluation import is_imperative
from trainer.evaluate.breakdowns import compute_details, compute_text_metrics
from trainer.evaluate.exports import render_csv
from trainer.evaluate.intervals import compute_quantiles
from trainer.evaluate.results import compute_measurement
from trainer.evaluate.verdicts import extract_code, find_cause, select_typical
from trainer.rewards.judge import Record

OCAML = describe_offline("ocaml")


def record(result: Graded | Faulted, task: str = "a", sample: int = 0, **changed: Any) -> Record:
    made = record_of(
        result,
        mode="sampled",
        task_id=task,
        kind="add",
        sample=sample,
        prompt="?",
        completion="let f x = x",
    )
    more = {
        "difficulty": "easy",
        "finish_reason": "stop",
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "latency_s": 0.5,
    }
    return {**made, **more, "written_at": 100.0, **changed}


def unwritten(task: str, sample: int, kind: str = "timeout") -> Record:
    blank = record(STUCK, task, sample, completion="", status="generation_error", fault=None)
    return {
        **blank,
        "error": {"kind": kind, "message": "late"},
        "completion_tokens": None,
        "latency_s": None,
    }


# ----------------------------------------------------------------------------------------- figures


def test_rates_by_stage_are_over_tasks_and_leave_out_what_was_not_judged() -> None:
    unfit = verdict(0.25, stage=Stage.COMPILE)
    records = [
        record(RIGHT, "a", 0),
        record(WRONG, "a", 1),
        record(UNTYPED, "b", 0),
        record(unfit, "b", 1),
    ]
    records += [record(STUCK, "c", 0), unwritten("c", 1)]
    found = compute_details(records, OCAML)
    # Task a: both type and compile, one passes. Task b: one types, none compiles.
    assert {name: rate.value for name, rate in found.rates.items()} == {
        "types": 0.75,
        "compile": 0.5,
        "tests": 0.25,
    }
    assert found.partial_tests is not None
    assert found.partial_tests.value == pytest.approx((0.5 + 0.0) / 2)
    assert found.generation_errors == {"timeout": 1}
    assert found.causes == {
        "tests": 1,
        "types:mismatch": 1,
        "compile": 1,
        "fault:worker": 1,
        "generation:timeout": 1,
    }


def test_rust_has_check_clippy_and_tests() -> None:
    def rust(stage: Stage, passed: bool, *warnings: str) -> Graded:
        remarks = tuple(
            Diagnostic(stage=Stage.CLIPPY, severity=Severity.WARNING, code=code, message="m")
            for code in warnings
        )
        return verdict(
            0.5,
            stage=stage,
            passed=passed,
            diagnostics=remarks,
            grader="rust@1",
            rubric="rust/graduated@1",
        )

    results = [
        rust(Stage.CHECK, False),
        rust(Stage.CLIPPY, False),
        rust(Stage.TESTS, True, "clippy::needless_return"),
        rust(Stage.TESTS, True),
    ]
    found = compute_details(
        [record(result, str(n)) for n, result in enumerate(results)], describe_offline("rust")
    )
    assert {name: rate.value for name, rate in found.rates.items()} == {
        "check": 0.75,
        "clippy": 0.5,
        "tests": 0.5,
    }
    assert found.imperative is None


def test_stories_have_stages_and_parts_of_their_own() -> None:
    def story(stage: Stage, passed: bool = False) -> Graded:
        parts = {"coverage": 0.3, "format": 0.1}
        given = {
            "components": parts,
            "tests": None,
            "grader": "story@1",
            "rubric": "story/weighted@1",
        }
        return verdict(0.4, stage=stage, passed=passed, **given)

    records = [
        record(story(Stage.EXTRACT), "a"),
        record(story(Stage.SCORE), "b"),
        record(story(Stage.SCORE, True), "c"),
    ]
    found = compute_measurement(
        records,
        mode="sampled",
        temperature=1.0,
        samples=1,
        description=describe_offline("story"),
    )
    assert found.details is not None
    assert {n: pytest.approx(r.value) for n, r in found.details.rates.items()} == {
        "stories": 2 / 3,
        "complete": 1 / 3,
    }
    assert found.components == pytest.approx({"coverage": 0.3, "format": 0.1})
    assert found.details.partial_tests is None


def test_what_was_cut_off_is_told_apart_and_still_counts() -> None:
    records = [
        record(RIGHT, "a", finish_reason="length"),
        record(WRONG, "b", finish_reason="length"),
        record(WRONG, "c"),
    ]
    found = compute_details(records, OCAML)
    assert found.truncated == 2
    assert found.rates["tests"].value == pytest.approx(1 / 3)
    assert compute_details([record(RIGHT, finish_reason=None)], OCAML).truncated is None


def test_speed_is_by_the_time_in_which_anything_was_written() -> None:
    records = [
        record(RIGHT, "a", written_at=101.0, latency_s=1.0, completion_tokens=10),
        record(
            RIGHT, "b", written_at=101.5, latency_s=1.0, completion_tokens=30
        ),  # overlaps by half a second
        record(
            RIGHT, "c", written_at=9001.0, latency_s=0.5, completion_tokens=20
        ),  # a sitting later
    ]
    found = compute_details(records, OCAML).speed
    assert found.tokens_per_s == pytest.approx(60 / 2.0)
    assert (found.prompt_tokens, found.completion_tokens) == (30, 60)
    assert found.latency_s is not None
    assert (found.latency_s.mean, found.latency_s.p50, found.latency_s.max) == (
        pytest.approx(5 / 6),
        1.0,
        1.0,
    )


def test_what_nobody_told_is_not_made_up() -> None:
    silent = record(
        RIGHT, finish_reason=None, completion_tokens=None, prompt_tokens=None, latency_s=None
    )
    found = compute_details([silent], OCAML)
    assert (found.speed.tokens_per_s, found.speed.latency_s, found.speed.prompt_tokens) == (
        None,
        None,
        None,
    )
    assert found.completion_tokens is None
    empty = compute_details([], OCAML)
    assert (empty.rates, empty.completion_tokens, empty.groups) == ({}, None, {})


def test_quantiles_lie_between_their_neighbours() -> None:
    found = compute_quantiles(range(101))
    assert found is not None
    assert (found.mean, found.p50, found.p90, found.p99, found.max) == (
        50.0,
        50.0,
        90.0,
        99.0,
        100.0,
    )
    assert compute_quantiles([]) is None


def test_kinds_and_difficulties_have_figures_of_their_own() -> None:
    records = [
        record(RIGHT, "a"),
        record(WRONG, "b", difficulty="hard"),
        record(RIGHT, "c", kind="lists"),
    ]
    found = compute_details(records, OCAML).groups
    easy = found["difficulty"]["easy"]
    hard = found["difficulty"]["hard"]
    assert (easy.tasks, hard.tasks) == (2, 1)
    assert easy.rate is not None
    assert hard.rate is not None
    assert (easy.rate.value, hard.rate.value) == (1, 0)
    assert set(found["kind"]) == {"add", "lists"}
    repeated = [record(RIGHT, "a", kind="easy"), record(WRONG, "b", kind="hard", difficulty="hard")]
    assert set(compute_details(repeated, OCAML).groups) == {"difficulty"}


def test_the_middle_completion_is_the_lower_of_two() -> None:
    better, worse = record(RIGHT), record(WRONG)
    assert select_typical([better, worse], OCAML.stages) == worse
    assert select_typical([better, worse, better], OCAML.stages) == better
    assert select_typical([], OCAML.stages) is None


# ------------------------------------------------------------------------------------------ causes


def told(message: str, stage: Stage = Stage.TYPES, code: str | None = None) -> Diagnostic:
    return Diagnostic(stage=stage, message=message, code=code)


@pytest.mark.parametrize(
    ("changed", "cause"),
    [
        ({"passed": True}, "passed"),
        ({"stage": Stage.EXTRACT, "flags": ("degenerate:empty",)}, "degenerate:empty"),
        ({"stage": Stage.TYPES, "diagnostics": (told("Syntax error"),)}, "types:syntax"),
        ({"stage": Stage.TYPES, "diagnostics": (told("Unbound value g"),)}, "types:unbound"),
        (
            {"stage": Stage.TYPES, "diagnostics": (told("Unbound module Foo"),)},
            "types:unbound module",
        ),
        (
            {"stage": Stage.TYPES, "diagnostics": (told("f is not there", code="missing"),)},
            "types:missing",
        ),
        (
            {"stage": Stage.TYPES, "diagnostics": (told("This expression has type int"),)},
            "types:mismatch",
        ),
        ({"stage": Stage.TYPES, "flags": ("limit:compile",)}, "types:limit"),
        ({"stage": Stage.TYPES, "flags": ("forbidden:obj",)}, "forbidden:obj"),
        (
            {"stage": Stage.CHECK, "diagnostics": (told("no g", Stage.CHECK, "E0425"),)},
            "check:E0425",
        ),
        ({"stage": Stage.CHECK, "diagnostics": (told("unclosed", Stage.CHECK),)}, "check:syntax"),
        (
            {"diagnostics": (told("2 of 5 tests failed an assertion", Stage.TESTS),)},
            "tests:assertion",
        ),
        (
            {"diagnostics": (told("1 of 5 tests ended with an exception", Stage.TESTS),)},
            "tests:exception",
        ),
        ({"diagnostics": (told("1 of 5 tests ran out of stack", Stage.TESTS),)}, "tests:stack"),
        (
            {"diagnostics": (told("1 of 5 tests did not run to their end", Stage.TESTS),)},
            "tests:ended early",
        ),
        ({"flags": ("limit:cpu",)}, "tests:limit"),
        ({}, "tests"),
        ({"stage": Stage.SCORE}, "score"),
    ],
)
def test_a_cause_is_a_few_words(changed: dict[str, Any], cause: str) -> None:
    assert find_cause(record(verdict(0.25, **changed))) == cause


@pytest.mark.parametrize(
    "broken",
    [{}, {"stage": 7}, {"flags": [None]}, {"diagnostics": ["x"]}, {"fault": "x"}, {"fault": {}}],
)
def test_a_damaged_record_has_a_cause_too(broken: dict[str, Any]) -> None:
    assert find_cause(broken) in ("unknown", "fault:unknown")


# ---------------------------------------------------------------------- imperative


@pytest.mark.parametrize(
    ("code", "imperative"),
    [
        ("let f x = let r = ref 0 in !r", True),
        ("let f r = r := 1", True),
        ("let f n = for i = 1 to n do print_int i done", True),
        ("let f () = while true do () done", True),
        ("let f a = Array.set a 0 1", True),
        ("let f b = Stdlib.Bytes.set b 0 'x'", True),
        ("let f x = x + 1", False),
        ("let reference for_all = for_all while_1", False),
        ("(* for every ref, while (* := *) *) let f x = x", False),
        ('let f = "for ref := while"', False),
        ("let f = {|for ref|} ^ {x|ref |} |x}", False),
        ("let f = '\"' let g = ref 0", True),
        ("let f (x : 'a list) (y : 'b) = x", False),
        ("let f = M.ref_of (Array.settle 1)", False),
        ("Use a for loop:\n```ocaml\nlet f x = x\n```\n", False),
        ("No loop:\n```ocaml\nlet f x = ref x\n```", True),
        ("<think>```ocaml\nlet r = ref 0\n```</think>```ocaml\nlet f x = x\n```", False),
        ('let f = "never closed for ref', False),
        ("", False),
    ],
)
def test_assignments_and_loops_are_found_in_code_alone(code: str, imperative: bool) -> None:
    assert is_imperative(extract_code(code, ("ocaml",))) is imperative


@pytest.mark.parametrize(
    "text",
    [
        "{|" * 300_000,
        '"' * 600_000,
        "(*" * 300_000,
        "```" * 200_000,
        "'\\" * 300_000,
        "a." * 300_000,
    ],
)
def test_hostile_completions_are_read_in_one_pass(text: str) -> None:
    assert is_imperative(text) is False
    assert len(extract_code(text, ("ocaml",))) <= len(text)


# ---------------------------------------------------------------------- other programs


OCAML = describe_offline("ocaml")
HOSTILE = (
    XSS,
    "]]>&lt;\x00\x1b[31m\ud800\ufffe",
    "=cmd|' /C calc'!A0",
    "@SUM(A1)",
    'a,b\n"c"\u2028',
)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_stay_texts_in_csv(text: str) -> None:
    bad = verdict(0.1, flags=(text,), diagnostics=(told(text),), components={text: 0.1})
    records = [record(bad, text, kind=text), unwritten(text, 1, kind=text)]
    rows = list(csv.reader(render_csv(records, OCAML).splitlines(keepends=True)))
    assert {len(row) for row in rows} == {len(rows[0])}
    assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for row in rows for cell in row)


def test_partial_passes_are_told_in_numbers() -> None:
    half = verdict(0.5, tests=TestCount(passed=1, total=2))
    (row,) = csv.DictReader(render_csv([record(half)], OCAML).splitlines())
    assert (row["tests_passed"], row["tests_total"], row["imperative"]) == ("1", "2", "False")


def test_variety_of_texts() -> None:
    metrics = compute_text_metrics(["a b a b", "c"])
    assert metrics is not None
    assert metrics.distinct_1 == pytest.approx(3 / 5)  # a b c of a b a b c
    assert metrics.distinct_2 == pytest.approx(2 / 3)  # ab ba of ab ba ab
    assert metrics.words == 2.5
    assert compute_text_metrics([]) is None
