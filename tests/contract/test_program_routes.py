"""Program tasks by the routes and integrations of other projects, with the real grader behind the
API."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from gradus.contract import Graded
from gradus.integrations.core import Completion, extract_task, grade, settings
from services.api import parse
from services.api.app import create_app
from services.api.settings import ApiSettings
from services.broker.memory import MemoryBroker
from services.graders.program.grader import ProgramGrader
from services.worker import Worker
from tests.grader_service import serve_grader

SUM = "print(sum(map(int, input().split())))"
ROW = {
    "id": "sum",
    "prompt": "Print the sum.",
    "language": "python",
    "cases": [{"stdin": "1 2", "stdout": "3"}, {"stdin": "5 -3", "stdout": "2"}],
}
CASES = [
    {"input": {"stdin": case["stdin"]}, "output": {"stdout": case["stdout"]}}
    for case in ROW["cases"]
]
FOREIGN_NAMES = {"javascript": "nodejs"}


def fence(text: str) -> str:
    return f"```python\n{text}\n```"


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("tasks") / "tasks.jsonl"
    file.write_text(json.dumps(ROW) + "\n")
    return file


@pytest.fixture(scope="module")
def url(program_grader: ProgramGrader, tasks: Path) -> Iterator[str]:
    adapters = ("sandbox_fusion", "nemo_gym")
    with serve_grader(program_grader, adapters=adapters, tasks=f"program={tasks}") as found:
        yield found


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, timeout=300) as found:
        yield found


# --------------------------------------------------------------------------------- SandboxFusion


def run_code(client: httpx.Client, code: str, language: str = "python", **more: Any) -> Any:
    request = {"code": code, "language": language, "run_timeout": 1, **more}
    answer = client.post("/sandbox_fusion/run_code", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


def submit(client: httpx.Client, completion: str, language: str = "python") -> Any:
    config = {"language": language, "provided_data": {"test": CASES}, "run_timeout": 1}
    request = {"dataset": "d", "id": 1, "completion": completion, "config": config}
    answer = client.post("/sandbox_fusion/submit", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_large_requests_are_read_in_another_process(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    for large_bytes in (parse.LARGE_BYTES, 0):
        monkeypatch.setattr(parse, "LARGE_BYTES", large_bytes)
        for code in (SUM, "print(1)"):
            answers.append((submit(client, fence(code)), run_code(client, code, stdin="1 2")))
    assert answers[:2] == answers[2:]


def test_code_runs_and_answers_are_judged_in_every_language(
    client: httpx.Client, program_grader: ProgramGrader
) -> None:
    for name, language in program_grader.languages.items():
        foreign = FOREIGN_NAMES.get(name, name)
        example = language.settings.example
        ran = run_code(client, example, foreign, stdin="1 2\n", run_timeout=2)
        assert ran["status"] == "Success", (name, ran)
        assert ran["run_result"]["stdout"].strip() == "3", (name, ran)
        judged = submit(client, f"```{name}\n{example}\n```", foreign)
        assert judged["accepted"] is True, (name, judged)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys\nprint(1)\nprint('oh', file=sys.stderr)\nsys.exit(3)", (3, "1\n", "oh\n")),
        ("print('```')", (0, "```\n", "")),
        ("print(open('a.txt').read())", (0, "text\n", "")),
        ("print(0, end='')", (0, "0", "")),
    ],
)
def test_a_run_reports_what_was_written_and_its_status(
    client: httpx.Client, code: str, expected: tuple[int, str, str]
) -> None:
    content = base64.b64encode(b"text").decode()
    ran = run_code(client, code, files={"a.txt": content, "none.txt": None})
    found = ran["run_result"]
    assert (found["return_code"], found["stdout"], found["stderr"]) == expected
    assert found["status"] == "Finished"
    assert ran["status"] == ("Failed" if expected[0] else "Success")


def test_runs_that_fail_are_told_apart(client: httpx.Client) -> None:
    ran = run_code(client, "int a = 1")
    assert (ran["status"], ran["run_result"]["return_code"]) == ("Failed", 1)
    assert "SyntaxError" in ran["run_result"]["stderr"]
    ran = run_code(client, "int main() { return x; }", "cpp")
    assert (ran["status"], ran["run_result"]) == ("Failed", None)
    assert "'x' was not declared" in ran["compile_result"]["stderr"]
    ran = run_code(client, "int main() { for (;;); }", "cpp")
    assert (ran["status"], ran["run_result"]["status"]) == ("Failed", "TimeLimitExceeded")
    assert run_code(client, "print('x' * 70_000)")["status"] == "Success"
    for code in ("print('x' * 100_000)", "print('\\1' * 70_000)"):
        ran = run_code(client, code)
        assert ran["status"] == "SandboxError", "part of an output would be a wrong answer"
        assert ran["message"] == "the output is too large to be returned"


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"fetch_files": ["a"]}, "fetch_files"),
        ({"language": "cobol"}, "language"),
        ({"files": {"../a": ""}}, "files"),
        ({"files": {"a": "!"}}, "base64"),
        ({"code": None}, "code"),
    ],
)
def test_a_run_that_is_not_possible_is_refused(
    client: httpx.Client, changes: dict[str, Any], part: str
) -> None:
    request = {"code": "print(1)", "language": "python", **changes}
    answer = client.post("/sandbox_fusion/run_code", json=request)
    assert answer.status_code == 422, answer.text
    assert part in answer.json()["detail"]


def test_answers_are_judged_on_their_cases(client: httpx.Client) -> None:
    judged = submit(client, fence("print(3)"))
    assert judged["accepted"] is False
    assert [test["passed"] for test in judged["tests"]] == [True, False]


# ------------------------------------------------------------------------------------------- others


def test_nemo_gym_verifies_programs(client: httpx.Client) -> None:
    """verifiers' NeMo Gym client sends the same."""
    for text, reward in ((SUM, 1.0), ("print(3)", 0.55)):
        content = [{"type": "output_text", "text": fence(text)}]
        message = {"type": "message", "role": "assistant", "content": content}
        row = {
            "responses_create_params": {"input": [{"role": "user", "content": ROW["prompt"]}]},
            "verifier_metadata": {"task": "sum"},
            "response": {"id": "r", "output": [message]},
        }
        answer = client.post("/nemo_gym/program/verify", json=row)
        assert answer.status_code == 200, answer.text
        assert answer.json()["reward"] == pytest.approx(reward)


