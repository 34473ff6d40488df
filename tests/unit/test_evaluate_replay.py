"""Stored completions graded again by a real service with a trivial grader: what changed, and what
is left alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_grader import HIDDEN, Service

from gradus.client import RewardClient
from gradus.contract import Graded, Stage, TestCount, build_faulted
from gradus.errors import FaultKind, Misuse
from trainer.config.run import TrainConfig
from trainer.evaluate.completion_store import write_lines
from trainer.evaluate.grader_backend import Judge, ServiceJudge
from trainer.evaluate.replay import Replay, main
from trainer.rewards.judge import Record, build_outcome


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service().running() as running:
        yield running


def verdict(reward: float, **changed: Any) -> Graded:
    """As the echo grader gives it, if `reward` is what the completion says."""
    given: dict[str, Any] = {
        "id": "x",
        "reward": reward,
        "passed": reward == 1,
        "stage": Stage.TESTS,
        "components": {"tests": reward},
        "tests": TestCount(passed=int(reward), total=1),
        "rubric": "ocaml/graduated@1",
        "grader": "ocaml@old",
        "toolchain": "echo 1",
        "cpu_ms": 1.0,
        "wall_ms": 2.0,
    }
    return Graded(**(given | changed))


def line(completion: str, result: Any, task: str = "a", **changed: Any) -> Record:
    return {
        "step": 1,
        "prompt_id": task,
        "sample": 0,
        "prompt": "?",
        "completion": completion,
        **build_outcome(result),
    } | changed


def run_folder(path: Path, lines: list[Record], **prompt: Any) -> Path:
    config = {
        "model": "m",
        "data": {"dataset": "d.jsonl"},
        "reward": {"grader": "ocaml"},
        "prompt": {"template": "{prompt}", **prompt},
        "output_dir": str(path),
    }
    path.mkdir()
    (path / "config.resolved.json").write_text(TrainConfig.model_validate(config).model_dump_json())
    write_lines(path / "tasks.train.jsonl", [{"id": "a", "prompt": "?", "task": {"tests": HIDDEN}}])
    write_lines(
        path / "tasks.held_out.jsonl", [{"id": "b", "prompt": "?", "task": {"tests": HIDDEN + " "}}]
    )
    write_lines(path / "completions.jsonl", lines)
    return path


def replayed(path: Path, service: Service) -> tuple[int, Replay]:
    def judge_of(name: str) -> Judge:
        return ServiceJudge(RewardClient(service.url), name)

    status = main(path, judge_of)
    return status, Replay.model_validate_json((path / "replay.json").read_text())


def test_a_run_whose_rewards_stand_is_status_zero(tmp_path: Path, service: Service) -> None:
    path = run_folder(
        tmp_path / "run", [line("reward 0.5", verdict(0.5)), line("reward 1", verdict(1.0), "b")]
    )
    status, found = replayed(path, service)
    assert (status, found.completions, found.changed) == (0, 2, ())
    assert found.grader == "ocaml@r1"


def test_every_changed_reward_is_told_with_where_it_stands_and_why(
    tmp_path: Path, service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        line("reward 0.5", verdict(0.5)),
        line("reward 1", verdict(0.25)),
        line("reward 0.25", verdict(1.0), "b"),
        line("reward 0.3", verdict(0.1, stage=Stage.TYPES)),
    ]
    path = run_folder(tmp_path / "run", lines)
    before = (path / "completions.jsonl").read_bytes()
    status, found = replayed(path, service)
    assert status == 1
    assert [
        (c.line, c.prompt_id, c.old_reward, c.new_reward, c.old_cause, c.new_cause)
        for c in found.changed
    ] == [
        (2, "a", 0.25, 1.0, "tests", "passed"),
        (3, "b", 1.0, 0.25, "passed", "tests"),
        (4, "a", 0.1, 0.3, "types", "tests"),
    ]
    assert {(c.old_grader, c.new_grader) for c in found.changed} == {("ocaml@old", "ocaml@r1")}
    said = capsys.readouterr().out
    assert "completions.jsonl:2: a: 0.25 -> 1 (tests -> passed)" in said
    assert "3 of 4 rewards changed" in said
    assert said.splitlines()[-1] == str(path / "replay.json")
    assert (path / "completions.jsonl").read_bytes() == before


def test_faults_then_and_now_and_strange_tasks_are_counted_and_are_no_change(
    tmp_path: Path, service: Service
) -> None:
    stuck = build_faulted("x", FaultKind.WORKER, "died", retryable=True)
    lines = [
        line("reward 1", stuck),
        line("fault", verdict(0.5)),
        line("reward 1", verdict(0.1), "nobody's"),
    ]
    path = run_folder(tmp_path / "run", lines)
    status, found = replayed(path, service)
    assert status == 3
    assert (found.left_alone, found.faulted_now, found.completions) == (2, 1, 1)


def test_the_rubric_of_each_completion_and_what_the_prompt_had_written_are_kept(
    tmp_path: Path, service: Service
) -> None:
    lines = [
        line("reward 0.5", verdict(0.5, rubric="ocaml/binary@1")),
        line("<think>\nreward 1", verdict(1.0)),
        line([{"role": "assistant", "content": "<think>reward 1"}], verdict(1.0)),
    ]
    path = run_folder(tmp_path / "run", lines, template="{prompt}<think>")
    _, found = replayed(path, service)
    assert found.faulted_now == 0
    assert found.completions == 3


def test_a_torn_last_line_is_left_out_and_any_other_is_named(
    tmp_path: Path, service: Service
) -> None:
    path = run_folder(tmp_path / "run", [line("reward 0.5", verdict(0.5))] * 2)
    whole = (path / "completions.jsonl").read_text()
    (path / "completions.jsonl").write_text(whole + whole[:30])
    assert replayed(path, service)[1].completions == 2
    (path / "completions.jsonl").write_text(whole + "garbage\n" + whole)
    with pytest.raises(Misuse, match=r"completions\.jsonl:3"):
        replayed(path, service)


def test_evaluations_of_the_run_are_graded_again_too(tmp_path: Path, service: Service) -> None:
    path = run_folder(tmp_path / "run", [])
    (path / "eval").mkdir()
    write_lines(
        path / "eval/before.completions.jsonl", [line("reward 1", verdict(0.5), "b", mode="greedy")]
    )
    status, found = replayed(path, service)
    assert (status, found.changed[0].file) == (1, "eval/before.completions.jsonl")


def test_misuse_says_what_is_missing(tmp_path: Path, service: Service) -> None:
    with pytest.raises(Misuse, match="config.resolved.json: cannot be read"):
        replayed(tmp_path / "nowhere", service)
    path = run_folder(tmp_path / "run", [line("reward 1", verdict(1.0))])
    (path / "tasks.train.jsonl").write_text(json.dumps({"id": "a", "task": {}}) + "\n")
    with pytest.raises(Misuse, match=r"tasks\.train\.jsonl:1"):
        replayed(path, service)
    (path / "config.resolved.json").write_text("{}")
    with pytest.raises(Misuse, match="is no configuration of a run on rewards"):
        replayed(path, service)
