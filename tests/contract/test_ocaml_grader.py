"""The OCaml grader in its real boxes: behaviours from tests/cases/ocaml, and what only code can
make or see."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import string
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from gradus.contract import Graded, OcamlSubmission, Stage
from gradus.errors import InternalFault, SandboxFault
from gradus.tasks.ocaml import OcamlTask
from services.graders.base import self_test_cases as own_cases
from services.graders.ocaml import grader as grader_module
from services.graders.ocaml.grader import OcamlGrader
from services.local_grading import grade_in_order
from services.sandbox import Command, Exchange
from services.sandbox.bubblewrap import Bubblewrap
from services.sandbox.persistent_box import RestartingBox
from services.sandbox.seccomp import ALLOWED
from tests.bench.ocaml import descendants
from tests.verdict_cases import OnlyCold, WrittenCase, written_cases

RUBRIC = "ocaml/graduated@1"
SOON_S = 60.0


def grade(grader: OcamlGrader, completion: str, task: dict[str, Any], **more: Any) -> Graded:
    submission = {"id": "case", "completion": completion, "task": task} | more
    return grader.grade(OcamlSubmission.model_validate(submission), RUBRIC, 0)


@pytest.mark.parametrize("case", written_cases("ocaml"))
def test_behaves_as_written_down(ocaml_grader: OcamlGrader, case: WrittenCase) -> None:
    if case.fault is not None:
        with pytest.raises(InternalFault, match=case.fault) as raised:
            grade(ocaml_grader, case.completion, case.task)
        assert not raised.value.retryable
        return
    assert case.expect is not None
    got = grade(ocaml_grader, case.completion, case.task, id=case.id, prompt=case.prompt)
    assert got.id == case.id
    case.expect.check(got)


@pytest.mark.slow
def test_both_ways_of_judging_come_to_the_same_verdicts(ocaml_grader: OcamlGrader) -> None:
    cases = [case.values[0] for case in written_cases("ocaml") if case.values[0].fault is None]
    asked = [
        OcamlSubmission(
            id=case.name, prompt=case.prompt, completion=case.completion, task=case.task
        )
        for case in cases
    ]
    cold_grader = OnlyCold(sandbox=ocaml_grader.sandbox)
    warm = {result.id: result for result in grade_in_order(ocaml_grader, asked, RUBRIC, 2)}
    cold = {result.id: result for result in grade_in_order(cold_grader, asked, RUBRIC, 2)}
    timing = {"flags", "diagnostics", "cpu_ms", "wall_ms"}  # limits are met in different ways
    differ = [
        name
        for name in warm
        if warm[name].model_dump(exclude=timing) != cold[name].model_dump(exclude=timing)
    ]
    assert [(warm[name], cold[name]) for name in differ] == []


def test_the_names_of_all_cases_differ() -> None:
    names = [case.values[0].name for case in written_cases("ocaml")]
    assert len(names) == len(set(names))


# ---------------------------------------------------------------------- hidden tests stay hidden

HIDDEN = "zanzibar_quokka_7731"
OTHER = "perihelion_marmot_4412"

LEAKING_ANSWERS = {
    "prints whatever it is given": (
        'let f s = print_string s; prerr_string s; flush stdout; s ^ "x"'
    ),
    "raises what it is given": "let f s = failwith s",
    "raises an exception of its own with what it is given": (
        "exception Got of string\nlet f s = raise (Got s)"
    ),
    "gives back what it is given": "let f s = s",
    "writes what it is given to a file": (
        'let f s = let c = open_out "/tmp/x" in output_string c s; close_out c; s'
    ),
    "has another type": "let f n = n + 1",
    "has too few arguments": "let f = ()",
    "lacks the name": "let g s = s",
    "does not parse": "let f s = ",
    "is forbidden": "let f s = Obj.magic s",
    "looks at its own arguments, environment and program": (
        "let f s =\n  Array.iter print_endline Sys.argv;\n  print_endline Sys.executable_name;\n "
        " (try let c = open_in_bin Sys.executable_name in print_string (really_input_string c"
        ' (in_channel_length c)) with _ -> ());\n  (try let c = open_in_bin "/box/program" in'
        " failwith (really_input_string c (in_channel_length c)) with Sys_error _ -> ());\n "
        ' Array.iter (fun n -> try print_endline n with _ -> ()) (try Sys.readdir "/tmp" with _ ->'
        " [||]); s"
    ),
    "shows a backtrace": (
        "let () = Printexc.record_backtrace true\n"
        "let f s = Printexc.print_raw_backtrace stderr (Printexc.get_callstack 9); s"
    ),
}

HIDDEN_TESTS = {
    "assert": f'let {OTHER} = 3\nlet () = assert (f "{HIDDEN}" = "{HIDDEN}{OTHER}")',
    "ounit2": (
        f'open OUnit2\nopen Solution\nlet {OTHER} = "{OTHER}" >:: fun _ -> '
        f'assert_equal ~msg:"{HIDDEN}" ~printer:(fun s -> s) "{HIDDEN}{OTHER}" (f "{HIDDEN}")\n'
        f"let () = run_test_tt_main {OTHER}"
    ),
}


HIDDEN_TASKS = {
    f"{framework}, {'declared' if signature else 'undeclared'}": {
        "tests": tests,
        "signature": signature,
        "limits": {"cpu_s": 0.5},
    }
    for framework, tests in HIDDEN_TESTS.items()
    for signature in (None, "val f : string -> string")
}


def told(grader: OcamlGrader, answer: str, task: dict[str, Any]) -> list[str]:
    """Words of the hidden tests that are in the result."""
    result = grade(grader, answer, task).model_dump_json()
    return [word for word in (HIDDEN, OTHER, "quokka", "marmot", "assert_equal") if word in result]


@pytest.mark.parametrize("task", sorted(HIDDEN_TASKS))
@pytest.mark.parametrize("answer", sorted(LEAKING_ANSWERS))
def test_no_text_of_hidden_tests_is_in_any_result(
    ocaml_grader: OcamlGrader, answer: str, task: str
) -> None:
    assert told(ocaml_grader, LEAKING_ANSWERS[answer], HIDDEN_TASKS[task]) == []


@pytest.mark.parametrize("task", sorted(HIDDEN_TASKS))
def test_no_text_of_hidden_tests_is_in_any_result_of_the_cold_way(
    ocaml_grader: OcamlGrader, task: str
) -> None:
    cold = OnlyCold(sandbox=ocaml_grader.sandbox)
    found = {
        name: told(cold, answer, HIDDEN_TASKS[task]) for name, answer in LEAKING_ANSWERS.items()
    }
    assert found == dict.fromkeys(LEAKING_ANSWERS, [])


def test_where_a_program_cannot_be_sealed_the_cold_way_grades_nothing(
    ocaml_grader: OcamlGrader,
) -> None:
    """Sealed: it can no longer open its own file, which holds the tests' constants."""
    no_filters = (
        *(
            (0x20, 0, 0, 0),
            (0x15, 0, 3, ALLOWED["prctl"][platform.machine() == "aarch64"]),
        ),  # another call: go on
        *(
            (0x20, 0, 0, 16),
            (0x15, 0, 1, 22),
            (0x06, 0, 0, 0x00050001),
        ),  # prctl(PR_SET_SECCOMP): EPERM
    )
    refusal = b"".join(struct.pack("<HBBI", *instruction) for instruction in no_filters)

    class WithoutFilters(Bubblewrap):
        def build_filter(self, command: Command) -> bytes:
            return refusal + super().build_filter(command)

    sandbox = WithoutFilters()
    for task in (INC, {**INC, "packages": ["unix"]}):
        with pytest.raises(SandboxFault, match="did not start.*seccomp is not available here"):
            grade(OnlyCold(sandbox=sandbox), "let f x = x + 1", task)


