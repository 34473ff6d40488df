"""The Rust grader in its real boxes: behaviours from tests/cases/rust/verdicts, and what only code
can make or see."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gradus.contract import Graded, RustSubmission, Stage
from gradus.errors import InternalFault, Misuse, SandboxFault
from services.graders.base import self_test_cases as own_cases
from services.graders.base.config_loader import read_settings
from services.graders.rust import grader as grader_module
from services.graders.rust.config import RustConfig
from services.graders.rust.grader import RustGrader
from services.sandbox import Command, Outcome
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.cgroup import Cgroup
from services.sandbox.persistent_box import PersistentBox
from tests.bench.repeated_texts import repeated
from tests.verdict_cases import WrittenCase, written_cases

RUBRIC = "rust/graduated@1"
RIGHT = "pub fn f(x: i64) -> i64 {\n    x + 1\n}"
INC = {
    "signature": "pub fn f(x: i64) -> i64;",
    "tests": (
        "use solution::f;\n#[test]\nfn a() { assert_eq!(f(1), 2) }\n#[test]\nfn b() {"
        " assert_eq!(f(2), 3) }"
    ),
}


def grade(
    grader: RustGrader,
    completion: str,
    task: dict[str, Any] = INC,
    rubric: str = RUBRIC,
    slot: int = 0,
) -> Graded:
    submission = RustSubmission.model_validate(
        {"id": "case", "completion": completion, "task": task}
    )
    return grader.grade(submission, rubric, slot)


@pytest.mark.parametrize("case", written_cases("rust/verdicts"))
def test_behaves_as_written_down(rust_grader: RustGrader, case: WrittenCase) -> None:
    if case.fault is not None:
        with pytest.raises(InternalFault, match=case.fault) as raised:
            grade(rust_grader, case.completion, case.task)
        assert not raised.value.retryable
        return
    assert case.expect is not None
    case.expect.check(grade(rust_grader, case.completion, case.task))


# ---------------------------------------------------------------------- hidden tests stay hidden

HIDDEN = "zanzibar_quokka_7731"
OTHER = "perihelion_marmot_4412"
LEAKING_ANSWERS = {
    "prints whatever it is given": (
        'pub fn f(s: &str) -> String { println!("{s}"); eprintln!("{s}"); s.to_string() }'
    ),
    "panics with what it is given": 'pub fn f(s: &str) -> String { panic!("{s}") }',
    "gives back what it is given": "pub fn f(s: &str) -> String { s.to_string() }",
    "writes what it is given to a file": (
        'pub fn f(s: &str) -> String { for p in ["/tmp/x", "x"] { let _ = std::fs::write(p, s); }'
        " s.to_string() }"
    ),
    "has another type": "pub fn f(n: i64) -> i64 { n }",
    "lacks the name": "pub fn g(s: &str) -> String { s.to_string() }",
    "does not parse": "pub fn f(s: &str) -> String {",
    "is forbidden": "pub fn f(s: &str) -> String { unsafe { std::mem::zeroed() } }",
    "reads sources while it is compiled": (
        'pub fn f(_: &str) -> String { include_str!("../tests.rs").to_string() }'
    ),
    "reads sources while it runs": (
        "pub fn f(_: &str) -> String {\n"
        '    let mut all = std::fs::read_to_string("/tmp/crate/tests.rs").unwrap_or_default();\n'
        "    all += &std::env::args().collect::<String>();\n"
        '    let own = std::fs::read("/box/program").unwrap_or_default();\n'
        "    all += &String::from_utf8_lossy(&own);\n"
        '    panic!("{all}")\n}'
    ),
    "looks at where it is called from": (
        "#[track_caller]\npub fn f(_: &str) -> String {\n"
        "    let place = std::panic::Location::caller();\n"
        '    println!("{place} {:?}", std::backtrace::Backtrace::force_capture());\n'
        '    panic!("{:?}", std::thread::current().name())\n}'
    ),
}
_TESTS = (
    f'use solution::f;\n#[test]\nfn {OTHER}() {{ assert_eq!(f("{HIDDEN}"), "{HIDDEN}{OTHER}",'
    f' "{OTHER}") }}'
)
HIDDEN_TASKS = {
    "declared": {"tests": _TESTS, "signature": "pub fn f(s: &str) -> String;"},
    "undeclared": {"tests": _TESTS},
}


@pytest.mark.parametrize("task", sorted(HIDDEN_TASKS))
@pytest.mark.parametrize("answer", sorted(LEAKING_ANSWERS))
def test_no_text_of_hidden_tests_is_in_any_result(
    rust_grader: RustGrader, answer: str, task: str
) -> None:
    result = grade(rust_grader, LEAKING_ANSWERS[answer], HIDDEN_TASKS[task])
    assert [
        word for word in (HIDDEN, OTHER, "quokka", "marmot") if word in result.model_dump_json()
    ] == []
    assert not result.passed


def test_expected_output_of_hidden_cases_is_in_no_result(rust_grader: RustGrader) -> None:
    task = {"cases": [{"stdin": HIDDEN, "stdout": OTHER}]}
    for answer in (
        'fn main() { println!("{}", std::io::read_to_string(std::io::stdin()).unwrap()); }',
        "fn main() {}",
    ):
        result = grade(rust_grader, answer, task).model_dump_json()
        assert HIDDEN not in result
        assert OTHER not in result


# ---------------------------------------------------------------- answers of great size and oddity

BREAKS_COMPILERS = {
    "parentheses that never close": "pub fn f(x: i64) -> i64 { " + "(" * 100_000,
    "blocks in blocks": "pub fn f(x: i64) -> i64 " + "{" * 20_000 + "x + 1" + "}" * 20_000,
    "a number of a hundred thousand digits": f"pub fn f(_: i64) -> i64 {{ {'9' * 100_000} }}",
    "a name of a hundred thousand letters": f"pub fn f(x: i64) -> i64 {{ {'a' * 100_000} }}",
    "comments without end": "/*" * 100_000 + RIGHT,
    "a constant that is computed for ever": (
        "const N: usize = { let mut n = 0usize; while n < usize::MAX { n += 1; } n };\n"
        "pub fn f(x: i64) -> i64 { x + N as i64 }"
    ),
    "types that double": (
        "macro_rules! d { ($t:ty, $($r:tt)*) => { d!(($t, $t), $($r)*); }; ($t:ty) => { pub type T"
        ' = $t; }; }\n#![recursion_limit = "512"]\nd!(i64, x x x x x x x x x x x x x x x x x x x x'
        " x x x x x x x x x x x x);"
    ),
    "a program larger than its box": (
        "use std::sync::atomic::AtomicU8;\npub static A: [AtomicU8; 1 << 31] = [const {"
        " AtomicU8::new(0) }; 1 << 31];\npub fn f(x: i64) -> i64 { x + A.len() as i64 }"
    ),
    "an array larger than memory": (
        "pub static A: [u8; 1 << 40] = [1; 1 << 40];\n" + RIGHT.replace("x + 1", "x")
    ),
    "a file that never ends": (
        'pub static A: &[u8] = include_bytes!("/dev/urandom");\n' + RIGHT.replace("+ 1", "+ 2")
    ),
}


@pytest.mark.parametrize("what", sorted(BREAKS_COMPILERS))
def test_what_breaks_compilers_is_a_verdict_and_passes_nothing(
    rust_grader: RustGrader, what: str
) -> None:
    result = grade(rust_grader, BREAKS_COMPILERS[what])
    assert not result.passed
    assert result.reward <= 0.35, result
    assert len(result.model_dump_json()) < 400_000
    assert grade(rust_grader, RIGHT).passed


@pytest.mark.parametrize(
    "completion",
    [
        "\x01\x02\x7f",
        "\ufeff",
        "\\",
        "'",
        '"',
        "`",
        'r#"',
        "b'",
        "'\\u{",
        "#![",
        "/*",
        "é",
        "macro_rules!",
        "🦀",
    ],
)
def test_odd_characters_are_a_verdict(rust_grader: RustGrader, completion: str) -> None:
    assert grade(rust_grader, completion).reward == 0


@pytest.mark.parametrize("piece", ["fn g<", "macro_rules!a{", "x ", "(", "'a ", "todo!()"])
def test_a_megabyte_of_one_piece_has_too_many_tokens(rust_grader: RustGrader, piece: str) -> None:
    result = grade(rust_grader, repeated(piece))
    assert (result.reward, result.stage, result.cpu_ms) == (0, Stage.CHECK, 0)
    assert "limit:tokens" in result.flags


def test_a_thousand_functions_are_graded(rust_grader: RustGrader) -> None:
    more = "\n".join(f"pub fn g{n}(x: i64) -> i64 {{\n    x + {n}\n}}" for n in range(1_000))
    assert grade(rust_grader, f"{RIGHT}\n{more}").passed


def test_a_hundred_warnings_are_listed_and_all_are_counted(rust_grader: RustGrader) -> None:
    more = "\n".join(f"pub fn g{n}(x: i64) -> i64 {{\n    return x;\n}}" for n in range(150))
    result = grade(rust_grader, f"{RIGHT}\n{more}")
    assert result.passed
    assert len(result.diagnostics) == 100
    assert result.components["clippy"] == pytest.approx(0.1 / 151, abs=1e-6)


BAD_TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "neither tests nor cases": ({}, "give either"),
    "both tests and cases": ({"tests": "x", "cases": [{"stdout": ""}]}, "give either"),
    "tests of white space": ({"tests": " \n"}, "give either"),
    "a crate that is no name": ({"tests": "x", "crate": "a-b"}, "crate"),
    "an edition to come": ({"tests": "x", "edition": "2099"}, "edition"),
    "a path that climbs": ({"tests": "x", "files": {"../a.rs": ""}}, "files"),
    "an absolute path": ({"tests": "x", "files": {"/etc/a.rs": ""}}, "files"),
    "a path of dots": ({"tests": "x", "files": {"src/./a.rs": ""}}, "files"),
    "a file for a folder": (
        {"tests": "x", "files": {"src/a": "", "src/a/b.rs": ""}},
        "`src/a` is the path of a file",
    ),
    "the answer's file for a folder": (
        {"tests": "x", "files": {"src/lib.rs/b.rs": ""}},
        "`src/lib.rs` is the path",
    ),
    "a hidden file": ({"tests": "x", "files": {".cargo/config.toml": ""}}, "files"),
    "a path without end": ({"tests": "x", "files": {"a" * 500: ""}}, "files"),
    "a crate name with a path": ({"tests": "x", "dependencies": ["../serde"]}, "dependencies"),
    "an unknown field": ({"tests": "x", "module": "m"}, "module"),
    "too many cases": ({"cases": [{"stdout": ""}] * 101}, "cases"),
    "a limit that is no number": ({"tests": "x", "limits": {"cpu_s": "nan"}}, "cpu_s"),
}


@pytest.mark.parametrize("what", sorted(BAD_TASKS))
def test_a_task_that_makes_no_sense_is_misuse_that_names_the_field(what: str) -> None:
    task, named = BAD_TASKS[what]
    with pytest.raises(ValidationError, match=named):
        RustSubmission.model_validate({"id": "a", "completion": RIGHT, "task": task})


@pytest.mark.parametrize(
    ("tests", "signature", "why"),
    [
        ("this is no Rust", None, "line 1 of its tests: expected"),
        (
            "use solution::f;\n#[test] fn a() { assert_eq!(f(1), 2 }",
            INC["signature"],
            "line 2 of its tests: mismatched",
        ),
        (
            "use solution::f;\nuse itertools::Itertools;\n#[test] fn a() {}",
            None,
            "line 2 of its tests: .*itertools",
        ),
        (
            "use solution::*;\n#[test] fn a() { assert_eq!(g(1), 2) }",
            INC["signature"],
            "line 2 of its tests: .*`g`",
        ),
        (
            "use solution::f;\n#[test] fn a() { HashMap::new(); f(1); }",
            None,
            "line 2 of its tests: .*HashMap",
        ),
        ("#[test] fn a() {}", "pub unsafe fn f(x: i64) -> i64;", "declares something `unsafe`"),
        ("#[test] fn a() {}", "pub fn f(x: i64) -> i64; m!{}", "nothing that can be declared"),
        ("#[test] fn a() {}", "pub fn f(x: Foo) -> i64;", "in its signature, of `f`: .*`Foo`"),
    ],
)
def test_tests_that_no_answer_fits_are_the_fault_of_the_task(
    rust_grader: RustGrader, tests: str, signature: str | None, why: str
) -> None:
    with pytest.raises(InternalFault, match=why) as raised:
        grade(rust_grader, RIGHT, {"tests": tests, "signature": signature})
    assert not raised.value.retryable


def test_what_an_answer_lacks_is_no_fault_of_the_task(rust_grader: RustGrader) -> None:
    for task in (INC, {"tests": "use solution::*;\n#[test] fn a() { assert_eq!(f(1), 2) }"}):
        assert not grade(rust_grader, "pub fn g() {}", task).passed


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("impl", "line 1 of its signature: expected type"),
        ("impl X {", "line 1 of its signature: this file contains an unclosed delimiter"),
        ("}}}", "line 1 of its signature: unexpected closing delimiter"),
        ("::", "line 1 of its signature: expected identifier"),
        ("// nothing", "signature declares nothing"),
        ("use std::fmt;", "signature declares nothing"),
    ],
)
def test_a_signature_that_declares_nothing_makes_a_task_that_cannot_be_judged(
    rust_grader: RustGrader, signature: str, why: str
) -> None:
    with pytest.raises(InternalFault, match=why) as raised:
        grade(rust_grader, RIGHT, {**INC, "signature": signature})
    assert not raised.value.retryable


# ---------------------------------------------------------------------- results as such


def test_the_same_submission_gets_the_same_verdict_every_time_and_in_every_slot(
    rust_grader: RustGrader,
) -> None:
    answers = [
        RIGHT,
        "pub fn f(x: i64) -> i64 { return x; }",
        "pub fn f(x: i64) -> i64 { y }",
        "pub fn",
    ]

    def graded_in(slot: int) -> dict[str, str]:
        found = {}
        for answer in answers[slot:] + answers[: slot + 1]:
            result = grade(rust_grader, answer, slot=slot)
            seen = result.model_copy(update={"cpu_ms": 0.0, "wall_ms": 0.0}).model_dump_json()
            assert found.setdefault(answer, seen) == seen
        return found

    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(graded_in, range(3))
    assert others == [first] * 2


def test_a_result_says_who_graded_by_what_and_at_which_cost(rust_grader: RustGrader) -> None:
    result = grade(rust_grader, RIGHT)
    info = rust_grader.info()
    assert (result.rubric, result.grader, result.toolchain) == (RUBRIC, info.grader, info.toolchain)
    assert re.fullmatch(r"rust@[0-9a-f]{12}", result.grader)
    assert 0 < result.cpu_ms < 60_000
    assert result.wall_ms > 0
    assert sum(result.components.values()) == pytest.approx(result.reward)


def test_a_diagnostic_points_to_its_place_in_the_answer(rust_grader: RustGrader) -> None:
    result = grade(
        rust_grader, 'Here:\n```rust\nuse std::fmt;\npub fn f(x: i64) -> i64 {\n    x + "1"\n}\n```'
    )
    error = next(diagnostic for diagnostic in result.diagnostics if diagnostic.severity == "error")
    assert (error.stage, error.line, error.column, error.code) == (Stage.CHECK, 3, 7, "E0277")


def test_diagnostics_hold_no_path_of_this_machine_and_none_of_the_box(
    rust_grader: RustGrader,
) -> None:
    for answer in (
        "use nowhere::x;",
        "mod missing;",
        'include!("x.rs");',
        "pub fn f() { println!(1) }",
        "#![feature(x)]",
    ):
        result = grade(rust_grader, answer).model_dump_json()
        assert not re.search(r"/(?:root|home|box|opt|tmp)/", result), result


@pytest.mark.parametrize(
    ("answer", "reward"),
    [
        ("", 0.0),
        ("pub fn f(x: i64) -> i64 { y }", 0.35),
        ("pub fn f(_x: i64) -> i64 {\n    2\n}", 0.55),
        ("pub fn f(x: i64) -> i64 {\n    return x + 1;\n}", 0.85),
        (RIGHT, 1.0),
    ],
)
def test_the_tiered_rubric_has_five_tiers(
    rust_grader: RustGrader, answer: str, reward: float
) -> None:
    assert grade(rust_grader, answer, rubric="rust/tiered@1").reward == pytest.approx(reward)


def test_the_strict_rubric_is_all_or_nothing(rust_grader: RustGrader) -> None:
    assert grade(rust_grader, RIGHT, rubric="rust/strict@1").reward == 1.0
    assert grade(rust_grader, "pub fn f(_: i64) -> i64 { 2 }", rubric="rust/strict@1").reward == 0.0


def test_facts_know_names_of_lints(rust_grader: RustGrader) -> None:
    task = {**INC, "files": {"src/lib.rs": "pub fn f(x: i64) -> i64 {\n    todo!()\n}"}}
    submission = {
        "id": "a",
        "completion": "pub fn f(x: i64) -> i64 {\n    return x + 1;\n}",
        "task": task,
    }
    facts, _ = rust_grader.facts(RustSubmission.model_validate(submission))
    assert (dict(facts.lints), facts.warnings) == ({"clippy::needless_return": 1}, 1)


def test_a_result_survives_the_wire(rust_grader: RustGrader) -> None:
    result = grade(rust_grader, 'pub fn f(x: i64) -> i64 { "\\u{1F42B} \x7f" }')
    assert Graded.model_validate(json.loads(result.model_dump_json())) == result


def test_the_grader_proves_itself_with_cases_of_every_basic_kind(rust_grader: RustGrader) -> None:
    rust_grader.self_test()
    names = {
        case.name
        for case in own_cases.load_cases(Path(grader_module.__file__).parent / "cases.yaml")
    }
    assert set(own_cases.BASIC) <= names


class BrokenCompiler(Bubblewrap):
    """Boxes in which compilers cannot be seen, have no room for files, or too little memory to do
    anything."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def open(self, command: Command) -> PersistentBox:
        match self.how:
            case "unseen":
                return super().open(replace(command, mounts={}))
            case "no room":
                return super().open(replace(command, limits=replace(command.limits, scratch_mb=0)))
            case _:
                return super().open(replace(command, limits=replace(command.limits, memory_mb=330)))