def test_openenv_steps_through_programs(program_grader: ProgramGrader, tasks: Path) -> None:
    broker = MemoryBroker()
    app = create_app(broker, ApiSettings(adapters=("openenv",), tasks=f"program={tasks}"))
    stop = asyncio.Event()
    with TestClient(app) as client:
        assert client.portal is not None
        worker = Worker(program_grader, broker, slots=1, self_tested=True)
        working = client.portal.start_task_soon(worker.run, stop)
        with client.websocket_connect("/openenv/program/ws") as session:

            def send(kind: str, **data: Any) -> Any:
                session.send_text(json.dumps({"type": kind, "data": data}))
                return session.receive_json()["data"]

            assert send("reset", index=0)["observation"]["prompt"] == ROW["prompt"]
            assert send("step", completion=fence(SUM))["reward"] == 1.0
        client.portal.call(stop.set)
        working.result()


def test_integrations_read_rows_of_programs(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """verifiers, inspect, TRL and others go through these two functions."""
    monkeypatch.setenv("GRADUS_URL", url)
    task = extract_task(ROW, "program")
    completions = [Completion(task, fence(text)) for text in (SUM, "print(3)")]
    results = asyncio.run(grade(completions, settings("program")))
    assert [isinstance(result, Graded) and result.passed for result in results] == [True, False]
