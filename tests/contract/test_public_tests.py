"""Feedback to repair from: it quotes public tests that fail, and over all corpora no constant of a
hidden test."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from corpus.drafts import Unusable
from corpus.public_tests import SINGLE_TESTS, split_ocaml_tests, split_rust_tests
from corpus.task_rows import wrap_in_fence
from gradus.contract import Graded, Stage, get_submission_class
from gradus.feedback import render_next_turn
from gradus.resources import configs
from gradus.tasks.ocaml import OcamlTask
from gradus.tasks.rust import RustTask
from services.graders.base import Grader
from services.graders.base.grader import FAILS
from services.graders.ocaml.grader import OcamlGrader
from services.graders.ocaml.values import value_text as ocaml_value
from services.graders.rust.grader import RustGrader
from services.graders.rust.values import value_text as rust_value
from services.graders.story.grader import StoryGrader
from tests.conftest import Cli
from trainer.data.demo_tasks import generate_demo_rows

OCAML = {
    "tests": "let () = assert (f 41 = 42)\nlet () = assert (f 0 = 1)",
    "signature": "val f : int -> int",
}
PUBLIC = ["let () = assert (f 2 = 3)", "let () = assert (f 0 = 0)", "let () = assert (f (-7) = -6)"]


def graded(grader: Grader, name: str, task: Mapping[str, Any], answer: str) -> Graded:
    given = {"id": "a", "completion": wrap_in_fence(name, answer), "task": task}
    return grader.grade(
        get_submission_class(name).model_validate(given), grader.info().rubrics[0], 0
    )


# ---------------------------------------------------------------------- public tests


def test_failing_public_tests_are_quoted_and_change_no_reward(ocaml_grader: OcamlGrader) -> None:
    plain = graded(ocaml_grader, "ocaml", OCAML, "let f x = x")
    told = graded(ocaml_grader, "ocaml", {**OCAML, "public_tests": PUBLIC}, "let f x = x")
    assert (told.reward, told.tests, told.passed) == (plain.reward, plain.tests, plain.passed)
    said = render_next_turn("ocaml", told, wrap_in_fence("ocaml", "let f x = x"))
    assert [test in said for test in PUBLIC] == [True, False, True]
    assert "this public test fails" not in render_next_turn("ocaml", plain, "let f x = x")


def test_a_public_test_never_decides(ocaml_grader: OcamlGrader) -> None:
    """The second one is wrong, and the answer still passes; an answer that fails the hidden tests
    still fails."""
    right = graded(ocaml_grader, "ocaml", {**OCAML, "public_tests": PUBLIC}, "let f x = x + 1")
    assert (right.reward, right.passed, right.diagnostics) == (1.0, True, ())
    only = graded(ocaml_grader, "ocaml", {**OCAML, "public_tests": PUBLIC[:1]}, "let f _ = 3")
    assert (only.passed, only.tests and only.tests.passed) == (False, 0)


def test_a_run_that_meets_its_limit_is_the_last(ocaml_grader: OcamlGrader) -> None:
    task = {**OCAML, "public_tests": PUBLIC, "limits": {"cpu_s": 0.2}}
    told = graded(ocaml_grader, "ocaml", task, "let f x = while true do () done; x")
    assert sum("this public test fails" in one.message for one in told.diagnostics) == 1
    assert any("limit:cpu" in one.message for one in told.diagnostics)


def test_failing_public_tests_of_rust_are_quoted(rust_grader: RustGrader) -> None:
    public = "#[test]\nfn p() { assert_eq!(solution::f(2), 3); }"
    task = {
        "tests": "#[test]\nfn a() { assert_eq!(solution::f(41), 42); }",
        "public_tests": [public],
    }
    told = graded(
        rust_grader,
        "rust",
        {**task, "signature": "pub fn f(x: i64) -> i64;"},
        "pub fn f(x: i64) -> i64 { x }",
    )
    said = render_next_turn("rust", told, "pub fn f(x: i64) -> i64 { x }")
    assert public in said
    assert "the answer gives 2" in said
    assert "41" not in said


# ---------------------------------------------------------------------- what an answer gives

VALUES = {
    "ocaml": [
        ("val f : int -> int", "let () = assert (f 2 = 3)", "let f x = -x", "(-2)"),
        ("val f : int -> int list", "let () = assert (f 2 = [])", "let f x = [x; -x]", "[2; (-2)]"),
        (
            "val f : int -> (int * char) option",
            "let () = assert (f 2 = None)",
            "let f x = Some (x, 'a')",
            None,
        ),
        (
            "val f : int -> (int * string) option",
            "let () = assert (f 2 = None)",
            'let f x = Some (x, "b")',
            '(Some (2, "b"))',
        ),
        ("val f : int -> bool", "let () = assert (f 2 = true)", "let f x = x = 3", "false"),
        ("val f : float -> float", "let () = assert (f 2. = 3.)", "let f x = -.x /. 4.", "(-0.5)"),
        ("val f : int -> unit", "let () = assert (f 2 = ())", 'let f _ = failwith ""', None),
        ("val f : int -> int array", "let () = assert (f 2 = [|1|])", "let f x = [|x|]", None),
    ],
    "rust": [
        (
            f"pub fn f(x: i64) -> {kind};",
            f"#[test]\nfn p() {{ assert_eq!(solution::f(2), {expected}); }}",
            f"pub fn f(x: i64) -> {kind} {{ {body} }}",
            value,
        )
        for kind, expected, body, value in (
            ("i64", "-3", "-x", "-2"),
            (
                "Vec<Option<(i64, String)>>",
                "vec![]",
                'vec![None, Some((x, "a b".into()))]',
                '[None, Some((2, "a b"))]',
            ),
            ("Result<char, bool>", "Err(true)", "Ok(if x > 0 { 'a' } else { 'b' })", "Ok('a')"),
            ("f64", "1.5", "x as f64 / 4.0", "0.5"),
        )
    ],
}


@pytest.mark.parametrize("name", VALUES)
def test_values_are_shown_as_the_language_writes_them(
    name: str, request: pytest.FixtureRequest
) -> None:
    grader: Grader = request.getfixturevalue(f"{name}_grader")
    for signature, test, answer, value in VALUES[name]:
        task = {"tests": test.replace("2", "7"), "signature": signature, "public_tests": [test]}
        assert gives(graded(grader, name, task, answer)) == ([value] if value else [])


def gives(result: Graded) -> list[str]:
    """The values that the feedback shows."""
    return re.findall(
        r"^the answer gives (.*)$",
        "\n".join(one.message for one in result.diagnostics),
        re.MULTILINE,
    )


@pytest.mark.parametrize(
    "word", ["", "zz", "00", "322c", "30283a", "5b3939", "7b2d31", "20536938", "2053" * 60, "69"]
)
def test_words_of_another_form_have_no_value(word: str) -> None:
    """They come from the answer's process."""
    task = OcamlTask(
        tests="let () = assert (f 2 = 3)", signature="val f : int -> (int * int list) option"
    )
    assert ocaml_value(task, word) is None
    assert rust_value(RustTask(tests="#[test] fn a() {}"), word) is None


