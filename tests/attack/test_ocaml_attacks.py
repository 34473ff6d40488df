"""Hostile OCaml answers, one file each: no unearned credit, the host as it was, the grader as able as before.

The comment at the head of a file says what must not happen, and then as `key: value` what differs from the usual:
  earned     tests that it passes by honest means (0)
  stage      the stage that it reaches (tests)
  flags      flags of the verdict
  packages   packages of the task
  wall_s     wall limit of the run
  signature, tests, suite   of the task, in place of those below
`@CANARY@` is a folder of the host that everybody may write to, `@PORT@` a port on which the host listens, `@PID@` the
process that grades, `@MARKER@` a word to be found again.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.contract import Graded, OcamlSubmission
from services.facts import Facts
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.trial import Trial

ATTACKS = sorted((Path(__file__).parent / "ocaml").glob("*.ml"))
RUBRIC = "ocaml/graduated@1"
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
VARIANTS = ("declared assert", "undeclared ounit2", "cold undeclared assert")
_KEYS = re.compile(
    r"^\s*(must not|earned|stage|flags|packages|wall_s|signature|tests|suite):\s*(.*?)\s*(?:\*\))?$", re.M
)


@dataclass(frozen=True)
class Attack:
    source: str
    earned: int
    stage: str
    flags: frozenset[str]
    packages: tuple[str, ...]
    wall_s: float | None
    signature: str
    tests: str
    suite: str


def read(file: Path) -> Attack:
    source = file.read_text()
    said = dict(_KEYS.findall(source[: source.index("*)") + 2].removeprefix("(*")))
    assert "must not" in said, f"{file.name}: its first comment says what must not happen"
    suite = f'open OUnit2\nlet () = run_test_tt_main ("s" >::: [ {said["suite"]} ])' if "suite" in said else SUITE
    return Attack(
        source=source,
        earned=int(said.get("earned", 0)),
        stage=said.get("stage", "tests"),
        flags=frozenset(said.get("flags", "").split()),
        packages=tuple(said.get("packages", "").split()),
        wall_s=float(said["wall_s"]) if "wall_s" in said else None,
        signature=said.get("signature", SIGNATURE),
        tests=said.get("tests", TESTS),
        suite=suite,
    )


class OnlyCold(OcamlGrader):
    def _judged(self, trial: Trial) -> Facts:
        return self.cold.facts(trial)


def attacks() -> Iterator[Any]:
    for file in ATTACKS:
        for variant in VARIANTS:
            if variant == VARIANTS[0] or not read(file).packages:  # with packages there is one way only, the cold one
                yield pytest.param(file, variant, id=f"{file.stem}-{variant}")


# ------------------------------------------------------------------------------------------------------------- host


@dataclass
class Host:
    """What an attack could leave behind or touch."""

    folder: Path
    port: int
    marker: str = field(default_factory=lambda: f"marker{secrets.token_hex(6)}")

    def fill_in(self, source: str) -> str:
        values = {"CANARY": self.folder, "PORT": self.port, "PID": os.getpid(), "MARKER": self.marker}
        for name, value in values.items():
            source = source.replace(f"@{name}@", str(value))
        return source

    def places_of_the_marker(self) -> list[str]:
        places = {Path("/"), Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path.cwd(), Path.home(), self.folder}
        return [str(place) for place in places if (place / self.marker).exists()]


@contextmanager
def watched(tmp_path: Path) -> Iterator[Host]:
    """A host that must be the same afterwards."""
    folder = tmp_path / "everybody"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent.owner() == folder.owner() and parent.is_relative_to(tmp_path.parent.parent):
            parent.chmod(0o777 if parent == folder else 0o755)
    canary = folder / "canary"
    canary.write_text("as it was")
    canary.chmod(0o666)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        host = Host(folder, server.getsockname()[1])
        yield host
        with pytest.raises(BlockingIOError):  # nobody called
            server.accept()
    assert [file.name for file in folder.iterdir()] == ["canary"]
    assert canary.read_text() == "as it was"
    assert host.places_of_the_marker() == []


def descendants() -> int:
    """Processes that descend from this one."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            state, parent = stat.rpartition(")")[2].split()[:2]
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return len(ours) - 1


# ---------------------------------------------------------------------------------------------------------- attacks


def grader_for(attack: Attack, variant: str, usual: OcamlGrader, tmp_path: Path) -> OcamlGrader:
    if attack.wall_s is not None:
        settings = usual.config.model_dump()
        settings["run"]["wall_s"] = attack.wall_s
        file = tmp_path / "ocaml.yaml"
        file.write_text(yaml.safe_dump(settings))
        return OcamlGrader(file, usual.sandbox)
    return OnlyCold(sandbox=usual.sandbox) if variant.startswith("cold") else usual


def grade(grader: OcamlGrader, completion: str, attack: Attack, variant: str) -> Graded:
    task: dict[str, Any] = {"packages": attack.packages, "tests": attack.tests, "limits": {"cpu_s": 0.5}}
    if "ounit2" in variant:
        task["tests"] = attack.suite
    if "undeclared" not in variant:
        task["signature"] = attack.signature
    submission = {"id": "attack", "completion": completion, "task": task}
    return grader.grade(OcamlSubmission.model_validate(submission), RUBRIC, 0)


@pytest.mark.parametrize(("file", "variant"), attacks())
def test_an_attack_earns_nothing_and_leaves_the_host_as_it_was(
    ocaml_grader: OcamlGrader, tmp_path: Path, file: Path, variant: str
) -> None:
    attack = read(file)
    grader = grader_for(attack, variant, ocaml_grader, tmp_path)
    usual = Attack(RIGHT, 3, "tests", frozenset(), attack.packages, None, SIGNATURE, TESTS, SUITE)
    assert grade(ocaml_grader, RIGHT, usual, VARIANTS[0]).passed  # makes the standing boxes, too
    before = descendants()
    with watched(tmp_path) as host:
        result = grade(grader, host.fill_in(attack.source), attack, variant)
    assert result.tests is None or result.tests.passed == attack.earned, result
    assert not result.passed, result
    assert result.reward <= 0.35 + 0.65 * attack.earned / 3 + 1e-6, result
    assert result.stage == attack.stage, result
    assert attack.flags <= set(result.flags), result
    assert grade(grader, RIGHT, usual, variant).passed
    assert descendants() <= before


def test_every_attack_is_an_answer_without_fences() -> None:
    assert len(ATTACKS) >= 25
    assert [file.name for file in ATTACKS if "```" in file.read_text()] == []
