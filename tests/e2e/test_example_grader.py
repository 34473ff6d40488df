"""`examples/grader_sql`, a grader in a package of its own, beside an unchanged checkout.

Only the worker and the evaluation run in an environment that has the package. The API and the live
page run without it, and the API is started before the worker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from dashboard_server import LivePage
from fake_openai_server import Json, OpenAiLike, Reply, said
from prometheus_client.parser import text_string_to_metric_families

from services.attacks.code import Attack, CodeCorpus, fill_placeholders
from services.graders.base import find_installed_graders
from tests.conftest import Cli
from tests.ports import free_port
from tests.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "grader_sql"
CORPUS = CodeCorpus.read("sql", EXAMPLE / "grader_sql" / "attacks")
ATTACKS = CORPUS.attacks.values()
TASK = CORPUS.honest.task
RIGHT = "```sql\nSELECT name FROM item WHERE price >= 11\n```"
SOON_S = 60.0
"""Longer than anything here takes on a busy machine; nothing waits for it to pass."""


def submission(which: str, completion: str) -> Json:
    return {"id": which, "completion": completion, "task": TASK}


# ---------------------------------------------------------------------- what is started


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment: the checkout, its dependencies, and the example,
    installed by pip."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    interpreter = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "checkout.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    pip = [sys.executable, "-m", "pip", "--python", str(interpreter), "--disable-pip-version-check"]
    install = [
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        str(EXAMPLE),
    ]
    done = subprocess.run(
        [*pip, *install], capture_output=True, text=True, timeout=SOON_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return interpreter


def command(interpreter: str | Path, *arguments: str | Path) -> tuple[list[str], dict[str, str]]:
    """`gradus ...` of the checkout and its environment variables."""
    environment = {name: value for name, value in os.environ.items() if name != "GRADUS_REDIS_URL"}
    return [str(interpreter), "-m", "gradus", *map(str, arguments)], environment | {
        "PYTHONPATH": str(ROOT)
    }


@contextmanager
def running(
    interpreter: str | Path, log: Path, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`gradus ...` as a process, ended by SIGTERM; `log` gets what it writes."""
    line, environment = command(interpreter, *arguments)
    with (
        log.open("wb") as file,
        subprocess.Popen(line, env=environment, stdout=file, stderr=file) as process,
    ):
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=SOON_S)


def answered(url: str, process: subprocess.Popen[bytes], log: Path) -> httpx.Response:
    """The first answer of status 200 at `url`, which `process` makes possible."""
    give_up_at = time.monotonic() + SOON_S
    while True:
        try:
            if (response := httpx.get(url)).status_code == 200:
                return response
        except httpx.TransportError:
            pass
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < give_up_at, log.read_text()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def redis(redis_server: Callable[..., RedisServer]) -> str:
    return redis_server().url


