"""Asking again with the real OCaml grader: a model reads what the compiler and the tests say, and
no hidden test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_openai_server import Json, OpenAiLike, Reply, said

from gradus.resources import configs
from tests.conftest import Cli

WRONG = ["let f x = lenght x", "let f _ = 0"]
RIGHT = "let f x = x + 1"
TASK = {
    "id": "a",
    "prompt": "Write f.",
    "signature": "val f : int -> int",
    "tests": "let () = assert (f 123456 = 123457)",
}


def test_two_wrong_answers_and_a_right_one_are_green_in_turn_three(
    gradus: Cli, tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text(json.dumps(TASK) + "\n")

    def answer(text: str, body: Json, before: int) -> Reply | str:
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        return said(f"```ocaml\n{[*WRONG, RIGHT][turn]}\n```", chat=True)

    with OpenAiLike(answer).serving() as like:
        out = tmp_path / "out"
        to = (
            "--grader",
            "ocaml",
            "--out",
            out,
            "--temperature",
            "0",
            "--max-turns",
            "4",
            "--set",
            "slots=1",
        )
        got = gradus("eval", tasks, "--endpoint", like.url, *to)
        assert got.status == 0, got.err
        asked = [body["messages"] for _, body, _ in like.requests]
    (measured,) = json.loads((out / "results.json").read_text())["measurements"]
    assert {turn: rate["value"] for turn, rate in measured["turns"]["green_by"].items()} == {
        "1": 0.0,
        "2": 0.0,
        "3": 1.0,
        "4": 1.0,
    }
    assert measured["pass_at"]["1"]["value"] == 0.0
    assert measured["turns"]["median_turns"] == 3
    assert len(asked) == 3
    first = asked[2][2]["content"]
    second = asked[2][4]["content"]
    assert "lenght" in first
    assert "no test ran" in first
    assert "0 of 1 tests pass" in second
    assert not any(word in json.dumps(asked) for word in ("12345", "assert ("))


@pytest.mark.slow
def test_stories_come_back_with_what_was_missing_in_kind(gradus: Cli, tmp_path: Path) -> None:
    rows = (configs() / "tasks" / "story.jsonl").read_text().splitlines()[:2]
    tasks = tmp_path / "story.jsonl"
    tasks.write_text("\n".join(rows))
    with OpenAiLike(lambda *_: "As a user, I want tea, so that I am warm.").serving() as like:
        to = ("--grader", "story", "--out", tmp_path / "out", "--max-turns", "2")
        got = gradus("eval", tasks, "--endpoint", like.url, *to)
    assert got.status == 0, got.err
    repairs = [
        request
        for _, request, *_ in like.requests
        if "# What the review says" in json.dumps(request)
    ]
    assert repairs
    assert all(
        "wants that the sprint needs are missing" in json.dumps(request) for request in repairs
    )
    assert not any(
        story in json.dumps(repairs) for row in rows for story in json.loads(row)["references"]
    )


def test_turns_need_verdicts_to_repair_by(gradus: Cli, tmp_path: Path) -> None:
    with OpenAiLike(lambda *_: "x").serving() as like:
        to = ("--grader", "preference", "--out", tmp_path / "out", "--max-turns", "2")
        (rows := tmp_path / "rows.jsonl").write_text('{"id": "a", "prompt": "Write a poem."}\n')
        got = gradus("eval", rows, "--endpoint", like.url, *to)
        assert (got.status, like.requests) == (2, [])
        assert "do not say what to repair" in got.err
