"""A grader of another distribution: found by its entry point, on the same base as those that ship
with Gradus."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradus.contract import RawSubmission, Stage, get_submission_class
from gradus.errors import InternalFault, UnknownGrader
from services.graders.base import find_installed_graders, get_default_slots, load
from tests.conftest import Cli
from tests.graders import GRADERS

GRADER = """
from pathlib import Path
from gradus.contract import Stage, TestCount
from gradus.tasks.base import Task
from services.graders.base.code import CodeFacts
from services.graders.base.grader import BaseGrader
from services.graders.base.rubric import Rubrics
from services.graders.base.config_loader import GraderConfig, read_settings

HERE = Path(__file__).parent

class ToyTask(Task):
    wanted: str

class ToyGrader(BaseGrader[ToyTask, CodeFacts]):
    name = "toy"
    task = ToyTask
    shipped = Rubrics({"toy/strict@1": lambda facts: {"tests": float(facts.passed)}}, ("tests",), measures={})
    stages = (Stage.EXTRACT, Stage.TESTS)

    def __init__(self, config=None):
        file = config or HERE / "toy.yaml"
        self.identify(read_settings(GraderConfig, "toy", file), file, toolchain="toy 1")

    def facts(self, submission, slot=0, rubric=""):
        right = submission.task.wanted in submission.completion
        return CodeFacts(Stage.TESTS, tests=TestCount(passed=int(right), total=1)), 0.0
"""  # noqa: E501
CASES = """
- {name: pass, completion: "a b", task: {wanted: a}, expect: {passed: true, stage: tests, reward: [1, 1]}}
- {name: fail, completion: "b", task: {wanted: a}, expect: {passed: false, stage: tests, reward: [0, 0]}}
"""  # noqa: E501


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of the grader's package, which is installed while the test runs."""
    package = tmp_path / "toy_grader"
    about = tmp_path / "toy_grader-1.0.dist-info"
    for file, text in {
        package / "__init__.py": "",
        package / "grader.py": GRADER,
        package / "cases.yaml": CASES,
        package / "toy.yaml": "rubric: toy/strict@1\n",
        about / "METADATA": (
            "Metadata-Version: 2.1\nName: toy-grader\nVersion: 1.0\nProvides-Extra: toy\n"
        ),
        about / "entry_points.txt": "[gradus.graders]\ntoy = toy_grader.grader:ToyGrader\n",
    }.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield package
    for module in [name for name in sys.modules if name.partition(".")[0] == "toy_grader"]:
        del sys.modules[module]


def test_an_installed_grader_is_found_proves_itself_and_grades(toy: Path) -> None:
    found = list(find_installed_graders())  # and those of others that are installed here
    assert [name for name in found if name in {*GRADERS, "toy"}] == [*GRADERS, "toy"]
    grader = load("toy")
    grader.self_test()
    right = RawSubmission(id="a", completion="a", task={"wanted": "a"})
    graded = grader.grade(right, "toy/strict@1", 0)
    assert (graded.reward, graded.stage, graded.grader) == (1.0, Stage.TESTS, grader.info().grader)
    assert grader.description().task_schema["required"] == ["wanted"]
    assert get_default_slots(grader) >= 1


def test_a_submission_of_the_sdk_that_has_no_class_for_its_task_is_graded(toy: Path) -> None:
    given = get_submission_class("toy").model_validate(
        {"id": "a", "completion": "a", "task": {"wanted": "a"}}
    )
    assert load("toy").grade(given, "toy/strict@1", 0).passed
    wrong = get_submission_class("toy").model_validate({"id": "a", "completion": "a", "task": {}})
    with pytest.raises(InternalFault, match="this task cannot be judged: wanted: Field required"):
        load("toy").grade(wrong, "toy/strict@1", 0)


ATTACKS = """
task: {wanted: a}
right: a
tests: 1
unearned: 0.0
attacks:
- {name: says_nothing, must not: pass, completion: b}
- {name: says_it_once_more, must not: pass, completion: "@2 times a#@"}
"""


def test_its_attacks_are_beside_it(toy: Path, gradus: Cli) -> None:
    assert "there is no corpus of attacks on the grader 'toy'" in gradus("attack", "toy").err
    (toy / "attacks").mkdir()
    (toy / "attacks" / "corpus.yaml").write_text(ATTACKS)
    attacked = gradus("attack", "toy", "--quiet")
    assert attacked.status == 1
    assert attacked.out.splitlines() == [
        "held    tests    0.00  says_nothing                     must not pass",
        "THROUGH tests    1.00  says_it_once_more                must not pass",
        "        got 1 tests, having earned 0",
        "1 of 2 attacks held",
    ]
    (toy / "attacks" / "corpus.yaml").write_text(ATTACKS.replace("must not: pass, ", "", 1))
    refused = gradus("attack", "toy")
    assert refused.status == 2
    assert (
        "corpus.yaml: says_nothing: gives no name or completion, or does not say what must not"
        " happen" in refused.err
    )


def test_its_revision_is_of_its_package_and_of_what_it_uses_of_ours(toy: Path) -> None:
    first = load("toy").info().revision
    (toy / "words.txt").write_text("another")
    assert load("toy").info().revision != first


def test_its_cases_are_held_against_it(toy: Path) -> None:
    (toy / "cases.yaml").write_text(CASES.replace("reward: [1, 1]", "reward: [0, 0]"))
    with pytest.raises(
        InternalFault, match="this grader fails its own cases: case 'pass' got reward 1.0"
    ):
        load("toy").self_test()


def test_a_package_that_it_lacks_is_named_with_what_to_install(toy: Path) -> None:
    (toy / "grader.py").write_text("import not_there_at_all\n")
    with pytest.raises(
        InternalFault,
        match=r"toy grader needs the package not_there_at_all: pip install 'toy-grader\[",
    ):
        load("toy")


def test_without_it_nothing_is_known_of_it() -> None:
    with pytest.raises(
        UnknownGrader,
        match="there is no grader 'toy'; there are: ocaml, rust, story, program, preference",
    ):
        load("toy")
