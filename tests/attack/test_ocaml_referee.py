"""Answers that may use everything (`external`, `Obj`, raw memory), against the referee alone: the
list of what answers may not use is switched off here."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import Graded, OcamlSubmission
from gradus.tasks.ocaml import OcamlTask
from services.graders.ocaml import toolchain
from services.graders.ocaml.attempt import GradingAttempt, decode_sections, is_warm_eligible
from services.graders.ocaml.grader import OcamlGrader
from tests.verdict_cases import OnlyCold

SHIPPED = Path(__file__).parents[2] / "configs/tasks/ocaml.jsonl"
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
"""  # noqa: E501
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
    (
        "writes to all descriptors",
        'let () = List.iter (fun fd -> say_to fd "ok 0"; say_to fd "done") numbers',
    ),
    ("asks before the tests are there", 'let () = say "at 0"'),
    ("says what it was not asked", 'let () = say "ready"; say "done"'),
    ("ends before anything ran", 'let () = say "ready"; say "end"; say "done"'),
    ("says a line without end", "let () = say (String.make 100000 'a')"),
    (
        "repeats what it hears",
        'let double x = say "at 0"; while true do say (input_line down) done; 0',
    ),
]


@pytest.fixture(scope="module")
def graders(
    tmp_path_factory: pytest.TempPathFactory, ocaml_grader: OcamlGrader
) -> Iterator[dict[str, Any]]:
    """By way: graders whose front forbids nothing and hides no module."""
    sources = tmp_path_factory.mktemp("undefended") / "ocaml"
    shutil.copytree(toolchain.HERE, sources, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    forbidden = sources / "front/forbidden.ml"
    forbidden.write_text(forbidden.read_text() + ALLOW_ALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(toolchain, "HERE", sources)
        patch.setattr(toolchain, "_HIDDEN", frozenset())
        made = {
            "warm": OcamlGrader(sandbox=ocaml_grader.sandbox),
            "cold": OnlyCold(sandbox=ocaml_grader.sandbox),
        }
    yield made
    made["warm"].warm.close()


def graded(
    grader: Any, code: str, tests: str = ASSERTS, signature: str | None = SIGNATURE
) -> Graded:
    task = {"tests": tests, "signature": signature}
    submission = {"id": "a", "prompt": "", "completion": f"```ocaml\n{code}\n```", "task": task}
    result: Graded = grader.grade(OcamlSubmission.model_validate(submission), RUBRIC, 0)
    return result


TESTS = pytest.mark.parametrize("tests", [ASSERTS, SUITE], ids=["assert", "ounit2"])
WAYS = pytest.mark.parametrize("way", ["warm", pytest.param("cold", marks=pytest.mark.slow)])


@TESTS
@WAYS
def test_an_honest_answer_passes(graders: dict[str, Any], way: str, tests: str) -> None:
    result = graded(graders[way], f"{PIPES}let double x = 2 * x", tests)
    assert (result.reward, result.passed, result.flags) == (1.0, True, ())


@TESTS
@WAYS
@pytest.mark.parametrize("words", [words for _, words in BLIND], ids=[name for name, _ in BLIND])
def test_words_that_were_not_due_are_a_forged_report(
    graders: dict[str, Any], way: str, words: str, tests: str
) -> None:
    result = graded(graders[way], f"{PIPES}let double x = 2 * x\n{words}", tests)
    assert (result.reward, result.passed, result.flags) == (0.0, False, ("forged:report",))


@TESTS
@WAYS
def test_an_answer_that_plays_the_harness_passes_decoys(
    graders: dict[str, Any], way: str, tests: str
) -> None:
    for when in (
        "let () = play ~code:true ()\nlet double _ = 0",
        'let double x = say "at 0"; play ~code:false (); x',
    ):
        result = graded(graders[way], f"{PIPES}{PLAYS_THE_HARNESS}{when}", tests)
        assert (result.reward, result.flags) == (0.0, ("forged:report",)), when


def test_an_answer_that_waits_for_what_does_not_come_is_ended(graders: dict[str, Any]) -> None:
    code = f"{PIPES}let double _ = input_line down |> String.length"
    result = graded(graders["warm"], code)
    assert not result.passed
    assert result.wall_ms < 8000


def sheet(grader: OcamlGrader, task: OcamlTask, code: str) -> tuple[int, set[bytes], bytes]:
    """The sheet of compiled tests: their number, the groups whose values are taken out, and decoys
    with the code."""
    attempt = GradingAttempt(task, code, 0)
    sections = {
        **attempt.build_sections(),
        "answer": code.encode(),
        "harness": toolchain.MOUNT.encode(),
    }
    reply = decode_sections(
        grader.warm._compile(attempt, {**sections, "tests": task.tests.encode()})[1]
    )
    assert reply is not None
    head, _, rest = reply["code/tests"].partition(b"\n")
    _, total, values, pairs = head.split()
    at = int(values) * 37
    return (
        int(total),
        {rest[i : i + 4] for i in range(0, at, 37)} - {b"ffff"},
        rest[at + int(pairs) * 5 :],
    )


@TESTS
def test_decoys_are_32_and_compiled_anew(graders: dict[str, Any], tests: str) -> None:
    """Two compilations of the same tests have no number of a decoy in common."""
    seen: list[set[bytes]] = []
    for _ in range(2):
        task = OcamlTask(tests=tests, signature=SIGNATURE)
        numbers = sheet(graders["warm"], task, "let double x = 2 * x")[2][: 32 * 12]
        seen.append({numbers[at : at + 12] for at in range(0, len(numbers), 12)})
        assert len(seen[-1]) == 32
    assert not seen[0] & seen[1]


# ---------------------------------------------------------------------- expected values

# All strings that the process holds: of the answer, the harness and the tests, from the table of
# globals.
STRINGS = """
external globals : unit -> Obj.t = "caml_get_global_data"
let strings () =
  let left = Queue.create () and found = ref [] and seen = ref 0 in
  Queue.add (globals ()) left;
  while not (Queue.is_empty left) && !seen < 200000 do
    incr seen;
    let v = Queue.pop left in
    if Obj.is_block v then
      if Obj.tag v = Obj.string_tag then found := (Obj.obj v : string) :: !found
      else if Obj.tag v < Obj.lazy_tag then for i = 0 to Obj.size v - 1 do Queue.add (Obj.field v i) left done
  done;
  !found
"""  # noqa: E501
READS = (
    STRINGS
    + """
let secret _ = match List.find_opt (fun s -> String.length s > 6 && String.sub s 0 6 = "zebra-") (strings ()) with
  | Some s -> s
  | None -> ""
"""  # noqa: E501
)
EXPECTED = {
    "assert": "let () = assert (secret 1 = {})",
    "assert by a helper": (
        "let check n expected = assert (secret n = expected)\nlet () = check 1 {}"
    ),
    "ounit2": (
        'open OUnit2\nlet () = run_test_tt_main ("a" >:: fun _ -> assert_equal {}'
        " (Solution.secret 1))"
    ),
    "ounit2 by a helper": (
        """open OUnit2
let ae expected got _ = assert_equal ~printer:Fun.id expected got
let () = run_test_tt_main ("a" >::: ["b" >:: ae {} (Solution.secret 1)])"""
    ),
    "assert by what makes it": 'let () = assert (secret 1 = String.concat "" [{}; ""])',
    "assert of an exception": (
        "let () = assert (try ignore (failwith (secret 1)); false with Failure m -> m = {})"
    ),
    "ounit2 of a condition": (
        """open OUnit2
let () = run_test_tt_main ("a" >:: fun _ -> assert_bool "" (Solution.secret 1 = {}))"""
    ),
    "ounit2 of an exception": (
        """open OUnit2
let () = run_test_tt_main ("a" >:: fun _ -> assert_raises (Failure {}) (fun () -> failwith (Solution.secret 1)))"""  # noqa: E501
    ),
    "ounit2 by a name": (
        """open OUnit2
let () = run_test_tt_main ("a" >:: fun _ -> let expected = {} in assert_equal expected (Solution.secret 1))"""  # noqa: E501
    ),
}


def patient(grader: Any, code: str, tests: str, signature: str | None) -> Graded:
    task = {"tests": tests, "signature": signature, "limits": {"cpu_s": 10}}
    submission = {"id": "a", "prompt": "", "completion": f"```ocaml\n{code}\n```", "task": task}
    result: Graded = grader.grade(OcamlSubmission.model_validate(submission), RUBRIC, 0)
    return result


@WAYS
@pytest.mark.parametrize("form", list(EXPECTED))
@pytest.mark.parametrize(
    "signature", ["val secret : int -> string", None], ids=["declared", "undeclared"]
)
def test_an_answer_that_reads_all_memory_does_not_find_what_is_expected(
    graders: dict[str, Any], way: str, form: str, signature: str | None
) -> None:
    tests = EXPECTED[form].replace("{}", '"zebra-8231"')
    assert not patient(graders[way], READS, tests, signature).passed
    assert patient(graders[way], 'let secret _ = "zebra-8231"', tests, signature).passed


@WAYS
@pytest.mark.parametrize(
    "signature", ["val secret : int -> string", None], ids=["declared", "undeclared"]
)
def test_the_tests_arrive_when_the_answer_is_initialised(
    graders: dict[str, Any], way: str, signature: str | None
) -> None:
    """The reader above finds a constant that is not taken out, but not when it looks before the
    first test."""
    tests = 'let () = assert (String.equal (secret 1) "zebra-8231")'
    early = f"{READS}let found = secret ()\nlet secret (_ : int) = found"
    assert not patient(graders[way], early, tests, signature).passed
    assert patient(graders[way], READS, tests, signature).passed


# Reads the constant that its caller compares with, from the caller's bytecode just before the call.
READS_THE_CODE = """
let here = "here"
let base = 2 * ((Obj.magic here : int) lor 0)
let byte a = Char.code (String.unsafe_get here (a - base))
let int a = byte a lor (byte (a + 1) lsl 8) lor (byte (a + 2) lsl 16) lor (byte (a + 3) lsl 24)
let double _ =
  let callers : int array = Obj.magic (Printexc.get_callstack 20) in
  int (2 * callers.(1) - 24)
"""
NOT_SPLIT = "let () = assert (double 2 = Sys.opaque_identity 4441)"


@WAYS
@pytest.mark.parametrize(
    ("tests", "reward", "flags"),
    [
        (NOT_SPLIT, 1.0, ()),  # shows that it reads what it is after
        (NOT_SPLIT.replace("Sys.opaque_identity", ""), 0.35, ()),
        (f"[@@@gradus.pure]\n{NOT_SPLIT}", 0.0, ("forged:report",)),
        (
            f"[@@@gradus.pure]\nlet t () = {NOT_SPLIT[9:]}\nlet () = t (); t ()",
            0.0,
            ("forged:report",),
        ),
    ],
    ids=["not split", "split", "twins", "twins that run twice"],
)
def test_an_answer_that_reads_the_code_of_its_caller_earns_nothing_by_values_taken_out_or_twins(
    graders: dict[str, Any], way: str, tests: str, reward: float, flags: tuple[str, ...]
) -> None:
    read = patient(graders[way], READS_THE_CODE, tests, SIGNATURE)
    assert (read.reward, read.flags) == (reward, flags)
    honest = patient(graders[way], "let double _ = 4441", tests, SIGNATURE)
    assert (honest.reward, honest.flags) == (1.0, ())


# Knows the sources: tells decoys from tests by the table of the harness, and says that every test
# passed.
KNOWS_THE_SOURCES = f"""{PIPES}{STRINGS}
let is_hex c = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')
let all_hex s = Seq.fold_left (fun all c -> all && is_hex c) true (String.to_seq s)
let numbers = lazy (List.filter (fun s -> String.length s = 12 && all_hex s) (strings ()))
let rec answer how =
  let release = input_line down in
  if String.length release = 32 then
    if List.mem (String.sub release 0 12) (Lazy.force numbers) then begin
      say (String.sub release 22 10 ^ " fail");
      answer how end
    else how (String.sub release 12 10) (String.sub release 22 10)
let play how =
  for id = 0 to 2 do say ("at " ^ string_of_int id); answer how done;
  say "end"; answer how; say "done"; exit 0
"""


# Puts a function in the place of one of the library's: in every module that has it, or its code and
# what it closes over into that function itself.
PATCHES = {
    "in modules": """
external globals : unit -> Obj.t = "caml_get_global_data"
let patch f by =
  let replace m =
    if Obj.is_block m && Obj.tag m = 0 then
      for i = 0 to Obj.size m - 1 do if Obj.field m i == Obj.repr f then Obj.set_field m i (Obj.repr by) done in
  for i = 0 to Obj.size (globals ()) - 1 do replace (Obj.field (globals ()) i) done
""",  # noqa: E501
    "in place": """
let patch f by = Obj.set_field (Obj.repr f) 0 (Obj.field (Obj.repr by) 0)
""",
}
PATCHED = {
    # with it, the harness runs a body that does nothing for each test that is not a decoy
    "table of decoys": (
        "find_opt = Hashtbl.find_opt",
        "Hashtbl.find_opt (fun t k -> Some (Option.value (find_opt t k) ~default:ignore))",
        NOT_SPLIT,
    ),
    "what tests call": (
        "for_all = List.for_all",
        "List.for_all (fun _ _ -> true)",
        "let () = assert (List.for_all (fun x -> double x = 2 * x) [1; 2; 3])",
    ),
    "what tests compare with": (
        "equal = String.equal",
        "String.equal (fun _ _ -> true)",
        "let () = assert (String.equal (string_of_int (double 2)) (String.make 1 (Char.chr 52)))",
    ),
    "tables": (
        "fold = Hashtbl.fold",
        "Hashtbl.fold (fun _ _ all -> all)",
        """let () =
  let table = Hashtbl.of_seq (List.to_seq [1, 2; 3, 6]) in
  assert (Hashtbl.fold (fun key value all -> all && double key = value) table true)""",
    ),
    "what is in every scope": (
        "text = string_of_int",
        'string_of_int (fun _ -> "")',
        "let () = assert (List.for_all (fun n -> string_of_int (double n) = string_of_int (2 * n)) [1; 2])",  # noqa: E501
    ),
    "formats": (
        "text = Printf.sprintf",
        'Printf.sprintf (fun _ -> Obj.magic (fun _ -> ""))',
        'let () = assert (List.for_all (fun n -> Printf.sprintf "%d" (double n) = Printf.sprintf "%d" (2 * n)) [1; 2])',  # noqa: E501
    ),
    "what a suite calls": (
        "for_all = List.for_all",
        "List.for_all (fun _ _ -> true)",
        """open OUnit2
let () = run_test_tt_main ("a" >:: fun _ ->
  assert_bool "" (List.for_all (fun x -> Solution.double x = 2 * x) [1; 2]))""",
    ),
}


@WAYS
@pytest.mark.parametrize("where", list(PATCHES))
@pytest.mark.parametrize("name", list(PATCHED))
def test_an_answer_that_patches_the_library_when_it_starts_passes_no_test(
    graders: dict[str, Any], way: str, name: str, where: str
) -> None:
    kept, patch, tests = PATCHED[name]
    right = (
        "let double x = if x = 2 then 4441 else 2 * x"
        if tests == NOT_SPLIT
        else "let double x = 2 * x"
    )
    assert patient(graders[way], right, tests, SIGNATURE).passed
    code = f"{PATCHES[where]}\nlet {kept}\nlet () = patch {patch}\nlet double _ = 0"
    result = patient(graders[way], code, tests, SIGNATURE)
    assert not result.passed
    assert result.reward <= 0.35


@WAYS
def test_an_answer_that_knows_the_sources_passes_no_test_whose_value_is_taken_out(
    graders: dict[str, Any], way: str
) -> None:
    # the test that it is called from goes first: nothing else can be asked for before its end
    code = f"""{KNOWS_THE_SOURCES}
let double _ = play (fun passed _ -> say passed)"""
    result = patient(graders[way], code, ASSERTS, SIGNATURE)
    assert result.tests is not None
    assert (result.tests.passed, result.tests.total) in (
        (0, 3),
        (1, 3),
    ), result  # the third is not split
    assert not result.passed


@WAYS
def test_an_answer_that_knows_the_sources_does_not_know_which_of_two_is_the_twin(
    graders: dict[str, Any], way: str
) -> None:
    """It says that the test passed and its twin did not, and is right half of the time."""
    code = f"""{KNOWS_THE_SOURCES.replace("for id = 0 to 2 do", "for id = 0 to 7 do")}
let double _ = play (fun passed _ -> say passed)"""
    tests = "[@@@gradus.pure]\n" + "\n".join([NOT_SPLIT] * 8)
    result = patient(graders[way], code, tests, SIGNATURE)
    assert (result.reward, result.flags) == (0.0, ("forged:report",))


@WAYS
@pytest.mark.parametrize("plan", [None, 1])
def test_a_suite_cannot_skip_or_leave_out_cases_whose_value_is_taken_out(
    graders: dict[str, Any], way: str, plan: int | None
) -> None:
    lie = f'say "plan {plan}";' if plan else ""
    code = f"""{KNOWS_THE_SOURCES}
let first = ref true
let double _ = {lie} play (fun passed failed ->
  if !first then (first := false; say passed) else say (failed ^ " skip"))"""
    result = patient(graders[way], code, SUITE, SIGNATURE)
    assert not result.passed, result


def test_most_of_the_shipped_tests_are_taken_out(graders: dict[str, Any]) -> None:
    total = taken = 0
    for line in SHIPPED.read_text().splitlines():
        row = json.loads(line)
        task = OcamlTask(tests=row["tests"], signature=row["signature"])
        if is_warm_eligible(task):
            number, groups, _ = sheet(graders["warm"], task, row["solution"])
            total, taken = total + number, taken + len(groups)
    assert taken / total > 0.94


CLOSE = "let close a b = Float.abs (a -. b)"
CLOSE_TESTS = (
    "let () = assert (close (f 1) 3.); assert (close 4. (f 2)); assert (not (close (f 3) 9.))"
)
# tests, a right answer, a wrong one, and how many tests there are and pass
COMPARED = [
    (
        "let x = [| 1 |]\nlet () = x.(0) <- 2\nlet () = assert (f 1 = x)",
        "let f _ = [| 2 |]",
        "let f _ = [| 1 |]",
        1,
        0,
    ),
    ("let () = assert (f 1 = 0.)", "let f _ = -0.", "let f _ = nan", 1, 0),
    (
        "let () = assert (f 1 = (Some 'a', `B 2l))",
        "let f _ = Some 'a', `B 2l",
        "let f _ = Some 'a', `B 3l",
        1,
        0,
    ),
    (
        "let () = assert (f 1 = [1.; 2.] && f 2 = [])",
        "let f n = if n = 1 then [1.; 2.] else []",
        "let f _ = []",
        1,
        0,
    ),
    ("let (=) a b = a <> b\nlet () = assert (f 1 = 3)", "let f _ = 2", "let f _ = 3", 1, 0),
    (
        "let () = let open Float in assert (equal (f 1) 3.); assert (f 2 = 3.)",
        "let f _ = 3.",
        "let f n = float n",
        2,
        0,
    ),
    ("let () = assert (f 1 = 3 || f 2 = 4)", "let f _ = 4", "let f _ = 0", 1, 0),
    ("let x = 3\nlet () = let x = 4 in assert (f 1 = x)", "let f _ = 4", "let f _ = 3", 1, 0),
    (
        "let g n = n + 1\nlet g n = g (n * 2)\nlet () = assert (f 1 = g 3)",
        "let f _ = 7",
        "let f _ = 6",
        1,
        0,
    ),
    (
        "let c e g = assert (e = g)\nlet () = c 3 (f 1); c 4 (f 2)",
        "let f n = n + 2",
        "let f _ = 3",
        2,
        1,
    ),
    (
        "let c ~e g = assert (g = e)\nlet () = c (f 1) ~e:3; c ~e:4 (f 2)",
        "let f n = n + 2",
        "let f _ = 3",
        2,
        1,
    ),
    ("let () = assert (f 1); assert (not (f 2))", "let f n = n = 1", "let f _ = true", 2, 1),
    ("let () = for _ = 1 to 2 do assert (f 1 = 3) done", "let f _ = 3", "let f _ = 4", 1, 0),
    (
        "let t () = assert (f 1 = 3); assert (f 2 = 4)\nlet () = t (); t ()",
        "let f n = n + 2",
        "let f _ = 3",
        2,
        1,
    ),
    (
        "let same a b = a = b\nlet () = let same a b = a <> b in assert (same (f 1) 3)",
        "let f _ = 2",
        "let f _ = 3",
        1,
        0,
    ),
    (
        (
            "let same a b = a = b\nlet differs same b = same (f 1) b\n"
            "let () = assert (differs (fun a b -> a <> b) 3); assert (same (f 1) 2)"
        ),
        "let f _ = 2",
        "let f _ = 3",
        2,
        0,
    ),
    ("let two = 2\nlet () = assert (two = 2 && f 1 = two)", "let f _ = 2", "let f _ = 3", 1, 0),
    (f"{CLOSE} < 0.5\n{CLOSE_TESTS}", "let f n = Float.of_int n +. 2.2", "let f _ = nan", 3, 1),
    (f"{CLOSE} < 0.5\n{CLOSE_TESTS}", "let f n = Float.of_int n +. 2.2", "let f n = 3.6", 3, 2),
    (
        f"{CLOSE} <= 0.5\n{CLOSE_TESTS}",
        "let f n = Float.of_int n +. 2.5",
        "let f n = infinity",
        3,
        1,
    ),
    (
        (
            "let close e = function Some x -> Float.abs (x -. e) <= 0.5 | None -> false\n"
            "let () = assert (close 3. (f 1)); assert (close 4. (f 2))"
        ),
        "let f n = Some (Float.of_int n +. 2.)",
        "let f n = if n = 1 then Some 3.5 else None",
        2,
        1,
    ),
    (
        (
            "let refuses n = try ignore (f n); false with Exit -> true\n"
            "let () = assert (refuses 1 && not (refuses 2)); assert (refuses 3)"
        ),
        "let f n = if n = 2 then 2 else raise Exit",
        "let f _ = raise Exit",
        2,
        1,
    ),
    (
        "let () = assert (f 1 = List.init 3 (fun i -> i * i)); assert (f 2 = List.rev [1; 2])",
        "let f n = if n = 1 then [0; 1; 4] else [2; 1]",
        "let f _ = [0; 1; 4]",
        2,
        1,
    ),
    (
        (
            "let rec down n = if n = 0 then [] else n :: down (n - 1)\n"
            "let () = assert (f 2 = down 2); assert (f 1 = down 1)"
        ),
        "let f n = List.init n (fun i -> n - i)",
        "let f _ = [1]",
        2,
        1,
    ),
    (
        "let () = assert (match f 1 with Some x -> x = 3 | None -> false)",
        "let f _ = Some 3",
        "let f _ = None",
        1,
        0,
    ),
    (
        'let () = assert (try ignore (f 1); false with Failure m -> m = "a")',
        'let f _ = failwith "a"',
        'let f _ = failwith "b"',
        1,
        0,
    ),
    (
        "let c x = x = 3 || x = 4\nlet () = assert (c (f 1)); assert (c (f 2))",
        "let f n = n + 2",
        "let f _ = 5",
        2,
        0,
    ),
    (
        """open OUnit2
let () = run_test_tt_main ("s" >::: [
  "a" >:: (fun _ -> assert_raises (Failure "a") (fun () -> Solution.f 1));
  "b" >:: (fun _ -> assert_equal ~cmp:(cmp_float ~epsilon:0.1) 3. (Solution.f 2));
  "c" >:: (fun _ -> assert_equal ~cmp:cmp_float ~printer:string_of_float 4. (Solution.f 3));
  "d" >:: (fun _ -> assert_bool "" (Solution.f 3 = 4.));
  "e" >:: (fun _ -> assert_raises Not_found (fun () -> Solution.f 4)) ])""",
        'let f = function 1 -> failwith "a" | 2 -> 3.1 | 3 -> 4. | _ -> raise Not_found',
        'let f = function 1 -> failwith "b" | _ -> 4.00001',
        5,
        1,
    ),
]


@WAYS
@pytest.mark.parametrize(("tests", "right", "wrong", "total", "passed"), COMPARED)
def test_what_is_taken_out_is_compared_as_before(
    graders: dict[str, Any], way: str, tests: str, right: str, wrong: str, total: int, passed: int
) -> None:
    honest, mistaken = (patient(graders[way], code, tests, None) for code in (right, wrong))
    assert honest.passed, honest
    assert mistaken.tests is not None
    assert (mistaken.tests.passed, mistaken.tests.total) == (passed, total)
