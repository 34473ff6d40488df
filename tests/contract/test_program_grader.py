"""The program grader with the toolchains of this machine: verdicts as data, languages as data,
faults of tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from corpus.task_validation import validate
from gradus.contract import ProgramSubmission
from gradus.errors import InternalFault, Misuse
from gradus.row_reader import Row
from gradus.tasks.program import ProgramTask
from services.graders.program import doctor
from services.graders.program.checkers import CHECKERS, is_equal_json
from services.graders.program.config import load_config
from services.graders.program.grader import ProgramGrader
from services.sandbox import Command, Outcome
from services.sandbox.bubblewrap import Bubblewrap

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs/graders/program.yaml"
ANSWERS = yaml.safe_load((ROOT / "tests/cases/program/answers.yaml").read_text())
GRADUATED, GROUPS = "program/graduated@1", "program/first@1"


def submission(completion: str, **task: Any) -> ProgramSubmission:
    return ProgramSubmission.model_validate({"id": "a", "completion": completion, "task": task})


@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case["name"])
def test_an_answer_gets_its_verdict(program_grader: ProgramGrader, case: dict[str, Any]) -> None:
    language = case["task"].get("language", "python")
    if language not in program_grader.languages:
        pytest.skip(f"{language} is not installed")
    sent = submission(case["completion"], **case["task"])
    result = program_grader.grade(sent, GRADUATED, 0)
    assert result.reward == pytest.approx(case.get("reward", 1.0)), result
    assert result.passed is (result.reward == 1.0)
    if "groups" in case:
        assert program_grader.grade(sent, GROUPS, 0).reward == pytest.approx(case["groups"])
    words = [entry.code for entry in result.diagnostics if entry.code]
    assert words == case.get("words", words)
    assert case.get("told", "") in "\n".join(entry.message for entry in result.diagnostics)
    if "line" in case:
        assert result.diagnostics[0].line == case["line"]


def test_the_own_cases_hold(program_grader: ProgramGrader) -> None:
    program_grader.self_test()


@pytest.mark.parametrize("name", load_config().languages)
def test_every_language_runs_its_example(program_grader: ProgramGrader, name: str) -> None:
    if name not in program_grader.languages:
        pytest.skip(f"{name} is not installed")
    settings = program_grader.languages[name].settings
    answer = f"```{settings.fences[0]}\n{settings.example}\n```"
    cases = [{"stdin": "20 22\n", "stdout": "42"}, {"stdin": "-7 5\n", "stdout": "-2"}]
    result = program_grader.grade(submission(answer, language=name, cases=cases), GRADUATED, 0)
    assert result.reward == 1.0, result


def test_a_language_whose_example_fails_is_a_fault_and_others_are_graded(tmp_path: Path) -> None:
    settings = yaml.safe_load(CONFIG.read_text())
    settings["languages"]["perl"]["example"] = "print 41;"
    file = tmp_path / "program.yaml"
    file.write_text(yaml.safe_dump(settings))
    grader = ProgramGrader(file)
    cases = [{"stdout": "1"}]
    for _ in range(2):
        with pytest.raises(InternalFault, match="the example of perl .* fails: repair or remove"):
            grader.grade(submission("print 1;", language="perl", cases=cases), GRADUATED, 0)
    assert grader.grade(submission("print(1)", cases=cases), GRADUATED, 0).reward == 1.0


def test_a_language_is_added_by_a_configuration_file_alone(tmp_path: Path) -> None:
    settings = yaml.safe_load(CONFIG.read_text())
    settings["languages"] = {
        "awk": {
            "fences": ["awk"],
            "source": "main.awk",
            "run": ["awk", "-f", "{file}"],
            "version": ["bash", "--version"],
            "package": "mawk",
            "example": "{ print $1 + $2 }",
        }
    }
    file = tmp_path / "program.yaml"
    file.write_text(yaml.safe_dump(settings))
    grader = ProgramGrader(file)
    answer = submission(
        "```awk\n{ print 2 * $1 }\n```", language="awk", cases=[{"stdin": "4", "stdout": "8"}]
    )
    assert grader.grade(answer, GRADUATED, 0).reward == 1.0
    schema = grader.description().task_schema
    assert schema["properties"]["language"]["enum"] == ["awk"]


def test_a_language_that_is_not_installed_is_a_fault_that_names_its_package(
    tmp_path: Path,
) -> None:
    settings = yaml.safe_load(CONFIG.read_text())
    settings["languages"]["haskell"]["version"] = ["no-such-compiler"]
    file = tmp_path / "program.yaml"
    file.write_text(yaml.safe_dump(settings))
    grader = ProgramGrader(file)
    for language, remedy in (("haskell", "install ghc"), ("cobol", "add it to configs")):
        answer = submission("x", language=language, cases=[{"stdout": "1"}])
        with pytest.raises(InternalFault, match=remedy):
            grader.grade(answer, GRADUATED, 0)


def test_no_language_at_all_is_a_fault(tmp_path: Path) -> None:
    settings = yaml.safe_load(CONFIG.read_text())
    python = settings["languages"]["python"] | {"version": ["no-such-python"]}
    settings["languages"] = {"python": python}
    file = tmp_path / "program.yaml"
    file.write_text(yaml.safe_dump(settings))
    with pytest.raises(InternalFault, match="none of these languages is installed: python"):
        ProgramGrader(file)


def test_a_misspelt_setting_of_a_language_is_refused(tmp_path: Path) -> None:
    settings = yaml.safe_load(CONFIG.read_text())
    settings["languages"]["python"]["fence"] = ["py"]
    file = tmp_path / "program.yaml"
    file.write_text(yaml.safe_dump(settings))
    with pytest.raises(Misuse, match="languages.python.fence"):
        load_config(file)


@pytest.mark.parametrize(
    ("language", "checker", "reason"),
    [
        ("python", "import sys\nsys.exit(3)", "fails on the expected output"),
        ("c", "int main(void) { for (;;); }", "fails on the expected output"),
        ("python", "def (", "does not compile"),
    ],
)
def test_a_checker_that_does_not_work_is_a_fault(
    program_grader: ProgramGrader, language: str, checker: str, reason: str
) -> None:
    task = {"cases": [{"stdout": "1"}], "checker": {"language": language, "source": checker}}
    with pytest.raises(InternalFault, match=reason):
        program_grader.grade(submission("print(1)", **task), GRADUATED, 0)


def test_calls_of_a_language_without_them_are_a_fault(program_grader: ProgramGrader) -> None:
    task = {"language": "bash", "cases": [{"call": {"function": "f"}, "equals": 1}]}
    with pytest.raises(InternalFault, match="bash has no cases with `call`"):
        program_grader.grade(submission("f() { echo 1; }", **task), GRADUATED, 0)


@pytest.mark.parametrize(
    ("task", "reason"),
    [
        ({"cases": []}, "at least 1"),
        ({"cases": [{"stdin": "1"}]}, "either `stdout`"),
        ({"cases": [{"stdout": "1", "call": {"function": "f"}}]}, "either `stdout`"),
        ({"cases": [{"call": {"function": "f"}, "stdin": "1"}]}, "has no `stdin`"),
        ({"cases": [{"call": {"function": "os.abort"}}]}, "pattern"),
        ({"cases": [{"stdout": "1", "files": {"../x": ""}}]}, "pattern"),
        ({"cases": [{"stdout": "1"}], "points": {"a": 1}}, "no case is of the group 'a'"),
        ({"cases": [{"stdout": "1"}], "language": "C Sharp"}, "pattern"),
    ],
)
def test_a_task_that_cannot_be_judged_is_refused(task: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        ProgramTask.model_validate(task)


class CountingSandbox(Bubblewrap):
    """Counts the boxes that it makes: fresh ones, for cases too."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[Command] = []

    def create_grader(self) -> ProgramGrader:
        grader = ProgramGrader(sandbox=self)
        grader.boxes.cases = self
        return grader

    def run(self, command: Command) -> Outcome:
        self.commands.append(command)
        return super().run(command)


