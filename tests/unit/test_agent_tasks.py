"""Tools for agents: what `check` and `submit` reply, and their limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gradus.errors import Misuse
from gradus.integrations.agent_tasks import (
    MAX_ANSWER_CHARS,
    AgentTasks,
    ToolRefused,
    read_agent_rows,
)
from gradus.integrations.core import settings
from tests.fake_grader import HIDDEN, PROMPT, Service

ROW = {"id": "one", "prompt": PROMPT, "tests": HIDDEN, "solution": "reward 1"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Service().running() as service:
        yield service.url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps(ROW) + "\n")
    return path


def open_tasks(file: Path, url: str) -> AgentTasks:
    chosen = settings("ocaml", url=url, tasks=str(file))
    results = file.with_name("results.jsonl")
    rows = read_agent_rows(str(file))
    return AgentTasks(rows, chosen, max_checks=1, max_submissions=2, results=results)


async def test_checks_and_submissions_are_counted_and_results_kept(file: Path, url: str) -> None:
    tasks = open_tasks(file, url)
    checked = await tasks.check("one", "reward 0.5")
    assert checked.splitlines()[0] == "came as far as: tests"
    assert checked.splitlines()[-1] == "0 checks left"
    with pytest.raises(ToolRefused, match="no check is left for one"):
        await tasks.check("one", "reward 0.5")
    assert (await tasks.submit("one", "reward 0.5")).endswith("\n1 submissions left")
    assert (await tasks.submit("one", "reward 1")).endswith("\n0 submissions left")
    with pytest.raises(ToolRefused, match="no submit is left for one"):
        await tasks.submit("one", "reward 1")
    kept = [json.loads(line) for line in (file.parent / "results.jsonl").read_text().splitlines()]
    assert [one["result"]["reward"] for one in kept] == [0.5, 1.0]


async def test_a_check_says_nothing_of_hidden_tests(file: Path, url: str) -> None:
    checked = await open_tasks(file, url).check("one", "reward 0.5")
    submitted = await open_tasks(file, url).submit("one", "reward 0.5")
    assert "tests pass" not in checked
    assert "tests pass" in submitted
    assert "0.5" not in checked + submitted.partition("tests pass")[0]


async def test_a_fault_counts_against_no_limit(file: Path, url: str) -> None:
    tasks = open_tasks(file, url)
    for _ in range(3):
        with pytest.raises(ToolRefused, match="call again later"):
            await tasks.submit("one", "fault")
    assert (await tasks.submit("one", "reward 1")).endswith("\n1 submissions left")


async def test_what_cannot_be_graded_is_refused(file: Path, url: str) -> None:
    tasks = open_tasks(file, url)
    with pytest.raises(ToolRefused, match="there is no task 'two'; there are: one"):
        await tasks.submit("two", "reward 1")
    with pytest.raises(ToolRefused, match="more than 200000 characters"):
        await tasks.submit("one", "x" * (MAX_ANSWER_CHARS + 1))


def test_an_agent_reads_the_prompt_and_no_test(file: Path, url: str) -> None:
    assert json.loads(open_tasks(file, url).read_task("one")) == {"id": "one", "prompt": PROMPT}


@pytest.mark.parametrize(
    ("text", "problem"),
    [("", "holds no tasks"), (json.dumps(ROW) + "\n" + json.dumps(ROW), "occurred before")],
)
def test_a_file_that_cannot_be_served_is_refused(file: Path, text: str, problem: str) -> None:
    file.write_text(text)
    with pytest.raises(Misuse, match=problem):
        open_tasks(file, "http://127.0.0.1:9")
