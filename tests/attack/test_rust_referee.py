"""Answers that may use everything (`unsafe`, system calls, raw memory), against the referee alone: what answers may not
use is not looked for here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gradus.contract import Graded, RustSubmission
from services.graders.rust import grader as rust
from services.graders.rust.answer import RustAnswer
from services.graders.rust.grader import RustGrader
from services.graders.rust.toolchain import RustToolchain

RUBRIC = "rust/graduated@1"
SIGNATURE = "pub fn double(x: i64) -> i64;"
TESTS = """use solution::double;
#[test] fn five() { assert!(matches!(double(5), 10)); }
#[test] fn minus_three() { assert!(matches!(double(-3), -6)); }
#[test] fn two() { assert!(matches!(double(2), 4)); }
"""
# Pipes of the process by what they are for, its heap, and strings of hexadecimal digits in there.
TOOLS = """
use std::io::{BufRead, BufReader, Read, Write};
unsafe extern "C" {
    fn fcntl(descriptor: i32, command: i32, ...) -> i32;
    fn lseek(descriptor: i32, offset: i64, whence: i32) -> i64;
    fn sbrk(by: isize) -> *const u8;
}
fn is_pipe(number: i32) -> bool {
    unsafe { fcntl(number, 1) >= 0 && lseek(number, 0, 1) < 0 && !(0..3).contains(&number) }
}
fn file(number: i32) -> std::fs::File {
    unsafe { std::os::fd::FromRawFd::from_raw_fd(number) }
}
fn pipe(mode: i32) -> std::fs::File {
    file((3..64).find(|&one| is_pipe(one) && unsafe { fcntl(one, 3) } & 3 == mode).unwrap())
}
fn say(line: &str) {
    let mut up = std::mem::ManuallyDrop::new(pipe(1));
    let _ = up.write_all(format!("{line}\\n").as_bytes());
}
fn heap() -> &'static [u8] {
    let end = unsafe { sbrk(0) };
    unsafe { std::slice::from_raw_parts(end.wrapping_sub(132 * 1024), 132 * 1024) }
}
fn digits(length: usize) -> Vec<String> {
    let mut found = vec![];
    for part in heap().split(|byte| !byte.is_ascii_hexdigit() || byte.is_ascii_uppercase()) {
        if part.len() == length { found.push(String::from_utf8_lossy(part).into_owned()) }
    }
    found
}
"""
# Plays the harness: tells the passed token of what runs now and of what else is released, but for what `fails`.
PLAYS = """
fn play(fails: impl Fn(&str) -> bool) -> ! {
    let now = digits(32);
    say(&now.last().unwrap()[12..22]);
    for release in BufReader::new(pipe(0)).lines().map_while(Result::ok) {
        say(if fails(&release[..12]) { &release[22..] } else { &release[12..22] });
    }
    std::process::exit(0)
}
"""
RIGHT = "pub fn double(x: i64) -> i64 { 2 * x }"
BLIND = [
    ("says what a report says", 'for line in ["ok 0", "ok 1", "ok 2", "done"] { say(line) } 0'),
    ("says a line without end", 'say(&"a".repeat(1 << 20)); 0'),
    ("guesses a token", 'say("0123456789"); 0'),
    ("says an empty line", 'say(""); 0'),
]


@pytest.fixture(scope="module")
def undefended(rust_grader: RustGrader) -> Iterator[RustGrader]:
    """A grader that forbids nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RustToolchain, "answer_flags", ())
        patch.setattr(RustAnswer, "forbidden", ())
        patch.setattr(rust, "_forbidden", lambda compiled, answer: None)
        grader = RustGrader(sandbox=rust_grader.sandbox)
        yield grader
        grader.close()


def graded(grader: RustGrader, code: str, tests: str = TESTS, signature: str | None = SIGNATURE) -> Graded:
    task = {"tests": tests, "signature": signature}
    completion = f"```rust\n{code}\n```"
    submission = RustSubmission.model_validate({"id": "a", "prompt": "", "completion": completion, "task": task})
    result: Graded = grader.grade(submission, RUBRIC, 0)
    return result


def test_an_honest_answer_passes(undefended: RustGrader) -> None:
    result = graded(undefended, f"{TOOLS}{RIGHT}")
    assert (result.passed, result.flags) == (True, ())


@pytest.mark.parametrize("words", [words for _, words in BLIND], ids=[name for name, _ in BLIND])
def test_words_that_were_not_due_are_a_forged_report(undefended: RustGrader, words: str) -> None:
    result = graded(undefended, f"{TOOLS}pub fn double(_: i64) -> i64 {{ {words} }}")
    assert (result.reward, result.passed, result.flags) == (0.0, False, ("forged:report",))


def test_an_answer_that_plays_the_harness_passes_decoys(undefended: RustGrader) -> None:
    result = graded(undefended, f"{TOOLS}{PLAYS}pub fn double(_: i64) -> i64 {{ play(|_| false) }}")
    assert (result.reward, result.passed, result.flags) == (0.0, False, ("forged:report",))


def test_the_report_and_the_secret_are_not_in_the_process(undefended: RustGrader) -> None:
    """The answer signs with all that may be the secret, and writes to all that may be the report."""
    code = """
pub fn double(_: i64) -> i64 {
    for number in (0..64).filter(|&one| !is_pipe(one)) {
        for secret in digits(32) {
            let mut report = std::mem::ManuallyDrop::new(file(number));
            for word in ["", "ok 0", "ok 1", "ok 2", "done"] { let _ = writeln!(report, "{secret} {word}"); }
            let mut given = String::new();
            let _ = std::mem::ManuallyDrop::new(file(0)).read_to_string(&mut given);
            assert_eq!(given, "");
        }
    }
    0
}"""
    result = graded(undefended, f"{TOOLS}{code}")
    assert result.tests is not None
    assert (result.tests.passed, result.tests.total) == (0, 3)


def test_an_answer_that_waits_for_what_does_not_come_is_ended(undefended: RustGrader) -> None:
    result = graded(undefended, f"{TOOLS}pub fn double(_: i64) -> i64 {{ pipe(0).read(&mut [0]).unwrap() as i64 }}")
    assert not result.passed
    assert "limit:wall" in result.flags