# ---------------------------------------------------------------------- answers of great size

INC = {
    "signature": "val f : int -> int",
    "tests": "let () = assert (f 1 = 2)",
    "limits": {"compile_cpu_s": 1},
}


def verdict_of(grader: OcamlGrader, completion: str) -> Graded:
    """A verdict: a fault would be raised."""
    return grade(grader, completion, INC)


def test_two_hundred_thousand_parentheses_are_graded(ocaml_grader: OcamlGrader) -> None:
    assert verdict_of(ocaml_grader, "let f x = 1 + " + "(" * 200_000 + "x" + ")" * 200_000).passed


def test_deep_nesting_is_graded(ocaml_grader: OcamlGrader) -> None:
    body = "x"
    for depth in range(64):
        body = (
            f"(let y{depth} = {body} in if y{depth} > 0 then y{depth} else (match y{depth} with 0"
            " -> 0 | n -> n))"
        )
    assert verdict_of(ocaml_grader, f"let f x = 1 + {body}").passed


def test_a_list_of_ten_thousand_literals_is_graded(ocaml_grader: OcamlGrader) -> None:
    literals = "; ".join(str(n) for n in range(10_000))
    assert verdict_of(ocaml_grader, f"let table = [| {literals} |]\nlet f x = table.(x + 1)").passed


