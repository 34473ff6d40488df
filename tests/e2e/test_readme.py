"""Every command and snippet of README: run here as it is written, or named with the test that runs
it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ports import free_port
from tests.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.timeout(3 * 240)
README = (ROOT / "README.md").read_text(encoding="utf-8")
LIMIT_S = 240
"""Seconds for anything here on a busy machine; nothing waits for them to pass."""
ELSEWHERE = {
    "make demo": ("tests/e2e/test_demo_run.py", "trainer.demo.run"),
    "make demo-real": ("tests/e2e/test_demo_real.py", "demo_real"),
    "gradus train configs/train/ocaml_qwen_1.5b.yaml": (
        "tests/unit/test_presets.py",
        "ocaml_qwen_1.5b.yaml",
    ),
    "gradus eval runs/my/final configs/tasks/ocaml.jsonl": (
        "tests/contract/test_cli_evaluation.py",
        '"eval"',
    ),
    "gradus dashboard": ("tests/contract/test_dashboard.py", '"dashboard",'),
    "make secrets && docker compose up --build --scale grader-ocaml=2": (
        "tests/e2e/compose.sh",
        "compose up",
    ),
}
"""Commands that train, need a GPU or containers, or are tested with more care elsewhere: file, and
what it holds."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


COMMANDS = [
    line.partition(" #")[0].strip() for block in blocks("sh") for line in block.splitlines()
]
HERE = [command for command in COMMANDS if command not in ELSEWHERE]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which `gradus` is that of this checkout."""
    programs = tmp_path_factory.mktemp("programs")
    (programs / "gradus").write_text(f'#!/bin/sh\nexec {sys.executable} -m gradus "$@"\n')
    (programs / "gradus").chmod(0o755)
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


@contextmanager
def running(command: str, shell: dict[str, str], is_ready: Callable[[], bool]) -> Iterator[None]:
    process = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=ROOT, env=shell, start_new_session=True
    )
    try:
        end = time.monotonic() + LIMIT_S
        while not is_ready():
            assert process.poll() is None, f"{command} ended"
            assert time.monotonic() < end, f"{command} was not ready within {LIMIT_S} s"
            time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(LIMIT_S) == 0


def answers(port: int, path: str) -> Callable[[], bool]:
    def is_ready() -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{port}{path}").status_code == 200
        except httpx.TransportError:
            return False

    return is_ready


def output(command: list[str], shell: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=ROOT, env=shell, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def holds(actual: Any, shown: Any) -> bool:
    """Whether everything that is shown is there; more may be."""
    if isinstance(shown, dict):
        return isinstance(actual, dict) and all(
            key in actual and holds(actual[key], shown[key]) for key in shown
        )
    if isinstance(shown, list):
        return len(actual) == len(shown) and all(map(holds, actual, shown))
    return bool(actual == shown)


def test_every_command_of_readme_is_run_somewhere() -> None:
    assert [name for name in ELSEWHERE if name not in COMMANDS] == []
    for file, text in ELSEWHERE.values():
        assert text in (ROOT / file).read_text(encoding="utf-8"), f"{file} no longer has {text}"
    assert [command.split()[0] for command in HERE] == ["make", "curl", "gradus", "gradus"]


@pytest.fixture(scope="module")
def port(shell: dict[str, str], ocaml_grader: object) -> Iterator[int]:
    """The service that `make serve` starts, on another port and with one grader."""
    recipe = output(
        ["make", "--no-print-directory", "--dry-run", *HERE[0].split()[1:]], shell
    ).splitlines()[-1]
    assert recipe.endswith("gradus serve")
    port = free_port()
    with running(f"gradus serve --graders ocaml --port {port}", shell, answers(port, "/readyz")):
        yield port


def test_curl_prints_the_result_that_readme_shows(port: int, shell: dict[str, str]) -> None:
    [shown] = map(json.loads, blocks("json"))
    printed = json.loads(output(["bash", "-c", HERE[1].replace("8000", str(port))], shell))
    for result in shown["results"]:
        for measured in ("cpu_ms", "cached", "toolchain"):
            assert measured in printed["results"][0]
            del result[measured]
    assert holds(printed, shown)
    assert {one: holds(printed, {"results": [{one: 1}]}) for one in ("reward",)} == {
        "reward": False
    }


def test_the_python_snippet_prints_the_rewards(port: int, shell: dict[str, str]) -> None:
    printed = output([sys.executable, "-c", blocks("python")[0].replace("8000", str(port))], shell)
    assert printed.splitlines() == ["right 1.0", "half right 0.675", "type error 0.0"]


def test_the_snippet_of_trl_is_that_of_the_example() -> None:
    example = (ROOT / "examples" / "trl" / "train.py").read_text(encoding="utf-8")
    code, comments = zip(
        *(line.partition("  # ")[::2] for line in blocks("python")[1].splitlines()), strict=True
    )
    assert [line for line in (*code, *comments) if line.strip() not in example] == []


def test_a_file_is_graded_without_a_server(shell: dict[str, str], ocaml_grader: object) -> None:
    [command] = re.findall(r"without a server: `(.+?)`", README)
    rewards = [json.loads(line)["reward"] for line in output(command.split(), shell).splitlines()]
    assert rewards == [1.0, 0.675, 0.0]


def test_api_and_worker_meet_in_redis(
    shell: dict[str, str], redis_server: Callable[..., RedisServer], ocaml_grader: object
) -> None:
    url = redis_server().url
    port = free_port()
    serve, worker = (command.replace("redis://127.0.0.1:6379/0", url) for command in HERE[2:])
    with ExitStack() as services:
        services.enter_context(running(f"{serve} --port {port}", shell, answers(port, "/healthz")))
        services.enter_context(running(worker, shell, answers(port, "/readyz")))
        printed = json.loads(output(["bash", "-c", HERE[1].replace("8000", str(port))], shell))
        assert printed["results"][0]["reward"] == 0.675
