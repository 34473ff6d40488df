"""completions.jsonl waits for advantages, and loses nothing when there are none."""

from __future__ import annotations

from pathlib import Path

from trainer.rewards.judge import CompletionsFile
from trainer.runs.folder import read_lines

RECORDS = [{"step": 1, "sample": n, "reward": n / 2} for n in range(2)]


def test_each_line_gets_its_advantage_once_and_not_before_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    file = CompletionsFile(path)
    file.take(RECORDS)
    assert not path.exists()
    file.write_round([-0.5, 0.5])
    file.write_round(())
    assert read_lines(path) == [{**RECORDS[0], "advantage": -0.5}, {**RECORDS[1], "advantage": 0.5}]


def test_advantages_that_do_not_fit_are_not_given_to_the_wrong_lines(tmp_path: Path) -> None:
    file = CompletionsFile(tmp_path / "completions.jsonl")
    file.take(RECORDS)
    file.write_round([0.1, 0.2, 0.3])
    lines = read_lines(tmp_path / "completions.jsonl")
    assert [line["advantage"] for line in lines] == [None, None]