def test_a_text_of_half_a_million_letters_is_graded(ocaml_grader: OcamlGrader) -> None:
    assert verdict_of(
        ocaml_grader, f'let s = "{"a" * 500_000}"\nlet f x = x + String.length s - 499_999'
    ).passed


def test_a_thousand_definitions_are_graded(ocaml_grader: OcamlGrader) -> None:
    definitions = "\n".join(f"let g{n} x = x + {n}" for n in range(1_000))
    assert verdict_of(ocaml_grader, f"{definitions}\nlet f x = g1 x").passed


def test_an_answer_that_asks_for_thousands_of_warnings_is_graded(ocaml_grader: OcamlGrader) -> None:
    unused = "".join(f"  let unused_{n} = {n} in\n" for n in range(3_000))
    assert verdict_of(ocaml_grader, f'[@@@ocaml.warning "+a"]\nlet f x =\n{unused}  x + 1').passed


def test_of_many_errors_the_first_fifty_are_reported(ocaml_grader: OcamlGrader) -> None:
    result = verdict_of(ocaml_grader, "\n".join(f"let _ : int = t{n}" for n in range(200)))
    assert len(result.diagnostics) == 51
    assert result.diagnostics[-1].message.startswith("and 15")


BREAKS_COMPILERS = {
    "an opened list in an opened list and so on": ("let f x = " + "[" * 200_000, None),
    "a number of a hundred thousand digits": ("let f x = " + "9" * 100_000, None),
    "a name of a hundred thousand letters": (f"let f x = {'a' * 100_000}", None),
    "comments without end": ("(*" * 100_000 + "\nlet f x = x + 1", "degenerate:empty"),
    # a busy machine meets the CPU limit before the end of the stack
    "a sum of a hundred thousand terms": ("let f x = " + " + ".join(["x"] * 100_000), None),
    "functions in functions": ("let f x = " + "fun _ -> " * 50_000 + "x", "compiler:crash"),
    "a type of exponential size": (
        "let d0 x = (x, x)\n"
        + "\n".join(f"let d{n} x = d{n - 1} (d{n - 1} x)" for n in range(1, 8))
        + "\nlet f x = d7 x",
        "limit:compile",
    ),
}


@pytest.mark.parametrize("what", sorted(BREAKS_COMPILERS))
def test_what_breaks_compilers_is_a_verdict_and_earns_nothing(
    ocaml_grader: OcamlGrader, what: str
) -> None:
    completion, flag = BREAKS_COMPILERS[what]
    if ocaml_grader.toolchain.number >= 414 and flag == "compiler:crash":
        flag = None  # later compilers say that their stack is full, or take too long
    result = verdict_of(ocaml_grader, completion)
    assert result.reward == 0
    assert flag is None or flag in result.flags
    assert len(result.model_dump_json()) < 10_000


