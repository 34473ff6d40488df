"""`gradus tasks mutate` and `trajectories`: answers are broken, what is told of them is what the
grader says."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from corpus.mutation import Edit, select_edits
from corpus.ocaml_mutations import OcamlMutations
from corpus.repair_tasks import break_tasks
from corpus.rust_mutations import RustMutations
from corpus.task_validation import validate
from corpus.trajectories import build_trajectories
from gradus.contract import Graded, OcamlSubmission
from gradus.feedback import render_verdict
from gradus.row_reader import Row
from services.graders.ocaml.grader import OcamlGrader
from services.graders.rust.grader import RustGrader
from tests.conftest import Cli

CASES = Path(__file__).parents[1] / "cases" / "corpus"
OCAML = """type sign = Minus | Zero | Plus

(* größer *)
let rec sum = function
  | [] -> 0
  | x :: rest when x > 0 -> x + sum rest
  | _ :: rest -> sum rest

let sign x = if x < 0 then Minus else if x = 0 then Zero else Plus
let power base number = List.fold_left (fun total _ -> total * base) 1 (List.init number Fun.id)
let first a b = print_string ""; max (abs a) (b - 1)
"""
RUST = """#[derive(Debug, Clone, PartialEq)]
pub enum Sign {
    Minus,
    Plus,
}

pub fn sign(x: i64) -> Sign {
    if x < 0 { Sign::Minus } else { Sign::Plus }
}

pub fn total(numbers: &[i64], limit: usize) -> i64 {
    let mut total = 0;
    for index in 0..limit.min(numbers.len()) {
        total += numbers[index];
    }
    match total {
        0 => helper(1, 2),
        _ => total,
    }
}

fn helper(a: i64, b: i64) -> i64 {
    a - b
}

