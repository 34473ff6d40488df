"""Command lines that cannot work: one message, what to do, and the documented exit status; outputs
and credentials are checked before work starts."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis import Redis

from gradus.errors import Fault, InternalFault, Misuse
from gradus.system_errors import (
    FAULT_REMEDIES,
    REMEDIES,
    convert_system_errors,
    require_writable,
)
from tests.conftest import ROOT, Cli
from tests.redis_server import RedisServer

MISUSES: list[dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests/cases/cli/misuses.yaml").read_text(encoding="utf-8")
)
TASKS = [
    {"id": f"t{number}", "prompt": f"Add {number}", "tests": f"let () = assert (f 1 = {number})"}
    for number in range(10)
]
SUBMISSION = {"id": "1", "completion": "let f x = x", "task": {"tests": TASKS[0]["tests"]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the cases name."""
    folder = tmp_path_factory.mktemp("misuses")
    (folder / "folder").mkdir()
    (folder / "run").mkdir()
    files = {
        "a.jsonl": json.dumps(SUBMISSION),
        "a.txt": "text",
        "empty.jsonl": "",
        "torn.jsonl": '{"id": ',
        "list.jsonl": "[]",
        "tasks.jsonl": "\n".join(map(json.dumps, TASKS)),
        "model.yaml": (ROOT / "configs/models/llama_7b.yaml").read_text(encoding="utf-8"),
        "sft.yaml": (ROOT / "configs/train/demo_sft.yaml").read_text(encoding="utf-8"),
        "run/metrics.jsonl": "",
    }
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "bytes.jsonl").write_bytes(json.dumps(SUBMISSION).encode() + b"\n\xff\n")
    return folder


@pytest.mark.parametrize("case", MISUSES, ids=[case["argv"] for case in MISUSES])
def test_a_misuse_is_one_message_with_its_exit_status(
    gradus: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, case: dict[str, Any]
) -> None:
    monkeypatch.chdir(folder)
    for name in ("GRADUS_REDIS_URL", "GRADUS_API_KEYS_FILE", "GRADUS_API_ALLOW_ANONYMOUS"):
        monkeypatch.delenv(name, raising=False)
    said = gradus(*shlex.split(case["argv"]))
    message = re.sub(r"\s*[│╭╰─╮╯]\s*", " ", said.err + said.out)
    assert said.status == case.get("status", 2), message[-2000:]
    assert " ".join(case["says"].split()) in " ".join(message.split())
    assert "Traceback" not in message
    assert "[Errno" not in message


def test_there_are_at_least_80_misuses() -> None:
    assert len({case["argv"] for case in MISUSES}) >= 80


@pytest.mark.parametrize("number", [*REMEDIES, *FAULT_REMEDIES, errno.EBADF])
def test_an_error_of_the_system_is_one_line_with_a_remedy(number: int) -> None:
    expected = Misuse if number in REMEDIES else Fault
    with pytest.raises(expected) as caught, convert_system_errors():
        raise OSError(number, os.strerror(number), "some/file")
    assert str(caught.value).startswith(f"some/file: {os.strerror(number)}: ")


def test_an_error_without_a_number_names_its_kind() -> None:
    message = "TimeoutError: set GRADUS_TRACEBACK=1"
    with pytest.raises(InternalFault, match=message), convert_system_errors():
        raise TimeoutError


def test_the_traceback_is_shown_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRADUS_TRACEBACK", "1")
    with pytest.raises(FileNotFoundError), convert_system_errors():
        raise FileNotFoundError(errno.ENOENT, "No such file")


def test_a_folder_that_its_owner_may_not_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # root may write everywhere, so the kernel's answer is given here
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)
    with pytest.raises(Misuse, match="cannot be written"):
        require_writable(tmp_path / "a" / "b")


def run_gradus(*argv: str, stdout: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "gradus", *argv],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("argv", [["--help"], ["keys", "new", "ada"]])
def test_a_full_disk_is_a_fault(argv: list[str]) -> None:
    with open("/dev/full", "w") as full:
        process = run_gradus(*argv, stdout=full)
    _, err = process.communicate()
    assert process.returncode == 3, err
    assert err.splitlines()[-1].endswith("free space on the disk, then repeat the command")
    assert "Traceback" not in err


def test_a_closed_pipe_ends_the_command_without_a_message() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = run_gradus("keys", "new", "ada", stdout=writer)
    os.close(writer)
    _, err = process.communicate()
    assert process.returncode == 141, err
    assert "Traceback" not in err
    assert "BrokenPipe" not in err


def test_a_wrong_password_and_an_unknown_grader_are_refused_by_the_queue(
    gradus: Cli, redis_server: Callable[..., RedisServer]
) -> None:
    server = redis_server()
    with Redis.from_url(server.url) as client:
        client.config_set("requirepass", "secret")
    address = f"127.0.0.1:{server.port}/0"
    said = gradus("queue", "pause", "ocaml", "--redis", f"redis://:wrong@{address}")
    assert said.status == 3
    assert "check its user, password" in said.err
    for command in ("pause", "drain", "resume", "jobs"):
        said = gradus("queue", command, "haskell", "--redis", f"redis://:secret@{address}")
        assert said.status == 2, command
        assert "there is no grader 'haskell'; there are: ocaml" in said.err
    assert gradus("queue", "pause", "ocaml", "--redis", f"redis://:secret@{address}").status == 0


def test_a_service_that_is_away_is_reported_soon(gradus: Cli, folder: Path) -> None:
    said = gradus("grade", "ocaml", folder / "a.jsonl", "--url", "http://127.0.0.1:9")
    assert said.status == 3
    assert "1 of 1 submissions could not be judged" in said.err
