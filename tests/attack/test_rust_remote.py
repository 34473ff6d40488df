"""Answers beside tests that run in a process of their own: what passes, what does not, and answers
that may use everything (`unsafe`, system calls, raw memory)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import Graded, RustSubmission
from services.graders.rust.grader import RustGrader
from tests.attack.test_rust_referee import READS, TOOLS, undefended

__all__ = ["undefended"]

RUBRIC = "rust/graduated@1"
TASKS = yaml.safe_load((Path(__file__).parents[1] / "cases/rust/remote.yaml").read_text())


def answers() -> Iterator[Any]:
    for task in TASKS:
        for expected in ("right", "wrong"):
            for number, code in enumerate(task.get(expected, ())):
                name = f"{task['name']}: {expected} {number}"
                yield pytest.param(task, code, expected == "right", id=name)


def grade(grader: RustGrader, code: str, task: dict[str, Any]) -> Graded:
    fields = {"tests": task["tests"], "signature": task["signature"]}
    completion = f"```rust\n{code}\n```"
    submission = RustSubmission.model_validate(
        {"id": "a", "prompt": "", "completion": completion, "task": fields}
    )
    result = grader.grade(submission, RUBRIC, 0)
    assert isinstance(result, Graded)
    assert all(grader._remote.values()), "the tests ran in the answer's process"
    return result


@pytest.fixture(scope="module")
def remote_grader(rust_grader: RustGrader) -> Iterator[RustGrader]:
    grader = RustGrader(sandbox=rust_grader.sandbox)
    yield grader
    grader.close()


@pytest.mark.parametrize(("task", "code", "passes"), answers())
def test_answers_get_what_they_deserve(
    remote_grader: RustGrader, task: dict[str, Any], code: str, passes: bool
) -> None:
    result = grade(remote_grader, code, task)
    assert result.passed is passes, result


SECRET = {
    "signature": "pub fn secret(x: i64) -> String;",
    "tests": """use solution::secret;
fn check(x: i64) { for word in ["zebra-8231"] { assert!(secret(x).eq(word), "{word}"); } }
#[test] fn a() { check(1); }
#[test] fn b() { check(2); }
""",
}
SAYS = """
fn writes() -> Vec<i32> {
    (0..64).filter(|&one| unsafe { fcntl(one, 3) } & 3 != 0 && unsafe { fcntl(one, 1) } >= 0).collect()
}
fn tell(bytes: &[u8]) {
    for number in writes() { let _ = std::mem::ManuallyDrop::new(file(number)).write_all(bytes); }
}
fn digits_of(number: usize) -> Vec<u8> { vec![b'a'; number] }
"""  # noqa: E501
HOSTILE = {
    "says nothing and ends": "std::process::exit(0)",
    "says that tests passed": (
        'for secret in digits(32) { for word in ["ok 0", "ok 1", "done"] {'
        ' tell(format!("{secret} {word}\\n").as_bytes()) } } String::new()'
    ),
    "sends a result that is none": "tell(&[1, 0, 0, 0, 7]); String::new()",
    "sends an empty result": "tell(&[0, 0, 0, 0]); String::new()",
    "sends a result that is cut off": "tell(&[9, 0, 0, 0, 0, 1]); std::process::exit(0)",
    "sends a length that nothing holds": (
        "tell(&[9, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 127]); String::new()"
    ),
    "sends a message without end": (
        "tell(&[255, 255, 255, 255]); tell(&digits_of(1 << 20)); loop {}"
    ),
    "sends two results": "for _ in 0..2 { tell(&[9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]) } loop {}",
    "sends text that is none": (
        "tell(&[10, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 255]); String::new()"
    ),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_an_answer_that_controls_its_process_passes_nothing(
    undefended: RustGrader, body: str
) -> None:
    code = f"{TOOLS}{SAYS}\n#[allow(unreachable_code)] pub fn secret(_: i64) -> String {{ {body} }}"
    result = grade(undefended, code, SECRET)
    assert not result.passed
    assert result.tests is not None
    assert result.tests.passed == 0


def test_no_memory_of_the_answer_holds_what_tests_expect(undefended: RustGrader) -> None:
    knows = 'pub fn secret(_: i64) -> String { "zebra-8231".into() }'
    assert grade(undefended, knows, SECRET).passed
    result = grade(undefended, READS, SECRET)
    assert result.tests is not None
    assert result.tests.passed == 0


def test_the_answer_has_two_ends_of_pipes_and_nothing_else(undefended: RustGrader) -> None:
    """One to read requests, one to write results; nothing that can do both, and no report."""
    code = f"""{TOOLS}
pub fn secret(_: i64) -> String {{
    let mut held = String::new();
    for one in 0..256 {{
        if unsafe {{ fcntl(one, 1) }} >= 0 {{ held += &format!("{{one}}:{{}} ", unsafe {{ fcntl(one, 3) }} & 3) }}
    }}
    let pipes = (3..256).filter(|&one| is_pipe(one)).map(|one| unsafe {{ fcntl(one, 3) }} & 3);
    let mut ends: Vec<i32> = pipes.collect();
    ends.sort();
    if ends == [0, 1] && !(3..256).any(|one| unsafe {{ fcntl(one, 1) }} >= 0 && unsafe {{ fcntl(one, 3) }} & 3 == 2)
        {{ "zebra-8231".into() }} else {{ held }}
}}"""  # noqa: E501
    result = grade(undefended, code, SECRET)
    assert result.passed, result


CPUS = {
    "signature": "pub fn count_cpus() -> usize;\npub fn has_all_cpus() -> bool;",
    "tests": """use solution::*;
#[test] fn a() {
    assert!(has_all_cpus());
    for _ in 0..200 { count_cpus(); }
    assert_eq!(count_cpus(), 1);
}
#[test] fn b() { assert!(has_all_cpus()); }
""",
}


def test_a_test_with_many_calls_shares_a_cpu_with_the_answer_until_it_ends(
    remote_grader: RustGrader,
) -> None:
    code = """
use std::sync::OnceLock;
use std::thread::available_parallelism;

static ALL: OnceLock<usize> = OnceLock::new();

pub fn count_cpus() -> usize { available_parallelism().unwrap().get() }
pub fn has_all_cpus() -> bool { *ALL.get_or_init(count_cpus) == count_cpus() }
"""
    result = grade(remote_grader, code, CPUS)
    assert result.passed, result
