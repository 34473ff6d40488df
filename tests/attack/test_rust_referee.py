"""Answers that may use everything (`unsafe`, system calls, raw memory), against the referee alone:
what answers may not use is not looked for here."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import Graded, RustSubmission
from gradus.tasks.rust import RustTask
from services.graders.rust import grader as rust
from services.graders.rust.answer import RustAnswer
from services.graders.rust.expected_values import Split, split
from services.graders.rust.grader import RustGrader
from services.graders.rust.toolchain import RustToolchain

SHIPPED = Path(__file__).parents[2] / "configs/tasks/rust.jsonl"
RUBRIC = "rust/graduated@1"
SIGNATURE = "pub fn double(x: i64) -> i64;"
TESTS = """use solution::double;
#[allow(unused)] use std::thread;  // so that tests run in the answer's process
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
# Plays the harness: tells the passed token of what runs now and of what else is released, but for
# what `fails`.
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
        patch.setattr(rust, "_find_forbidden", lambda compiled, answer: None)
        grader = RustGrader(sandbox=rust_grader.sandbox)
        yield grader
        grader.close()


def graded(
    grader: RustGrader,
    code: str,
    tests: str = TESTS,
    signature: str | None = SIGNATURE,
    rubric: str = RUBRIC,
) -> Graded:
    task = {"tests": tests, "signature": signature}
    completion = f"```rust\n{code}\n```"
    submission = RustSubmission.model_validate(
        {"id": "a", "prompt": "", "completion": completion, "task": task}
    )
    result: Graded = grader.grade(submission, rubric, 0)
    return result


def test_an_honest_answer_passes(undefended: RustGrader) -> None:
    result = graded(undefended, f"{TOOLS}{RIGHT}")
    assert (result.passed, result.flags) == (True, ())


@pytest.mark.parametrize("words", [words for _, words in BLIND], ids=[name for name, _ in BLIND])
def test_words_that_were_not_due_are_a_forged_report(undefended: RustGrader, words: str) -> None:
    result = graded(undefended, f"{TOOLS}pub fn double(_: i64) -> i64 {{ {words} }}")
    assert (result.reward, result.passed, result.flags) == (0.0, False, ("forged:report",))


@pytest.mark.parametrize("rubric", ["rust/graduated@1", "rust/tiered@1", "rust/strict@1"])
def test_an_answer_that_plays_the_harness_passes_decoys(
    undefended: RustGrader, rubric: str
) -> None:
    code = f"{TOOLS}{PLAYS}pub fn double(_: i64) -> i64 {{ play(|_| false) }}"
    result = graded(undefended, code, rubric=rubric)
    assert (result.reward, result.passed, result.flags) == (0.0, False, ("forged:report",))


def test_the_report_and_the_secret_are_not_in_the_process(undefended: RustGrader) -> None:
    """The answer signs with all that may be the secret, and writes to all that may be the
    report."""
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
}"""  # noqa: E501
    result = graded(undefended, f"{TOOLS}{code}")
    assert result.tests is not None
    assert (result.tests.passed, result.tests.total) == (0, 3)


@pytest.mark.parametrize("process", ["that of the tests", "one of its own"])
def test_descriptors_are_for_reading_or_for_writing(undefended: RustGrader, process: str) -> None:
    """The answer is right if it has one pipe to read and one to write, and else nothing that is
    open for both."""
    code = f"""{TOOLS}
fn modes(wanted: bool) -> Vec<i32> {{
    let numbers = (0..64).filter(|&one| unsafe {{ fcntl(one, 1) }} >= 0 && is_pipe(one) == wanted);
    let mut modes: Vec<i32> = numbers.map(|one| unsafe {{ fcntl(one, 3) }} & 3).collect();
    modes.sort();
    modes
}}
pub fn double(x: i64) -> i64 {{
    x * if modes(true) == [0, 1] && !modes(false).contains(&2) {{ 2 }} else {{ 3 }}
}}
"""
    tests = TESTS if process == "that of the tests" else TESTS.replace("use std::thread;", "")
    assert graded(undefended, code, tests).passed


def test_an_answer_that_waits_for_what_does_not_come_is_ended(undefended: RustGrader) -> None:
    result = graded(
        undefended,
        f"{TOOLS}pub fn double(_: i64) -> i64 {{ pipe(0).read(&mut [0]).unwrap() as i64 }}",
    )
    assert not result.passed
    assert "limit:wall" in result.flags


def test_an_answer_that_knows_the_sources_passes_only_what_is_not_taken_out(
    undefended: RustGrader,
) -> None:
    """It reads the numbers of the decoys from the harness's table, and says that everything else
    passed."""
    code = f"""{TOOLS}{PLAYS}
pub fn double(_: i64) -> i64 {{
    let decoys = digits(12);
    play(move |number| decoys.iter().any(|decoy| decoy == number))
}}"""
    assert graded(undefended, code).passed
    result = graded(
        undefended, code, TESTS.replace("assert!(matches!(", "assert_eq!(").replace("))", ")")
    )
    assert result.tests is not None
    assert (result.tests.passed, result.tests.total, result.flags) == (0, 3, ())


# ---------------------------------------------------------------------- expected values

# All memory that holds the program itself, and the heap.
READS = (
    TOOLS
    + """
