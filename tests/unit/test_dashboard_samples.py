"""Which completions of evaluations are shown, and beside which."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dashboard_server import append
from report_data import tasks_by_title

from services.dashboard.evaluations import Evaluation
from services.dashboard.files import ConfinedDirectory
from services.dashboard.samples import select_samples


def record(task: str, passed: bool, mode: str = "greedy", **more: Any) -> dict[str, Any]:
    return {
        "prompt_id": task,
        "passed": passed,
        "mode": mode,
        "reward": float(passed),
        "fault": None,
        **more,
    }


def chosen(folder: Path, *sides: list[dict[str, Any]]) -> dict[str, list[str]]:
    """By title of a group, the tasks of its cards."""
    evaluations = []
    for n, records in enumerate(sides):
        append(folder / f"{n}.completions.jsonl", records)
        evaluations.append(Evaluation(str(n), "", None, (), {"stages": []}, folder / f"{n}.json"))
    return tasks_by_title(select_samples(ConfinedDirectory(folder), evaluations)["groups"])


def test_greedy_completions_are_compared_where_there_are_any(tmp_path: Path) -> None:
    before = [record("a", True, "sampled"), record("a", False), record("b", False)]
    after = [record("b", False), record("a", True)]
    assert chosen(tmp_path, before, after) == {
        "Wrong before, right after": ["a"],
        "Wrong both times": ["b"],
    }


def test_sampled_ones_are_compared_where_one_side_has_no_greedy_ones(tmp_path: Path) -> None:
    before = [record("a", True, "sampled"), record("a", False)]
    assert chosen(tmp_path, before, [record("a", False, "sampled")]) == {
        "Right before, wrong after": ["a"]
    }


def test_a_task_that_was_faulted_once_is_in_no_pair(tmp_path: Path) -> None:
    stuck = record("a", False) | {"reward": None, "fault": {"kind": "worker"}}
    assert chosen(tmp_path, [stuck], [record("a", True)]) == {}


def test_of_one_task_the_middle_completion_is_shown(tmp_path: Path) -> None:
    records = [
        record("a", passed, "sampled", completion=str(passed)) for passed in (True, False, True)
    ]
    assert chosen(tmp_path, records) == {"Passed": ["a"]}


def test_of_many_tasks_those_at_even_distances_are_shown(tmp_path: Path) -> None:
    tasks = [f"t{n}" for n in range(20)]
    found = chosen(tmp_path, [record(task, passed=True) for task in tasks])
    assert found == {"Passed": ["t0", "t3", "t6", "t9", "t12", "t15", "t18"]}
