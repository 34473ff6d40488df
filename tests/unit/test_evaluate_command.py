"""`gradus eval` from its entry: a fresh model, a task file, a service on a real socket, the files it leaves."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import OcamlTask
from gradus.errors import Misuse
from trainer.config import PromptConfig, TrainConfig
from trainer.data import Example
from trainer.evaluate import main
from trainer.evaluate.command import config_beside, problems_of
from trainer.evaluate.outcome import Evaluation

TASKS = [{"id": f"t{n}", "prompt": f"(* add {n} *)\n", "tests": f"let () = assert (f 1 = {n + 1})"} for n in range(3)]


class Service(BaseHTTPRequestHandler):
    """One live grader; every second submission is a fault when the server says so."""

    def do_GET(self) -> None:  # noqa: N802
        info = {
            "name": "ocaml",
            "revision": "7",
            "toolchain": "ocaml",
            "rubrics": ["ocaml/graduated@1"],
            "sandbox": "s",
        }
        self._answer(json.dumps({"graders": [info]}))

    def do_POST(self) -> None:  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        faulty = getattr(self.server, "faulty", False)
        lines = [json.dumps(_result(s["id"], faulty and n % 2 == 1)) for n, s in enumerate(body["submissions"])]
        self._answer("\n".join(lines) + "\n")

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None:
        pass


def _result(id: str, is_fault: bool) -> dict[str, Any]:
    if is_fault:
        return {"id": id, "status": "faulted", "fault": {"kind": "worker", "message": "gone", "retryable": True}}
    verdict = {"reward": 0.0, "passed": False, "stage": "types", "components": {"types": 0.0}}
    who = {"rubric": "ocaml/graduated@1", "grader": "ocaml@7", "toolchain": "ocaml", "cpu_ms": 1, "wall_ms": 1}
    return {"id": id, "status": "graded", **verdict, **who}


@pytest.fixture
def service() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trainer.config import FreshModel
    from trainer.fresh import make_fresh_model

    folder = tmp_path_factory.mktemp("run") / "final"
    sizes = FreshModel(hidden_size=32, intermediate_size=64, layers=1, heads=2, kv_heads=1, head_dim=16)
    make_fresh_model("qwen3", sizes, ["let f x = x + 1"], folder, seed=1)
    return folder


@pytest.fixture
def tasks(tmp_path: Path) -> Path:
    path = tmp_path / "tasks.jsonl"
    path.write_text("".join(json.dumps(task) + "\n" for task in TASKS))
    return path


def run(model: Path, tasks: Path, out: Path, server: ThreadingHTTPServer, **changed: Any) -> int:
    given: dict[str, Any] = {
        "samples": 2,
        "temperature": 1.0,
        "max_new_tokens": 4,
        "urls": [f"http://127.0.0.1:{server.server_address[1]}"],
        "grader": "ocaml",
        "name": "first",
        "limit": None,
    }
    return main(str(model), tasks, out=out, **{**given, **changed})


@pytest.mark.training
def test_it_measures_sampled_and_greedy_and_writes_both_files(
    model: Path, tasks: Path, tmp_path: Path, service: ThreadingHTTPServer
) -> None:
    assert run(model, tasks, tmp_path / "out", service) == 0
    found = Evaluation.model_validate_json((tmp_path / "out/eval/first.json").read_text())
    assert [(m.mode, m.temperature, m.samples, m.graded) for m in found.measurements] == [
        ("sampled", 1.0, 2, 6),
        ("greedy", 0.0, 1, 3),
    ]
    assert found.tasks == "tasks.jsonl"
    assert len((tmp_path / "out/eval/first.completions.jsonl").read_text().splitlines()) == 9


@pytest.mark.training
def test_any_fault_is_exit_status_three(
    model: Path, tasks: Path, tmp_path: Path, service: ThreadingHTTPServer, capsys: pytest.CaptureFixture[str]
) -> None:
    service.faulty = True  # type: ignore[attr-defined]
    assert run(model, tasks, tmp_path / "out", service) == 3
    found = Evaluation.model_validate_json((tmp_path / "out/eval/first.json").read_text())
    assert found.faulted == 4
    assert "faults" in capsys.readouterr().out


@pytest.mark.training
def test_temperature_zero_and_a_limit_measure_less(
    model: Path, tasks: Path, tmp_path: Path, service: ThreadingHTTPServer
) -> None:
    assert run(model, tasks, tmp_path / "eval", service, temperature=0.0, limit=2) == 0
    # The folder is called eval already: nobody looks for eval/eval.
    found = Evaluation.model_validate_json((tmp_path / "eval/first.json").read_text())
    assert [(m.mode, len(m.problems)) for m in found.measurements] == [("greedy", 2)]


def test_a_service_that_is_away_is_said_before_the_model_is_loaded(
    tasks: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.evaluate.command.READY_TIMEOUT_S", 0.1)
    away = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    away.server_close()
    assert run(Path("no-such-model"), tasks, tmp_path / "out", away) == 3
    assert "gradus serve" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "changed",
    [{"name": "../x"}, {"name": ""}, {"samples": 0}, {"temperature": -1.0}, {"limit": 0}, {"grader": "cobol"}],
)
def test_misuse_is_raised_before_anything_is_done(tasks: Path, tmp_path: Path, changed: dict[str, Any]) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    server.server_close()
    with pytest.raises(Misuse):
        run(Path("m"), tasks, tmp_path / "out", server, **changed)


def test_the_prompt_is_the_one_of_the_run_that_the_model_lies_in(tmp_path: Path) -> None:
    config = TrainConfig.model_validate(
        {
            "model": "m",
            "data": {"dataset": "d.jsonl"},
            "reward": {"grader": "ocaml"},
            "prompt": {"template": "Write OCaml.\n{prompt}"},
            "output_dir": "runs/x",
        }
    )
    (tmp_path / "config.resolved.json").write_text(config.model_dump_json())
    (tmp_path / "final").mkdir()
    assert config_beside(tmp_path / "final") == config
    example = Example(id="a", prompt="Add one.", task=OcamlTask(tests="()"))
    assert problems_of([example], config.prompt)[0].prompt == "Write OCaml.\nAdd one."
    assert problems_of([example], PromptConfig())[0].prompt == "Add one."


def test_a_model_that_lies_in_no_run_has_no_config(tmp_path: Path) -> None:
    assert config_beside(tmp_path / "a" / "b" / "c") is None
    (tmp_path / "config.resolved.json").write_text("{}")
    with pytest.raises(Misuse):
        config_beside(tmp_path)
