"""`gradus eval`, `sample`, `compare`, `replay` and `pairs` from the command line, with the real
OCaml grader.

The model is a server that answers from the tasks' own solutions and stubs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_grader import Service
from fake_openai_server import Json, OpenAiLike, Reply, refused, said

from gradus.cli import main
from gradus.resources import configs
from tests.conftest import Cli

TASKS = 6
"""Of our own, from the beginning of the file."""
SOON_S = 100.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""


@pytest.fixture(scope="module")
def rows() -> list[Json]:
    file = configs() / "tasks" / "ocaml.jsonl"
    return [json.loads(line) for line in file.read_text().split("\n")[:TASKS]]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory, rows: list[Json]) -> Path:
    path = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def solving(rows: list[Json], right: int) -> Any:
    """The first `right` tasks are solved, the others get their stub, the last is not OCaml."""
    answers = {
        row["prompt"]: row["solution"] if n < right else row["stub"] for n, row in enumerate(rows)
    }
    answers[rows[-1]["prompt"]] = "I am sorry."

    def answer(text: str, body: Json, before: int) -> Reply | str:
        return said(f"```ocaml\n{answers[text]}\n```", chat="messages" in body)

    return answer


def evaluation(tasks: Path, url: str, out: Path) -> list[str]:
    """The command that evaluates the model at the URL."""
    arguments = ["eval", str(tasks), "--endpoint", url, "--out", str(out), "--temperature", "0"]
    return [sys.executable, "-m", "gradus", *arguments]


def evaluated(tasks: Path, answer: Any, out: Path) -> Path:
    """The folder of an evaluation by the real grader of a model that answers so."""
    with OpenAiLike(answer).serving() as like, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", evaluation(tasks, like.url, out)[2:])
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code == 0
    return out


@pytest.fixture(scope="module")
def two_of_six(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Json], tasks: Path, ocaml_grader: Any
) -> Path:
    """The folder of an evaluation in which the first two of six tasks are solved."""
    return evaluated(tasks, solving(rows, 2), tmp_path_factory.mktemp("evaluations") / "two")


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Service().running() as running:
        yield running


def wait_for(condition: Any, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + SOON_S
    while not condition():
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def test_a_run_that_was_killed_goes_on(
    tmp_path: Path, rows: list[Json], tasks: Path, service: Service
) -> None:
    """It is killed with three completions in the folder, and asks for the other three again."""
    out = tmp_path / "out"
    gone = threading.Event()

    def half(text: str, body: Json, before: int) -> str:
        if text not in [row["prompt"] for row in rows[:3]]:
            gone.wait(SOON_S)
        return "reward 1"

    with OpenAiLike(half).serving() as like:
        command = [*evaluation(tasks, like.url, out), "--url", service.url]
        killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: lines_in(out / "completions.jsonl") >= 3, killed)
        killed.kill()
        killed.wait()
        gone.set()
    with OpenAiLike(lambda *_: "reward 0.5").serving() as like:
        command = [*evaluation(tasks, like.url, out), "--url", service.url]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * SOON_S)
        assert set(like.prompts()) == {row["prompt"] for row in rows[3:]}
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(out / "results.json")
    text = (out / "completions.jsonl").read_text()
    found = [json.loads(line) for line in text.split("\n") if line]
    assert [one["status"] for one in found] == ["graded"] * TASKS
    assert [one["passed"] for one in found] == [True] * 3 + [False] * 3


def test_the_whole_way_from_a_server_to_pairs(
    gradus: Cli, two_of_six: Path, rows: list[Json], tasks: Path, tmp_path: Path
) -> None:
    found = json.loads((two_of_six / "results.json").read_text())
    (greedy,) = found["measurements"]
    assert (greedy["graded"], greedy["passed"]) == (6, 2)
    causes = greedy["details"]["causes"]
    assert (causes["tests:assertion"], causes["types:syntax"], sum(causes.values())) == (3, 1, 4)

    four = evaluated(tasks, solving(rows, 4), tmp_path / "four")
    both = (two_of_six, four)
    compared = tmp_path / "compared.json"
    got = gradus("compare", *both, "--json", compared, "--html", tmp_path / "compared.html")
    assert (got.status, got.out.splitlines()[-1]) == (0, str(compared))
    changes = json.loads(compared.read_text())
    assert (
        changes["turns"]["improved"],
        changes["turns"]["both fail"],
        changes["test"]["p_value"],
    ) == (2, 2, 0.5)

    pairs = tmp_path / "pairs.jsonl"
    got = gradus("pairs", *both, "--out", pairs)
    assert (got.status, got.out.splitlines()[-1]) == (0, str(pairs))
    assert len(pairs.read_text().splitlines()) == 2


def test_a_reward_that_changed_is_status_one(
    gradus: Cli, two_of_six: Path, tmp_path: Path, service: Service
) -> None:
    folder = shutil.copytree(two_of_six, tmp_path / "copy")
    got = gradus("replay", folder, "--url", service.url)  # everything passes there
    assert (got.status, got.out.splitlines()[-1]) == (1, str(folder / "replay.json"))
    found = json.loads((folder / "replay.json").read_text())
    assert [change["new_cause"] for change in found["changed"]] == ["passed"] * 4
    assert found["completions"] == TASKS


def test_evaluations_of_other_tasks_are_not_compared(
    gradus: Cli, two_of_six: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(two_of_six, tmp_path / "other")
    found = json.loads((other / "results.json").read_text())
    (other / "results.json").write_text(json.dumps(found | {"tasks_sha256": "0" * 64}))
    got = gradus("compare", two_of_six, other)
    assert got.status == 2
    assert "different tasks" in got.err
    assert gradus("compare", two_of_six, other, "--allow-mismatch").status == 0


def test_the_key_comes_from_the_environment_alone(
    gradus: Cli, tasks: Path, tmp_path: Path, rows: list[Json], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "for somebody else")
    with OpenAiLike(solving(rows, 1)).serving() as like:
        common = ("sample", tasks, "--endpoint", like.url, "--limit", "1", "--out")
        assert gradus(*common, tmp_path / "a.jsonl").status == 0
        monkeypatch.setenv("GRADUS_ENDPOINT_API_KEY", "hush")
        assert gradus(*common, tmp_path / "b.jsonl").status == 0
        assert [headers.get("authorization") for _, _, headers in like.requests] == [
            None,
            "Bearer hush",
        ]
    assert not any("hush" in file.read_text() for file in tmp_path.iterdir() if file.is_file())


def test_samples_are_written_for_rows_of_every_kind(gradus: Cli, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "b"}]
    prompts.write_text(
        "".join(
            json.dumps(row) + "\n" for row in ({"prompt": "a"}, {"id": "chat", "messages": chat})
        )
    )
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
        lost = gradus(
            "sample",
            prompts,
            "--endpoint",
            like.url,
            "--set",
            "attempts=1",
            "--out",
            tmp_path / "lost.jsonl",
        )
    assert lost.status == 3
    assert "2 of 2 completions were not written: 2 x server; the last: 500: no" in lost.err


def test_samples_have_metrics_where_they_are_asked_for(gradus: Cli, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    out = tmp_path / "samples.jsonl"
    prompts.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    with OpenAiLike(lambda text, body, before: f"so {text} so {text}").serving() as like:
        got = gradus("sample", prompts, "--endpoint", like.url, "--metrics", "--out", out)
    assert got.status == 0
    found = json.loads((tmp_path / "samples.metrics.json").read_text())
    assert found["completions"] == 2
    assert (found["text"]["distinct_1"], found["text"]["words"]) == (3 / 8, 4.0)
    assert "distinct_1  0.375" in got.out


def test_a_talk_about_a_task_has_the_verdict_after_each_answer(
    gradus: Cli, tasks: Path, rows: list[Json], service: Service
) -> None:
    task = rows[1]

    def answer(text: str, body: Json, before: int) -> str:
        return "reward 0.25" if text == task["prompt"] else "reward 1"

    asks = ("chat", "--tasks", tasks, "--url", service.url, "--task", task["id"])
    with OpenAiLike(answer).serving() as like:
        got = gradus(*asks, "--endpoint", like.url, stdin=b"Repair it.\n")
        assert gradus(*asks[:-1], "none", "--endpoint", like.url).status == 2
        assert gradus("chat", "--task", "x", "--endpoint", like.url).status == 2
        for words, why in (
            ((), "MODEL is missing"),
            (("m", "--model", "m"), "MODEL is given twice"),
        ):
            said = gradus("chat", *words)
            assert (said.status, why in said.err) == (2, True)
    assert got.status == 0
    verdicts = [line for line in got.out.splitlines() if line.startswith("[reward ")]
    assert verdicts == [
        "[reward 0.250, did not pass, stage tests]",
        "[reward 1.000, passed, stage tests]",
    ]
    said = [message["content"] for message in like.requests[1][1]["messages"]]
    assert said == [task["prompt"], "reward 0.25", "Repair it."]


def test_a_talk_goes_on_until_the_input_ends(gradus: Cli) -> None:
    with OpenAiLike(lambda text, body, before: f"to {text}").serving() as like:
        got = gradus("chat", "--endpoint", like.url, stdin=b"a\nb\n")
    assert (got.status, [line for line in got.out.splitlines() if line.startswith("to ")]) == (
        0,
        ["to a", "to b"],
    )
    assert len(like.requests[1][1]["messages"]) == 3


def test_bad_prompts_are_named_and_nothing_is_asked(gradus: Cli, tmp_path: Path) -> None:
    with OpenAiLike(lambda *_: "x").serving() as like:
        for text, why in (
            ("{}", "prompt: is missing"),
            ('{"prompt": " "}', "prompt: is missing"),
            ('{"prompt": 7}', "prompt: is missing"),
            ('{"messages": [{"role": "king", "content": "x"}]}', "prompt: is missing"),
            ('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}', "id of its own"),
            ("", "holds no rows"),
        ):
            (tmp_path / "p.jsonl").write_text(text)
            got = gradus(
                "sample",
                tmp_path / "p.jsonl",
                "--endpoint",
                like.url,
                "--out",
                tmp_path / "out.jsonl",
            )
            assert (got.status, like.requests) == (2, []), text
            assert why in got.err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["eval"], "give MODEL and TASKS"),
        (["eval", "tasks.jsonl"], "give MODEL and TASKS"),
        (["eval", "a", "b", "--model", "c"], "give MODEL and TASKS"),
        (["eval", "x.jsonl", "--endpoint", "not a url"], "is not an endpoint"),
        (["eval", "x.jsonl", "--endpoint", "http://h/v1", "--set", "body={"], "--set: body: "),
        (["eval", "x.jsonl", "--endpoint", "http://h/v1", "--set", "body=[1]"], "--set: body: "),
        (["eval", "x.jsonl", "--endpoint", "http://h/v1", "--top-p", "0.9"], "No such option"),
        (["sample"], "give MODEL and PROMPTS"),
        (["compare", "nowhere", "nowhere"], "cannot be read"),
        (["compare", "nowhere", "nowhere", "--mode", "often"], "there are sampled and greedy"),
        (["replay", "nowhere"], "cannot be read"),
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