def test_the_cold_compiler_is_stopped_on_a_type_of_exponential_size(
    ocaml_grader: OcamlGrader, tmp_path: Path
) -> None:
    settings = ocaml_grader.config.model_dump()
    settings["cold_compile"]["cpu_s"] = 1
    file = tmp_path / "ocaml.yaml"
    file.write_text(yaml.safe_dump(settings))
    impatient = OnlyCold(config=file, sandbox=ocaml_grader.sandbox)
    result = verdict_of(impatient, BREAKS_COMPILERS["a type of exponential size"][0])
    assert (result.reward, result.flags) == (0, ("limit:compile",))


def test_the_box_works_again_after_every_one_of_these(ocaml_grader: OcamlGrader) -> None:
    assert verdict_of(ocaml_grader, "let f x = x + 1").passed


def test_text_that_no_compiler_takes_is_refused_at_the_door() -> None:
    with pytest.raises(ValidationError):
        OcamlSubmission.model_validate({"id": "a", "completion": "\ud800", "task": INC})
    null = OcamlSubmission.model_validate({"id": "a", "completion": "let f x = \0 x", "task": INC})
    assert null.completion == "let f x = \ufffd x"


@pytest.mark.parametrize(
    "completion",
    ["\x01\x02\x7f", "\ufeff", "\\", "'", '"', "`", "{|", "let f = '\\777'", "%%", '# 1 "x"'],
)
def test_odd_characters_are_a_verdict(ocaml_grader: OcamlGrader, completion: str) -> None:
    assert verdict_of(ocaml_grader, completion).reward == 0


# ------------------------------------------------------------- answers that share a compiler child

ONE_AFTER_ANOTHER = [
    *(
        "let f x = x + 1",
        "let f x = x",
        "let f x = x ^ x",
        "let f",
        "let f x = y",
        "let g x = x + 1",
        "let f = ref []",
    ),
    "let weak = ref []\nlet f x = List.length !weak + x",
    "let weak = ref [] and more = fun x -> x\nlet f x = (weak : string) + x",
    "type t = { mutable a : int }\nlet f x = (let r = { a = x } in r.a <- r.a + 1; r.a)",
    "module M = Map.Make (Int)\nlet f x = M.cardinal (M.add x x M.empty) + x",
    (
        "module F (X : sig val n : int end) = struct let f x = x + X.n end\ninclude F (struct let n"
        " = 1 end)"
    ),
    "class c n = object method get = n + 1 end\nlet f x = (new c x)#get",
    "let f x = object method a = x + 1 end",
    (
        "type _ t = Int : int -> int t\nlet get : type a. a t -> a = function Int n -> n\nlet f x ="
        " get (Int x) + 1"
    ),
    "exception E of int\nlet f x = try raise (E x) with E n -> n + 1",
    "let f ?(by = 1) x = x + by",
    "let f x = match `A x with `A n -> n + 1 | `B -> 0",
    "let f (x : int) : string = x",
    'external f : int -> int = "caml_int_of_string"',
    "let f x = Obj.magic x + 1",
    "let f x = raise Not_found",
    "open Solution\nlet f x = x + 1",
    '[@@@ocaml.warning "@a"]\nlet f x = let y = 1 in x + 1',
    "let f x = (lazy (x + 1)) |> Lazy.force",
    'let f x = Printf.sprintf "%d" x |> int_of_string |> succ',
    "let f : 'a -> 'a = fun x -> x + 1",
    BREAKS_COMPILERS["functions in functions"][0],
    BREAKS_COMPILERS["a type of exponential size"][0],
]


def find_runners_child() -> int | None:
    """The process that has run an answer for a tenth of a second in a persistent box of ours."""
    for place in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            chain = [int(place.name)]
            while len(chain) < 4:
                chain.append(int(Path(f"/proc/{chain[-1]}/stat").read_text().split()[3]))
            names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in chain[:3]]
            is_ours = names == ["runner", "runner", "bwrap"] and chain[3] == os.getpid()
            if is_ours and int((place / "stat").read_text().split()[13]) >= 10:
                return chain[0]
    return None


