"""Tasks as folders of Harbor: what the agent sees, what the verifier does with verdicts and
faults."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from corpus.harbor import build_folders, read_folders, require_pinned, write_folders
from gradus.errors import Misuse
from gradus.integrations.core import extract_task
from gradus.row_reader import read_rows
from tests.conftest import Cli

ROOT = Path(__file__).parents[2]
TASKS = ROOT / "configs" / "tasks" / "ocaml.jsonl"
IMAGE = "registry.example/gradus/grader-ocaml@sha256:" + "0" * 64


def export(out: Path) -> None:
    """Write the folders of the first three tasks."""
    rows = list(read_rows(TASKS))[:3]
    tasks = [extract_task(row.values, "ocaml") for row in rows]
    write_folders(out, build_folders(rows, tasks, "ocaml", IMAGE, "debian:bookworm-slim"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the first task."""
    out = tmp_path_factory.mktemp("harbor") / "tasks"
    export(out)
    assert len(list(out.iterdir())) == 3
    return min(out.iterdir())


def verify(folder: Path, answer: str | None, work: Path, path: str | None = None) -> Path:
    """Run the verifier's script with its paths in `work`; return the path of the reward."""
    script = (folder / "tests" / "test.sh").read_text()
    script = script.replace("/tests/", f"{folder}/tests/").replace("/app/", f"{work}/")
    script = script.replace("/logs/verifier", str(work)).replace("python3", sys.executable)
    if answer is not None:
        (work / "answer.ml").write_text(answer)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment["PATH"] = path or f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-c", script], env=environment, timeout=100, check=False)
    return work / "reward.txt"


def test_an_export_declares_a_pinned_verifier_without_network(folder: Path) -> None:
    configuration = tomllib.loads((folder / "task.toml").read_text())
    verifier = configuration["verifier"]
    assert verifier["environment_mode"] == "separate"
    assert verifier["environment"]["docker_image"] == IMAGE
    assert verifier["environment"]["network_mode"] == "no-network"
    assert configuration["artifacts"] == ["/app/answer.ml"]


def test_the_agent_sees_no_hidden_test(folder: Path) -> None:
    tests = json.loads((folder / "tests" / "task.json").read_text())["task"]["tests"]
    seen = (folder / "instruction.md").read_text()
    seen += "".join(path.read_text() for path in (folder / "environment").iterdir())
    assert not [line for line in tests.splitlines() if line in seen]


@pytest.mark.parametrize("image", ["gradus/grader-ocaml:latest", "a@sha256:12", ""])
def test_an_image_without_a_digest_is_refused(image: str) -> None:
    with pytest.raises(Misuse, match="digest"):
        require_pinned(image)


def test_a_verdict_is_written(folder: Path, tmp_path: Path, ocaml_grader: object) -> None:
    [row, *_] = read_rows(TASKS)
    reward = verify(folder, row.text("solution"), tmp_path)
    assert float(reward.read_text()) == 1.0
    reward = verify(folder, "let clamp a b = a +", tmp_path)
    assert float(reward.read_text()) == 0.0


def test_an_answer_that_was_not_written_earns_nothing(
    folder: Path, tmp_path: Path, ocaml_grader: object
) -> None:
    assert float(verify(folder, None, tmp_path).read_text()) == 0.0


def test_a_fault_writes_no_reward_and_removes_an_older_one(folder: Path, tmp_path: Path) -> None:
    """A `gradus` that has no compiler cannot start its grader."""
    (tmp_path / "reward.txt").write_text("1.0\n")
    commands = tmp_path / "bin"
    commands.mkdir()
    (commands / "gradus").symlink_to(Path(sys.executable).with_name("gradus"))
    (commands / "bash").symlink_to("/bin/bash")
    assert not verify(folder, "let x = 1", tmp_path, path=str(commands)).exists()


@pytest.mark.parametrize("name", ["../x", "a/b", "", "a b"])
def test_an_id_that_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text(json.dumps({"id": name, "prompt": "p", "tests": "t"}) + "\n")
    rows = list(read_rows(file))
    with pytest.raises(Misuse):
        build_folders(rows, [{"tests": "t"}], "ocaml", IMAGE, "debian:bookworm-slim")


def test_an_exported_task_is_imported_as_it_was(gradus: Cli, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    words = ("--format", "harbor", "--no-validate", "-o", str(file))
    done = gradus("tasks", "import", str(folder.parent), *words)
    assert done.status == 0, done.err
    rows = list(read_rows(file))
    for row, before in zip(rows, list(read_rows(TASKS))[:3], strict=True):
        assert extract_task(row.values, "ocaml") == extract_task(before.values, "ocaml")
        for column in ("id", "prompt"):
            assert row.text(column) == before.text(column)
        assert row.text("solution").rstrip() == before.text("solution").rstrip()


CHANGES = {
    "a test script of its own": ("tests/test.sh", "echo 1 > /logs/verifier/reward.txt\n"),
    "a verifier of its own": ("tests/grade.py", "print(1)\n"),
    "a file in the environment": ("environment/data.txt", "1 2 3\n"),
    "a package in the environment": (
        "environment/Dockerfile",
        "FROM debian:bookworm-slim\nRUN apt-get install -y ocaml\nWORKDIR /app\n",
    ),
    "another instruction": ("instruction.md", "Fix the server.\n"),
    "a solution by commands": ("solution/solve.sh", "#!/bin/bash\nmake -C /app\n"),
    "another configuration": ("task.toml", 'artifacts = ["/app/a"]\n[verifier]\n'),
    "no hidden task": ("tests/task.json", "[]"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_that_is_no_export_is_refused(tmp_path: Path, change: str) -> None:
    export(tmp_path)
    first = min(tmp_path.iterdir())
    file, text = CHANGES[change]
    (first / file).write_text(text)
    refused, *imported = read_folders(tmp_path)[0]
    assert refused.problem is not None
    assert file in refused.problem or "no export" in refused.problem
    assert [row.problem for row in imported] == [None, None]


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    export(tmp_path / "tasks")
    first = min((tmp_path / "tasks").iterdir())
    (tmp_path / "secret").write_text((first / "instruction.md").read_text())
    (first / "instruction.md").unlink()
    (first / "instruction.md").symlink_to(tmp_path / "secret")
    [row] = read_folders(first)[0]
    assert row.problem == "instruction.md: is a link"


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=r"no folder with a task\.toml"):
        read_folders(tmp_path)
