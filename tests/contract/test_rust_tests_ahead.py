"""Calls that are compiled once per task and linked with each answer give the verdicts of calls
compiled with each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import RustSubmission, TaskSubmission
from gradus.tasks.rust import RustTask
from services.graders.rust.compile import CompileStatus
from services.graders.rust.grader import RustGrader
from services.graders.rust.signature import parse_signature

CASES = yaml.safe_load(
    (Path(__file__).parents[1] / "cases" / "rust" / "tests_ahead.yaml").read_text()
)
TASK = CASES["task"]
F = CASES["f"]


def submission(code: str, **changes: Any) -> TaskSubmission[RustTask]:
    parts = [CASES["count"], code.replace("%F", F)]
    completion = f"```rust\n{''.join(parts[:: -1 if code.startswith('#!') else 1])}\n```"
    return RustSubmission.model_validate(
        {"id": "a", "completion": completion, "task": TASK | changes}
    )


@pytest.fixture(scope="module")
def linked(rust_grader: RustGrader) -> Iterator[list[bytes]]:
    """Object code for each call of the linker. The task's calls are compiled and kept."""
    for _ in range(2):
        rust_grader.grade(submission(F), "rust/graduated@1", 0)
    calls: list[bytes] = []
    link = rust_grader.compiler.link

    def counted(tests: bytes, *others: Any) -> Any:
        done = link(tests, *others)
        calls.extend([tests] * (done.status is CompileStatus.COMPILED))
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rust_grader.compiler, "link", counted)
        yield calls


@pytest.mark.parametrize("case", CASES["answers"], ids=lambda case: case["name"])
def test_verdicts_are_those_of_tests_compiled_with_the_answer(
    rust_grader: RustGrader, linked: list[bytes], case: dict[str, Any]
) -> None:
    # tests that nobody has seen are compiled with the answer
    alone = rust_grader.grade(
        submission(case["code"], tests=f"{TASK['tests']}\n// {case['name']}"), "rust/graduated@1", 0
    )
    before = len(linked)
    result = rust_grader.grade(submission(case["code"]), "rust/graduated@1", 0)
    differing = {"cpu_ms", "wall_ms"}
    assert result.model_dump(exclude=differing) == alone.model_dump(exclude=differing)
    assert (len(linked) > before) is case["linked"]


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": "pub struct S;\nimpl S { pub fn new() -> Self; }"},
        {"signature": "pub fn f<T: Ord>(x: T) -> T;"},
        {"signature": "pub fn f(x: impl Fn(i64) -> i64) -> i64;"},
        {"signature": "pub const fn f(x: i64) -> i64;"},
        {"signature": "pub async fn f(x: i64) -> i64;"},
        {"signature": "pub const N: usize = 1;\npub fn f(x: i64) -> i64;"},
    ],
)
def test_tasks_that_declare_more_than_plain_functions_are_not_compiled_ahead(
    changes: dict[str, Any],
) -> None:
    for task, can_be in ((submission(F).task, True), (submission(F, **changes).task, False)):
        assert parse_signature(task.signature or "", task.crate).is_plain is can_be


def test_a_second_panic_handler_is_refused_for_later_answers_too(rust_grader: RustGrader) -> None:
    handler = "#[panic_handler] fn handle(_: &core::panic::PanicInfo) -> ! { loop {} }"
    tests = "#[test] fn handled() { assert_eq!(solution::f(1), 2) }"
    answer = {
        "id": "a",
        "completion": f"```rust\n#![no_std]\n{handler}\n{F}```",
        "task": {"signature": "pub fn f(x: i64) -> i64;", "tests": tests},
    }
    submission = RustSubmission.model_validate(answer)
    rewards = set()
    for _ in range(3):
        rewards.add(rust_grader.grade(submission, "rust/graduated@1", 0).reward)
    assert len(rewards) == 1
