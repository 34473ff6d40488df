"""Signatures that are derived from reference answers and tests: what they declare, and that nothing
is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from corpus.drafts import Unusable
from corpus.rust_signature import derive_signature
from corpus.signing import sign
from corpus.task_rows import Finding
from gradus.row_reader import Row
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader
from tests.conftest import Cli

RUST = """\
use std::collections::HashMap;
use std::fmt;

/// Counts words; `pub fn secret()` is none.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault { #[allow(unused)] Empty, Odd { at: usize } }

pub const LIMIT: usize = 3;

pub struct Tally<T> where T: Clone { pub words: HashMap<String, usize>, pub hidden: u8, kept: Vec<T> }

pub trait Size { const UNIT: u8; fn size(&self) -> usize { 0 } }

impl<T> Tally<T> where T: Clone {
    pub fn new() -> Self { Tally { words: HashMap::new(), hidden: 0, kept: Vec::new() } }
    pub fn add(&mut self, word: &str, mark: T) -> Result<usize, Fault> {
        if word.is_empty() { return Err(Fault::Empty); }
        self.kept.push(mark);
        self.count(word)
    }
    pub fn unused(&self) {}
    fn count(&mut self, word: &str) -> Result<usize, Fault> {
        let entry = self.words.entry(word.to_string()).or_insert(0);
        *entry += 1;
        Ok(*entry)
    }
}
impl<T: Clone> Size for Tally<T> { const UNIT: u8 = 1; fn size(&self) -> usize { self.kept.len() } }
impl<T: Clone> fmt::Display for Tally<T> { fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result { write!(f, "x") } }
fn helper() {}
pub fn top(_: &HashMap<String, usize>) -> [u8; 2] { helper(); [1, 2] }
"""  # noqa: E501
RUST_TESTS = """\
use solution::*;
use std::collections::HashMap;
#[test] fn counts() {
    let mut tally = Tally::new();
    assert_eq!(tally.add("a", LIMIT), Ok(1));
    assert_eq!(tally.add("", 1), Err(Fault::Empty));
    assert_eq!(tally.words["a"], tally.size());
    assert_eq!(top(&HashMap::new()), [1, 2]);
}
"""
DECLARED = """\
use std::collections::HashMap;
pub enum Fault { Empty, Odd { at: usize } }
pub const LIMIT: usize;
pub struct Tally<T> where T: Clone { pub words: HashMap<String, usize> }
pub trait Size {
    const UNIT: u8;
    fn size(&self) -> usize;
}
impl<T> Tally<T> where T: Clone {
    pub fn new() -> Self;
    pub fn add(&mut self, word: &str, mark: T) -> Result<usize, Fault>;
}
impl<T: Clone> Size for Tally<T> {}
pub fn top(_: &HashMap<String, usize>) -> [u8; 2];
"""


def signed(grader: OcamlGrader | RustGrader, *rows: dict[str, Any]) -> list[Finding]:
    placed = [Row(f"tasks.jsonl:{n}", {"id": str(n), **row}) for n, row in enumerate(rows, start=1)]
    return list(sign(placed, grader.name, grader, 1))


def test_what_rust_tests_use_is_declared_and_the_reference_passes_with_it(
    rust_grader: RustGrader,
) -> None:
    plain = {"solution": RUST, "tests": RUST_TESTS}
    inner = {"solution": RUST, "task": {"tests": RUST_TESTS}}
    flat, nested = signed(rust_grader, plain, inner)
    assert (flat.problems, flat.row.values["signature"]) == ([], DECLARED)
    assert (nested.problems, nested.row.values["task"]) == (
        [],
        {"tests": RUST_TESTS, "signature": DECLARED},
    )


def test_what_is_there_or_cannot_be_derived_stays_as_it_was(rust_grader: RustGrader) -> None:
    one = "use solution::f; #[test] fn a() { assert_eq!(f(1), 2) }"
    rows: list[dict[str, Any]] = [
        {"solution": "", "tests": one, "signature": "pub fn f(x: u8) -> u8;"},
        {"solution": "fn main() {}", "cases": [{"stdout": ""}]},
        {"tests": one},
        {"solution": "pub fn f(x: u8) -> u8 { x }", "tests": one},
        {"solution": "type N<T> = T; pub fn f(x: N<u8>) -> u8 { x + 1 }", "tests": one},
        {"solution": "pub fn f(x: u8) -> u8 { x + 1 }", "tests": "#[test] fn a() { g(1) }"},
        {"solution": "type N = u8; pub fn f(x: N) -> N { x + 1 }", "tests": one},
    ]
    results = signed(rust_grader, *rows)
    kept = [{"id": str(number), **row} for number, row in enumerate(rows, start=1)]
    assert [result.row.values for result in results[:6]] == kept[:6]
    assert results[6].row.values["signature"]
    assert [not result.problems for result in results] == [
        True,
        True,
        False,
        False,
        False,
        False,
        True,
    ]
    for result, said in zip(
        results[2:6],
        ["no solution", "gets 0.35", "cannot find type `N`", "name nothing"],
        strict=True,
    ):
        assert said in str(result.problems)


@pytest.mark.parametrize(
    ("solution", "why"),
    [
        ("#[macro_export] macro_rules! f { () => {} }", "the macro `f`"),
        ("mod inner { pub fn f() {} } pub use inner::f;", "`pub use`"),
        ("union f { a: u8 } pub fn g() {}", "name nothing"),
    ],
)
def test_what_no_signature_can_declare_is_told(solution: str, why: str) -> None:
    with pytest.raises(Unusable, match=why):
        derive_signature(solution, "use solution::f; #[test] fn a() { f!() }")


def test_ocaml_signatures_are_those_of_the_compiler_cut_down(ocaml_grader: OcamlGrader) -> None:
    solution = (
        "type t = A | B of int\nlet helper x = x + 1\nlet f x = B (helper x)\nmodule M = struct let"
        " one = 1 end"
    )
    [good, bad, unused] = signed(
        ocaml_grader,
        {"solution": solution, "tests": "let () = assert (f 1 = B 2)"},
        {"solution": "let f x = x ^ 1", "tests": "let () = assert (f 1 = 2)"},
        {"solution": "let f x = x", "tests": "let () = assert (g 1 = 2)"},
    )
    assert (good.problems, good.row.values["signature"]) == (
        [],
        "type t = A | B of int\nval f : int -> t\n",
    )
    assert "does not compile by itself" in str(bad.problems)
    assert "name no value" in str(unused.problems)


def test_the_command_writes_every_row_and_replaces_no_file(gradus: Cli, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    out = tmp_path / "signed.jsonl"
    rows = [
        {
            "id": "a",
            "prompt": "p",
            "tests": "let () = assert (f 1 = 2)",
            "solution": "let f x = x + 1",
            "notes": "n",
        },
        {"id": "b", "prompt": "q", "tests": "let () = assert (f 1 = 2)"},
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = gradus("tasks", "sign", file, "--out", out)
    assert said.status == 1
    assert f"{file}:2: b: has no solution" in said.out
    assert f"1 of 2 tasks were signed, 1 could not be: {out}" in said.out
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {**rows[0], "signature": "val f : int -> int\n"},
        rows[1],
    ]
    before = out.read_text()
    for again in (
        gradus("tasks", "sign", file, "--out", out),
        gradus("tasks", "sign", file, "--out", file, "--force"),
    ):
        assert (again.status, again.out) == (2, "")
    assert out.read_text() == before
    assert gradus("tasks", "sign", file, "--out", out, "--grader", "story", "--force").status == 2