@pytest.mark.parametrize("name", ["ocaml", "rust"])
def test_no_value_of_a_hidden_test_leaves_the_graders(
    name: str, request: pytest.FixtureRequest
) -> None:
    """Neither graders nor the report know what an answer gives in a hidden test."""
    grader: Any = request.getfixturevalue(f"{name}_grader")
    row = next(generate_demo_rows(f"demo:{name}"))
    wrong = row["solution"].replace("+", "-")
    for public in ([], [row["tests"] + "\n"]):
        task = {"tests": row["tests"], "signature": row["signature"], "public_tests": public}
        made = get_submission_class(name).model_validate(
            {"id": "a", "completion": wrap_in_fence(name, wrong), "task": task}
        )
        facts, _ = grader.facts(made, 0)
        assert (facts.tests.passed, facts.got) == (0, ())
    shown = made.model_copy(
        update={"task": made.task.model_copy(update={"public_tests": (row["tests"],)})}
    )
    assert len(grader.facts(shown, 0)[0].got) > 0  # the same tests, public


# ---------------------------------------------------------------------- hidden constants

NUMBER = re.compile(r"\d+")
OWN = re.compile(
    r"\d+ of \d+|lines? \d+(-\d+)?|column \d+|characters \d+-\d+|^\d+ \||after [\d.]+ s|reward"
    r" [\d.]+ of 1|E0\d{3}",
    re.MULTILINE,
)
"""Numbers that feedback makes itself: counts, places, limits and codes of rustc."""


