"""Rust as text: tokens, items, signatures, and the tests file around an answer. No compiler
here."""

from __future__ import annotations

import os
import shutil
import time
import unicodedata
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gradus.contract import Severity
from gradus.tasks.rust import RustTask
from services.graders.rust.answer import read_answer
from services.graders.rust.compile import CompilerMessage
from services.graders.rust.expected_values import TOLD, split
from services.graders.rust.grader import compute_checked_share
from services.graders.rust.imported_names import ImportedNames
from services.graders.rust.lexer import (
    MAX_TOKENS,
    Kind,
    TooManyTokens,
    code,
    get_source_text,
    items,
    remove_comments,
    tokens,
)
from services.graders.rust.own_words import (
    find_compared_types,
    find_own_word,
    find_provided,
)
from services.graders.rust.signature import parse_signature
from services.graders.rust.task_check import build_library, publish_declared
from services.graders.rust.tests_file import write_tests_file
from tests.attack.fuzz_rust import differences, first_line_differences
from tests.growth import check_growth

PIECES = st.sampled_from(
    [
        *(
            '"',
            "'",
            'r#"',
            '"#',
            "b'",
            'c"',
            "\\",
            "//",
            "/*",
            "*/",
            "\n",
            " ",
            "{",
            "}",
            "(",
            ")",
            "<",
            ">",
            "r#fn",
        ),
        *(
            "fn",
            "pub",
            "'a",
            "'a'",
            "impl",
            "struct",
            "use",
            "x",
            "::",
            "->",
            ";",
            ",",
            "#",
            "!",
            "[",
            "]",
            "1.5",
            "é",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=60).map("".join) | st.text(max_size=60)


@given(TEXTS)
def test_tokens_are_the_whole_text_whatever_it_is(text: str) -> None:
    made = "".join(get_source_text(text, token) for token in tokens(text))
    assert unicodedata.normalize("NFC", made) == unicodedata.normalize("NFC", text)
    assert sum(len(item.body) for item in items(code(text))) == len(code(text))
    parse_signature(text, "solution")


STATEMENTS = """
let n = 3;
let n: T =\n 2;
let s = "a\\n";
assert_eq!(f(1), n);
assert_eq!(&n, f(1), "{n}",)
assert!(f(1) == vec![1., 2]);
assert!(!f::<A, B>(n));
assert!{ f(3) };
{ assert_eq!(f(3), 3); }
if n == 3 { }
// n
as &[u8]
(
]
}
"""


@given(
    st.lists(st.sampled_from(STATEMENTS.splitlines()), max_size=12).map("\n".join),
    st.integers(0, 30),
)
def test_taking_data_out_of_tests_keeps_every_line(body: str, cut: int) -> None:
    tests = f"#[test] fn a() {{ {body[cut:]} }} mod m {{ #[test] fn b() {{ {body} }} }}"
    taken_out = split(RustTask(tests=tests), {"f"})
    assert taken_out.tests.count("\n") == tests.count("\n")
    assert taken_out.tests.count(TOLD) == len(taken_out.expected)


@given(TEXTS)
def test_a_tests_file_is_the_tests_with_something_put_in(text: str) -> None:
    tests = text.replace("\0", "") + "\n#[test] fn a() {}"
    made = write_tests_file(RustTask(tests=tests), None).text
    before = os.path.commonprefix([tests, made])
    assert made.endswith(tests[len(before) :])
    assert "macro_rules! assert_eq" in made


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("'a'", [Kind.TEXT]),
        ("'a", [Kind.LIFETIME]),
        ("'\\''", [Kind.TEXT]),
        ("'\\u{1F600}'", [Kind.TEXT]),
        ('r#"a "b" c"#', [Kind.TEXT]),
        ('br##"a"# b"##', [Kind.TEXT]),
        ('"a\\"b"', [Kind.TEXT]),
        ("/* a /* b */ c */", [Kind.COMMENT]),
        ("// a /* b", [Kind.COMMENT]),
        ("r#type", [Kind.NAME]),
        ("1_000u64", [Kind.NUMBER]),
        ("1.5e3", [Kind.NUMBER]),
        ("1..2", [Kind.NUMBER, Kind.SIGN, Kind.SIGN, Kind.NUMBER]),
    ],
)
def test_tokens_have_the_kinds_that_rust_gives_them(text: str, kinds: list[Kind]) -> None:
    assert [token.kind for token in tokens(text)] == kinds


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pub fn f() {}", [("fn", "f")]),
        ('pub(crate) async unsafe extern "C" fn f() {}', [("fn", "f")]),
        ("const fn f() {} const X: S = S { a: 1 };", [("fn", "f"), ("const", "X")]),
        ("static mut X: [u8; 2] = [1, { 2 }];", [("static", "X")]),
        (
            "use a::{b, c}; struct S; struct T(u8); struct U { a: u8 }",
            [("use", ""), *(("struct", n) for n in "STU")],
        ),
        ("#![allow(x)] #[derive(Debug)] enum E { A }", [("enum", "E")]),
        (
            "macro_rules! m { () => {} } m! { x } m!(y);",
            [("macro_rules", "m"), ("m", ""), ("m", "")],
        ),
        ("impl<T> Trait for S<T> where T: X { fn f() {} }", [("impl", "")]),
        (
            "mod a { fn b() {} } type T = u8; trait Q {} union V { a: u8 }",
            [("mod", "a"), ("type", "T"), ("trait", "Q"), ("union", "V")],
        ),
    ],
)
def test_items_are_cut_where_rust_ends_them(text: str, found: list[tuple[str, str]]) -> None:
    assert [(item.word, item.name) for item in items(code(text))] == found


