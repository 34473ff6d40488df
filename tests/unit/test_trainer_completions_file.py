"""completions.jsonl waits for advantages, and loses nothing when there are none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainer.rewards.completion_log import AdvantageLoggingMixin, CompletionsFile
from trainer.runs.folder import read_lines

RECORDS = [{"step": 1, "sample": n, "reward": n / 2} for n in range(2)]


class Advantages(list[float]):
    """What TRL gives: a tensor of one axis."""

    def tolist(self) -> list[float]:
        return list(self)


class Rounds:
    """Stands where TRL's trainer does among the bases: grades, then gives advantages or fails."""

    def __init__(self, advantages: list[float], error: Exception | None = None) -> None:
        self.advantages = Advantages(advantages)
        self.error = error
        self.completions_file: CompletionsFile | None = None

    def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
        if self.completions_file is not None:
            self.completions_file.take(inputs)
        if self.error is not None:
            raise self.error
        return {"advantages": self.advantages}


class Trainer(AdvantageLoggingMixin, Rounds):
    def round(self, file: CompletionsFile | None) -> Any:
        self.completions_file = file
        return self._generate_and_score_completions(RECORDS)


def test_each_line_gets_its_advantage_in_order(tmp_path: Path) -> None:
    file = tmp_path / "completions.jsonl"
    assert Trainer([-0.5, 0.5]).round(CompletionsFile(file)) == {"advantages": [-0.5, 0.5]}
    assert read_lines(file) == [{**RECORDS[0], "advantage": -0.5}, {**RECORDS[1], "advantage": 0.5}]


def test_nothing_is_written_before_the_advantages_are_there(tmp_path: Path) -> None:
    held = CompletionsFile(tmp_path / "completions.jsonl")
    held.take(RECORDS)
    assert not (tmp_path / "completions.jsonl").exists()


def test_a_round_that_breaks_off_leaves_its_lines_without_advantages(tmp_path: Path) -> None:
    file = tmp_path / "completions.jsonl"
    with pytest.raises(RuntimeError, match="budget"):
        Trainer([], RuntimeError("past the fault budget")).round(CompletionsFile(file))
    assert [line["advantage"] for line in read_lines(file)] == [None, None]


def test_advantages_that_do_not_fit_are_not_given_to_the_wrong_lines(tmp_path: Path) -> None:
    file = tmp_path / "completions.jsonl"
    Trainer([0.1, 0.2, 0.3]).round(CompletionsFile(file))
    assert [line["advantage"] for line in read_lines(file)] == [None, None]


def test_lines_of_one_round_are_written_once(tmp_path: Path) -> None:
    file = tmp_path / "completions.jsonl"
    trainer = Trainer([-0.5, 0.5])
    held = CompletionsFile(file)
    trainer.round(held)
    trainer.round(held)
    assert [line["sample"] for line in read_lines(file)] == [0, 1, 0, 1]


def test_a_run_that_keeps_no_completions_trains_all_the_same() -> None:
    assert Trainer([0.5]).round(None) == {"advantages": [0.5]}