@pytest.fixture(scope="module")
def api(redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API, in an environment without the example."""
    port = free_port()
    log = tmp_path_factory.mktemp("api") / "log"
    url = f"http://127.0.0.1:{port}"
    with running(sys.executable, log, "serve", "--redis", redis, "--port", str(port)) as process:
        answered(f"{url}/healthz", process, log)
        yield url


@pytest.fixture(scope="module")
def before(api: str) -> list[httpx.Response]:
    """What the API answers while no worker has announced the grader."""
    body = {"submissions": [submission("a", RIGHT)]}
    return [httpx.get(f"{api}/v1/graders/sql"), httpx.post(f"{api}/v1/grade/sql", json=body)]


@pytest.fixture(scope="module")
def url(
    api: str, redis: str, before: object, python: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The same API, after a worker of the grader joined."""
    log = tmp_path_factory.mktemp("worker") / "log"
    with running(python, log, "worker", "sql", "--redis", redis, "--slots", "4") as process:
        answered(f"{api}/v1/graders/sql", process, log)
        yield api


@pytest.fixture(scope="module")
def graded(url: str) -> dict[str, Json]:
    """The results of a right, a wrong and all hostile answers, by id."""
    hostile = [submission(one.name, fill_placeholders(one.source)) for one in ATTACKS]
    asked = [
        submission("right", RIGHT),
        submission("wrong", "SELECT name FROM item WHERE price BETWEEN 13 AND 20"),
        *hostile,
    ]
    response = httpx.post(
        f"{url}/v1/grade/sql", json={"submissions": asked, "deadline_s": SOON_S}, timeout=SOON_S
    )
    assert response.status_code == 200, response.text
    return {result["id"]: result for result in response.json()["results"]}


# ---------------------------------------------------------------------- the grader


def test_the_checkout_does_not_have_the_grader() -> None:
    assert "sql" not in find_installed_graders()


def test_a_running_api_learns_the_grader_from_its_worker(
    before: list[httpx.Response], url: str
) -> None:
    assert [response.status_code for response in before] == [404, 404]
    assert "there is no grader 'sql'" in before[1].json()["detail"]
    found = httpx.get(f"{url}/v1/graders/sql").json()
    assert found["stages"] == ["extract", "compile", "tests"]
    assert found["rates"] == {"compile": "past:compile", "tests": "passed"}
    assert found["fences"][0] == "sql"
    assert {"compile", "returns", "tests"} <= set(found["components"])
    document = httpx.get(f"{url}/openapi.json").json()
    assert "SqlGradeRequest" in document["components"]["schemas"]
    sent = httpx.post(f"{url}/v1/grade/sql", json={"submissions": [found["example"]]}).json()
    assert sent["results"][0]["reward"] == 1.0


def test_right_and_wrong_answers(graded: dict[str, Json]) -> None:
    right = graded["right"]
    wrong = graded["wrong"]
    assert (right["passed"], right["reward"]) == (True, 1.0)
    assert right["components"] == {"compile": 0.1, "returns": 0.1, "tests": 0.8}
    assert (wrong["passed"], wrong["tests"]) == (False, {"passed": 1, "total": 3})


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_a_hostile_answer_must_not(attack: Attack, graded: dict[str, Json]) -> None:
    found = graded[attack.name]
    assert found["status"] == "graded", found
    assert found["stage"] in attack.stages
    assert (found["tests"] or {"passed": 0})["passed"] == attack.earned
    assert attack.flags <= set(found["flags"])
    assert found["reward"] <= 0.2 + 0.8 * attack.earned / 3 + 1e-6


@pytest.mark.slow
def test_the_attack_command_finds_the_corpus_in_the_package(url: str, python: Path) -> None:
    line, environment = command(python, "attack", "sql", "--quiet", "--url", url)
    done = subprocess.run(
        line, env=environment, capture_output=True, text=True, timeout=2 * SOON_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(f"{len(ATTACKS)} of {len(ATTACKS)} attacks held\n")
    local, environment = command(python, "attack", "sql", "--quiet")
    here = subprocess.run(
        local, env=environment, capture_output=True, text=True, timeout=2 * SOON_S, check=False
    )
    assert here.returncode == 0, here.stdout + here.stderr


def test_mistakes_of_callers_are_no_verdicts(url: str) -> None:
    misspelt = {**submission("a", RIGHT), "task": {"tables": "", "case": []}}
    refused = httpx.post(f"{url}/v1/grade/sql", json={"submissions": [misspelt]})
    assert refused.status_code == 422
    assert {error["field"] for error in refused.json()["errors"]} == {
        "submissions.0.task.tables",
        "submissions.0.task.case",
        "submissions.0.task.cases",
    }
    no_tables = {**submission("a", RIGHT), "task": {**TASK, "tables": "CREATE TABLE"}}
    (faulted,) = httpx.post(f"{url}/v1/grade/sql", json={"submissions": [no_tables]}).json()[
        "results"
    ]
    assert "this task cannot be judged: its tables cannot be made: " in faulted["fault"]["message"]


# ---------------------------------------------------------------------- where it shows


def test_metrics_count_its_stages_and_flags(url: str, graded: dict[str, Json]) -> None:
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics").text)
    samples = [
        sample
        for family in families
        for sample in family.samples
        if sample.labels.get("grader") == "sql"
    ]
    stages = {
        one.labels["stage"]: one.value for one in samples if one.name == "gradus_api_verdicts_total"
    }
    assert stages.keys() == {"extract", "compile", "tests"}
    assert stages["tests"] >= len(graded) - 8
    flags = {one.labels["flag"] for one in samples if one.name == "gradus_api_flags_total"}
    assert "limit:cpu" in flags


def test_the_api_lists_it_with_its_rubrics(url: str) -> None:
    live = {one["name"]: one for one in httpx.get(f"{url}/v1/graders").json()["graders"]}
    assert live["sql"]["rubrics"] == ["sql/graduated@1", "sql/strict@1"]


@pytest.mark.slow
def test_an_evaluation_without_the_package_reports_rates_and_components(
    url: str, gradus: Cli, tmp_path: Path
) -> None:
    rows = [{"id": f"t{n}", "prompt": f"Write a query, {n}.", "task": TASK} for n in range(4)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    answers = [
        RIGHT,
        RIGHT,
        "```sql\nSELECT 'pan'\n```",
        "```sql\nSELECT FROM\n```",
    ]
    by_prompt = {row["prompt"]: completion for row, completion in zip(rows, answers, strict=True)}

    def answer(text: str, body: Json, before: int) -> Reply | str:
        if text not in by_prompt:  # the second turn
            assert "This sql code has a mistake" in text
        return said(by_prompt.get(text, RIGHT), chat="messages" in body)

    out = tmp_path / "evaluation"
    with OpenAiLike(answer).serving() as like:
        to = (
            "--grader",
            "sql",
            "--url",
            url,
            "--endpoint",
            like.url,
            "--out",
            out,
            "--temperature",
            "0",
        )
        got = gradus("eval", tmp_path / "tasks.jsonl", *to, "--max-turns", "2")
        assert got.status == 0, got.err
        typo = gradus("eval", tmp_path / "tasks.jsonl", *to[2:], "--grader", "sequel")
    (measured,) = json.loads((out / "results.json").read_text())["measurements"]
    assert (measured["graded"], measured["passed"]) == (4, 2)
    assert measured["details"]["rates"]["compile"]["value"] == 0.75
    assert measured["components"]["returns"] == pytest.approx(0.075)
    assert measured["turns"]["green_by"]["2"]["value"] == 1.0
    assert "returns" in (out / "report.html").read_text()
    with LivePage(tmp_path).running() as page:
        [listed] = httpx.get(f"{page.url}/api/runs").json()["runs"]
    assert (listed["kind"], listed["state"], listed["grader"]) == (
        "evaluation",
        "finished",
        "sql",
    )
    assert listed["held_out"]["pass_rate"] == 0.5
    assert gradus("replay", out, "--url", url).status == 0
    assert typo.status == 2
    assert "there is no grader 'sequel'" in typo.err


def test_a_file_is_graded_by_the_service_without_the_package(
    url: str, gradus: Cli, tmp_path: Path
) -> None:
    file = tmp_path / "submissions.jsonl"
    file.write_text(json.dumps(submission("a", RIGHT)) + "\n")
    done = gradus("grade", "sql", file, "--url", url)
    assert done.status == 0, done.err
    assert json.loads(done.out)["reward"] == 1.0
    assert gradus("grade", "sql", file).status == 2