def test_an_answer_whose_process_was_killed_from_outside_is_graded_again(
    ocaml_grader: OcamlGrader,
) -> None:
    slow = "let f x = let t = Sys.time () in while Sys.time () -. t < 3. do () done; x + 1"
    task = {**INC, "limits": {"cpu_s": 30}}
    with ThreadPoolExecutor(1) as pool:
        graded = pool.submit(grade, ocaml_grader, slow, task)
        give_up_at = time.monotonic() + SOON_S
        child = find_runners_child()
        while child is None and time.monotonic() < give_up_at:
            child = find_runners_child()
        assert child is not None
        os.kill(child, signal.SIGKILL)
        assert graded.result(SOON_S).passed


@pytest.mark.parametrize("packages", [[], ["unix"]])
def test_a_task_may_ask_for_all_the_memory_that_the_configuration_allows(
    ocaml_grader: OcamlGrader, packages: list[str]
) -> None:
    task = {**INC, "packages": packages, "limits": {"memory_mb": 4096}}
    assert grade(ocaml_grader, "let f x = x + 1", task).passed


def test_answers_that_share_a_compiler_child_are_judged_as_alone(
    ocaml_grader: OcamlGrader, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    ask = RestartingBox.ask

    def noted(box: RestartingBox, question: bytes, wall_s: float, memory_mb: int) -> Exchange:
        asked.append(question[:1])
        return ask(box, question, wall_s, memory_mb)

    def judged_in_a_shared_child(answer: str) -> Graded:
        """The verdict by the child that compiled the answer before, once that child had room."""
        give_up_at = time.monotonic() + SOON_S
        while time.monotonic() < give_up_at:
            verdict_of(ocaml_grader, "let f x = x + 1")
            asked.clear()
            result = verdict_of(ocaml_grader, answer)
            if asked[0] == b"k":
                return result
        pytest.fail("no child took a second answer")

    monkeypatch.setattr(RestartingBox, "ask", noted)
    verdict_of(ocaml_grader, "let f x = x + 1")  # compiles the tests, which are kept
    for answer in ONE_AFTER_ANOTHER:
        together = judged_in_a_shared_child(answer)
        grade(ocaml_grader, "let f x = x + 1", {**INC, "module": "other"})
        asked.clear()
        alone = verdict_of(ocaml_grader, answer)
        assert asked[0] != b"k"
        timing = {"cpu_ms", "wall_ms"}
        assert together.model_dump(exclude=timing) == alone.model_dump(exclude=timing)


def compilers() -> set[int]:
    """Compile servers of this process and their children."""
    found = set()
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text() == "front\n":
                found.add(pid)
    return found


def waiting_child(grader: OcamlGrader, servers: set[int]) -> int:
    """A compiler child that waits for a further answer."""
    give_up_at = time.monotonic() + SOON_S
    while time.monotonic() < give_up_at:
        verdict_of(grader, "let f x = x + 1")
        if grader.warm._staying:
            [child] = compilers() - servers
            return child
    pytest.fail("no child waits")


@pytest.mark.parametrize("is_noticed", [True, False], ids=["noticed", "while the next one comes"])
@pytest.mark.parametrize("task", [INC, {**INC, "module": "other"}], ids=["same", "another"])
def test_a_compiler_child_that_dies_while_it_waits_costs_a_fault_at_most_and_no_verdict(
    ocaml_grader: OcamlGrader, task: dict[str, Any], is_noticed: bool
) -> None:
    """Whether its server sees its death before or after the next question comes."""
    grader = OcamlGrader(sandbox=ocaml_grader.sandbox)
    with closing(grader.warm):
        verdict_of(
            grader, "let f"
        )  # starts the server; a child that refused an answer does not wait
        child = waiting_child(grader, compilers())
        os.kill(child, signal.SIGKILL)
        while is_noticed and Path(f"/proc/{child}").exists():
            time.sleep(0.001)
        with suppress(SandboxFault):
            assert not grade(grader, "let f x = x", task).passed
        assert verdict_of(grader, "let f x = x + 1").passed
        assert not grade(grader, "let f x = x", task).passed


# ---------------------------------------------------------------------- results as such


def test_the_same_submission_gets_the_same_verdict_every_time_and_in_every_slot(
    ocaml_grader: OcamlGrader,
) -> None:
    answers = ["let f x = x + 1", "let f x = x", "let f x = x ^ x", "let f"]

    def graded_in(slot: int) -> dict[str, str]:
        found = {}
        for answer in (answers[slot % 4 :] + answers[: slot % 4]) * 2:
            submission = OcamlSubmission.model_validate(
                {"id": "a", "completion": answer, "task": INC}
            )
            result = ocaml_grader.grade(submission, RUBRIC, slot)
            seen = result.model_copy(update={"cpu_ms": 0.0, "wall_ms": 0.0}).model_dump_json()
            assert found.setdefault(answer, seen) == seen
        return found

    with ThreadPoolExecutor(8) as pool:
        first, *others = pool.map(graded_in, range(8))
    assert others == [first] * 7


def test_a_result_says_who_graded_by_what_and_at_which_cost(ocaml_grader: OcamlGrader) -> None:
    result = verdict_of(ocaml_grader, "let f x = x + 1")
    info = ocaml_grader.info()
    assert (result.rubric, result.grader, result.toolchain) == (RUBRIC, info.grader, info.toolchain)
    assert re.fullmatch(r"ocaml@[0-9a-f]{12}", result.grader)
    assert 0 < result.cpu_ms < 60_000
    assert result.wall_ms > 0
    assert sum(result.components.values()) == pytest.approx(result.reward)


def test_a_diagnostic_points_to_its_place_in_the_answer(ocaml_grader: OcamlGrader) -> None:
    result = verdict_of(ocaml_grader, 'Here:\n```ocaml\nlet a = 1\nlet f x = x + "1"\n```')
    [diagnostic] = result.diagnostics
    assert (diagnostic.stage, diagnostic.line, diagnostic.column) == (Stage.TYPES, 2, 15)
    assert "string" in diagnostic.message


def test_diagnostics_hold_no_path_of_this_machine(ocaml_grader: OcamlGrader) -> None:
    for answer in ("let f x = List.nope x", "open Nowhere", "let f = ref []", "let f x = x ^ x"):
        for task in (INC, {"tests": INC["tests"]}):
            result = grade(ocaml_grader, answer, task).model_dump_json()
            assert not re.search(r"(?<![\w.])/\w+/\w", result), result


def test_the_strict_rubric_is_all_or_nothing(ocaml_grader: OcamlGrader) -> None:
    task = {
        "signature": "val f : int -> int",
        "tests": "let () = assert (f 1 = 2); assert (f 5 = 6)",
    }
    for answer, reward in (("let f x = x + 1", 1.0), ("let f _ = 2", 0.0)):
        submission = OcamlSubmission.model_validate({"id": "a", "completion": answer, "task": task})
        assert ocaml_grader.grade(submission, "ocaml/strict@1", 0).reward == reward


def test_a_result_survives_the_wire(ocaml_grader: OcamlGrader) -> None:
    result = verdict_of(ocaml_grader, 'let f x = x ^ "\\u{1F42B} \x7f"')
    assert Graded.model_validate(json.loads(result.model_dump_json())) == result


def test_the_grader_proves_itself_with_cases_of_every_basic_kind(ocaml_grader: OcamlGrader) -> None:
    file = Path(grader_module.__file__).parent / "cases.yaml"
    assert {case.name for case in own_cases.load_cases(file)} >= set(own_cases.BASIC)
    ocaml_grader.self_test()


def test_a_grader_that_fails_its_own_cases_refuses_to_serve(
    ocaml_grader: OcamlGrader, tmp_path: Path
) -> None:
    wrong = tmp_path / "cases.yaml"
    wrong.write_text(
        "- {name: pass, completion: 'let f x = x', task: {tests: 'let () = assert (f 1 = 2)'},"
        " expect: {passed: true, stage: tests, reward: [1, 1]}}"
    )
    with pytest.raises(InternalFault, match="fails its own cases: case 'pass' got passed False"):
        own_cases.run_self_test_cases(ocaml_grader, OcamlTask, wrong)


def test_every_printable_character_alone_is_a_verdict(ocaml_grader: OcamlGrader) -> None:
    rewards = {verdict_of(ocaml_grader, character).reward for character in string.punctuation[::4]}
    assert rewards <= {0.0}
