"""`gradus eval`, `sample`, `compare`, `replay` and `pairs` from the command line, with the real OCaml grader.

The model is a server that answers from the tasks' own solutions and stubs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from openai_like import Json, OpenAiLike, Reply, refused, said

from gradus.resources import configs
from services.graders.ocaml.grader import OcamlGrader
from tests.conftest import Cli

TASKS = 6
"""Of our own, from the beginning of the file."""


@pytest.fixture(scope="module")
def rows() -> list[Json]:
    file = configs() / "tasks" / "ocaml.jsonl"
    return [json.loads(line) for line in file.read_text().split("\n")[:TASKS]]


@pytest.fixture
def tasks(tmp_path: Path, rows: list[Json]) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def solving(rows: list[Json], right: int) -> Any:
    """The first `right` tasks are solved, the others get their stub, the last is not OCaml."""
    answers = {row["prompt"]: row["solution"] if n < right else row["stub"] for n, row in enumerate(rows)}
    answers[rows[-1]["prompt"]] = "I am sorry."

    def answer(text: str, body: Json, before: int) -> Reply | str:
        return said(f"```ocaml\n{answers[text]}\n```", chat="messages" in body)

    return answer


@pytest.fixture(scope="module")
def evaluations(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Json], ocaml_grader: OcamlGrader
) -> tuple[Path, Path]:
    """Two folders: two of six tasks solved, and four of six."""
    folder = tmp_path_factory.mktemp("evaluations")
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name, right in (("two", 2), ("four", 4)):
        with OpenAiLike(solving(rows, right)).serving() as like:
            got = in_a_process("eval", folder / "tasks.jsonl", "--endpoint", like.url, "--out", folder / name)
        assert got.returncode == 0, got.stderr
        assert got.stdout.splitlines()[-1] == str(folder / name / "results.json")
    return folder / "two", folder / "four"


def in_a_process(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gradus", *map(str, arguments), "--temperature", "0"]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


@pytest.mark.slow
def test_the_whole_way_from_a_server_to_pairs(gradus: Cli, evaluations: tuple[Path, Path], tmp_path: Path) -> None:
    found = json.loads((evaluations[0] / "results.json").read_text())
    (greedy,) = found["measurements"]
    assert (greedy["graded"], greedy["passed"]) == (6, 2)
    causes = greedy["details"]["causes"]
    assert (causes["tests:assertion"], causes["types:syntax"], sum(causes.values())) == (3, 1, 4)

    compared = tmp_path / "compared.json"
    got = gradus("compare", *evaluations, "--json", compared, "--html", tmp_path / "compared.html")
    assert (got.status, got.out.splitlines()[-1]) == (0, str(compared))
    changes = json.loads(compared.read_text())
    assert (changes["turns"]["improved"], changes["turns"]["both fail"], changes["test"]["p_value"]) == (2, 2, 0.5)

    got = gradus("replay", evaluations[0], "--quiet")
    assert (got.status, got.out.splitlines()[-1]) == (0, str(evaluations[0] / "replay.json"))

    pairs = tmp_path / "pairs.jsonl"
    got = gradus("pairs", *evaluations, "--out", pairs, "--passed-vs-failed", "--text")
    assert got.status == 2  # prompts were chats
    got = gradus("pairs", *evaluations, "--out", pairs, "--passed-vs-failed")
    assert (got.status, got.out.splitlines()[-1]) == (0, str(pairs))
    assert len(pairs.read_text().splitlines()) == 2


def test_a_reward_that_changed_is_status_one(gradus: Cli, evaluations: tuple[Path, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(evaluations[0], tmp_path / "copy")
    file = folder / "completions.jsonl"
    records = [json.loads(line) for line in file.read_text().split("\n") if line]
    records[0] |= {"reward": 0.35, "passed": False, "grader": "ocaml@before"}
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    got = gradus("replay", folder, "--quiet")
    assert got.status == 1
    (change,) = json.loads((folder / "replay.json").read_text())["changed"]
    assert (change["old_reward"], change["new_reward"], change["because"]) == (0.35, 1.0, "now passes")


@pytest.mark.slow
def test_evaluations_of_other_tasks_are_not_compared(
    gradus: Cli, evaluations: tuple[Path, Path], tasks: Path, tmp_path: Path, rows: list[Json]
) -> None:
    with OpenAiLike(solving(rows, 6)).serving() as like:
        other = ("--endpoint", like.url, "--temperature", "0", "--limit", "5", "--out", tmp_path / "five")
        assert gradus("eval", tasks, *other).status == 0
    got = gradus("compare", evaluations[0], tmp_path / "five")
    assert got.status == 2
    assert "different tasks" in got.err
    assert gradus("compare", evaluations[0], tmp_path / "five", "--anyway").status == 0


def test_the_key_comes_from_the_environment_alone(
    gradus: Cli, tasks: Path, tmp_path: Path, rows: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "hush")
    monkeypatch.setenv("OPENAI_API_KEY", "for somebody else")
    with OpenAiLike(solving(rows, 1)).serving() as like:
        common = ("sample", tasks, "--endpoint", like.url, "--limit", "1", "--out")
        assert gradus(*common, tmp_path / "a.jsonl").status == 0
        assert gradus(*common, tmp_path / "b.jsonl", "--api-key-env", "MY_KEY").status == 0
        assert ["authorization" in headers for _, _, headers in like.requests] == [False, True]
        assert like.requests[1][2]["authorization"] == "Bearer hush"
    assert not any("hush" in file.read_text() for file in tmp_path.iterdir() if file.is_file())


def test_samples_are_written_for_rows_of_every_kind(gradus: Cli, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "b"}]
    prompts.write_text("".join(json.dumps(row) + "\n" for row in ({"prompt": "a"}, {"id": "chat", "messages": chat})))
    out = tmp_path / "out" / "samples.jsonl"
    with OpenAiLike(lambda text, body, before: f"to {text}").serving() as like:
        got = gradus("sample", prompts, "--endpoint", like.url, "--samples", "2", "--out", out)
    assert (got.status, got.out.splitlines()) == (0, ["4 of 4 completions written", str(out)])
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(one["prompt_id"], one["sample"], one["completion"]) for one in found] == [
        ("row-1", 0, "to a"),
        ("row-1", 1, "to a"),
        ("chat", 0, "to b"),
        ("chat", 1, "to b"),
    ]
    assert found[2]["prompt"] == chat
    with OpenAiLike(lambda *_: refused(500)).serving() as like:
        again = gradus("sample", prompts, "--endpoint", like.url, "--samples", "2", "--out", out)
        assert (again.status, like.requests) == (0, [])
        lost = gradus("sample", prompts, "--endpoint", like.url, "--attempts", "1", "--out", tmp_path / "lost.jsonl")
    assert lost.status == 3
    assert "2 of 2 completions were not written: 2 x server; the last: 500: no" in lost.err


BAD_PROMPTS = {
    "no prompt": ("{}", "prompt: is missing"),
    "an empty one": ('{"prompt": " "}', "prompt: is missing"),
    "a number": ('{"prompt": 7}', "prompt: is missing"),
    "a role that nobody has": ('{"messages": [{"role": "king", "content": "x"}]}', "prompt: is missing"),
    "no JSON": ("{", "is not JSON"),
    "an id twice": ('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}', "occurred before"),
    "nothing": ("", "at least one task"),
}


@pytest.mark.parametrize(("text", "why"), BAD_PROMPTS.values(), ids=BAD_PROMPTS.keys())
def test_bad_prompts_are_named_and_nothing_is_asked(gradus: Cli, tmp_path: Path, text: str, why: str) -> None:
    (tmp_path / "p.jsonl").write_text(text)
    with OpenAiLike(lambda *_: "x").serving() as like:
        got = gradus("sample", tmp_path / "p.jsonl", "--endpoint", like.url, "--out", tmp_path / "out.jsonl")
        assert (got.status, like.requests) == (2, [])
    assert why in got.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["eval"], "give MODEL and TASKS"),
        (["eval", "tasks.jsonl"], "give MODEL and TASKS"),
        (["eval", "a", "b", "--model", "c"], "give MODEL and TASKS"),
        (["eval", "x.jsonl", "--endpoint", "not a url"], "is not an endpoint"),
        (["eval", "x.jsonl", "--endpoint", "http://h/v1", "--body", "{"], "--body: is not JSON"),
        (["eval", "x.jsonl", "--endpoint", "http://h/v1", "--body", "[1]"], "--body: is no JSON object"),
        (["eval", "m", "--perplexity", "f.txt", "--endpoint", "http://h/v1"], "needs a local model"),
        (["eval", "m", "x", "--perplexity", "f.txt"], "takes one model"),
        (["sample"], "give MODEL and PROMPTS"),
        (["compare", "nowhere", "nowhere"], "cannot be read"),
        (["compare", "nowhere", "nowhere", "--mode", "often"], "there are sampled and greedy"),
        (["replay", "nowhere"], "no such folder"),
        (["pairs", "nowhere.jsonl"], "cannot be read"),
        (["pairs", "nowhere.jsonl", "--min-margin", "nan"], "min-margin"),
    ],
)
def test_misuse_is_status_two_and_says_what_to_do(
    gradus: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    got = gradus(*arguments)
    assert got.status == 2
    assert why in got.err
    assert "Traceback" not in got.err


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(
    tasks: Path, tmp_path: Path, rows: list[Json], ocaml_grader: OcamlGrader
) -> None:
    out = tmp_path / "killed"
    slow = solving(rows, 3)

    def slowly(text: str, body: Json, before: int) -> Reply | str:
        found: Reply = slow(text, body, before)
        # Half of them come; the others hang until the process is gone.
        return Reply(found.body, delay_s=0.0 if text in [row["prompt"] for row in rows[:3]] else 3.0)

    with OpenAiLike(slowly).serving() as like:
        command = [sys.executable, "-m", "gradus", "eval", str(tasks), "--endpoint", like.url, "--out", str(out)]
        command += ["--temperature", "0"]
        killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: lines_in(out / "completions.jsonl") >= 3, killed)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
    with OpenAiLike(solving(rows, 3)).serving() as like:
        command[6] = like.url
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        asked = set(like.prompts())
    assert done.returncode == 0, done.stderr
    assert asked <= {row["prompt"] for row in rows[3:]}
    found = [json.loads(line) for line in (out / "completions.jsonl").read_text().split("\n") if line]
    assert [one["status"] for one in found] == ["graded"] * TASKS
    assert [one["passed"] for one in found] == [True] * 3 + [False] * 3


def wait_for(condition: Any, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + 100
    while not condition():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0
