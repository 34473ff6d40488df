"""The live page over HTTP: what it answers, whom it lets in, what it tells browsers, what hostile
folders do to it."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from dashboard_server import LivePage, append, metric, quick_looks, sample
from report_runs import hostile_run, rich_run

from gradus.errors import Misuse
from services.dashboard.auth import refuse_open_page, validate_token
from services.dashboard.runs import Runs
from tests.conftest import Cli
from trainer.evaluate.report import comparisons

ROOT = Path(__file__).parents[2]
TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module", autouse=True)
def soon() -> Iterator[None]:
    """Servers that look at folders more often than usual."""
    with quick_looks():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = tmp_path_factory.mktemp("runs")
    rich_run(runs / "rich")
    hostile_run(runs / "hostile")
    return runs


@pytest.fixture(scope="module")
def page(folder: Path) -> Iterator[httpx.Client]:
    with LivePage(folder).running() as live, httpx.Client(base_url=live.url) as client:
        yield client


@pytest.fixture(scope="module")
def locked(folder: Path) -> Iterator[httpx.Client]:
    with LivePage(folder, token=TOKEN).running() as live, httpx.Client(base_url=live.url) as client:
        yield client


# ---------------------------------------------------------------------- the routes


@pytest.mark.parametrize("path", ["/", "/style.css", "/page.js"])
def test_the_page_comes_without_anything_from_elsewhere(page: httpx.Client, path: str) -> None:
    answer = page.get(path)
    assert answer.status_code == 200
    # uPlot names its home in a comment.
    assert re.findall("https?://(?!127.0.0.1|github.com/leeoniya/uPlot)", answer.text) == []


def test_every_file_that_the_page_names_is_there(page: httpx.Client) -> None:
    for document in ("/", "/enter"):
        for name in re.findall('(?:src|href)="(/[^"#]+)"', page.get(document).text):
            assert page.get(name).status_code == 200, name


def test_no_two_scripts_have_the_same_name_for_something(page: httpx.Client) -> None:
    """They share a scope, where the later of two functions would take the place of the other."""
    names = re.findall(
        r"^(?:const|let|class|function|async function) (\w+)", page.get("/page.js").text, re.M
    )
    assert len(names) > 100
    assert sorted(set(names)) == sorted(names)


def test_every_answer_forbids_browsers_what_the_page_does_not_need(page: httpx.Client) -> None:
    for path in ("/", "/api/runs", "/page.js", "/healthz", "/nowhere", "/enter"):
        headers = page.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_runs_are_listed_with_their_newest_figures(page: httpx.Client) -> None:
    told = page.get("/api/runs").json()
    by_id = {run["id"]: run for run in told["runs"]}
    assert set(by_id) == {"rich", "hostile"}
    assert by_id["rich"]["step"] == by_id["rich"]["max_steps"] == 60
    assert by_id["rich"]["held_out"]["name"] == "after"


def test_a_run_is_told_whole(page: httpx.Client) -> None:
    run = page.get("/api/run", params={"id": "rich"}).json()
    assert len(run["metrics"]["steps"]) == len(run["metrics"]["values"]["reward"]) == 60
    assert run["completions"] == 60 * 32
    assert [one["name"] for one in run["evaluations"]] == ["before", "step-20", "step-40", "after"]
    counts = run["outcomes"]["counts"].values()
    assert [sum(at_step) for at_step in zip(*counts, strict=True)] == [32] * 60
    assert ("grpo.max_steps", "60") in {tuple(one) for one in run["settings"]}


def test_a_group_is_told_and_so_are_its_neighbours(page: httpx.Client) -> None:
    newest = page.get("/api/group", params={"id": "rich"}).json()
    assert newest["range"] == [newest["range"][0], newest["number"]]
    before = page.get("/api/group", params={"id": "rich", "number": newest["number"] - 1}).json()
    assert before["step"] <= newest["step"]
    at_step = page.get("/api/group", params={"id": "rich", "step": 7}).json()
    assert at_step["step"] == 7
    assert at_step["samples"][0]["completion"] == "let f x = x"


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "9" * 16, "", "\u0663", "1e3"])
def test_numbers_that_are_none_are_misuse(page: httpx.Client, value: str) -> None:
    for name in ("number", "step"):
        answer = page.get("/api/group", params={"id": "rich", name: value})
        assert (answer.status_code, answer.headers["content-type"]) == (
            422,
            "application/problem+json",
        )


@pytest.mark.parametrize(
    "run_id",
    [
        "",
        "nowhere",
        "..",
        "../rich",
        "rich/../rich",
        "/etc",
        "rich\0",
        "%2e%2e",
        "rich/eval",
        "a" * 5000,
    ],
)
def test_only_runs_that_were_found_can_be_asked_for(page: httpx.Client, run_id: str) -> None:
    for path in ("/api/run", "/api/group", "/api/samples"):
        assert page.get(path, params={"id": run_id}).status_code == 404


@pytest.mark.parametrize("pair", [("rich", "nowhere"), ("../rich", "rich"), ("", "")])
def test_only_evaluations_that_were_found_can_be_compared(
    page: httpx.Client, pair: tuple[str, str]
) -> None:
    assert page.get("/api/changes", params={"before": pair[0], "after": pair[1]}).status_code == 404


def test_the_dashboard_compares_by_the_wing_that_computes() -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    module, _, name = groups["gradus.comparisons"]["trainer"].partition(":")
    assert getattr(import_module(module), name) is comparisons


@pytest.mark.parametrize(
    "name",
    ["nothing.js", "..%2fapp.py", "%2e%2e/app.py", "__init__.py", "", "app.js%00", "a" * 5000],
)
def test_only_files_of_the_page_can_be_asked_for(page: httpx.Client, name: str) -> None:
    assert page.get(f"/assets/{name}").status_code == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_nothing_can_be_changed(page: httpx.Client, method: str) -> None:
    for path in ("/", "/api/runs", "/api/run?id=rich", "/metrics"):
        assert page.request(method, path).status_code == 405


def test_what_models_wrote_is_never_html(page: httpx.Client) -> None:
    for path in (
        "/api/run?id=hostile",
        "/api/group?id=hostile",
        "/api/samples?id=hostile",
        "/api/changes?before=hostile&after=hostile",
    ):
        answer = page.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "application/json"
        assert "onerror" in answer.text


def test_prometheus_is_answered(page: httpx.Client) -> None:
    answer = page.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    assert 'gradus_train_step{run="rich"} 60.0' in answer.text
    assert page.get("/healthz").json() == {"status": "ok"}


# ----------------------------------------------------------------------------------------- changes


def wait_for(client: httpx.Client, since: int) -> dict[str, Any]:
    """The first answer after a version of the list in which runs changed or went."""
    give_up_at = time.monotonic() + 60
    while True:
        told = dict(client.get("/api/runs", params={"since": since}).json())
        if told["version"] > since:
            return told
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def test_only_runs_that_changed_are_told_and_half_a_line_when_it_is_whole(tmp_path: Path) -> None:
    file, other = (tmp_path / name / "metrics.jsonl" for name in "ab")
    append(file, [metric(1)])
    append(other, [metric(1)])
    with LivePage(tmp_path).running() as live, httpx.Client(base_url=live.url) as client:
        told = client.get("/api/runs").json()
        assert [run["id"] for run in told["runs"]] == ["a", "b"]
        with file.open("a") as handle:
            handle.write('{"step": 2, "rew')
        append(other, [metric(2)])
        told = wait_for(client, told["version"])
        assert ([run["id"] for run in told["runs"]], told["ids"]) == (["b"], ["a", "b"])
        with file.open("a") as handle:
            handle.write('ard": 0.875}\n')
        [run] = wait_for(client, told["version"])["runs"]
        assert (run["id"], run["step"], run["reward"]) == ("a", 2, 0.875)
        shutil.rmtree(tmp_path / "a")
        give_up_at = time.monotonic() + 60
        while client.get("/api/runs").json()["ids"] != ["b"]:
            assert time.monotonic() < give_up_at


def test_another_process_tells_everything_anew(tmp_path: Path) -> None:
    append(tmp_path / "a" / "metrics.jsonl", [metric(1)])
    earlier = Runs(tmp_path).version
    with LivePage(tmp_path).running() as live:
        answer = httpx.get(f"{live.url}/api/runs", params={"since": earlier})
    assert [run["id"] for run in answer.json()["runs"]] == ["a"]


def test_a_long_history_is_read_while_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = 40_000
    append(tmp_path / "a" / "metrics.jsonl", (metric(n, loss=1.0 / n) for n in range(1, steps + 1)))
    append(tmp_path / "a" / "completions.jsonl", (sample(n // 8, n % 8) for n in range(8000)))
    monkeypatch.setattr("services.dashboard.files.CHUNK_BYTES", 1 << 13)
    with httpx.Client(timeout=60) as client, LivePage(tmp_path).running() as live:
        client.base_url = httpx.URL(live.url)
        run = client.get("/api/run", params={"id": "a"}).json()
        assert 0 < run["step"] < steps
        give_up_at = time.monotonic() + 60
        while (run := client.get("/api/run", params={"id": "a"}).json())["step"] < steps:
            assert time.monotonic() < give_up_at
            time.sleep(0.02)
        assert (run["step"], run["completions"]) == (steps, 8000)
        assert len(run["metrics"]["steps"]) <= 600
        assert len(client.get("/api/run", params={"id": "a"}).content) < 100_000


# ---------------------------------------------------------------------------------------- entrance


@pytest.mark.parametrize(
    "path",
    [
        "/api/runs",
        "/api/run?id=rich",
        "/api/group?id=rich",
        "/metrics",
        "/page.js",
        "/api/samples?id=rich",
        "/api/changes?before=rich&after=rich",
    ],
)
def test_with_a_token_nothing_is_told_without_it(locked: httpx.Client, path: str) -> None:
    answer = locked.get(path)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for wrong in ("Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer", "Bearer \xe9"):
        headers = httpx.Headers([(b"authorization", wrong.encode("latin-1"))])
        assert locked.get(path, headers=headers).status_code == 401
    for cookie in (
        "gradus_dashboard=",
        f"gradus_dashboard={TOKEN}",
        "gradus_dashboard=x;;=",
        "=;" * 500,
    ):
        assert locked.get(path, headers={"cookie": cookie}).status_code == 401


def test_a_bearer_token_opens(locked: httpx.Client) -> None:
    for path in ("/api/runs", "/metrics"):
        assert locked.get(path, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200


def test_probes_need_no_token(locked: httpx.Client) -> None:
    assert locked.get("/healthz").status_code == 200


def test_who_enters_the_token_gets_a_cookie_that_is_not_the_token(locked: httpx.Client) -> None:
    asked = locked.get("/")
    assert (asked.status_code, asked.headers["location"]) == (303, "/enter")
    assert '<form method="post"' in locked.get("/enter").text
    answer = locked.post("/enter", data={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    pair = {"cookie": cookie.partition(";")[0]}
    assert locked.get("/", headers=pair).status_code == 200


@pytest.mark.parametrize(
    "body",
    [
        b"token=wrong",
        b"",
        b"token",
        b"token=" + b"x" * 100_000,
        b"\xff\xfe",
        b"&".join([b"token=a"] * 50),
        b"%00%ff=%",
        b'{"token": "x"}',
    ],
)
def test_what_is_not_the_token_does_not_open(
    locked: httpx.Client, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.dashboard.app.WRONG_TOKEN_S", 0.02)
    locked.cookies.clear()
    began = time.monotonic()
    headers = {"content-type": "application/x-www-form-urlencoded"}
    answer = locked.post("/enter", content=body, headers=headers)
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers
    assert "That is not the token." in answer.text
    assert time.monotonic() - began > 0.01, "the next guess has to wait"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "192.168.1.7", "", "[::2]"],
)
def test_without_a_token_other_names_of_this_machine_are_refused(
    page: httpx.Client, host: str
) -> None:
    """A page elsewhere can have its own name lead to 127.0.0.1; the browser still says the name."""
    assert page.get("/api/runs", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"])
def test_names_of_this_machine_are_served(page: httpx.Client, host: str) -> None:
    assert page.get("/api/runs", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "", "::", "192.168.1.7", "example.org"])
def test_it_is_not_served_to_others_without_a_token(host: str) -> None:
    with pytest.raises(Misuse, match="--token-file"):
        refuse_open_page(host, None, allow_anonymous=False)
    refuse_open_page(host, TOKEN, allow_anonymous=False)
    refuse_open_page(host, None, allow_anonymous=True)


@pytest.mark.parametrize(
    "token", ["", "short", " ", "with a space in the middle", "nonascii-é-0123456789", "a\nb" * 9]
)
def test_a_weak_or_broken_token_is_refused_without_repeating_it(token: str) -> None:
    with pytest.raises(Misuse) as refused:
        validate_token(token, "the file")
    assert not token.strip() or token not in str(refused.value)


# ---------------------------------------------------------------------- the command line


def test_misuse_of_the_command_is_said_in_one_line(gradus: Cli, tmp_path: Path) -> None:
    for token, argv, what in (
        (None, ("--host", "0.0.0.0"), "refusing to serve on 0.0.0.0 without a token"),
        (None, ("--token-file", tmp_path / "none"), "cannot be read: FileNotFoundError"),
        (
            "weak",
            ("--host", "0.0.0.0"),
            "GRADUS_DASHBOARD_TOKEN: a token has at least 16 characters",
        ),
    ):
        with pytest.MonkeyPatch.context() as patch:
            if token:
                patch.setenv("GRADUS_DASHBOARD_TOKEN", token)
            said = gradus("dashboard", "--runs", tmp_path, "--port", "0", *argv)
        assert said.status == 2
        assert what in said.err
        assert "Traceback" not in said.err


def test_the_command_serves_until_a_signal(tmp_path: Path) -> None:
    append(tmp_path / "runs" / "a" / "metrics.jsonl", [metric(1)])
    token_file = tmp_path / "token"
    token_file.write_text(TOKEN + "\n")
    command = [
        sys.executable,
        "-m",
        "gradus",
        "dashboard",
        "--runs",
        str(tmp_path / "runs"),
        "--port",
        "0",
    ]
    process = subprocess.Popen(
        [*command, "--token-file", str(token_file)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "the dashboard is at http://127.0.0.1:" in line
    url = line.split()[-1]
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert httpx.get(f"{url}/api/runs", headers=headers).json()["runs"][0]["id"] == quote("a")
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=100)
    assert process.returncode == 0
    assert "Traceback" not in rest


def test_the_page_needs_neither_trainer_nor_graders() -> None:
    script = (
        "import sys, services.dashboard.app\nheavy = ('trainer', 'torch', 'trl', 'redis',"
        " 'fastapi')\nours = tuple('services.' + name for name in ('graders', 'broker', 'api',"
        " 'sandbox'))\nprint([name for name in sys.modules if name.partition('.')[0] in heavy or"
        " name.startswith(ours)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
