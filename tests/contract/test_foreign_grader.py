"""A grader of another distribution: found by its entry point, on the same base as those that ship
with Gradus."""

from __future__ import annotations

import itertools
import json
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_openai_server import OpenAiLike

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


def test_its_attacks_serve_against_another_reward_function(toy: Path, gradus: Cli) -> None:
    """The function sees only its own folder, so the toy's package is no help to it."""
    (toy / "attacks").mkdir()
    (toy / "attacks" / "corpus.yaml").write_text(ATTACKS)
    other = toy.parent / "other"
    other.mkdir(mode=0o755)
    source = "def f(completions, wanted, **rest): return [float(wanted[0] in completions[0])]"
    (other / "other_rewards.py").write_text(source)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(other)
        words = ("attack", "toy", "--target", "other_rewards:f", "--quiet")
        attacked, as_json = gradus(*words), gradus(*words, "--json")
    assert attacked.status == as_json.status == 1
    assert attacked.out.splitlines()[-2:] == [
        "CREDITED   1.00  says_it_once_more                    must not pass",
        "1 attacks credited, 1 held, 0 without a reward; 0 of 3 honest answers refused; 0 of other"
        " languages skipped",
    ]
    about = json.loads(as_json.out)
    assert about["counts"]["credited"] == 1
    assert [one["outcome"] for one in about["results"]] == [
        *["accepted"] * 3,
        *["held"] * 2,
        "credited",
    ]


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


@pytest.fixture
def toy_tasks(tmp_path: Path) -> Path:
    """Rows with the fields of the toy's task as columns."""
    path = tmp_path / "tasks.jsonl"
    rows = []
    for word in ("apple", "pear", "plum"):
        about = {"id": word, "prompt": f"Name the fruit {word}."}
        rows.append({**about, "wanted": word, "solution": f"A {word}.", "stub": "Nothing."})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_model_is_evaluated_on_its_tasks(
    toy: Path, toy_tasks: Path, gradus: Cli, tmp_path: Path
) -> None:
    """One of four completions names the apple, three the pear and none the plum: pass@k by Chen et
    al. 2021."""
    out = tmp_path / "evaluation"
    argv = ("--grader", "toy", "--samples", "4", "--no-greedy", "--out", out)
    asked: dict[str, Iterator[int]] = defaultdict(itertools.count)
    with OpenAiLike(lambda text, *_: "pear" if next(asked[text]) else "apple").serving() as like:
        said = gradus("eval", toy_tasks, *argv, "--endpoint", like.url)
    assert said.status == 0, said.err
    [measured] = json.loads((out / "results.json").read_text())["measurements"]
    assert {k: rate["value"] for k, rate in measured["pass_at"].items()} == {
        "1": pytest.approx((1 / 4 + 3 / 4 + 0) / 3),
        "2": pytest.approx((1 / 2 + 1 + 0) / 3),
        "4": pytest.approx((1 + 1 + 0) / 3),
    }
    assert "pass_at" in (out / "report.html").read_text()


def test_commands_on_tasks_work_or_say_in_one_line_that_they_cannot(
    toy: Path, toy_tasks: Path, gradus: Cli, tmp_path: Path
) -> None:
    said = gradus("tasks", "validate", toy_tasks, "--grader", "toy", "--quiet")
    assert said.out.splitlines() == ["3 of 3 tasks are usable"], said
    said = gradus("tasks", "doctor", toy_tasks, "--grader", "toy", "--quiet")
    assert said.out.splitlines()[-1] == "3 usable, 0 repaired, 0 needs you of 3 rows"
    for command in ("sign", "publish", "mutate", "trajectories"):
        said = gradus("tasks", command, toy_tasks, "--grader", "toy", "-o", tmp_path / "out.jsonl")
        assert said.status == 2
        assert said.err.startswith("gradus: --grader toy: this is for tasks of ocaml and rust")
        assert said.err.count("\n") == 1
