"""The corpora of hostile answers: reads them, and says of a result whether the attack got through. Runs nothing.

One file is one answer to one task, "double a number", which no attack answers honestly. The comment at its head says
what must not happen, and then as `key: value` what differs from the usual:
  earned     tests that it passes by honest means (0)
  stage      stages that it may reach (tests)
  flags      flags of the verdict
  wall_s     wall limit of the run, for tests with a grader of their own
  signature, tests, suite                  of the task, in place of those below
  packages, dependencies, edition, files, limits   further fields of the task, the last two in JSON
`@CANARY@`, `@PORT@`, `@PID@` and `@MARKER@` stand for things of the host that tests watch, `@3 times a#;@` for
`a0;a1;a2;`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from gradus.contract import SUBMISSIONS, Faulted, Graded, GraderName, Submission
from gradus.errors import Misuse
from services.attacks import attacks


@dataclass(frozen=True)
class Language:
    """What all attacks on one grader share: the task, its right answer, and what their files look like."""

    grader: GraderName
    suffix: str
    head: re.Pattern[str]
    """The comment at the head of a file."""
    signature: str
    tests: str
    suite: str
    """The same tests, written in the other way that there is."""
    suite_of: str
    """What stands around the `suite` of an attack, in the place of `@CASES@`."""
    right: str

    def honest(self, **task: Any) -> Attack:
        """The right answer, to a task with these further fields."""
        return Attack(self, "honest", self.right, "", self.signature, self.tests, self.suite, task=task)


OCAML = Language(
    grader="ocaml",
    suffix=".ml",
    head=re.compile(r"\(\*(.*?)\*\)", re.DOTALL),
    signature="val double : int -> int",
    tests="""
let () = assert (double 2 = 4)
let () = List.iter (fun (i, o) -> assert (double i = o)) [ (5, 10); (-3, -6) ]
let () =
  let hits = ref 0 in
  if double 7 = 14 then incr hits;
  assert (!hits = 1);
  Printf.printf "%d of 1\\n" !hits
""",
    suite="""
open OUnit2
let one i o = string_of_int i >:: fun _ -> assert_equal ~printer:string_of_int o (Solution.double i)
let () = run_test_tt_main ("double" >::: List.map (fun (i, o) -> one i o) [ (2, 4); (5, 10); (-3, -6) ])
""",
    suite_of='open OUnit2\nlet () = run_test_tt_main ("s" >::: [ @CASES@ ])',
    right="let double x = x + x",
)

RUST = Language(
    grader="rust",
    suffix=".rs",
    head=re.compile(r"((?://.*\n)+)"),
    signature="pub fn double(x: i64) -> i64;",
    tests="""
use solution::double;

#[test]
fn doubles_2() {
    assert_eq!(double(2), 4);
}

#[test]
fn doubles_7_and_counts() {
    let mut hits = 0;
    if double(7) == 14 {
        hits += 1;
    }
    assert_eq!(hits, 1);
    println!("{hits} of 1");
}

#[test]
fn doubles_each_of_a_list() {
    for (x, doubled) in [(5, 10), (-3, -6)] {
        assert_eq!(double(x), doubled);
    }
}
""",
    suite="""
use solution::*;

#[test]
fn doubles_2() {
    let doubled: i64 = double(2);
    assert_eq!(doubled, 4);
}

#[test]
fn doubles_7_and_counts() {
    let hits: Vec<i64> = Some(7).into_iter().map(double).filter(|&x| x == 14).collect();
    assert_eq!(hits.len(), 1);
    println!("{} of 1", hits.len());
}

