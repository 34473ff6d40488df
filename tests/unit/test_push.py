"""`gradus push`: what leaves this machine, and what never does."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from trainer.models.push import prepare_upload

pytestmark = pytest.mark.training

SECRET = "let () = assert (double 2 = 4)"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run, with everything that must not leave the machine."""
    run = tmp_path / "run"
    final = run / "final"
    final.mkdir(parents=True)
    (final / "model.safetensors").write_bytes(b"\0" * 100)
    (final / "config.json").write_text("{}")
    (final / "tokenizer.json").write_text("{}")
    (final / "training_args.bin").write_bytes(SECRET.encode())
    (final / "README.md").write_text(SECRET)
    for name in ("completions.jsonl", "tasks.train.jsonl", "training.log"):
        (run / name).write_text(SECRET)
    settings = {
        "stage": "grpo",
        "model": {"name": "some/base"},
        "reward": {"grader": "ocaml", "rubric": None, "urls": ["http://secret-host:8000"]},
        "output_dir": str(run),
    }
    (run / "config.resolved.json").write_text(json.dumps(settings))
    rate = {"before": 0.25, "after": 0.75, "change": {"value": 0.5, "low": 0.4, "high": 0.6}}
    comparison = {"comparisons": [{"tasks": 60, "mode": "sampled", "pass_rate": rate}]}
    (run / "comparison.json").write_text(json.dumps(comparison))
    return run


class Hub(BaseHTTPRequestHandler):
    """The routes of a model hub that an upload of small files takes."""

    received: dict[str, bytes]
    created: list[dict[str, Any]]
    status = 200

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.status != 200:
            answer: Any = {"error": "no token"}
        elif self.path == "/api/repos/create":
            self.created.append(json.loads(body))
            answer = {"url": f"http://{self.headers['Host']}/team/model"}
        elif self.path == "/api/validate-yaml":
            answer = {"errors": [], "warnings": []}
        elif "/preupload/" in self.path:
            files = json.loads(body)["files"]
            answer = {
                "files": [
                    {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                    for file in files
                ]
            }
        else:
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    value = entry["value"]
                    self.received[value["path"]] = base64.b64decode(value["content"])
            commit = f"http://{self.headers['Host']}/team/model/commit/{'0' * 40}"
            answer = {"commitUrl": commit, "commitOid": "0" * 40}
        text = json.dumps(answer).encode()
        self.send_response(self.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Write no log."""


@pytest.fixture
def hub() -> Iterator[tuple[type[Hub], str]]:
    handler = type("OneHub", (Hub,), {"received": {}, "created": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield handler, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def push(*words: object, endpoint: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "HF_ENDPOINT": endpoint,
        "HF_TOKEN": "hf_x",
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
    }
    return subprocess.run(
        [sys.executable, "-m", "gradus", "push", *map(str, words)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_weights_tokenizer_and_card_are_uploaded_and_nothing_else(
    run: Path, hub: tuple[type[Hub], str]
) -> None:
    handler, endpoint = hub
    done = push(run, "team/model", endpoint=endpoint)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{endpoint}/team/model"
    assert [made["visibility"] for made in handler.created] == ["private"]
    assert set(handler.received) == {
        *("README.md", "config.json", "model.safetensors", "tokenizer.json")
    }
    everything = b"".join(handler.received.values()).decode()
    for private in (SECRET, "secret-host", str(run)):
        assert private not in everything
    card = handler.received["README.md"].decode()
    assert "base_model: some/base" in card
    assert "(60, sampled): passed 25.0% before, 75.0% after; change +50.0%" in card


def test_a_hub_that_refuses_or_is_away_is_one_line(run: Path, hub: tuple[type[Hub], str]) -> None:
    handler, endpoint = hub
    handler.status = 401
    refused = push(run, "team/model", endpoint=endpoint)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "the hub refused" in refused.stderr
    assert "hf auth login" in refused.stderr
    away = push(run, "team/model", endpoint="http://127.0.0.1:9")
    assert away.returncode == 2
    assert "http://127.0.0.1:9: the upload failed" in away.stderr
    wrong = push(run, "not a name", endpoint=endpoint)
    assert "not the name of a repository" in wrong.stderr
    for done in (refused, away, wrong):
        assert "Traceback" not in done.stderr


def test_a_dry_run_asks_no_hub(run: Path) -> None:
    done = push(run, "team/model", "--dry-run", endpoint="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    assert "model.safetensors" in done.stdout
    assert "training_args.bin" not in done.stdout


def test_an_adapter_of_a_folder_and_a_run_without_a_model_are_refused(
    run: Path, tmp_path: Path
) -> None:
    (run / "final/adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": str(tmp_path)})
    )
    with pytest.raises(Misuse, match="which nobody else has; upload a whole model: gradus merge"):
        prepare_upload(run)
    (run / "final/adapter_config.json").write_text(
        json.dumps({"base_model_name_or_path": "some/base"})
    )
    assert "library_name: peft" in prepare_upload(run).card
    with pytest.raises(Misuse, match="has no trained model"):
        prepare_upload(tmp_path / "nothing")
