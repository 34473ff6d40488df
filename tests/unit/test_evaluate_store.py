"""The file of completions: what a crash leaves is read again, and nobody else's file is touched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from trainer.evaluate.collect import build_record
from trainer.evaluate.completion_store import open_store
from trainer.evaluate.plan import (
    CompletionRequest,
    EvalPlan,
    GeneratedCompletion,
    GenerationError,
    Problem,
    build_requests,
)
from trainer.rewards.judge import Record

PROBLEMS = [Problem("a", "let f =", None), Problem("b", "let g =", None)]


def plan(**changed: Any) -> EvalPlan:
    given: dict[str, Any] = {
        "model": "m",
        "asked_as": "text",
        "served": False,
        "tasks": "t",
        "tasks_sha256": "ab",
    }
    given |= {"samples": 1, "temperature": 1.0, "greedy": True, "max_new_tokens": 8}
    return EvalPlan.model_validate(given | changed)


def ask(place: int) -> CompletionRequest:
    return build_requests(PROBLEMS, plan())[place]


def record(place: int, text: str = "x") -> Record:
    return build_record(ask(place), GeneratedCompletion(text, "stop", 1, 2, 0.5))


def keys() -> list[Any]:
    return [one.key for one in build_requests(PROBLEMS, plan())]


def test_the_last_line_of_a_completion_counts_and_the_end_is_one_line_each_in_order(
    tmp_path: Path,
) -> None:
    path = tmp_path / "new" / "completions.jsonl"
    with open_store(path, plan()) as store:
        store.append([record(3)])
        store.append([record(0, "first")])
        store.append([{**record(0, "second"), "status": "graded"}])
        assert len(path.read_text().splitlines()) == 3
        found = store.finish(keys())
    assert [(one["prompt_id"], one["mode"], one["completion"]) for one in found] == [
        ("a", "sampled", "second"),
        ("b", "greedy", "x"),
    ]
    assert [json.loads(line) for line in path.read_text().splitlines()] == found


def test_a_torn_last_line_is_cut_away_and_what_follows_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    with open_store(path, plan()) as store:
        store.append([record(0), record(1)])
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with open_store(path, plan()) as store:
        assert store.records.get(ask(0).key) is not None
        assert store.records.get(ask(1).key) is None
        store.append([record(1)])
    assert [json.loads(line)["prompt_id"] for line in path.read_text().splitlines()] == ["a", "b"]


def test_texts_that_json_or_utf8_cannot_hold_are_kept_as_far_as_they_can(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    with open_store(path, plan()) as store:
        store.append(
            [
                record(0, "half \ud800 and \u2028 and \x85 and \0"),
                {**record(1), "latency_s": float("nan")},
            ]
        )
    with open_store(path, plan()) as store:
        found = store.records.get(ask(0).key)
        assert found is not None
        assert (
            found["completion"]
            == "half \N{REPLACEMENT CHARACTER} and \u2028 and \x85 and \N{REPLACEMENT CHARACTER}"
        )
        assert (store.records.get(ask(1).key) or {})["latency_s"] is None


def test_only_one_process_writes_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    with (
        open_store(path, plan()),
        pytest.raises(Misuse, match="another process"),
        open_store(path, plan()),
    ):
        raise AssertionError("two wrote")
    with open_store(path, plan()):
        pass


@pytest.mark.parametrize(
    "line",
    ["{", "[]", "7", '"x"', "{}", '{"mode": "greedy"}', "[" * 100_000]
    + ['{"mode": "greedy", "prompt_id": "a", "sample": "x", "status": "graded", "completion": "x"}']
    + ['{"mode": "greedy", "prompt_id": "a", "sample": 0, "status": "made up", "completion": "x"}']
    + ['{"mode": "greedy", "prompt_id": "a", "sample": 0, "status": "graded", "completion": 7}'],
)
def test_a_file_that_is_not_ours_is_refused_and_left_alone(tmp_path: Path, line: str) -> None:
    path = tmp_path / "completions.jsonl"
    with open_store(path, plan()):
        pass
    path.write_text(line + "\n")
    with (
        pytest.raises(Misuse, match=r"completions\.jsonl:1: not a completion of Gradus"),
        open_store(path, plan()),
    ):
        raise AssertionError("it was opened")
    assert path.read_text() == line + "\n"


def test_completions_without_their_plan_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    path.write_text("precious\n")
    with pytest.raises(Misuse, match=r"without plan\.json"), open_store(path, plan()):
        raise AssertionError("it was opened")
    (tmp_path / "plan.json").write_text("{}")
    with (
        pytest.raises(Misuse, match="no plan that this version can read"),
        open_store(path, plan()),
    ):
        raise AssertionError("it was opened")
    assert path.read_text() == "precious\n"


def test_a_plan_of_which_nothing_was_asked_binds_nobody(tmp_path: Path) -> None:
    path = tmp_path / "completions.jsonl"
    for number in (1, 2):
        with open_store(path, plan(seed=number)):
            pass
    assert json.loads((tmp_path / "plan.json").read_text())["seed"] == 2


def test_starting_anew_keeps_what_was_there_under_other_names(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    for number in range(3):
        with open_store(path, plan(seed=number), fresh=True) as store:
            store.append([record(0, f"run {number}")])
    assert "run 2" in path.read_text()
    assert "run 0" in (tmp_path / "mine.jsonl.previous-1").read_text()
    assert "run 1" in (tmp_path / "mine.jsonl.previous-2").read_text()
    assert json.loads((tmp_path / "mine.jsonl.plan.json.previous-2").read_text())["seed"] == 1


def test_what_was_never_written_says_why() -> None:

    found = build_record(ask(0), GenerationError("timeout", "late"))
    assert (found["status"], found["reward"], found["fault"]) == ("generation_error", None, None)
    assert found["error"] == {"kind": "timeout", "message": "late"}
