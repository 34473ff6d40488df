"""How the corpus of attacks on stories is read: what is refused, and by which file; how the command
tells outcomes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from gradus.contract import Faulted, Graded, StorySubmission, build_faulted
from gradus.errors import FaultKind, Misuse
from services.attacks import stories as story_attacks
from services.attacks.stories import (
    check_outcome,
    compute_outcomes,
    iter_submissions,
    load_sprints,
)
from tests.conftest import Cli

TASK = "story-001-housing-repairs"
GOOD = f"task: {TASK}\nattacks: [{{class: nothing, completion: '@3 times line #;@'}}]\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(story_attacks, "corpus_folder", lambda grader: tmp_path)
    (tmp_path / "exceptions.yaml").write_text("[]")
    (tmp_path / "a.yaml").write_text(GOOD)
    return tmp_path


def test_a_file_is_a_task_with_its_honest_answer_and_attacks(folder: Path) -> None:
    [sprint] = load_sprints()
    assert (sprint.name, len(sprint.honest), len(sprint.task.references)) == ("a", 6, 6)
    assert [(attack.kind, attack.text) for attack in sprint.attacks] == [
        ("nothing", "line 0;line 1;line 2;")
    ]
    asked = list(iter_submissions([sprint]))
    assert [one.id for one in asked] == ["a.0", "a.1", "a.2"]
    assert all(isinstance(one, StorySubmission) for one in asked)
    assert asked[0].completion.splitlines() == list(sprint.honest[::2])


def test_an_attack_that_makes_the_grader_fail_has_got_through(folder: Path) -> None:
    sprints = load_sprints()
    broken = build_faulted("x", FaultKind.WORKER, "the worker died", retryable=True)
    results: list[Graded | Faulted] = [
        Graded.model_validate(GRADED),
        Graded.model_validate(GRADED),
        broken,
    ]
    [outcome] = compute_outcomes(sprints, results)
    assert check_outcome(outcome, {}) == (
        "THROUGH",
        "a fault in place of a verdict: the worker died",
    )
    with pytest.raises(Misuse, match="an honest answer was not graded: the worker died"):
        list(compute_outcomes(sprints, [broken, *results]))


GRADED = {
    "id": "x",
    "reward": 0.6,
    "passed": False,
    "stage": "score",
    "components": {"coverage": 0.6},
    "rubric": "story/weighted@1",
    "grader": "story@1",
    "toolchain": "none",
    "cpu_ms": 1.0,
    "wall_ms": 1.0,
}


@pytest.mark.usefixtures("story_grader")
def test_the_command_tells_what_each_attack_earns_and_what_the_bound_is(
    folder: Path, gradus: Cli
) -> None:
    said = gradus("attack", "story")
    assert said.status == 0
    assert "held    0.00  a: nothing" in said.out
    assert said.out.endswith("1 of 1 attacks held, 0 are known to pay\n")


@pytest.mark.usefixtures("story_grader")
def test_the_command_has_exit_status_1_when_an_attack_pays(folder: Path, gradus: Cli) -> None:
    honest = "\n".join(load_sprints()[0].honest)
    file = {"task": TASK, "attacks": [{"class": "honest", "completion": honest}]}
    (folder / "a.yaml").write_text(yaml.safe_dump(file))
    said = gradus("attack", "story")
    assert said.status == 1
    assert "THROUGH" in said.out
