"""`gradus tasks import` of problems for the program grader: rows as APPS, TACO, CodeContests,
LiveCodeBench, SandboxFusion, HumanEval and MBPP publish them, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from corpus.dataset_layouts import LAYOUTS, build_column_drafts, build_problem_layout
from corpus.files import load_rows
from corpus.humaneval import build_humaneval_drafts, resolve_language
from corpus.import_validation import check_rows
from corpus.program_problems import STUBS
from corpus.public_tests import publish
from corpus.task_rows import build_submission, extract_task
from gradus.contract import Graded
from gradus.row_reader import Row
from services.graders.program.grader import ProgramGrader
from services.local_grading import grade_in_order
from tests.conftest import Cli

PROGRAMS = Path(__file__).parents[1] / "cases" / "corpus" / "programs"
ANSWERS = yaml.safe_load((PROGRAMS / "answers.yaml").read_text())
WRONG_REFERENCES = {("apps", "5")}


def convert(layout: str, language: str = "python") -> dict[str, Row]:
    """Return the rows of tasks by id, with their problems."""
    rows = load_rows(PROGRAMS / f"{layout.replace('-', '_')}.jsonl")
    if layout == "humaneval_python":
        drafts = build_humaneval_drafts(rows, resolve_language(rows, None))
    elif layout in LAYOUTS:
        drafts = build_column_drafts(rows, LAYOUTS[layout])
    else:
        drafts = build_column_drafts(rows, build_problem_layout(layout, language))
    return {row.values["id"]: row for row in drafts}


def make_call(function: str, *arguments: Any, equals: Any) -> dict[str, Any]:
    return {"call": {"function": function, "arguments": list(arguments)}, "equals": equals}


def test_apps_has_programs_and_functions() -> None:
    rows = convert("apps")
    sums = rows["0"].values
    assert sums["cases"] == [
        {"stdin": "1 2\n", "stdout": "3\n"},
        {"stdin": "5 -3\n", "stdout": "2\n"},
    ]
    assert sums["solution"].startswith("a, b = map"), "the first solution is in Python 2"
    assert sums["language"] == "python"
    assert sums["difficulty"] == "introductory"
    assert "reads standard input" in sums["prompt"]
    largest = rows["1"].values
    assert largest["cases"] == [
        make_call("largest", [1, 5, 2], equals=5),
        make_call("largest", [-4, -7], equals=-4),
    ]
    assert "defines `largest`" in largest["prompt"]
    assert "class Solution:" in largest["prompt"]
    assert rows["2"].values["cases"] == [{"stdin": "2\na\nb", "stdout": "b\na"}]
    assert rows["3"].problem == "has no tests"
    assert rows["4"].problem == "has 2 inputs and 1 outputs"


def test_functions_are_not_asked_in_other_languages() -> None:
    rows = convert("apps", "cpp")
    assert "call a Python function" in str(rows["1"].problem)
    assert "a program in C++" in rows["0"].values["prompt"]
    assert "solution" not in rows["0"].values, "the solutions of APPS are in Python"


def test_taco_has_limits() -> None:
    [row] = convert("taco").values()
    assert row.values["limits"] == {"cpu_s": 2.0, "memory_mb": 256}
    assert row.values["source"] == "codeforces"


@pytest.mark.parametrize(
    ("language", "beginning"), [("python", "print(len"), ("cpp", "#include <iostream>")]
)
def test_code_contests(language: str, beginning: str) -> None:
    rows = convert("code-contests", language)
    words = rows["900_A.-Words"].values
    assert words["solution"].startswith(beginning)
    assert words["public_cases"] == [{"stdin": "a b\n", "stdout": "2\n"}]
    assert [case["stdout"] for case in words["cases"]] == ["1\n", "4\n"]
    assert words["limits"] == {"cpu_s": 1.5, "memory_mb": 244}
    assert words["source"] == "Codeforces"
    assert "named file" in str(rows["901_B.-Named-files"].problem)
    repeated = rows["903_D.-Shown-twice"].values
    assert [case["stdout"] for case in repeated["cases"]] == ["1\n", "4\n"], "2 is public"
    public_only = rows["902_C.-Public-only"].values
    assert public_only["cases"] == [{"stdin": "a b\n", "stdout": "2\n"}]
    assert not {"public_cases", "limits", "solution"} & public_only.keys()


def test_livecodebench(capsys: pytest.CaptureFixture[str]) -> None:
    rows = convert("livecodebench")
    twice = rows["abc900_a"].values
    assert twice["public_cases"] == [{"stdin": "3\n", "stdout": "6\n"}]
    assert [case["stdin"] for case in twice["cases"]] == ["5\n", "0\n"]
    assert (twice["title"], twice["source"]) == ("Twice", "atcoder")
    pairs = rows["9001"].values
    assert pairs["cases"] == [make_call("pairSums", [], [], equals=[])]
    assert pairs["public_cases"] == [make_call("pairSums", [1, 2], [3, 4], equals=[4, 6])]
    assert "more than a text: STACK_GLOBAL" in str(rows["abc900_b"].problem)
    assert capsys.readouterr().out == "", "a pickle runs no function"
    assert "is cut off" in str(rows["abc900_c"].problem)
    assert rows["abc900_d"].problem is None, "a place in the memo takes no memory"
    assert "more than a text: EMPTY_LIST" in str(rows["abc900_e"].problem)


def test_common_oj_has_files_and_numbers() -> None:
    rows = convert("common-oj")
    mean = rows["0"].values
    assert mean["cases"][0] == {"stdin": "1 2\n", "stdout": "1.5\n"}
    assert mean["checker"] == "floats", "outputs hold fractions"
    assert (mean["title"], mean["source"], mean["difficulty"]) == ("mean", "CODECHEF", "MEDIUM")
    assert convert("common-oj", "cpp")["0"].values["solution"].startswith("#include")
    assert rows["1"].values["cases"][0]["files"] == {"words.txt": "b\na\n"}
    assert "checker" not in rows["1"].values
    assert "writes files: out.txt" in str(rows["2"].problem)
    assert "'Testlib'" in str(rows["3"].problem)
    assert "without `input` or `output.stdout`" in str(rows["4"].problem)


def test_humaneval_in_python() -> None:
    rows = convert("humaneval_python")
    sums = rows["HumanEval-900"].values
    assert sums["cases"] == [
        make_call("add_all", [1, 2], equals=3),
        make_call("add_all", [], equals=0),
    ]
    assert sums["group"] == "humaneval/900"
    assert sums["solution"].endswith('"""\n    return sum(x)\n')
    assert [case["equals"] for case in rows["HumanEval-901"].values["cases"]] == [True, False]
    assert rows["HumanEval-902"].values["tolerance"] == 1e-4
    assert rows["HumanEval-903"].values["cases"][0]["equals"] == [1, 2]
    assert "more than assertions: `for i" in str(rows["HumanEval-904"].problem)
    assert "JSON has no set" in str(rows["HumanEval-905"].problem)
    assert "JSON has no tuple" in str(rows["HumanEval-906"].problem), "a list is another argument"
    third = rows["HumanEval-907"].values["cases"]
    assert third == [make_call("third", 2, equals=2 / 3), make_call("third", 24, equals=8)]
    assert "more than literals" in str(rows["HumanEval-908"].problem), "a power that never ends"


