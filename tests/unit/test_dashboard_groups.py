"""Groups of completions are found again by their place in the file, and counted by how they
ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from dashboard_server import append, sample

from services.dashboard import groups as groups_module
from services.dashboard.files import ConfinedDirectory, JsonlTail
from services.dashboard.groups import Groups, describe_outcome, read_records


def read(path: Path, groups: Groups) -> Groups:
    for line in JsonlTail(ConfinedDirectory(path.parent), path).read_changes().lines:
        groups.add(line)
    return groups


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "completions.jsonl"


def test_a_group_is_the_completions_of_a_prompt_in_a_step(path: Path) -> None:
    append(path, [sample(step, n, prompt) for step in (1, 2) for prompt in "ab" for n in range(3)])
    groups = read(path, Groups())
    assert groups.numbers == (0, 3)
    found = [groups.get(number) for number in range(4)]
    assert [(group.step, group.prompt_id, len(group.places)) for group in found if group] == [
        (1, "a", 3),
        (1, "b", 3),
        (2, "a", 3),
        (2, "b", 3),
    ]


def test_its_completions_are_read_from_the_file(path: Path) -> None:
    append(
        path,
        [sample(1, n, prompt, completion=f"{prompt}{n} é") for n in range(2) for prompt in "ab"],
    )
    groups = read(path, Groups())
    group = groups.get(1)
    assert group is not None
    assert [
        one["completion"] for one in read_records(ConfinedDirectory(path.parent), path, group)
    ] == ["b0 é", "b1 é"]


def test_what_is_no_longer_in_the_file_is_left_out(path: Path) -> None:
    append(path, [sample(1, n) for n in range(3)])
    group = read(path, Groups()).get(0)
    assert group is not None
    path.write_text(path.read_text().split("\n")[0] + "\n")
    assert len(read_records(ConfinedDirectory(path.parent), path, group)) == 1
    path.unlink()
    assert read_records(ConfinedDirectory(path.parent), path, group) == []


def test_a_prompt_that_is_drawn_twice_in_a_step_is_two_groups(path: Path) -> None:
    append(path, [sample(1, n) for n in range(8)])
    assert read(path, Groups(group_size=4)).numbers == (0, 1)
    assert read(path, Groups()).numbers == (0, 0)


def test_old_groups_are_forgotten_and_the_newest_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_module, "MAX_GROUPS", 10)
    append(path, [sample(step) for step in range(25)])
    groups = read(path, Groups())
    assert groups.numbers == (15, 24)
    assert groups.get(3) is None
    assert groups.completions == 25


def test_a_step_can_be_looked_for(path: Path) -> None:
    append(path, [sample(step, 0, prompt) for step in (1, 5) for prompt in "ab"])
    groups = read(path, Groups())
    found = [groups.find_at_step(step) for step in (0, 1, 2, 5, 6)]
    assert [group and group.number for group in found] == [0, 0, 2, 2, None]


def test_outcomes_keep_faults_apart_from_verdicts() -> None:
    assert describe_outcome(sample(1, reward=1.0)) == "passed"
    assert describe_outcome(sample(1, reward=0.5, stage="types")) == "stopped at types"
    assert describe_outcome(sample(1, reward=None)) == "faulted"
    assert describe_outcome({"passed": True}) == "faulted"


def test_counts_are_by_step(path: Path) -> None:
    append(
        path,
        [
            *(sample(1, n, reward=reward) for n, reward in enumerate((1.0, 0.25))),
            *(sample(2, n, reward=reward) for n, reward in enumerate((None, 1.0))),
        ],
    )
    groups = read(path, Groups())
    assert groups.outcomes.list_steps() == [1, 2]
    assert groups.outcomes.compute_totals("passed") == [1, 1]
    assert groups.outcomes.compute_totals("faulted") == [0, 1]
    assert (groups.completions, groups.passed, groups.faulted) == (4, 2, 1)


def test_hostile_lines_are_counted_as_what_they_are(path: Path) -> None:
    odd = [
        {"step": 1},
        {"step": 1, "prompt_id": {"a": 1}, "sample": "x", "reward": "NaN", "fault": []},
        {"step": 1, "prompt_id": "p" * 10_000, "sample": -5, "stage": ["x"] * 1000, "reward": 0.5},
        {"prompt_id": "no step"},
        {"step": 1e300, "prompt_id": "far"},
    ]
    append(path, odd)
    groups = read(path, Groups(group_size=2))
    assert groups.completions == 3
    assert all(len(name) < 60 for name in groups.outcomes.names)
