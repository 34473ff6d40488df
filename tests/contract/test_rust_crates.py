"""Prebuilt crates for Rust answers: real cargo, real boxes; crates of Debian's, and small hostile
ones made here."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gradus.contract import Graded, RustSubmission, TestCount
from gradus.errors import Fault, InternalFault, Misuse
from gradus.resources import configs
from services.graders.rust.crates import MOUNT, REFUSED, Crates, Directory, Prebuilt, build
from services.graders.rust.grader import RustGrader
from services.graders.rust.toolchain import RustToolchain
from services.sandbox import Command, Limits, Outcome
from services.sandbox.bubblewrap import Bubblewrap

ROOT = Path(__file__).parents[2]
LIMITS = Limits(cpu_s=20, memory_mb=3072, processes=64, scratch_mb=256, file_mb=64, report_kb=65536)


@dataclass
class Boxes:
    """Compiles and runs as the grader does, with crates."""

    toolchain: RustToolchain
    sandbox: Bubblewrap

    @property
    def rustc(self) -> Path:
        return self.toolchain.sysroot / "bin" / "rustc"

    @property
    def cargo(self) -> Path:
        return self.toolchain.sysroot / "bin" / "cargo"

    def build(self, crates: Crates) -> Prebuilt:
        return build(crates, self.rustc, self.cargo)

    def compile(
        self, crates: Prebuilt, names: Sequence[str], text: str, *flags: str, edition: str = "2021"
    ) -> Outcome:
        """The report is the product, standard error the diagnostics."""
        common = [
            f"--edition={edition}",
            "--error-format=json",
            *self.toolchain.code_flags,
            *crates.build_flags(names),
        ]
        argv = [
            self.toolchain.clippy,
            "-Funsafe-code",
            *flags,
            *common,
            "-o",
            "/tmp/out",
            "/box/answer.rs",
        ]  # noqa: S108
        command = Command(
            argv=("/bin/sh", "-c", '"$@" && exec cat /tmp/out >&3', "sh", *argv),
            limits=LIMITS,
            files={"/box/answer.rs": text.encode()},
            binds=self.toolchain.compile_binds,
            mounts={**self.toolchain.compile_mounts, str(crates.folder): MOUNT},
            environment=self.toolchain.environment,
        )
        return self.sandbox.run(command)

    def remarks(
        self, crates: Prebuilt, names: Sequence[str], text: str, edition: str = "2021"
    ) -> list[str]:
        outcome = self.compile(
            crates, names, text, "--crate-type=lib", "--crate-name=solution", edition=edition
        )
        return sorted(spoken(outcome.stderr.decode().splitlines()))

    def says(self, crates: Prebuilt, names: Sequence[str], text: str) -> str:
        """What the program `text` writes."""
        built = self.compile(
            crates, names, text, "--crate-name=program", *self.toolchain.link_flags
        )
        assert built.report, built.stderr.decode()
        command = Command(
            argv=("/box/program",),
            limits=Limits(),
            programs={"/box/program": built.report},
            binds=self.toolchain.run_binds,
            mounts=self.toolchain.run_mounts,
        )
        ran = self.sandbox.run(command)
        assert ran.exit_code == 0, ran.stderr.decode()
        return ran.stdout.decode().strip()


def spoken(lines: Sequence[str]) -> list[str]:
    """`error E0463 3`: level, code and line of every diagnostic that has a place."""
    found = (json.loads(line) for line in lines if line.startswith("{"))
    said = (one["message"] if isinstance(one.get("message"), dict) else one for one in found)
    return [
        f"{one['level']} {(one.get('code') or {}).get('code')} {one['spans'][0]['line_start']}"
        for one in said
        if one.get("spans")
    ]


@pytest.fixture(scope="module")
def boxes() -> Boxes:
    try:
        return Boxes(RustToolchain(), Bubblewrap())
    except Fault as fault:
        pytest.skip(f"Rust answers cannot be compiled here: {fault.message}")


@pytest.fixture(scope="module")
def example() -> Crates:
    crates = Crates.model_validate(
        yaml.safe_load((configs() / "graders" / "rust_crates.yaml").read_text())["crates"]
    )
    assert isinstance(crates.source, Directory)
    folder = crates.source.directory
    if lacking := [
        one.name for one in crates.list if not (folder / f"{one.name}-{one.version}").is_dir()
    ]:
        pytest.skip(
            f"the example has Debian 12's crates, and {', '.join(lacking)} is not in {folder} in"
            " that version"
        )
    return crates


@pytest.fixture(scope="module")
def debian(boxes: Boxes, example: Crates) -> Prebuilt:
    return boxes.build(example)


# ---------------------------------------------------------------------- what answers get

FIVE = """
use itertools::Itertools;
use rand::{rngs::StdRng, Rng, SeedableRng};
use serde::{Deserialize, Serialize};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Entry { name: String, #[serde(default)] tags: Vec<u8> }

fn main() {
    let entry: Entry = serde_json::from_str(r#"{"name": "a1b22"}"#).unwrap();
    let digits = regex::Regex::new(r"[0-9]+").unwrap();
    let found = digits.find_iter(&entry.name).map(|one| one.as_str().len()).sorted().rev().join(",");
    let same = StdRng::seed_from_u64(1).gen::<u64>() == StdRng::seed_from_u64(1).gen::<u64>();
    println!("{} {found} {same}", serde_json::to_string(&entry).unwrap());
}
"""  # noqa: E501


def test_an_answer_uses_all_five_crates_of_the_example(boxes: Boxes, debian: Prebuilt) -> None:
    assert tuple(sorted(debian.externs)) == ("itertools", "rand", "regex", "serde", "serde_json")
    assert boxes.says(debian, sorted(debian.externs), FIVE) == '{"name":"a1b22","tags":[]} 2,1 true'


def test_what_tasks_name_may_be_spelt_with_either_dash(debian: Prebuilt) -> None:
    assert debian.build_flags(["serde-json"]) == debian.build_flags(["serde_json"])


def test_an_answer_without_crates_has_no_flags(debian: Prebuilt) -> None:
    assert debian.build_flags([]) == []


UNDECLARED = {
    "listed, and not declared": 'use regex::Regex; pub fn f() -> bool { Regex::new("a").is_ok() }',
    "needed by a declared one": "use rand_core::RngCore; pub fn f(_: &dyn RngCore) {}",
    "its macros": "use serde_derive::Serialize; #[derive(Serialize)] pub struct S;",
    "by an extern crate": "extern crate rand_core;",
    "by an extern crate of another name": "extern crate itoa as std2;",
    "with all macros": "#[macro_use] extern crate cfg_if;",
    "system calls": "extern crate libc; pub fn f() -> i32 { 1 }",
    "system calls, by path": "pub fn f() -> i32 { ::libc::EPERM }",
}


@pytest.mark.parametrize("edition", ["2015", "2021"])
@pytest.mark.parametrize("how", UNDECLARED)
def test_an_answer_cannot_name_a_crate_that_its_task_does_not(
    boxes: Boxes, debian: Prebuilt, how: str, edition: str
) -> None:
    said = boxes.remarks(debian, ["rand", "serde", "serde_json"], UNDECLARED[how], edition)
    assert re.search(r"error (E0432|E0433|E0463|E0658) 1", " ".join(said)), said


def test_a_crate_that_is_not_listed_is_a_fault_that_names_those_that_are(debian: Prebuilt) -> None:
    with pytest.raises(
        InternalFault, match="needs the crates tokio, and this worker has itertools, rand"
    ) as raised:
        debian.build_flags(["serde", "tokio"])
    assert not raised.value.retryable


JUDGED = {
    "fine": (
        "use itertools::Itertools;\npub fn f(x: &[u8]) -> Vec<&u8> {"
        " x.iter().sorted().collect() }\n"
    ),
    "a trait that is missing": (
        "#[derive(serde::Serialize)]\npub struct S { pub a: T }\npub struct T;\n"
    ),
    "lints": (
        "#[derive(serde::Deserialize)]\npub struct S { a: u8 }\npub fn f(x: u8) -> u8 { return"
        " x; }\n"
    ),
    "deprecated": (
        "use itertools::Itertools;\npub fn f() -> String { (0..3).fold1(|a, b| a + b);"
        " String::new() }\n"
    ),
    "of the derive": "#[derive(serde::Serialize)]\n#[serde(rename = 1)]\npub struct S;\n",
    "undeclared": "use regex::Regex;\npub fn f(_: Regex) {}\n",
}


@pytest.fixture(scope="module")
def clippy_by_cargo(
    boxes: Boxes, example: Crates, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[str]]:
    """What `cargo clippy` says of a library that depends on serde and itertools."""
    folder = tmp_path_factory.mktemp("cargo")
    lines = "".join(one.dependency for one in example.list if one.name in ("serde", "itertools"))
    (folder / "src").mkdir()
    (folder / ".cargo").mkdir()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "solution"\nversion = "0.0.0"\nedition ='
        f' "2021"\n[dependencies]\n{lines}'
    )
    assert isinstance(example.source, Directory)
    (folder / ".cargo" / "config.toml").write_text(
        '[source.crates-io]\nreplace-with = "d"\n[source.d]\ndirectory ='
        f' "{example.source.directory}"\n'
    )
    environment = {
        "PATH": f"{boxes.cargo.parent}:{os.environ['PATH']}",
        "CARGO_HOME": str(folder / "home"),
    }

    def says(text: str) -> list[str]:
        (folder / "src" / "lib.rs").write_text(text)
        command = ["cargo", "clippy", "--offline", "--message-format=json"]
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert '"build-finished"' in done.stdout, done.stderr
        return sorted(
            spoken([line for line in done.stdout.splitlines() if '"compiler-message"' in line])
        )

    return says


@pytest.mark.slow
@pytest.mark.parametrize("case", JUDGED)
def test_diagnostics_are_those_of_cargo_clippy(
    boxes: Boxes, debian: Prebuilt, clippy_by_cargo: Callable[[str], list[str]], case: str
) -> None:
    by_cargo = clippy_by_cargo(JUDGED[case])
    assert boxes.remarks(debian, ["serde", "itertools"], JUDGED[case]) == by_cargo
    assert bool(by_cargo) == (case != "fine")


# ---------------------------------------------------------------------- small crates


class Vendored:
    """A directory of crates made here, and a cache of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(
        self,
        name: str,
        text: str,
        more: str = "",
        version: str = "1.0.0",
        files: Mapping[str, str] | None = None,
    ) -> None:
        """`more`: the rest of its Cargo.toml."""
        place = self.folder / f"{name}-{version}"
        package = f'[package]\nname = "{name}"\nversion = "{version}"\nedition = "2021"\n{more}'
        for path, content in {"src/lib.rs": text, "Cargo.toml": package, **(files or {})}.items():
            (place / path).parent.mkdir(parents=True, exist_ok=True)
            (place / path).write_text(content)
        (place / ".cargo-checksum.json").write_text('{"files":{},"package":null}')

    def crates(self, *names: str, **fields: Any) -> Crates:
        listed = [{"name": name, "version": "1.0.0", **fields} for name in names]
        return Crates.model_validate({"source": {"directory": str(self.folder)}, "list": listed})


@pytest.fixture
def vendored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Vendored:
    monkeypatch.setenv("GRADUS_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "vendored").mkdir()
    return Vendored(tmp_path / "vendored")


FORGES = "#[macro_export]\nmacro_rules! run { ($e:expr) => { unsafe { $e } } }\n"


def test_a_macro_that_hides_unsafe_from_the_compiler_is_refused_by_name(
    boxes: Boxes, vendored: Vendored
) -> None:
    vendored.add("forge", FORGES)
    with pytest.raises(Misuse, match=r"forge, has macros with `unsafe` in them \(run!\)"):
        boxes.build(vendored.crates("forge"))


def test_a_procedural_macro_with_unsafe_is_refused(boxes: Boxes, vendored: Vendored) -> None:
    text = 'fn f(t: TokenStream) -> TokenStream { format!("unsafe {{ {t} }}").parse().unwrap() }'
    text = f"use proc_macro::TokenStream;\n#[proc_macro]\npub {text}\n"
    vendored.add("forge", text, "[lib]\nproc-macro = true\n")
    with pytest.raises(Misuse, match=r"forge, has macros with `unsafe`"):
        boxes.build(vendored.crates("forge"))


def test_unsafe_that_stays_in_functions_and_comments_is_no_reason(
    boxes: Boxes, vendored: Vendored
) -> None:
    text = """
    #[macro_export] macro_rules! twice { ($e:expr) => { /* unsafe */ $crate::double($e) } }
    macro_rules! own { ($e:expr) => { unsafe { $e } } }
    pub fn double(x: u8) -> u8 { own!(*(&x as *const u8)) * 2 }
    """
    vendored.add("honest", text)
    prebuilt = boxes.build(vendored.crates("honest"))
    assert (
        boxes.says(prebuilt, ["honest"], 'fn main() { println!("{}", honest::twice!(4)); }') == "8"
    )


@pytest.mark.parametrize(
    "how",
    [
        "pub use forge::run;",
        "pub use ::forge;",
        "pub extern crate forge as f;",
        "pub mod m { pub use forge::*; }",
    ],
)
def test_what_a_listed_crate_passes_on_is_looked_at_too(
    boxes: Boxes, vendored: Vendored, how: str
) -> None:
    vendored.add("forge", FORGES)
    vendored.add("friend", how, '[dependencies]\nforge = "1"\n')
    with pytest.raises(Misuse, match="friend, which passes on forge, has macros"):
        boxes.build(vendored.crates("friend"))


def test_what_a_listed_crate_keeps_to_itself_is_its_own_affair(
    boxes: Boxes, vendored: Vendored
) -> None:
    vendored.add("forge", FORGES)
    vendored.add(
        "user",
        "pub fn f(x: &u8) -> u8 { forge::run!(*(x as *const u8)) }",
        '[dependencies]\nforge = "1"\n',
    )
    prebuilt = boxes.build(vendored.crates("user"))
    assert boxes.says(prebuilt, ["user"], 'fn main() { println!("{}", user::f(&3)); }') == "3"
    assert "error E0433 1" in boxes.remarks(
        prebuilt, ["user"], "pub fn f() -> u8 { forge::run!(1) }"
    )


def test_a_refused_crate_is_refused_behind_another_too(boxes: Boxes, vendored: Vendored) -> None:
    vendored.add("paste", "pub fn f() {}")
    vendored.add("friend", "pub use paste::f;", '[dependencies]\npaste = "1"\n')
    with pytest.raises(Misuse, match="friend, which passes on paste: it puts names together"):
        boxes.build(vendored.crates("friend"))


@pytest.mark.parametrize("name", [*REFUSED, "seq-macro"])
def test_crates_that_weaken_the_ban_are_refused_with_the_reason(name: str) -> None:
    with pytest.raises(ValidationError, match=f"answers may not have the crate {name}: .{{20}}"):
        Crates.model_validate({"list": [{"name": name, "version": "1.0.0"}]})


@pytest.mark.parametrize(
    ("crates", "why"),
    [
        ({"list": [{"name": "serde", "version": "1"}]}, "version"),
        ({"list": [{"name": "serde", "version": "^1.0.0"}]}, "version"),
        ({"list": [{"name": 'x"\n[a]', "version": "1.0.0"}]}, "name"),
        ({"list": [{"name": "a", "version": "1.0.0", "features": ['"']}]}, "features"),
        ({"source": {"directory": "vendor"}}, "whole path"),
        ({"source": "crates.io"}, "registry"),
        ({"lists": []}, "lists"),
    ],
)
def test_a_list_that_is_not_exact_or_not_clear_is_refused(crates: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        Crates.model_validate(crates)


def test_features_are_those_of_the_list(boxes: Boxes, vendored: Vendored) -> None:
    text = 'pub fn on() -> (bool, bool) { (cfg!(feature = "a"), cfg!(feature = "b")) }'
    vendored.add("choice", text, '[features]\ndefault = ["a"]\na = []\nb = []\n')
    program = 'fn main() { println!("{:?}", choice::on()); }'
    plain = boxes.build(vendored.crates("choice"))
    other = boxes.build(vendored.crates("choice", features=["b"]))
    assert boxes.says(plain, ["choice"], program) == "(true, false)"
    assert boxes.says(other, ["choice"], program) == "(true, true)"
    assert plain.revision != other.revision


def test_two_versions_of_one_crate_live_side_by_side(boxes: Boxes, vendored: Vendored) -> None:
    vendored.add("leaf", "pub fn n() -> u8 { 1 }")
    vendored.add("leaf", "pub fn n() -> u8 { 2 }", version="2.0.0")
    vendored.add("user", "pub fn n() -> u8 { leaf::n() }", '[dependencies]\nleaf = "2"\n')
    prebuilt = boxes.build(vendored.crates("leaf", "user"))
    assert (
        boxes.says(
            prebuilt, ["leaf", "user"], 'fn main() { println!("{} {}", leaf::n(), user::n()); }'
        )
        == "1 2"
    )


def test_a_library_of_another_name_than_its_package_has_the_name_that_cargo_gives_it(
    boxes: Boxes, vendored: Vendored
) -> None:
    vendored.add("rust-thing", "pub fn n() -> u8 { 9 }", '[lib]\nname = "thing"\n')
    prebuilt = boxes.build(vendored.crates("rust-thing"))
    assert boxes.says(prebuilt, ["rust-thing"], 'fn main() { println!("{}", thing::n()); }') == "9"


NATIVE = """
fn main() {
    let out = std::env::var("OUT_DIR").unwrap();
    let run = |program: &str, arguments: &[&str]| {
        assert!(std::process::Command::new(program).args(arguments).current_dir(&out).status().unwrap().success());
    };
    std::fs::write(format!("{out}/n.c"), "int native_number(void) { return 41; }").unwrap();
    run("cc", &["-c", "-fPIC", "n.c", "-o", "n.o"]);
    run("ar", &["crs", "libnumber.a", "n.o"]);
    println!("cargo:rustc-link-search=native={out}");
    println!("cargo:rustc-link-lib=number");
    println!("cargo:rustc-cfg=built");
}
"""


def test_a_crate_with_a_build_script_and_a_native_library_is_linked(
    boxes: Boxes, vendored: Vendored
) -> None:
    declared = 'extern "C" { fn native_number() -> i32; }'
    text = f"{declared}\npub fn n() -> i32 {{ cfg!(built) as i32 + unsafe {{ native_number() }} }}"
    vendored.add("native", text, 'build = "build.rs"\n', files={"build.rs": NATIVE})
    prebuilt = boxes.build(vendored.crates("native"))
    assert boxes.says(prebuilt, ["native"], 'fn main() { println!("{}", native::n()); }') == "42"


def test_what_a_user_has_set_for_builds_of_his_own_changes_nothing(
    boxes: Boxes, vendored: Vendored, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "pub fn breaks(x: u8) -> bool { std::panic::catch_unwind(|| x + 200).is_err() }"
    text += "pub fn odd() -> bool { cfg!(odd) }"
    vendored.add("adds", text)
    monkeypatch.setenv("RUSTFLAGS", "--cfg odd -Coverflow-checks=off")
    monkeypatch.setenv("CARGO_PROFILE_DEV_OVERFLOW_CHECKS", "false")
    monkeypatch.setenv("CARGO_TARGET_DIR", str(vendored.folder.parent / "elsewhere"))
    prebuilt = boxes.build(vendored.crates("adds"))
    program = 'fn main() { println!("{} {}", adds::breaks(100), adds::odd()); }'
    assert boxes.says(prebuilt, ["adds"], program) == "true false"
    assert not (vendored.folder.parent / "elsewhere").exists()


def test_crates_may_come_from_where_a_users_cargo_takes_them(
    boxes: Boxes, vendored: Vendored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror of the registry, which is no network here."""
    vendored.add("leaf", "pub fn n() -> u8 { 1 }")
    mirror = (
        '[source.crates-io]\nreplace-with = "mirror"\n[source.mirror]\ndirectory ='
        f' "{vendored.folder}"\n'
    )
    (tmp_path / "config.toml").write_text(mirror)
    monkeypatch.setenv("CARGO_HOME", str(tmp_path))
    prebuilt = boxes.build(Crates.model_validate({"list": [{"name": "leaf", "version": "1.0.0"}]}))
    assert boxes.says(prebuilt, ["leaf"], 'fn main() { println!("{}", leaf::n()); }') == "1"


# ---------------------------------------------------------------------- the grader


@pytest.fixture(scope="module")
def grader(boxes: Boxes, example: Crates, tmp_path_factory: pytest.TempPathFactory) -> RustGrader:
    """`boxes` skips where there is no Rust."""
    settings = yaml.safe_load((configs() / "graders" / "rust.yaml").read_text())
    path = tmp_path_factory.mktemp("configs") / "rust.yaml"
    path.write_text(yaml.safe_dump({**settings, "crates": example.model_dump(mode="json")}))
    return RustGrader(path)


def grade(grader: RustGrader, text: str, **task: Any) -> Graded:
    submission = RustSubmission.model_validate(
        {"id": "a", "completion": f"```rust\n{text}\n```", "task": task}
    )
    return grader.grade(submission, "rust/graduated@1", 0)


ENTRY = """
#[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Entry { pub name: String }
pub fn read(text: &str) -> Option<Entry> { serde_json::from_str(text).ok() }
"""
READS = """
use solution::read;
#[test] fn reads() { assert_eq!(read(r#"{"name":"a"}"#).unwrap().name, "a"); }
#[test] fn writes() { assert_eq!(serde_json::to_string(&read(r#"{"name":"a"}"#)).unwrap(), r#"{"name":"a"}"#); }
"""  # noqa: E501


def test_answer_and_tests_use_the_crates_that_the_task_names(grader: RustGrader) -> None:
    graded = grade(grader, ENTRY, tests=READS, dependencies=["serde", "serde_json"])
    assert (graded.passed, graded.tests) == (True, TestCount(passed=2, total=2)), graded.diagnostics


def test_a_program_uses_the_crates_that_the_task_names(grader: RustGrader) -> None:
    program = 'use itertools::Itertools; fn main() { println!("{}", (1..4).join("-")); }'
    graded = grade(grader, program, cases=[{"stdout": "1-2-3"}], dependencies=["itertools"])
    assert graded.passed, graded.diagnostics


def test_an_answer_that_names_a_crate_which_the_task_does_not_gets_no_credit_for_it(
    grader: RustGrader,
) -> None:
    graded = grade(grader, ENTRY, tests=READS, dependencies=["serde"])
    assert not graded.passed
    assert "E0433" in {diagnostic.code for diagnostic in graded.diagnostics}


def test_a_task_with_a_crate_that_is_not_listed_cannot_be_judged(grader: RustGrader) -> None:
    with pytest.raises(
        InternalFault, match="needs the crates tokio, and this worker has itertools, rand"
    ):
        grade(grader, ENTRY, tests=READS, dependencies=["tokio"])


def test_an_answer_cannot_be_a_crate_that_it_depends_on(grader: RustGrader) -> None:
    with pytest.raises(InternalFault, match="no answer can be a crate 'serde_json'"):
        grade(grader, ENTRY, tests=READS, crate="serde_json", dependencies=["serde_json"])


def test_listed_crates_are_part_of_the_revision(grader: RustGrader) -> None:
    assert grader.info().revision != RustGrader().info().revision


# --------------------------------------------------------------------------------------- the cache


def test_nothing_is_built_for_an_empty_list(boxes: Boxes, vendored: Vendored) -> None:
    prebuilt = build(Crates(), Path("/nowhere/rustc"), Path("/nowhere/cargo"))
    assert (prebuilt.folder, prebuilt.externs, prebuilt.build_flags([])) == (None, {}, [])


def test_a_build_is_made_once_and_is_read_only(boxes: Boxes, vendored: Vendored) -> None:
    vendored.add("leaf", "pub fn n() -> u8 { 1 }")
    first = boxes.build(vendored.crates("leaf"))
    again = build(vendored.crates("leaf"), boxes.rustc, Path("/nowhere/cargo"))
    assert again == first
    assert first.folder is not None
    files = [path for path in first.folder.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o444}


def test_several_that_need_the_same_build_at_once_build_it_once(
    boxes: Boxes, vendored: Vendored, caplog: pytest.LogCaptureFixture
) -> None:
    vendored.add("leaf", "pub fn n() -> u8 { 1 }")
    caplog.set_level(logging.INFO, "services.graders.rust.crates")
    with ThreadPoolExecutor(3) as pool:
        built = list(pool.map(lambda _: boxes.build(vendored.crates("leaf")), range(3)))
    assert len(caplog.messages) == 1
    assert "leaf 1.0.0" in caplog.messages[0]
    assert built[0] == built[1] == built[2]


def test_a_build_that_was_killed_leaves_nothing_in_the_way(
    boxes: Boxes, vendored: Vendored, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    go = tmp_path / "go"
    waits = (
        f'fn main() {{ std::fs::write("{begun}", "").unwrap(); while'
        f' !std::path::Path::new("{go}").exists() {{}} }}'
    )
    vendored.add(
        "slow", "pub fn n() -> u8 { 5 }", 'build = "build.rs"\n', files={"build.rs": waits}
    )
    crates = vendored.crates("slow")
    script = (
        "import sys; from pathlib import Path; from services.graders.rust.crates import Crates,"
        " build; build(Crates.model_validate_json(sys.argv[1]), Path(sys.argv[2]),"
        " Path(sys.argv[3]))"
    )
    command = [
        sys.executable,
        "-c",
        script,
        crates.model_dump_json(),
        str(boxes.rustc),
        str(boxes.cargo),
    ]
    other = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    while not begun.exists():
        assert other.poll() is None
        time.sleep(0.02)
    os.killpg(other.pid, signal.SIGKILL)
    other.wait()
    go.touch()
    prebuilt = boxes.build(crates)
    assert boxes.says(prebuilt, ["slow"], 'fn main() { println!("{}", slow::n()); }') == "5"
    assert not list((tmp_path / "cache").glob("*.building"))


def test_another_version_of_what_a_listed_crate_needs_is_another_revision(
    boxes: Boxes, vendored: Vendored
) -> None:
    vendored.add("leaf", "pub fn n() -> u8 { 1 }")
    vendored.add("user", "pub fn n() -> u8 { leaf::n() }", '[dependencies]\nleaf = "1"\n')
    before = boxes.build(vendored.crates("user"))
    vendored.add("leaf", "pub fn n() -> u8 { 2 }", version="1.1.0")
    after = boxes.build(vendored.crates("user"))
    assert before.revision != after.revision
    assert boxes.says(after, ["user"], 'fn main() { println!("{}", user::n()); }') == "2"


@pytest.mark.parametrize(
    ("add", "why"),
    [("leaf-2", "leaf"), ("broken", "cannot find value `missing`"), ("nothing", "has no crates")],
)
def test_what_cannot_be_built_is_said_in_the_words_of_cargo(
    boxes: Boxes, vendored: Vendored, tmp_path: Path, add: str, why: str
) -> None:
    if add != "nothing":
        vendored.add(
            "leaf", "pub fn n() -> u8 { missing }", version="2.0.0" if add == "leaf-2" else "1.0.0"
        )
    with pytest.raises((InternalFault, Misuse), match=why):
        boxes.build(vendored.crates("leaf"))
    assert not [path for path in (tmp_path / "cache").glob("*") if path.is_dir()]


def test_the_shipped_configuration_lists_no_crates() -> None:
    shipped = yaml.safe_load((configs() / "graders" / "rust.yaml").read_text())
    assert Crates.model_validate(shipped["crates"]) == Crates()