@pytest.mark.usefixtures("rust_grader")  # skips where there is no Rust
@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("unseen", "a box did not become ready.*No such file"),
        ("no room", "the compile server was lost.*Read-only file system"),
        ("no memory", "the compiler does not run in its box"),
    ],
)
def test_where_the_compiler_does_not_run_nothing_is_graded(how: str, why: str) -> None:
    with pytest.raises(SandboxFault, match=why):
        grade(RustGrader(sandbox=BrokenCompiler(how)), RIGHT)


class BrokenAfterTheAnswer(Bubblewrap):
    """Boxes that compile answers, and break where tests are compiled or programs are run."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.where = where

    def open(self, command: Command) -> PersistentBox:
        here = self.where == "tests" and command.argv[-1].endswith("rustc")
        return super().open(replace(command, mounts={}) if here else command)

    def run(self, command: Command) -> Outcome:
        return super().run(self._break_run(command))

    def start_server(self, command: Command, group: Cgroup, targets: Sequence[int]) -> int:
        return super().start_server(self._break_run(command), group, targets)

    def _break_run(self, command: Command) -> Command:
        """Take the standard library away, which no program starts without."""
        return replace(command, mounts={}) if self.where == "run" else command


PROGRAM = {"cases": [{"stdin": "", "stdout": "1"}]}


@pytest.mark.usefixtures("rust_grader")
@pytest.mark.parametrize(
    ("where", "answer", "task"),
    [
        ("tests", RIGHT, INC),
        ("run", RIGHT, INC),
        ("run", 'fn main() {\n    println!("1");\n}', PROGRAM),
    ],
)
def test_a_box_that_breaks_after_the_answer_is_a_fault_and_no_verdict(
    where: str, answer: str, task: dict[str, Any]
) -> None:
    with pytest.raises(
        SandboxFault,
        match="did not become ready" if where == "tests" else "do not start in their box",
    ):
        grade(RustGrader(sandbox=BrokenAfterTheAnswer(where)), answer, task)


def test_a_program_that_ends_at_once_with_status_1_is_a_verdict(rust_grader: RustGrader) -> None:
    result = grade(rust_grader, "fn main() {\n    std::process::exit(1)\n}", PROGRAM)
    assert (result.stage, result.passed) == (Stage.TESTS, False)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rubric: [", "expected the node content"),
        ("rubric: rust/graduated@1\nrubric: rust/binary@1", "key .rubric. is given twice"),
        ("rubric: rust/graduated@1", "compile"),
        ("colour: red", "colour"),
        ("", "holds nothing"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_misuse_that_names_it(
    tmp_path: Path, text: str, says: str
) -> None:
    file = tmp_path / "rust.yaml"
    file.write_text(text)
    with pytest.raises(Misuse, match=f"rust.yaml.*{says}"):
        read_settings(RustConfig, "rust", file)


@pytest.mark.usefixtures("rust_grader")
def test_a_rubric_of_another_grader_is_no_default(tmp_path: Path) -> None:
    settings = read_settings(RustConfig, "rust").model_dump()
    settings["rubric"] = "ocaml/strict@1"
    file = tmp_path / "rust.yaml"
    file.write_text(yaml.safe_dump(settings))
    with pytest.raises(Misuse, match="rubric: no rubric 'ocaml/strict@1'"):
        RustGrader(file)


def test_a_task_without_a_signature_is_logged_once(rust_grader: RustGrader) -> None:
    messages: list[str] = []

    def note(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return True

    worker_log = logging.getLogger("gradus.worker")
    worker_log.addFilter(note)
    try:
        unsigned = {"tests": "use solution::f; #[test] fn logged_once() { assert_eq!(f(1), 2) }"}
        for task in (unsigned, unsigned, INC):
            grade(rust_grader, RIGHT, task)
    finally:
        worker_log.removeFilter(note)
    assert ["has no signature" in message for message in messages] == [True]
