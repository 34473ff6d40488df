"""The commands of docs/programs.md, from rows of other data sets to pass@k of a model. Training is
in `tests/e2e/test_training_programs.py`."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_openai_server import OpenAiLike

from tests.conftest import Cli

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "cases" / "corpus" / "programs"
ANSWERS = yaml.safe_load((PROGRAMS / "answers.yaml").read_text())
FORMATS = {"humaneval": "humaneval_python", "apps": "apps", "livecodebench": "livecodebench"}
"""File of rows, by format."""
SAMPLES = 8


def read_commands() -> dict[str, list[str]]:
    """Return the words of the documented commands behind `gradus`, by the command's name."""
    page = (ROOT / "docs" / "programs.md").read_text()
    section = page.partition("## From a data set to training\n```sh\n")[2].partition("```")[0]
    commands = {}
    for line in section.splitlines():
        words = shlex.split(line.partition(" > ")[0].removesuffix("&"))
        assert words.pop(0) == "gradus"
        name = words[1] if words[0] == "tasks" else words[0]
        commands[name] = words
    return commands


def write_python_config(path: Path) -> Path:
    """Write the shipped configuration with Python alone, whose self-test takes less time."""
    settings = yaml.safe_load((ROOT / "configs/graders/program.yaml").read_text())
    settings["languages"] = {"python": settings["languages"]["python"]}
    path.write_text(yaml.safe_dump(settings))
    return path


def fence(text: str) -> str:
    return f"```python\n{text}\n```"


@pytest.mark.parametrize("format_", FORMATS)
def test_the_documented_way_from_a_data_set_to_pass_at_k(
    gradus: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format_: str
) -> None:
    monkeypatch.chdir(tmp_path)
    config = write_python_config(tmp_path / "program.yaml")
    commands = read_commands()
    answers = ANSWERS[FORMATS[format_]]
    wrong = {"5"} if format_ == "apps" else set()
    shutil.copy(PROGRAMS / f"{FORMATS[format_]}.jsonl", tmp_path / f"{format_}.jsonl")

    words = [re.sub(r"\bapps\b", format_, word) for word in commands["import"]]
    said = gradus(*words, "--config", config, "--quiet")
    assert said.status == 0, said.err
    lines = (tmp_path / "tasks.jsonl").read_text().splitlines()
    tasks: dict[str, dict[str, Any]] = {task["id"]: task for task in map(json.loads, lines)}
    assert tasks.keys() == answers.keys() - wrong

    lacking = [] if format_ == "humaneval" else ["--no-solutions"]
    said = gradus(*commands["validate"], *lacking, "--config", config, "--quiet")
    assert said.out == f"{len(tasks)} of {len(tasks)} tasks are usable\n", said

    sent = []
    fields = ("language", "cases", "public_cases", "checker", "tolerance", "limits")
    for name, task in tasks.items():
        given = {field: task[field] for field in fields if field in task}
        for kind in ("right", "wrong"):
            text = fence(answers[name][kind])
            sent.append({"id": f"{name}-{kind}", "completion": text, "task": given})
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(one) + "\n" for one in sent))
    said = gradus(*commands["grade"], "--config", config)
    assert said.status == 0, said.err
    results = [json.loads(line) for line in said.out.splitlines()]
    assert [one["passed"] for one in results] == [True, False] * len(tasks)

    texts = {task["prompt"]: answers[name] for name, task in tasks.items()}
    asked: dict[str, Iterator[int]] = defaultdict(itertools.count)

    def answer(prompt: str, *_: Any) -> str:
        """Give one right answer to each task."""
        return fence(texts[prompt]["wrong" if next(asked[prompt]) else "right"])

    with OpenAiLike(answer).serving() as like:
        words = [re.sub(r"http://.*", like.url, word) for word in commands["eval"]]
        words += ["--no-greedy", "--out", "evaluation", "--set", f"config={config}"]
        said = gradus(*words)
    assert said.status == 0, said.err
    found = json.loads((tmp_path / "evaluation" / "results.json").read_text())
    [measured] = found["measurements"]
    for k, rate in measured["pass_at"].items():
        assert rate["value"] == pytest.approx(int(k) / SAMPLES), "one of eight is right"
    assert list(measured["pass_at"]) == ["1", "2", "4", "8"]
    assert measured["details"]["causes"].keys() <= {"tests:wrong_answer", "tests:runtime_error"}
