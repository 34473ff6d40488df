"""Calls that are a part of the answer's crate give the verdicts of calls that are a crate of their
own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import RustSubmission, TaskSubmission
from gradus.tasks.rust import RustTask
from services.graders.rust import grader as grader_module
from services.graders.rust.compile import CompileStatus
from services.graders.rust.grader import RustGrader

CASES = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "rust" / "appended_calls.yaml").read_text()
)
F = CASES["f"]


def submission(group: str, code: str, **changes: Any) -> TaskSubmission[RustTask]:
    parts = [CASES[group].get("before", ""), code.replace("%F", F)]
    completion = f"```rust\n{''.join(parts[:: -1 if code.startswith('#!') else 1])}\n```"
    return RustSubmission.model_validate(
        {"id": "a", "completion": completion, "task": CASES[group]["task"] | changes}
    )


@pytest.fixture
def linked(rust_grader: RustGrader, monkeypatch: pytest.MonkeyPatch) -> list[CompileStatus]:
    """How each call of the linker ended."""
    statuses: list[CompileStatus] = []
    link = rust_grader.compiler.link

    def counted(*arguments: Any) -> Any:
        done = link(*arguments)
        statuses.append(done.status)
        return done

    monkeypatch.setattr(rust_grader.compiler, "link", counted)
    return statuses


@pytest.mark.parametrize(
    ("group", "case"),
    [(group, case) for group in ("functions", "types") for case in CASES[group]["answers"]],
    ids=lambda part: part if isinstance(part, str) else part["name"],
)
def test_verdicts_are_those_of_calls_in_a_crate_of_their_own(
    rust_grader: RustGrader,
    linked: list[CompileStatus],
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    case: dict[str, Any],
) -> None:
    result = rust_grader.grade(submission(group, case["code"]), "rust/graduated@1", 0)
    assert (CompileStatus.COMPILED in linked) is case["linked"]
    linked.clear()
    monkeypatch.setattr(grader_module, "can_append", lambda *_: False)
    apart = rust_grader.grade(submission(group, case["code"]), "rust/graduated@1", 0)
    assert not linked
    differing = {"cpu_ms", "wall_ms"}
    assert result.model_dump(exclude=differing) == apart.model_dump(exclude=differing)


def test_declared_fields_are_checked_from_another_crate(
    rust_grader: RustGrader, linked: list[CompileStatus]
) -> None:
    signature = "pub struct P { pub x: i64 }\npub fn f(x: i64) -> P;"
    tests = "use solution::{f, P};\n#[test] fn one() { assert_eq!(f(1).x, P { x: 1 }.x) }"
    passed = []
    for field in ("pub x: i64", "x: i64"):
        code = f"pub struct P {{ {field} }} pub fn f(x: i64) -> P {{ P {{ x }} }}"
        graded = rust_grader.grade(
            submission("functions", code, signature=signature, tests=tests), "rust/graduated@1", 0
        )
        passed.append(graded.passed)
    assert passed == [True, False]
    assert not linked


def test_a_second_panic_handler_is_refused(rust_grader: RustGrader) -> None:
    handler = "#[panic_handler] fn handle(_: &core::panic::PanicInfo) -> ! { loop {} }"
    tests = "#[test] fn handled() { assert_eq!(solution::f(1), 2) }"
    answer = {
        "id": "a",
        "completion": f"```rust\n#![no_std]\n{handler}\n{F}```",
        "task": {"signature": "pub fn f(x: i64) -> i64;", "tests": tests},
    }
    graded = rust_grader.grade(RustSubmission.model_validate(answer), "rust/graduated@1", 0)
    assert not graded.passed