#[repr(C)]
struct Object { base: usize, name: *const u8, headers: *const Header, count: u16 }
#[repr(C)]
struct Header { kind: u32, flags: u32, offset: usize, start: usize, physical: usize, in_file: usize, rest: [usize; 2] }
type Parts = Vec<&'static [u8]>;
unsafe extern "C" {
    fn dl_iterate_phdr(call: extern "C" fn(&Object, usize, &mut Parts) -> i32, to: &mut Parts);
}
extern "C" fn add(object: &Object, _: usize, to: &mut Parts) -> i32 {
    for header in unsafe { std::slice::from_raw_parts(object.headers, object.count.into()) } {
        if header.kind == 1 && header.flags & 4 != 0 {
            to.push(unsafe { std::slice::from_raw_parts((object.base + header.start) as *const u8, header.in_file) });
        }
    }
    1  // the program comes first, libraries hold nothing of the tests
}
pub fn secret(_: i64) -> String {
    let mut parts = vec![heap()];
    unsafe { dl_iterate_phdr(add, &mut parts) };
    let sought = [b'z', b'e', b'b', b'r', b'a', b'-', b'8'].map(std::hint::black_box);
    for part in parts {
        let found = part.windows(sought.len() + 3).find(|place| place.starts_with(&sought));
        if let Some(text) = found.and_then(|place| std::str::from_utf8(place).ok()) { return text.to_string() }
    }
    String::new()
}
"""  # noqa: E501
)
KNOWS = 'pub fn secret(_: i64) -> String { "zebra-8231".into() }'
EXPECTED = [
    'assert_eq!(secret(1), "zebra-8231");',
    'assert_eq!("zebra-8231", secret(1), "not {}", "zebra-8231");',
    'assert!(secret(1) == "zebra-8231");',
    'let got = secret(1);\nlet expected: &str = "zebra-8231";\nassert_eq!(got, expected)',
]


@pytest.mark.parametrize(
    "signature", ["pub fn secret(_: i64) -> String;", None], ids=["declared", "undeclared"]
)
@pytest.mark.parametrize("body", EXPECTED)
def test_an_answer_that_reads_all_memory_does_not_find_what_is_expected(
    undefended: RustGrader, body: str, signature: str | None
) -> None:
    tests = f"use solution::*;\nmod of_secrets {{ use super::*; #[test] fn a() {{ {body} }} }}"
    assert not graded(undefended, READS, tests, signature).passed
    assert graded(undefended, KNOWS, tests, signature).passed


def test_the_reader_finds_what_is_not_taken_out(undefended: RustGrader) -> None:
    tests = 'use solution::*;\n#[test] fn a() { assert!(secret(1).eq("zebra-8231")); }'
    assert graded(undefended, READS, tests, None).passed


COMPARED = yaml.safe_load(
    (Path(__file__).parents[1] / "cases/rust/expected_values.yaml").read_text()
)


def thirds(cases: list[dict[str, str]]) -> Iterator[Any]:
    """Yield every case; `make test` runs each third one."""
    for number, case in enumerate(cases):
        marks = pytest.mark.slow if number % 3 else ()
        yield pytest.param(case, id=case["assertion"], marks=marks)


@pytest.mark.parametrize("case", thirds(COMPARED["taken_out"]))
def test_what_is_taken_out_is_compared_as_before(
    rust_grader: RustGrader, case: dict[str, str]
) -> None:
    """One test each that the value passes, and that some other value does not."""
    tests = "#[allow(unused)] use std::{cmp::Ordering, collections::*};\nuse solution::f;\n"
    tests += f"#[test] fn a() {{ {case['assertion']} }}"
    assert split(RustTask(tests=tests), {"f"}).expected, "nothing was taken out"
    for value, passes in ((case["right"], True), (case["wrong"], False)):
        imports = "#[allow(unused)] use std::{cmp::Ordering, borrow::Cow, collections::*};\n"
        code = (
            f"{imports}#[derive(Debug, PartialEq)] pub struct Error;\npub fn f() -> {case['type']}"
            f" {{ {value} }}"
        )
        result = graded(rust_grader, code, tests, None)
        assert result.passed is passes, (value, result)


@pytest.mark.parametrize("tests", COMPARED["kept"])
def test_what_may_not_be_compared_or_is_no_data_stays(tests: str) -> None:
    task = RustTask(tests=tests)
    assert split(task, {"f", "Shape"}) == Split(task.tests)


def test_data_stays_where_types_of_other_crates_may_be_equal_to_it() -> None:
    own = {"tests": "#[test] fn a() { assert_eq!(f(), 1) }", "dependencies": ("serde-json",)}
    told = [
        split(RustTask(**own, signature=signature), {"f"}).expected
        for signature in (None, "pub fn f() -> serde_json::Value;", "pub fn f() -> u8;")
    ]
    assert told == [(), (), (("a", "i1"),)]


def test_most_of_the_shipped_tests_are_taken_out() -> None:
    total = taken = 0
    for line in SHIPPED.read_text().splitlines():
        row = json.loads(line)
        fields = {name: row[name] for name in RustTask.model_fields if name in row}
        task = RustTask(**fields)
        if task.tests:
            total += len(re.findall(r"#\[test\]", task.tests))
            taken += len({name for name, _ in split(task, ()).expected})
    assert taken / total > 0.87