@pytest.mark.skipif(shutil.which("rustc") is None, reason="there is no rustc")
def test_texts_have_the_tokens_that_rustc_sees() -> None:
    assert list(differences(seed=3, number=2000)) == []
    assert list(first_line_differences(seed=3, number=20)) == []


@pytest.mark.parametrize("space", ["\u200e", "\u200f", "\x85", "\u2028", "\u2029", "\x0b", "\x0c"])
def test_white_space_is_what_rust_takes_for_it(space: str) -> None:
    assert [token.text for token in code(f"use{space}a")] == ["use", "a"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("#!/bin/sh unsafe\nfn", ["fn"]),
        ("#![a] unsafe", ["a", "unsafe"]),
        ("#! /* a */ // b\n [a] unsafe", ["a", "unsafe"]),
        ("#!/**\nunsafe */[ ]", ["unsafe"]),
        ("#!\u200e[a] unsafe", ["a", "unsafe"]),
        ("\ufeff#!/// a\nunsafe", ["unsafe"]),
        ('"a"r"\\" unsafe "', []),
        ('"a"r#" unsafe "#', []),
        ("r#unsafe", ["r#unsafe"]),
        ("'r#unsafe", []),
        ("e\u0301", ["é"]),
    ],
)
def test_names_are_found_where_the_compiler_finds_them(text: str, names: list[str]) -> None:
    assert [token.text for token in code(text) if token.kind is Kind.NAME] == names


REPEATED = (
    *(
        "fn g<",
        "macro_rules!a{",
        "a ",
        "#",
        '"',
        "/*",
        "//\n",
        'r#"',
        "'",
        "{",
        "}",
        "const A:u8={}",
        "#;",
        "'\\u{",
    ),
    *(
        "{}",
        "# [",
        "pub (",
        "r###",
        "x;",
        "fn a<'a,'b>(x:&'a &'b u8,y:&'b u8)->&'a u8{y}",
        "<&'a &'b x as ",
        "|->'a",
    ),
    *(
        "#[macro_export]macro_rules!a{fn $a<'a,'b",
        "impl PartialEq for A{",
        "é",
        "struct A(B);",
        "fn g<" * 130 + ";",
    ),
)