#[test]
fn doubles_each_of_a_list() {
    for (x, doubled) in vec![(5, 10), (-3, -6)] {
        assert_eq!(double(x), doubled, "double {x}");
    }
}
""",
    suite_of="use solution::*;\n@CASES@",
    right="pub fn double(x: i64) -> i64 {\n    x + x\n}",
)

LANGUAGES = {language.grader: language for language in (OCAML, RUST)}

_TIMES = re.compile(r"@(\d+) times (.*?)@", re.DOTALL)
_LISTS = ("packages", "dependencies")
_JSON = ("files", "limits")
_OF_THE_TASK = ("signature", "tests", "suite", "edition", *_LISTS, *_JSON)
_KEYS = ("must not", "earned", "stage", "flags", "wall_s", *_OF_THE_TASK)
_LINE = re.compile(rf"^(?://)?\s*({'|'.join(_KEYS)}):\s*(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Attack:
    language: Language
    name: str
    source: str
    must_not: str
    signature: str
    tests: str
    suite: str
    earned: int = 0
    stages: frozenset[str] = frozenset({"tests"})
    flags: frozenset[str] = frozenset()
    wall_s: float | None = None
    task: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the task."""

    def submission(self, completion: str | None = None, *, declared: bool = True, suite: bool = False) -> Submission:
        """This attack, or another completion for the same task. `declared`: the task has a signature."""
        task = {"limits": {"cpu_s": 0.5}, **self.task, "tests": self.suite if suite else self.tests}
        if declared:
            task["signature"] = self.signature
        text = fill_placeholders(self.source) if completion is None else completion
        return SUBMISSIONS[self.language.grader].model_validate({"id": self.name, "completion": text, "task": task})

    def got_through(self, result: Graded | Faulted) -> str | None:
        """What the attack achieved that it must not; None when it was held. A fault is an achievement."""
        if isinstance(result, Faulted):
            return f"a fault in place of a verdict: {result.fault.message}"
        if result.tests is not None and result.tests.passed != self.earned:
            return f"{result.tests.passed} tests, having earned {self.earned}"
        if result.reward > 0.35 + 0.65 * self.earned / 3 + 1e-6:
            return f"a reward of {result.reward}"
        if result.stage not in self.stages:
            return f"as far as {result.stage}"
        if missing := self.flags - set(result.flags):
            return f"away without {', '.join(sorted(missing))}"
        return None


def load_attacks(grader: GraderName) -> Iterator[Attack]:
    """The corpus of that grader, by name. Raises Misuse when there is none, and for a header that cannot be read."""
    folder = attacks(grader)
    language = LANGUAGES[grader]
    for path in sorted(folder.glob(f"*{language.suffix}")):
        source = path.read_text()
        head = language.head.match(source)
        said = dict(_LINE.findall(head[1])) if head else {}
        if "must not" not in said:
            raise Misuse(f"{path}: its first comment does not say what must not happen")
        yield attack_of(language, path.stem, source, said)


def attack_of(language: Language, name: str, source: str, said: Mapping[str, str]) -> Attack:
    """The attack of that name, of which its header said so much."""
    task: dict[str, Any] = {key: said[key].split() for key in _LISTS if key in said}
    if "edition" in said:
        task["edition"] = said["edition"]
    task |= {key: json.loads(said[key]) for key in _JSON if key in said}
    return Attack(
        language=language,
        name=name,
        source=source,
        must_not=said["must not"],
        signature=said.get("signature", language.signature),
        tests=said.get("tests", language.tests),
        suite=language.suite_of.replace("@CASES@", said["suite"]) if "suite" in said else language.suite,
        earned=int(said.get("earned", 0)),
        stages=frozenset(said.get("stage", "tests").split()),
        flags=frozenset(said.get("flags", "").split()),
        wall_s=float(said["wall_s"]) if "wall_s" in said else None,
        task=task,
    )


def fill_placeholders(source: str, things: Mapping[str, object] | None = None) -> str:
    """`source` with the things of a host in it; without any, with things that are not there."""
    usual: Mapping[str, object] = {"CANARY": "/nowhere", "PORT": 9, "PID": os.getpid(), "MARKER": "marker"}
    for name, value in (things or usual).items():
        source = source.replace(f"@{name}@", str(value))
    return _TIMES.sub(lambda found: "".join(found[2].replace("#", str(n)) for n in range(int(found[1]))), source)