#[cfg(test)]
mod tests {
    #[test]
    fn own() {
        assert_eq!(1 + 1, 2);
    }
}
"""
TASK: dict[str, Any] = {
    "id": "sum",
    "prompt": "The sum of the positive numbers of a list.",
    "signature": "val sum : int list -> int",
    "tests": (
        "let () = assert (sum [] = 0)\nlet () = assert (sum [1; 2] = 3)\nlet () = assert (sum [-1;"
        " 2] = 2)"
    ),
    "solution": (
        "let rec sum = function\n  | [] -> 0\n  | x :: rest when x > 0 -> x + sum rest\n"
        "  | _ :: rest -> sum rest\n"
    ),
    "licence": "MIT",
    "source": "own",
}


def row(**changes: Any) -> Row:
    return Row(
        "tasks.jsonl:1",
        {name: value for name, value in (TASK | changes).items() if value is not None},
    )


def rows_of(*values: dict[str, Any]) -> list[Row]:
    return [Row(f"x:{number}", one) for number, one in enumerate(values, start=1)]


def jsonl(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="session")
def ocaml_mutations(ocaml_grader: OcamlGrader) -> OcamlMutations:
    return OcamlMutations(ocaml_grader.toolchain, ocaml_grader.sandbox)


# ------------------------------------------------------------------------------------------- edits

OCAML_EDITS = [
    ("operator", "x > 0 -> x", "x >= 0 -> x"),
    ("operator", "x + sum", "x - sum"),
    ("operator", "x + sum", "x +. sum"),
    ("operands", "b - 1", "1 - b"),
    ("constant", "| [] -> 0", "| [] -> 1"),
    ("type", "| [] -> 0", "| [] -> 0."),
    ("case", "\n  | _ :: rest -> sum rest", ""),
    ("case", "[] -> 0\n  | x :: rest", "x :: rest"),
    ("condition", "when x > 0", "when not (x > 0)"),
    ("condition", "if x < 0", "if not (x < 0)"),
    ("rec", "let rec sum", "let sum"),
    ("constructor", "then Minus", "then Plus"),
    ("arguments", "List.init number Fun.id", "List.init Fun.id number"),
    ("argument", "List.init number Fun.id", "List.init number"),
    ("function", "; max (abs a)", "; min (abs a)"),
    ("function", "List.fold_left", "List.fold_right"),
    ("statement", 'print_string ""; ', ""),
    ("name", "total * base", "tota * base"),
    ("syntax", "if x < 0 then", "if x < 0 "),
]


@pytest.mark.parametrize(("kind", "before", "after"), OCAML_EDITS)
def test_ocaml_is_broken_on_its_tree(
    ocaml_mutations: OcamlMutations, kind: str, before: str, after: str
) -> None:
    assert before in OCAML
    wanted = OCAML.replace(before, after, 1)
    broken = {(edit.kind, edit.apply(OCAML)) for edit in ocaml_mutations.find_edits(OCAML)}
    assert (kind, wanted) in broken


def test_places_behind_text_that_is_not_ascii_are_right(ocaml_mutations: OcamlMutations) -> None:
    for edit in ocaml_mutations.find_edits(OCAML):
        assert edit.apply(OCAML).startswith(OCAML[: OCAML.index("let rec")]), (
            "the comment has a ß and is whole"
        )


@pytest.mark.parametrize(
    "source",
    ["let f x =", "", "\0", "let x = 'ab'", '"' * 999, "(" * 5000, "\ufeff let f = 1", "(* "],
)
def test_ocaml_that_does_not_parse_has_no_edits(
    ocaml_mutations: OcamlMutations, source: str
) -> None:
    assert ocaml_mutations.find_edits(source) == []


RUST_EDITS = [
    ("operator", "x < 0", "x <= 0"),
    ("operator", "total += numbers", "total -= numbers"),
    ("operator", "a - b", "a + b"),
    ("operator", "0..limit", "0..=limit"),
    ("constant", "let mut total = 0", "let mut total = 1"),
    ("type", "let mut total = 0", "let mut total = 0.0"),
    ("condition", "if x < 0 {", "if !(x < 0) {"),
    ("mut", "let mut total", "let total"),
    ("syntax", "let mut total = 0;", "let mut total = 0"),
    ("name", "total += numbers", "tota += numbers"),
    ("name", "numbers[index]", "numbers[inde]"),
    ("function", "limit.min(", "limit.max("),
]


@pytest.mark.parametrize(("kind", "before", "after"), RUST_EDITS)
def test_rust_is_broken_on_its_tokens(kind: str, before: str, after: str) -> None:
    assert before in RUST
    wanted = RUST.replace(before, after, 1)
    assert (kind, wanted) in {
        (edit.kind, edit.apply(RUST)) for edit in RustMutations().find_edits(RUST)
    }


def test_attributes_and_own_tests_of_rust_stay_whole() -> None:
    tail = RUST[RUST.index("#[cfg(test)]") :]
    for edit in RustMutations().find_edits(RUST):
        broken = edit.apply(RUST)
        assert broken.startswith("#[derive(Debug, Clone, PartialEq)]")
        assert broken.endswith(tail)


@pytest.mark.parametrize(
    "source",
    ["", "fn", "match", "match x {", "if", "#[", "enum E {", "f(", "a..", "((((" * 99, "}" * 99],
)
def test_no_text_keeps_rust_edits_from_being_found(source: str) -> None:
    for edit in RustMutations().find_edits(source):
        assert 0 <= edit.start <= edit.end <= len(source)


COUNTED = """pub fn add_all(numbers: &[i64]) -> i64 {
    match numbers {
        [] => 0,
        [first, rest @ ..] => first + add_all(rest),
    }
}
"""


def test_the_choice_of_edits_depends_on_the_seed_and_not_on_their_order() -> None:
    source = "abcdefghij" * 3
    edits = [Edit(kind, at, at + 1, "X") for kind in ("one", "two", "three") for at in range(10)]
    first = select_edits(source, edits, 5, "7:id")
    assert first == select_edits(source, edits[::-1], 5, "7:id")
    assert first != select_edits(source, edits, 5, "8:id")
    assert len({edit.apply(source) for edit in first}) == len(first) == 5
    assert {edit.kind for edit in select_edits(source, edits, 3, "1")} == {"one", "two", "three"}


def test_edits_that_change_white_space_only_are_not_chosen() -> None:
    assert select_edits("a  b", [Edit("space", 1, 2, ""), Edit("all", 0, 4, " ")], 9, "1") == []


# ---------------------------------------------------------------------- repair tasks


def test_every_repair_task_fails_as_it_says_and_code_that_passes_all_tests_is_kept_apart(
    gradus: Cli, tmp_path: Path, ocaml_grader: OcamlGrader, ocaml_mutations: OcamlMutations
) -> None:
    weak = TASK | {"id": "weak", "prompt": "Sum.", "tests": "let () = assert (sum [] = 0)"}
    source = jsonl(tmp_path / "tasks.jsonl", TASK, weak)
    out = tmp_path / "repairs.jsonl"
    argv = ("--per-task", "6", "--max-mutants", "40", "--seed", "7", "--slots", "2")
    done = gradus("tasks", "mutate", source, "-o", out, *argv)
    assert done.status == 0, done.err
    repairs = [one for one in read(out) if one["group"] == "sum"]
    assert len(repairs) == 6
    stages = {tag for one in repairs for tag in one["tags"] if tag.startswith("stage:")}
    assert stages == {"stage:types", "stage:tests"}
    assert {(one["licence"], one["source"], one["kind"]) for one in repairs} == {
        ("MIT", "own", "repair")
    }
    for one in repairs:
        assert one["message"] in one["prompt"]
        assert one["stub"].strip() in one["prompt"]
        assert TASK["prompt"] in one["prompt"]
        assert one["solution"] == TASK["solution"] != one["stub"]
    found = validate(rows_of(*repairs), "ocaml", ocaml_grader, 2)
    assert [finding.problems for finding in found if finding.problems] == []

    survivors = [one for one in read(tmp_path / "repairs.survivors.jsonl") if one["id"] == "weak"]
    assert {"operator", "condition"} <= {one["mutation"] for one in survivors}
    assert {one["tests"] for one in survivors} == {1}
    assert {one["code"] for one in survivors}.isdisjoint(
        {one["stub"] for one in read(out) if one["group"] == "weak"}
    )
    assert all(one["line"] in (1, 2, 3, 4) for one in survivors)

    def again(seed: int) -> list[Mapping[str, Any]]:
        [broken] = break_tasks(
            [row()],
            "ocaml",
            ocaml_grader,
            ocaml_mutations,
            per_task=6,
            tries=40,
            seed=seed,
            slots=2,
        )
        return list(broken.repairs)

    assert again(7) == repairs != again(8), "the same seed makes the same tasks"


def test_the_message_is_what_the_grader_says(
    ocaml_grader: OcamlGrader, ocaml_mutations: OcamlMutations
) -> None:
    [broken] = break_tasks([row()], "ocaml", ocaml_grader, ocaml_mutations, tries=8, slots=2)
    for one in broken.repairs:
        task = {name: TASK[name] for name in ("tests", "signature")}
        asked = OcamlSubmission.model_validate(
            {"id": "a", "completion": f"```ocaml\n{one['stub']}\n```", "task": task}
        )
        assert one["message"] == render_verdict(ocaml_grader.grade(asked, "ocaml/graduated@1", 0))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"solution": None}, "no solution to break"),
        ({"solution": 3}, "no solution to break"),
        ({"id": None}, "has no id"),
        ({"solution": "let sum _ = 0"}, "its solution does not pass: 1 of 3 tests pass"),
        ({"solution": "let sum = (* " + "x" * 20_000 + " *) List.length"}, "longer than 20000"),
        ({"tests": None}, "tests: Field required"),
        ({"tests": "let () = assert (sum 'ab')"}, "tests do not parse"),
    ],
)
def test_a_task_that_cannot_be_broken_says_why(
    ocaml_grader: OcamlGrader,
    ocaml_mutations: OcamlMutations,
    changes: dict[str, Any],
    problem: str,
) -> None:
    rows = [row(**changes), row(id="good")]
    bad, good = break_tasks(rows, "ocaml", ocaml_grader, ocaml_mutations, tries=4, slots=2)
    assert bad.repairs == []
    assert problem in str(bad.problem)
    assert good.problem is None
    assert good.repairs


def test_an_answer_that_breaks_the_parser_harms_no_other_task(
    ocaml_grader: OcamlGrader, ocaml_mutations: OcamlMutations
) -> None:
    deep = "let sum _ = " + "(" * 9000 + "1" + ")" * 9000
    rows = [row(solution=deep), row(id="good")]
    bad, good = break_tasks(rows, "ocaml", ocaml_grader, ocaml_mutations, tries=4, slots=2)
    assert bad.repairs == []
    assert bad.problem
    assert good.repairs


def test_rust_answers_are_broken_and_told_by_the_rust_grader(
    gradus: Cli, tmp_path: Path, rust_grader: RustGrader
) -> None:
    tests = "use solution::*;\n#[test]\nfn sums() {\n    assert_eq!(add_all(&[1, 2]), 3);\n}\n"
    task = {"id": "sum", "prompt": "Sum.", "tests": tests, "solution": COUNTED, "edition": "2024"}
    out = tmp_path / "out.jsonl"
    argv = (
        "--grader",
        "rust",
        "--max-mutants",
        "6",
        "--per-task",
        "3",
        "--slots",
        "2",
    )
    done = gradus("tasks", "mutate", jsonl(tmp_path / "tasks.jsonl", task), "-o", out, *argv)
    assert done.status == 0, done.err
    repairs = read(out)
    assert len(repairs) == 3
    assert all("This Rust code has a mistake" in one["prompt"] for one in repairs)
    assert all(one["edition"] == "2024" for one in repairs)


def test_stories_cannot_be_broken(gradus: Cli, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "tasks.jsonl", TASK)
    said = gradus("tasks", "mutate", source, "--grader", "story", "-o", tmp_path / "out.jsonl")
    assert said.status == 2
    assert "this is for tasks of ocaml and rust" in said.err


# ---------------------------------------------------------------------- trajectories

REPAIR = TASK | {
    "id": "sum~1",
    "group": "sum",
    "stub": TASK["solution"].replace("x + sum", "x - sum"),
    "tags": ["mutation:operator", "stage:tests"],
}
SECOND = REPAIR | {
    "id": "sum~2",
    "stub": TASK["solution"].replace("[] ->", "[] "),
    "tags": ["mutation:syntax", "stage:types"],
}


@pytest.fixture
def written(
    gradus: Cli, tmp_path: Path, ocaml_grader: OcamlGrader
) -> Callable[..., list[dict[str, Any]]]:
    """Writes one repair task in a format and returns the rows; `columns` are those that supervised
    training reads."""
    from trainer.config.stages import SftStage
    from trainer.data.rows import read_samples

    def write(*argv: str, columns: set[str]) -> list[dict[str, Any]]:
        out = tmp_path / "out.jsonl"
        source = jsonl(tmp_path / "in.jsonl", REPAIR)
        done = gradus("tasks", "trajectories", source, "-o", out, *argv, "--slots", "2")
        assert done.status == 0, done.err
        config = {
            "model": {"name": "fresh:qwen3"},
            "data": {"dataset": str(out)},
            "sft": {"completion_only_loss": False},
            "output_dir": str(tmp_path / "run"),
        }
        samples, skipped = read_samples(SftStage.model_validate(config), str(out))
        assert skipped == []
        assert {name for sample in samples for name in sample.values} == columns
        return read(out)

    return write


def test_a_chat_calls_the_tool_and_gets_the_graders_words(
    written: Callable[..., list[dict[str, Any]]],
) -> None:
    [chat] = written(columns={"messages", "tools"})
    roles = [message["role"] for message in chat["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool", "assistant"]
    calls = [message for message in chat["messages"] if "tool_calls" in message]
    codes = [message["tool_calls"][0]["function"]["arguments"]["code"] for message in calls]
    assert codes == [REPAIR["stub"], REPAIR["solution"]]
    replies = [message["content"] for message in chat["messages"] if message["role"] == "tool"]
    assert replies == [
        "2 of 3 tests pass\ntests: error: 1 of 3 tests failed an assertion",
        "all 3 tests pass",
    ]
    assert [one["tool_calls"][0]["id"] for one in calls] == ["call_1", "call_2"]
    assert chat["tools"][0]["function"]["name"] == "check"
    assert chat["messages"][-1]["content"] == f"```ocaml\n{REPAIR['solution']}\n```"
    assert "-  | x :: rest when x > 0 -> x - sum rest" in chat["messages"][4]["content"]
    assert (chat["licence"], chat["source"], chat["group"]) == ("MIT", "own", "sum")


def test_each_attempt_has_one_mistake_less_and_what_hides_others_goes_first(
    ocaml_grader: OcamlGrader,
) -> None:
    told, _ = build_trajectories(rows_of(REPAIR, SECOND), "ocaml", ocaml_grader, 3, 2)
    assert told.trajectory is not None
    codes = [step.code for step in told.trajectory.steps]
    both = TASK["solution"].replace("x + sum", "x - sum").replace("[] ->", "[] ")
    assert codes == [both, REPAIR["stub"], TASK["solution"]]
    assert "The constructor [] expects 0 argument(s)" in told.trajectory.steps[0].reply
    assert told.trajectory.steps[1].reply.startswith("2 of 3 tests pass")


def test_a_prompt_that_shows_the_code_shows_the_first_attempt(
    ocaml_grader: OcamlGrader, ocaml_mutations: OcamlMutations
) -> None:
    [broken] = break_tasks(
        [row()], "ocaml", ocaml_grader, ocaml_mutations, per_task=6, tries=40, slots=2
    )
    for told in build_trajectories(rows_of(*broken.repairs), "ocaml", ocaml_grader, 2, 2):
        assert told.trajectory is not None
        first = told.trajectory.steps[0]
        assert first.code.strip() in told.trajectory.request
        assert first.reply in told.trajectory.request
        assert first.thought == "First I check the code as it stands."


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"stub": None}, "has no prompt, no stub"),
        ({"solution": "let sum _ = 0"}, "its solution does not pass"),
        ({"stub": TASK["solution"] + "(* *)"}, "its stub passes all tests"),
        ({"prompt": "Say <|end|><|start|>system"}, "holds a text like <|end|>"),
        ({"stub": "let sum _ = (* <|im_end|> *) 0"}, "holds a text like <|end|>"),
        ({"tests": 5}, "tests: Input should be a valid string"),
        ({"tests": "let () = assert (sum 'ab')"}, "tests do not parse"),
    ],
)
def test_a_row_without_a_trajectory_says_why(
    ocaml_grader: OcamlGrader, changes: dict[str, Any], problem: str
) -> None:
    bad, good = build_trajectories(rows_of(REPAIR | changes, REPAIR), "ocaml", ocaml_grader, 1, 2)
    assert bad.trajectory is None
    assert problem in str(bad.problem)
    assert good.trajectory is not None


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("--format", "html"), "use one of chat, agent"),
        (("--format", "agent"), "requires --grader rust"),
        (("--grader", "story"), "this is for tasks of ocaml and rust"),
    ],
)
def test_what_cannot_be_written_is_misuse(
    gradus: Cli, tmp_path: Path, argv: tuple[str, ...], told: str
) -> None:
    done = gradus(
        "tasks",
        "trajectories",
        jsonl(tmp_path / "in.jsonl", REPAIR),
        "-o",
        tmp_path / "out.jsonl",
        *argv,
    )
    assert done.status == 2
    assert told in done.err


def test_words_of_a_grader_are_cut_where_they_are_endless() -> None:
    result = Graded.model_validate(
        {
            **{
                "id": "a",
                "reward": 0.0,
                "passed": False,
                "stage": "types",
                "components": {},
                "rubric": "r",
            },
            **{
                "grader": "g",
                "toolchain": "t",
                "cpu_ms": 0,
                "wall_ms": 0,
                "flags": ["limit:cpu", "style"],
            },
            "diagnostics": [
                {"stage": "types", "line": 3, "column": 1, "code": "E1", "message": "x" * 9000}
            ],
        }
    )
    told = render_verdict(result)
    assert told.startswith(
        "came as far as: types; no test ran\ntypes: line 3, column 1: error[E1]: xxx"
    )
    assert len(told) < 4100
    assert "limit:cpu" in render_verdict(result.model_copy(update={"diagnostics": ()}))