@pytest.mark.parametrize("unit", ["characters", "tokens"])
@pytest.mark.parametrize("piece", REPEATED)
def test_whatever_is_repeated_costs_as_its_length(piece: str, unit: str) -> None:
    task = RustTask(tests="use solution::*; #[test] fn a() {}")
    length = len(piece) if unit == "characters" else max(1, len(code(piece)))

    def read(text: str) -> None:
        tokens.cache_clear()
        with suppress(TooManyTokens):
            answer = read_answer(text, task, None)
            assert answer.forbidden is not None
            assert find_own_word(task, answer) is None
            assert compute_checked_share(answer, None, []) >= 0

    def prepare(size: int) -> Callable[[], None]:
        text = piece * (size // length)
        return lambda: read(text)

    check_growth(prepare, 1_000_000 if unit == "characters" else 49_000)


DOUBLED = (
    *REPEATED,
    "trait A { fn f() { todo!() } }\n",
    "pub trait A {",
    "impl>",
    "stringify!(impl>);",
    "pub fn ",
    "impl<T> A for ",
    "fn f(x: impl A) {}",
    "impl A { fn f(&self) {} }\n",
    "use a::",
    "type A = ",
    "pub(crate) fn f() {}\n",
    "pub struct ",
    "impl Deref for ",
    "PartialEq <",
)
"""What is repeated to make texts of growing length."""


def measure_reading(text: str, task: RustTask) -> float:
    """Return the CPU time of all that is read of an answer before and after its compilation."""
    errors = [CompilerMessage("src/lib.rs", n, 1, Severity.ERROR, "E1", "") for n in range(2000)]
    shortest = float("inf")
    for _ in range(2):
        tokens.cache_clear()
        started = time.thread_time()
        answer = build_library(task, text)
        assert answer.forbidden is not None
        find_own_word(task, answer)
        publish_declared(text, answer.items["src/lib.rs"], "pub fn f(); impl A { fn f(&self); }")
        compute_checked_share(answer, None, errors)
        shortest = min(shortest, time.thread_time() - started)
    return shortest


OWN_TYPE = "struct State(i64);\nimpl PartialEq for State {}\n"


@pytest.mark.parametrize("place", ["{}", "// {}\n", "macro_rules! q {{ () => {{ {} }} }}"])
@pytest.mark.parametrize("piece", [one for one in DOUBLED if "\n" not in one])
def test_reading_own_traits_grows_as_the_text_does(piece: str, place: str) -> None:
    task = RustTask(tests="use solution::*; #[test] fn a() { assert!(f() == g().max(h())); }")

    def read(text: str) -> None:
        answer = build_library(task, text)
        with suppress(TooManyTokens):
            find_compared_types(task, None, answer)
            find_provided(task, answer)

    def prepare(size: int) -> Callable[[], None]:
        text = OWN_TYPE + place.format(piece * (size // len(piece)))
        return lambda: read(text)

    check_growth(prepare, 60_000)


@pytest.mark.parametrize("piece", DOUBLED)
def test_work_grows_as_the_text_does(piece: str) -> None:
    """Four times the text costs four times as much, with a wide margin: a search of the rest of the
    text for each piece would cost sixteen times as much."""
    task = RustTask(tests="use solution::*; #[test] fn a() { assert!(A.f().is_ok()); }")
    count = 4_000 // len(tokens(piece))
    once = measure_reading(piece * count, task)
    assert measure_reading(piece * 4 * count, task) < 10 * once + 0.1


def test_many_files_cost_as_their_number() -> None:
    task = RustTask(tests="use solution::*; #[test] fn a() {}")

    def read(text: str, read_files: int) -> None:
        answer = read_answer(f"{text}```rust\npub fn f() {{}}\n```", task, None)
        assert len(answer.tokens) == read_files
        assert answer.forbidden == ()

    def prepare(size: int) -> Callable[[], None]:
        text = "".join(f"```rust src/a{n}.rs\na\n```\n" for n in range(size))
        return lambda: read(text, min(size + 1, 1000))  # extraction reads 1,000 blocks

    check_growth(prepare, 5000)


def test_a_text_of_too_many_tokens_is_not_read() -> None:
    with pytest.raises(TooManyTokens):
        tokens("x " * MAX_TOKENS, limit=MAX_TOKENS)


def test_comments_leave_lines_and_texts_alone() -> None:
    source = 'fn f() { // one\n    "// two" /* three\n four */ }'
    assert remove_comments(source).split() == ["fn", "f()", "{", '"//', 'two"', "}"]
    assert remove_comments(source).count("\n") == source.count("\n")


def pins(signature: str) -> dict[str, str]:
    return {
        pin.name: "".join(pin.source.split()) for pin in parse_signature(signature, "solution").pins
    }


@pytest.mark.parametrize(
    ("signature", "pointer"),
    [
        ("pub fn f(x: i64) -> i64;", "let_:fn(i64)->i64=::solution::f;"),
        ("pub fn f();", "let_:fn()=::solution::f;"),
        ("fn f(mut a: Vec<u8>, (b, c): (u8, u8));", "let_:fn(Vec<u8>,(u8,u8))=::solution::f;"),
        (
            "pub fn f<'a>(a: &'a str, b: &str) -> &'a str;",
            "fnpin<'a>(){let_=::solution::f;let_:fn(&'astr,&str)->&'astr=::solution::f;",
        ),
        (
            "pub fn f<T, F: Fn(&T) -> bool>(a: &[T], f: F) -> usize;",
            "let_:fn(&[T],F)->usize=::solution::f;",
        ),
        (
            "pub fn f(a: fn(u8) -> u8) -> Box<dyn Fn(u8) -> u8>;",
            "let_:fn(fn(u8)->u8)->Box<dynFn(u8)->u8>=::solution::f;",
        ),
    ],
)
def test_a_declared_function_is_pinned_to_its_exact_type(signature: str, pointer: str) -> None:
    assert pointer in pins(signature)["f"]


def test_bounds_stand_where_the_pin_needs_them() -> None:
    pin = pins("pub fn f<'a, T: Ord + Clone>(x: &'a T) -> T where T: Copy;")["f"]
    assert "fnpin<'a,T:Ord+Clone>()whereT:Copy{" in pin


@pytest.mark.parametrize(
    ("method", "pointer"),
    [
        ("fn new() -> Self", "fn()->S<T>=<S<T>>::new"),
        (
            "fn g(&self) -> Option<&T>",
            "for<'gradus_self>fn(&'gradus_selfS<T>)->Option<&'gradus_selfT>=<S<T>>::g",
        ),
        ("fn g(&mut self, x: &str)", "for<'gradus_self>fn(&'gradus_selfmutS<T>,&str)=<S<T>>::g"),
        ("fn g(mut self) -> Self", "fn(S<T>)->S<T>=<S<T>>::g"),
        ("fn g(self: Box<Self>)", "fn(Box<S<T>>)=<S<T>>::g"),
        (
            "fn g<U>(&self, u: U) -> Self",
            "for<'gradus_self>fn(&'gradus_selfS<T>,U)->S<T>=<S<T>>::g",
        ),
    ],
)
def test_a_declared_method_is_pinned_to_its_exact_type(method: str, pointer: str) -> None:
    [pin] = pins(f"impl<T> S<T> {{ pub {method}; }}").values()
    assert pointer in pin


def test_a_declared_trait_method_is_pinned_through_its_trait() -> None:
    assert pins("impl Area for f64 { fn area(&self) -> f64; }")["f64::area"].endswith(
        "=<f64asArea>::area;}"
    )


def test_a_signature_knows_the_names_at_the_root() -> None:
    signature = parse_signature(
        "pub struct S<T>; pub enum E { A } pub trait T; pub fn f(); impl S<u8> { fn g(); }", "c"
    )
    assert signature.names == ("S", "E", "T", "f")


def test_with_a_signature_an_import_of_everything_brings_what_is_declared() -> None:
    task = RustTask(tests="use solution::*;\nmod m { use solution::*; }", signature="pub fn f();")
    assert task.signature
    made = write_tests_file(task, parse_signature(task.signature, "solution")).text
    assert made.count("use ::solution::{f};") == 3  # that of the pins, too
    assert "*;\nmod" not in made


def test_without_one_it_brings_names_and_all_variants_of_enums() -> None:
    tests = "use solution::*;\nuse solution::a::{self, *};\nuse std::io::*; use Kind::*;"
    made = write_tests_file(RustTask(tests=tests), None, {"f", "a"}, {"Kind"}).text
    lines = made.splitlines()[-4:]
    assert lines[:2] == ["use crate::gradus_names::*;"] * 2
    assert lines[2] == "use std::io::*; use Kind::*; const _: fn( Kind) = |_| ();"
    assert lines[3].endswith("pub use self::everything::{a, f}; }")


def test_pins_know_their_lines() -> None:
    task = RustTask(tests="#![allow(x)]\nuse solution::f;\n", signature="pub fn f(); pub fn g();")
    assert task.signature
    made = write_tests_file(task, parse_signature(task.signature, "solution"))
    for line, pin in made.pins.items():
        assert f"::solution::{pin.name}" in made.text.splitlines()[line - 1]
    assert [pin.name for pin in made.pins.values()] == ["f", "g"]


def test_inner_attributes_stay_in_front() -> None:
    made = write_tests_file(
        RustTask(tests="//! Doc\n#![allow(x)]\n// plain\n#![deny(y)] #[test] fn a() {}"), None
    ).text
    assert made.index("#![deny(y)]") < made.index("macro_rules! assert_eq") < made.index("#[test]")


@pytest.mark.parametrize(
    ("answer", "method"),
    [
        ("pub struct S; impl S { pub fn is_err(&self) -> bool { true } }", "is_err"),
        ("pub struct S; impl S { fn is_err(&self) -> bool { true } }", None),
        ("macro_rules! m { ($n:ident) => { pub fn $n() {} } } m!(is_err);", "is_err"),
        ("macro_rules! m { () => {} } fn a() { b.is_err() }", None),
    ],
)
def test_methods_of_an_answer_may_not_stand_in_for_std(answer: str, method: str | None) -> None:
    task = RustTask(tests="use solution::*; #[test] fn a() { assert!(f().is_err()); }")
    assert find_own_word(task, read_answer(answer, task, None)) == method


@pytest.mark.parametrize(
    ("answer", "trait"),
    [
        ("pub trait T { fn g(&self); }", True),
        ("pub trait T { fn g(&self); fn other(&self); }", True),
        ("pub trait T { fn g(&self); fn unwrap(self); }", False),
        ("macro_rules! m { () => {} } pub trait T { fn g(&self); m!(); }", False),
        ("pub trait T { fn other(&self); }", False),
    ],
)
def test_a_trait_is_in_scope_for_what_only_it_has(answer: str, trait: bool) -> None:
    task = RustTask(tests="use solution::*; #[test] fn a() { f().g(); h().unwrap(); }")
    imports = ImportedNames(task, read_answer(answer, task, None))

    def see(code: str, message: str) -> CompilerMessage:
        return CompilerMessage("tests.rs", 1, 1, Severity.ERROR, code, message)

    assert imports.refine([see("E0425", "cannot find function `f` in this scope")])
    assert imports.refine([see("E0599", "no method named `g` found for type `u8`")]) == trait
    assert imports.names == ({"f", "T"} if trait else {"f"})
    assert imports.refine([see("E0432", "unresolved import `everything::f`: no `f`")])
    assert not imports.refine([see("E0425", "cannot find function `f` in this scope")])


_LIE = "impl Not for Lie { type Output = bool; }"


@pytest.mark.parametrize(
    ("answer", "operator"),
    [
        (f"struct Lie; {_LIE} pub fn f() -> Lie {{}}", "Not"),
        (f"struct Lie; {_LIE} pub fn f() -> bool {{}}", None),
        (f"struct Lie; {_LIE} type A = Lie; pub fn f() -> A {{}}", "Not"),
        (f"mod m {{ pub struct Lie; {_LIE} }} use m::Lie as A; pub fn f() -> A {{}}", "Not"),
        (
            f"macro_rules! m {{ ($n:ident) => {{ struct $n; }} }} {_LIE} pub fn f() -> Lie {{}}",
            "Not",
        ),
        ("use std::ops::Not as N; struct Lie; impl N for Lie {} pub fn f() -> Lie {}", "Not"),
        ("struct Lie<T>; impl Sub<f64> for Lie<Named> {} pub fn f() -> Lie<Named> {}", "Sub"),
        ("struct L<F>; impl<F: for<'a> Fn(&'a u8)> Not for L<F> {} pub fn f() -> L<u8> {}", "Not"),
        ("struct L; impl<T: Has<{ 3 }>> Not for L {} pub fn f() -> L {}", "Not"),
        ("struct Named; impl Neg for Named {} pub fn f() -> Named {}", None),
        ("pub fn f() -> impl Not<Output = bool> {}", "Not"),
        ("struct Lie; impl Deref for Lie {} pub fn f() -> Lie {}", "Deref"),
        ("macro_rules! m { ($t:ty) => { impl Shape for $t {} } } pub fn f() -> Lie {}", None),
    ],
)
def test_operators_of_what_functions_give_lie_where_tests_do_not_name_it(
    answer: str, operator: str | None
) -> None:
    task = RustTask(tests="use solution::*; #[test] fn a() { assert!(!f()); Named.g().unwrap(); }")
    assert find_own_word(task, read_answer(answer, task, None)) == operator


def test_forbidden_names_are_found_in_bodies_of_macros_and_nowhere_else() -> None:
    task = RustTask(tests="x")
    text = (
        'macro_rules! m { () => (unsafe {}) }\n// unsafe\nconst A: &str = "no_mangle";\nlet'
        " link_section = 1;"
    )
    exported = "#[macro_export]\n" + text
    found = [
        (diagnostic.line, diagnostic.code)
        for diagnostic in read_answer(exported, task, None).forbidden
    ]
    assert found == [(2, "unsafe")]
    assert (
        read_answer(text, task, None).forbidden == ()
    )  # the compiler finds it where the answer uses the macro


@pytest.mark.parametrize(
    ("signature", "lines", "share"),
    [
        (None, [], 1.0),
        (None, [1], 2 / 3),
        (None, [1, 2, 3], 0.0),
        ("pub fn a();", [], 1.0),
        ("pub fn a();", [1], 0.0),
        ("pub fn a();", [2], 0.5),
        ("pub fn a(); pub fn missing();", [], 0.5),
    ],
)
def test_the_share_that_checks(signature: str | None, lines: list[int], share: float) -> None:
    task = RustTask(tests="x")
    answer = read_answer("pub fn a() {}\npub fn b() {}\npub fn c() {}", task, None)
    errors = [CompilerMessage("src/lib.rs", line, 1, Severity.ERROR, "E0308", "") for line in lines]
    declared = parse_signature(signature, "solution") if signature else None
    assert compute_checked_share(answer, declared, errors) == pytest.approx(share)


def test_a_syntax_error_leaves_no_share() -> None:
    answer = read_answer("pub fn a() {}", RustTask(tests="x"), None)
    assert (
        compute_checked_share(
            answer, None, [CompilerMessage("src/lib.rs", 1, 1, Severity.ERROR, None, "")]
        )
        == 0.0
    )


def test_macros_that_could_define_tests_are_forbidden_and_tests_of_the_answer_are_not() -> None:
    task = RustTask(tests="x")
    text = (
        "#[macro_export]\nmacro_rules! m { () => {\n#[test] fn a() {} } }\n#[cfg(test)] mod t {"
        " #[test] fn b() {} }"
    )
    assert [(one.line, one.code) for one in read_answer(text, task, None).forbidden] == [
        (3, "test")
    ]