def test_mbpp_shows_one_assertion_and_hides_the_others() -> None:
    rows = convert("mbpp")
    triple = rows["901"].values
    assert triple["public_cases"] == [make_call("triple", 1, equals=3)]
    assert [case["equals"] for case in triple["cases"]] == [-6, 0, 30]
    assert "assert triple(1) == 3" in triple["prompt"]
    assert "-6" not in triple["prompt"]
    assert rows["902"].values["cases"] == [make_call("turn", "", equals="")]
    assert "imports of their own" in str(rows["903"].problem)
    assert "more than literals" in str(rows["904"].problem)


def test_a_language_without_importers_is_refused(gradus: Cli, tmp_path: Path) -> None:
    argv = ("--format", "apps", "--language", "cobol", "-o", tmp_path / "out.jsonl")
    said = gradus("tasks", "import", PROGRAMS / "apps.jsonl", *argv)
    assert said.status == 2
    assert "choose one of python, cpp" in said.err


@pytest.mark.parametrize("layout", ANSWERS)
def test_imported_tasks_take_right_answers_and_no_wrong_ones(
    program_grader: ProgramGrader, layout: str
) -> None:
    rows = [row for row in convert(layout).values() if row.problem is None]
    findings = check_rows(rows, "program", program_grader)
    bad = {(layout, finding.row.values["id"]) for finding in findings if finding.problems}
    assert bad == {place for place in WRONG_REFERENCES if place[0] == layout}
    tasks = {row.values["id"]: extract_task(row.values, "program") for row in rows}
    submissions = []
    for name, answers in ANSWERS[layout].items():
        submissions.append(build_submission("program", answers["right"], tasks[name]))
        submissions.append(build_submission("program", answers["wrong"], tasks[name]))
    for number, result in enumerate(
        grade_in_order(program_grader, submissions, "program/graduated@1", None)
    ):
        assert isinstance(result, Graded), result
        assert result.stage == "tests"
        assert result.passed is (number % 2 == 0), (submissions[number].completion, result)


def test_a_share_of_the_cases_becomes_public(program_grader: ProgramGrader) -> None:
    tasks = convert("apps")
    rows = [tasks[name] for name in ("0", "1", "2", "5")]
    changed, calls, *others = publish(rows, "program", program_grader, 0.25, 3, seed=42)
    for finding, row in ((changed, rows[0]), (calls, rows[1])):
        hidden, public = (finding.row.values[name] for name in ("cases", "public_cases"))
        assert len(hidden) == len(public) == 1
        assert sorted(map(repr, hidden + public)) == sorted(map(repr, row.values["cases"]))
    assert [finding.problems for finding in others] == [
        ["has no tests or no solution"],
        ["has a single test, which stays hidden"],
    ]
    [again] = publish([changed.row], "program", program_grader, 0.25, 3, seed=42)
    assert again.problems == ["has public tests already"]
    [found] = check_rows([changed.row], "program", program_grader)
    assert found.problems == []
    shown = {**changed.row.values, "cases": rows[0].values["cases"]}
    wrong = {**shown, "public_cases": [{"stdin": "1 2", "stdout": "4"}]}
    changed_rows = [Row("a:1", shown), Row("a:2", {**wrong, "id": "b", "prompt": "p"})]
    repeats, fails = check_rows(changed_rows, "program", program_grader)
    assert repeats.problems == ["public_cases: number 1 is also among the hidden cases"]
    assert "the reference answer, on its public cases, gets" in fails.problems[0]


def test_a_program_that_does_nothing_compiles_in_every_language(
    program_grader: ProgramGrader,
) -> None:
    assert STUBS.keys() <= program_grader.config.languages.keys()
    task = {"cases": [{"stdin": "1", "stdout": "1"}]}
    for language in STUBS.keys() & program_grader.languages.keys():
        sent = build_submission("program", STUBS[language], {**task, "language": language})
        result = program_grader.grade(sent, "program/graduated@1", 0)
        assert (result.stage, result.passed) == ("tests", False), (language, result)