def test_one_text_is_compiled_once_and_what_does_not_compile_runs_no_case() -> None:
    sandbox = CountingSandbox()
    grader = sandbox.create_grader()
    cases = [{"stdin": "1", "stdout": "1"}, {"stdin": "2", "stdout": "2"}]
    for _ in range(2):
        grader.grade(submission("print(input())", cases=cases), GRADUATED, 0)
    example = 2
    assert len(sandbox.commands) == example + 1 + 2 + 2
    grader.grade(submission("print(", cases=cases), GRADUATED, 0)
    assert len(sandbox.commands) == example + 6


def test_no_box_of_an_answer_holds_an_expected_output() -> None:
    sandbox = CountingSandbox()
    grader = sandbox.create_grader()
    cases = [
        {"stdin": "1", "stdout": "secret-1"},
        {"call": {"function": "f", "arguments": [1]}, "equals": "secret-2"},
    ]
    grader.grade(submission("def f(x): return x", cases=cases), GRADUATED, 0)
    assert len(sandbox.commands) == 2 + 3
    assert "secret" not in repr(sandbox.commands)


def test_the_doctor_names_languages_and_packages_that_are_missing() -> None:
    told = doctor.look()
    assert "python (Python 3." in told
    assert "languages:" in told


@pytest.mark.parametrize("kind", CHECKERS)
def test_comparing_long_outputs_costs_no_more_than_their_length(kind: str) -> None:
    text = "1.5 " * 200_000
    assert CHECKERS[kind](text, text, 0.0)
    assert not CHECKERS[kind](text + "x", text, 0.0)


def test_json_is_compared_however_deep_it_is() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    assert is_equal_json(deep, deep, 0.0)
    assert not is_equal_json({"a": [1, 2]}, {"a": [1, 2.1]}, 0.0)
    assert is_equal_json(10**400, 10**400, 0.0)
    assert not is_equal_json(10**400, 1.0, 0.0)


def test_tasks_are_validated_in_their_languages(program_grader: ProgramGrader) -> None:
    cases = [{"stdin": "2", "stdout": "4"}]
    rows = [
        {"language": "python", "cases": cases, "solution": "print(2 * int(input()))"},
        {"task": {"language": "bash", "cases": cases}, "solution": "read n; echo $((2 * n))"},
        {"language": "python", "cases": cases, "solution": "print(5)"},
        {"language": "python", "cases": cases, "solution": "print(4)", "stub": "print(2 + 2)"},
    ]
    placed = []
    for number, row in enumerate(rows):
        placed.append(Row(f"row {number}", {"id": f"r{number}", "prompt": f"{number}", **row}))
    found = [finding.problems for finding in validate(placed, "program", program_grader)]
    assert found[:2] == [[], []]
    assert "not 1.00: case 1 of 1: the output is not the expected one" in found[2][0]
    assert found[3] == ["stub passes all tests: they prove nothing"]
