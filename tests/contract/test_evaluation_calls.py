"""`gradus eval-tools` from the command line, over trajectories that `gradus tasks trajectories`
made just before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_openai_server import Json, OpenAiLike, Reply

from tests.conftest import Cli

REPAIR = {
    "id": "a",
    "prompt": "Write f, which adds one.",
    "signature": "val f : int -> int",
    "tests": "let () = assert (f 41 = 42)",
    "stub": "let f x = x + 2",
    "solution": "let f x = x + 1",
}


def test_turns_of_real_trajectories_are_asked_for_and_scored(gradus: Cli, tmp_path: Path) -> None:
    repairs = tmp_path / "repairs.jsonl"
    data = tmp_path / "held_out.jsonl"
    out = tmp_path / "out"
    repairs.write_text(json.dumps(REPAIR) + "\n")
    made = gradus("tasks", "trajectories", repairs, "--out", data, "--slots", "1")
    assert made.status == 0, made.err
    call = '<tool_call>{"name": "check", "arguments": {"code": "let f x = x + 1"}}</tool_call>'

    def answer(text: str, body: Json, before: int) -> Reply | str:
        return "Done." if "all 1 tests pass" in text else call

    with OpenAiLike(answer).serving() as like:
        got = gradus("eval-tools", data, "--endpoint", like.url, "--out", out, "--temperature", "0")
    assert (got.status, got.out.splitlines()[-1]) == (0, str(out / "calls.json")), got.err
    found = json.loads((out / "calls.json").read_text())
    assert (found["turns"], found["calls"], found["malformed"]) == (3, 2, {})
    assert (found["format"]["value"], found["selection"]["value"]) == (1.0, 1.0)


@pytest.mark.parametrize("given", [["a", "b"], ["a", "--model", "m"], []])
def test_calls_take_one_model(gradus: Cli, tmp_path: Path, given: list[str]) -> None:
    got = gradus("eval-tools", *given, tmp_path / "x.jsonl", "--out", tmp_path / "out")
    assert got.status == 2
    assert "give MODEL and FILE" in got.err