def leaked(said: str, hidden: str, visible: str) -> set[str]:
    """Constants of the hidden tests that stand in `said` and nowhere where the model could have
    read them."""
    seen = OWN.sub("", said)
    words = re.compile(r'"([^"\n]{3,})"')
    numbers = (set(NUMBER.findall(hidden)) - set(NUMBER.findall(visible))) & set(
        NUMBER.findall(seen)
    )
    texts = {text for text in words.findall(hidden) if text in seen and text not in visible}
    return numbers | texts


def code_rows(name: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Rows of the shipped corpus with an answer that does nothing, and of the demo with that of
    another task."""
    for line in (configs() / "tasks" / f"{name}.jsonl").read_text().splitlines():
        row = json.loads(line)
        if not row.get("dependencies"):  # crates that a test machine has not built
            yield row, row.get("stub") or row["solution"]
    rows = list(generate_demo_rows(f"demo:{name}"))
    for row, other in list(zip(rows, rows[1:] + rows[:1], strict=True))[
        :: 1 if name == "ocaml" else 16
    ]:
        yield row, other["solution"]


@pytest.mark.parametrize(
    ("name", "every", "least"),
    [("ocaml", 1, 20), pytest.param("rust", 2, 6, marks=pytest.mark.slow)],
)
def test_what_public_tests_show_does_not_depend_on_hidden_ones(
    name: str, every: int, least: int, request: pytest.FixtureRequest
) -> None:
    """Over all corpora: the same answer, the same public test, and hidden tests that have no test
    in common."""
    grader: Grader = request.getfixturevalue(f"{name}_grader")
    fields = set(get_submission_class(name).model_fields["task"].annotation.model_fields)  # type: ignore[union-attr]
    shown = values = 0
    for row, answer in list(code_rows(name))[::every]:
        task = row.get("task") or {key: value for key, value in row.items() if key in fields}
        try:
            public, *hidden = dict.fromkeys(SINGLE_TESTS[name](task.get("tests") or ""))
        except Unusable:
            continue
        if len(hidden) < 2:
            continue
        said = []
        for half in (hidden[::2], hidden[1::2]):
            tests = half[0] if name == "rust" else "\n".join(half)
            result = graded(
                grader, name, {**task, "tests": tests, "public_tests": [public]}, answer
            )
            if result.passed or result.stage is not Stage.TESTS:
                break
            said.append(
                [one.message for one in result.diagnostics if one.message.startswith(FAILS)]
            )
        if len(said) == 2:
            assert said[0] == said[1], row["id"]
            shown, values = shown + bool(said[0]), values + ("the answer gives" in "".join(said[0]))
    assert shown >= least
    assert values >= least


@pytest.mark.parametrize("name", ["ocaml", pytest.param("rust", marks=pytest.mark.slow)])
def test_no_feedback_holds_a_hidden_constant(name: str, request: pytest.FixtureRequest) -> None:
    grader: Grader = request.getfixturevalue(f"{name}_grader")
    fields = set(get_submission_class(name).model_fields["task"].annotation.model_fields)  # type: ignore[union-attr]
    leaks = {}
    said_of_tests = 0
    for row, answer in code_rows(name):
        task = row.get("task") or {key: value for key, value in row.items() if key in fields}
        verdict = graded(grader, name, task, answer)
        if verdict.passed:  # there is no turn after it
            continue
        said = render_next_turn(name, verdict, wrap_in_fence(name, answer))
        said_of_tests += "tests pass" in said
        hidden = json.dumps([task.get("tests"), task.get("cases")]).replace('\\"', '"')
        if found := leaked(
            said,
            hidden,
            json.dumps([row["prompt"], answer, task.get("signature"), task.get("files")]),
        ):
            leaks[row["id"]] = found
    assert not leaks
    assert said_of_tests > 40, "the answers of this test come as far as the tests"


def test_the_check_for_hidden_constants_finds_one(ocaml_grader: OcamlGrader) -> None:
    task = {**OCAML, "public_tests": ["let () = assert (f 41 = 42)"]}
    said = render_next_turn(
        "ocaml", graded(ocaml_grader, "ocaml", task, "let f x = x"), "let f x = x"
    )
    assert leaked(said, OCAML["tests"], "let f x = x") == {"41", "42"}


def test_no_feedback_holds_a_reference_story(story_grader: StoryGrader) -> None:
    rows = [
        json.loads(line) for line in (configs() / "tasks" / "story.jsonl").read_text().splitlines()
    ]
    rows += list(generate_demo_rows("demo:story"))[:20]
    answer = "As a user, I want a thing, so that it works.\nAs a user, I want never to see it."
    for row in rows:
        task = row.get("task") or {"references": row.get("references") or row["formatted_issues"]}
        verdict = graded(story_grader, "story", task, answer)
        said = render_next_turn("story", verdict, answer)
        visible = f"{row.get('prompt')} {row.get('sprint_goal')} {answer}"
        submission = get_submission_class("story").model_validate(
            {"id": "a", "completion": "", "task": task}
        )
        for words in (one.split() for one in submission.task.references):
            runs = {" ".join(words[at : at + 4]) for at in range(len(words) - 3)}
            assert not [run for run in runs if run in said and run not in visible]
        assert "wants that the sprint needs are missing" in said


# ---------------------------------------------------------------------- public tests are made


def test_single_tests_of_ocaml_and_rust() -> None:
    tests = (
        'let () =\n  assert (f "a;b" = 1);\n  assert (f "" = 0);;\nlet () = assert (f "x" = 2)\n'
    )
    assert split_ocaml_tests(tests) == [
        'let () = assert (f "a;b" = 1)',
        'let () = assert (f "" = 0)',
        'let () = assert (f "x" = 2)',
    ]
    file = (
        "use solution::f;\n\n#[test]\nfn a() {\n    assert!(f());\n}\n\n#[test]\nfn b() {"
        " assert!(!f()); }\n"
    )
    assert [one.count("#[test]") for one in split_rust_tests(file)] == [1, 1]
    assert all(one.startswith("use solution::f;\n") for one in split_rust_tests(file))


@pytest.mark.parametrize(
    "tests",
    [
        "let cases = [1, 2]\nlet () = assert (f 1 = 2)",
        "let () = let x = 1 in assert (f x = 2)",
        "let () = List.iter (fun x -> assert (f x = 1)) [1]; assert (f 1 = 1)",
    ],
)
def test_tests_that_share_something_stay_hidden(tests: str) -> None:
    with pytest.raises(Unusable):
        split_ocaml_tests(tests)


@pytest.mark.slow
def test_published_tests_are_no_longer_hidden_and_the_task_stays_usable(
    gradus: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "tasks.jsonl"
    out = tmp_path / "out.jsonl"
    rows = list(generate_demo_rows("demo:ocaml"))[:3]
    uncut = {**rows[0], "id": "uncut", "prompt": "p", "tests": "let x = 1\n" + rows[0]["tests"]}
    given = [*rows, uncut]
    file.write_text(
        "".join(json.dumps({**row, "stub": 'let f _ = failwith ""'}) + "\n" for row in given)
    )
    assert gradus("tasks", "publish", file, "--out", out, "--share", "0.4").status == 0
    *lines, last = out.read_text().splitlines()
    assert json.loads(last) == {**uncut, "stub": 'let f _ = failwith ""'}
    for row, line in zip(rows, lines, strict=True):
        made = json.loads(line)
        assert len(made["public_tests"]) == 2
        assert (
            len(split_ocaml_tests(made["tests"])) == len(set(split_ocaml_tests(row["tests"]))) - 2
        )
        assert not {*made["public_tests"]} & {*split_ocaml_tests(made["tests"])}
    got = gradus("tasks", "validate", out)
    assert got.status == 0, got.out
