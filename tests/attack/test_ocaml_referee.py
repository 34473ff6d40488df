"""Answers that may use everything (`external`, `Obj`, raw memory), against the referee alone: the list of what
answers may not use is switched off here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from gradus.contract import Graded, OcamlSubmission
from gradus.tasks.ocaml import OcamlTask
from services.graders.ocaml import toolchain
from services.graders.ocaml.attempt import GradingAttempt, decode_sections
from services.graders.ocaml.grader import OcamlGrader
from tests.verdict_cases import OnlyCold

RUBRIC = "ocaml/graduated@1"
ALLOW_ALL = "\nlet as_typed ~unit:_ _ = []\nlet externals _ = []\nlet mentioned ~own:_ _ = []\n"
SIGNATURE = "val double : int -> int"
ASSERTS = """
let () = assert (double 2 = 4)
let () = assert (double 5 = 10)
let () = assert (abs (double (-3)) = 6)
"""
SUITE = """
open OUnit2
open Solution
let tests = "double" >::: [
  "two" >:: (fun _ -> assert_equal 4 (double 2));
  "five" >:: (fun _ -> assert_equal 10 (double 5));
  "minus three" >:: (fun _ -> assert_bool "six" (abs (double (-3)) = 6)) ]
let () = run_test_tt_main tests
"""
# The harness's own pipes, found by trying all descriptors.
PIPES = """
external open_in_of : int -> in_channel = "caml_ml_open_descriptor_in"
external write_to : int -> string -> int -> int -> bool = "gradus_write"
let numbers = List.init 30 Fun.id
let say_to fd line = ignore (write_to fd (line ^ "\\n") 0 (String.length line + 1))
let is_pipe fd = try ignore (in_channel_length (open_in_of fd)); false with Sys_error e -> e = "Illegal seek"
let up, down = match List.filter is_pipe numbers with [ up; down ] -> up, open_in_of down | _ -> exit 3
let say = say_to up
"""
# Plays the harness: asks for every test, and tells the first of the tokens of whatever is released.
PLAYS_THE_HARNESS = """
let play ~code () =
  say "ready";
  if code then ignore (really_input_string down (int_of_string (input_line down)));
  let rec answer until =
    let release = input_line down in
    if String.length release = 32 then begin
      say (String.sub release 12 10);
      answer until end in
  for id = 0 to 2 do say ("at " ^ string_of_int id); answer 1 done;
  say "done";
  exit 0
"""
BLIND = [
    ("writes to all descriptors", 'let () = List.iter (fun fd -> say_to fd "ok 0"; say_to fd "done") numbers'),
    ("asks before the tests are there", 'let () = say "at 0"'),
    ("says what it was not asked", 'let () = say "ready"; say "done"'),
    ("ends before anything ran", 'let () = say "ready"; say "end"; say "done"'),
    ("says a line without end", "let () = say (String.make 100000 'a')"),
    ("repeats what it hears", 'let double x = say "at 0"; while true do say (input_line down) done; 0'),
]


@pytest.fixture(scope="module")
def graders(tmp_path_factory: pytest.TempPathFactory, ocaml_grader: OcamlGrader) -> Iterator[dict[str, Any]]:
    """By way: graders whose front forbids nothing and hides no module."""
    sources = tmp_path_factory.mktemp("undefended") / "ocaml"
    shutil.copytree(toolchain.HERE, sources, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    forbidden = sources / "front/forbidden.ml"
    forbidden.write_text(forbidden.read_text() + ALLOW_ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolchain, "HERE", sources)
        patch.setattr(toolchain, "_HIDDEN", frozenset())
        made = {"warm": OcamlGrader(sandbox=ocaml_grader.sandbox), "cold": OnlyCold(sandbox=ocaml_grader.sandbox)}
    yield made
    made["warm"].warm.close()


def graded(grader: Any, code: str, tests: str = ASSERTS, signature: str | None = SIGNATURE) -> Graded:
    task = {"tests": tests, "signature": signature}
    submission = {"id": "a", "prompt": "", "completion": f"```ocaml\n{code}\n```", "task": task}
    result: Graded = grader.grade(OcamlSubmission.model_validate(submission), RUBRIC, 0)
    return result


TESTS = pytest.mark.parametrize("tests", [ASSERTS, SUITE], ids=["assert", "ounit2"])
WAYS = pytest.mark.parametrize("way", ["warm", "cold"])


@TESTS
@WAYS
def test_an_honest_answer_passes(graders: dict[str, Any], way: str, tests: str) -> None:
    result = graded(graders[way], f"{PIPES}let double x = 2 * x", tests)
    assert (result.reward, result.passed, result.flags) == (1.0, True, ())


@TESTS
@WAYS
@pytest.mark.parametrize("words", [words for _, words in BLIND], ids=[name for name, _ in BLIND])
def test_words_that_were_not_due_are_a_forged_report(graders: dict[str, Any], way: str, words: str, tests: str) -> None:
    result = graded(graders[way], f"{PIPES}let double x = 2 * x\n{words}", tests)
    assert (result.reward, result.passed, result.flags) == (0.0, False, ("forged:report",))


@TESTS
@WAYS
def test_an_answer_that_plays_the_harness_passes_decoys(graders: dict[str, Any], way: str, tests: str) -> None:
    code = str(way == "warm").lower()
    for when in (
        f"let () = play ~code:{code} ()\nlet double _ = 0",
        'let double x = say "at 0"; play ~code:false (); x',
    ):
        result = graded(graders[way], f"{PIPES}{PLAYS_THE_HARNESS}{when}", tests)
        assert (result.reward, result.flags) == (0.0, ("forged:report",)), when


def test_an_answer_that_waits_for_what_does_not_come_is_ended(graders: dict[str, Any]) -> None:
    code = f"{PIPES}let double _ = input_line down |> String.length"
    result = graded(graders["warm"], code)
    assert not result.passed
    assert result.wall_ms < 8000


@TESTS
def test_decoys_are_32_and_compiled_anew(graders: dict[str, Any], tests: str) -> None:
    """Two compilations of the same tests have no number of a decoy in common."""
    path = graders["warm"].warm
    seen: list[set[bytes]] = []
    for _ in range(2):
        attempt = GradingAttempt(OcamlTask(tests=tests, signature=SIGNATURE), "let double x = 2 * x", 0)
        sections = {**attempt.sections(), "answer": attempt.code.encode(), "harness": toolchain.MOUNT.encode()}
        reply = decode_sections(path._compile(attempt, {**sections, "tests": tests.encode()}).payload)
        assert reply is not None
        numbers = reply["code/tests"].partition(b"\n")[2][: 32 * 12]
        seen.append({numbers[at : at + 12] for at in range(0, len(numbers), 12)})
        assert len(seen[-1]) == 32
    assert not seen[0] & seen[1]
