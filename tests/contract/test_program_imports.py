"""`gradus tasks import` of problems for the program grader: rows as APPS, TACO, CodeContests,
LiveCodeBench, HumanEval and MBPP publish them, made up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from corpus.dataset_layouts import LAYOUTS, build_column_drafts, build_problem_layout
from corpus.files import load_rows
from corpus.humaneval import build_humaneval_drafts, resolve_language
from gradus.row_reader import Row
from tests.conftest import Cli

PROGRAMS = Path(__file__).parents[1] / "cases" / "corpus" / "programs"


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
    assert "a C++ program" in rows["0"].values["prompt"]
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
    assert "names builtins.print" in str(rows["abc900_b"].problem), "a pickle runs no function"
    assert capsys.readouterr().out == ""
    assert "is cut off" in str(rows["abc900_c"].problem)


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
    assert "python and cpp" in said.err
