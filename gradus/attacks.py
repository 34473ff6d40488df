"""The corpus of hostile answers: reads it, and says of a result whether the attack got through. Runs nothing.

One file is one answer to one task, "double a number", which no attack answers honestly. The comment at its head says
what must not happen, and then as `key: value` what differs from the usual:
  earned     tests that it passes by honest means (0)
  stage      stages that it may reach (tests)
  flags      flags of the verdict
  packages   packages of the task
  ways       `warm`: only where the answer has no file to read; see docs/architecture.md
  wall_s     wall limit of the run, for tests with a grader of their own
  signature, tests, suite   of the task, in place of those below
`@CANARY@`, `@PORT@`, `@PID@` and `@MARKER@` stand for things of the host that tests watch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gradus.contract import Faulted, Graded, OcamlSubmission
from gradus.errors import Misuse

SIGNATURE = "val double : int -> int"
TESTS = """
let () = assert (double 2 = 4)
let () = List.iter (fun (i, o) -> assert (double i = o)) [ (5, 10); (-3, -6) ]
let () =
  let hits = ref 0 in
  if double 7 = 14 then incr hits;
  assert (!hits = 1);
  Printf.printf "%d of 1\\n" !hits
"""
SUITE = """
open OUnit2
let one i o = string_of_int i >:: fun _ -> assert_equal ~printer:string_of_int o (Solution.double i)
let () = run_test_tt_main ("double" >::: List.map (fun (i, o) -> one i o) [ (2, 4); (5, 10); (-3, -6) ])
"""
RIGHT = "let double x = x + x"

_KEYS = ("must not", "earned", "stage", "flags", "packages", "ways", "wall_s", "signature", "tests", "suite")
_LINE = re.compile(rf"^\s*({'|'.join(_KEYS)}):\s*(.*?)\s*(?:\*\))?$", re.MULTILINE)


@dataclass(frozen=True)
class Attack:
    name: str
    source: str
    must_not: str
    earned: int = 0
    stages: frozenset[str] = frozenset({"tests"})
    flags: frozenset[str] = frozenset()
    packages: tuple[str, ...] = ()
    only_warm: bool = False
    wall_s: float | None = None
    signature: str = SIGNATURE
    tests: str = TESTS
    suite: str = SUITE

    def submission(
        self, completion: str | None = None, *, declared: bool = True, ounit: bool = False
    ) -> OcamlSubmission:
        """This attack, or another completion for the same task. `declared`: the task has a signature."""
        task: dict[str, Any] = {"packages": self.packages, "limits": {"cpu_s": 0.5}}
        task["tests"] = self.suite if ounit else self.tests
        if declared:
            task["signature"] = self.signature
        text = filled_in(self.source) if completion is None else completion
        return OcamlSubmission.model_validate({"id": self.name, "completion": text, "task": task})

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


def load_attacks(folder: Path) -> Iterator[Attack]:
    """The corpus in `folder`, by name. Raises Misuse naming a file whose header cannot be read."""
    files = sorted(folder.glob("*.ml"))
    if not files:
        raise Misuse(f"{folder}: holds no attacks")
    for path in files:
        yield read_attack(path)


def read_attack(path: Path) -> Attack:
    source = path.read_text()
    said = dict(_LINE.findall(source[: source.find("*)") + 2].removeprefix("(*")))
    if "must not" not in said:
        raise Misuse(f"{path}: its first comment does not say what must not happen")
    suite = f'open OUnit2\nlet () = run_test_tt_main ("s" >::: [ {said["suite"]} ])' if "suite" in said else SUITE
    return Attack(
        name=path.stem,
        source=source,
        must_not=said["must not"],
        earned=int(said.get("earned", 0)),
        stages=frozenset(said.get("stage", "tests").split()),
        flags=frozenset(said.get("flags", "").split()),
        packages=tuple(said.get("packages", "").split()),
        only_warm=said.get("ways") == "warm",
        wall_s=float(said["wall_s"]) if "wall_s" in said else None,
        signature=said.get("signature", SIGNATURE),
        tests=said.get("tests", TESTS),
        suite=suite,
    )


def filled_in(source: str, things: Mapping[str, object] | None = None) -> str:
    """`source` with the things of a host in it; without any, with things that are not there."""
    usual: Mapping[str, object] = {"CANARY": "/nowhere", "PORT": 9, "PID": os.getpid(), "MARKER": "marker"}
    for name, value in (things or usual).items():
        source = source.replace(f"@{name}@", str(value))
    return source
