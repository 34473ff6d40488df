"""The demo's pipeline, really trained and really killed in the middle of a stage; a worse model, really refused."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from services.graders.ocaml.grader import OcamlGrader
from tests.e2e.test_demo_run import descendants, wait_gone

pytestmark = [
    pytest.mark.training,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="graders need Linux"),
]

DEMO = Path(__file__).parents[2] / "configs" / "pipelines" / "demo.yaml"
WORSE = Path(__file__).parent / "pipeline_with_a_worse_model.yaml"
GATES = json.dumps(
    [{"name": "graded", "of": "{after.results}", "metric": "measurements[0].graded", "at_least": 1, "bound": "value"}]
)
SMALL = (
    "stages.sft.set.max_steps=40",
    "stages.sft.set.save_steps=100000",
    "stages.sft.set.logging_steps=2",
    "stages.answers.options.limit=12",
    "stages.grpo.set.grpo.max_steps=4",
    "stages.grpo.set.grpo.save_steps=1",
    "stages.before.options.samples=1",
    "stages.after.options.samples=1",
    f"stages.promotion.gates={GATES}",
)
"""A run that shows that everything works; its figures mean nothing, so its gate asks for none."""


@pytest.fixture(autouse=True)
def _needs_the_grader(ocaml_grader: OcamlGrader) -> None:
    """Skips where OCaml cannot be graded."""


def started(folder: Path, changes: Iterable[str] = SMALL, file: Path = DEMO) -> subprocess.Popen[str]:
    options = [f"--set={change}" for change in (f"folder={folder}", *changes)]
    command = [sys.executable, "-m", "gradus", "pipeline", "run", str(file), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def state_of(folder: Path) -> dict[str, Any]:
    file = folder / "pipeline.json"
    stages: dict[str, Any] = json.loads(file.read_text())["stages"] if file.exists() else {}
    return stages


def end_once_there_is(what: str, process: subprocess.Popen[str], folder: Path, how: signal.Signals) -> str:
    """Signal the pipeline as soon as a file of that name appears; what it had started has to end as well."""
    while not any(folder.glob(what)):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    left = descendants(process.pid)
    process.send_signal(how)
    said, _ = process.communicate()
    assert wait_gone(left, timeout_s=120) == []
    return said


def test_the_demo_goes_on_after_signals_and_kills_in_the_middle_of_its_stages(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    said = end_once_there_is("sft/metrics.jsonl", started(folder), folder, signal.SIGTERM)
    assert "stopped by SIGTERM" in said
    assert list((folder / "sft").glob("checkpoint-*")), "the training saved what it had done"
    assert state_of(folder)["sft"]["status"] == "running"

    end_once_there_is("grpo/checkpoint-*/trainer_state.json", started(folder), folder, signal.SIGKILL)
    stages = state_of(folder)
    assert [stages[name]["status"] for name in ("sft", "answers", "pairs", "ipo", "grpo")] == ["done"] * 4 + ["running"]

    last = started(folder)
    said, _ = last.communicate()
    assert last.returncode == 0, said
    assert "going on from" in (folder / "sft" / "training.log").read_text()
    assert "going on from" in (folder / "grpo" / "training.log").read_text()
    assert {entry["status"] for entry in state_of(folder).values()} == {"done"}
    assert state_of(folder)["grpo"]["attempts"] == 2
    record = json.loads((folder / "promotion" / "promotion.json").read_text())
    assert record["promoted"] is True
    assert "model.safetensors" in record["model"]["files"]
    assert record["evidence"][0]["graders"][0].startswith("ocaml@")
    assert set(record["lineage"]["stages"]) == {*state_of(folder)} - {"promotion"}
    assert "data.json" in record["lineage"]["stages"]["sft"]["left"]


def test_a_worse_model_is_refused(tmp_path: Path) -> None:
    file = tmp_path / WORSE.name
    shutil.copy(WORSE, file)
    config = WORSE.parent / "../../configs/train/demo_sft.yaml"
    process = started(tmp_path / "out", [f"stages.sft.config={config}"], file)
    said, _ = process.communicate()
    assert process.returncode == 1, said
    assert "promotion refused" in said
    record = json.loads((tmp_path / "out" / "promotion" / "promotion.json").read_text())
    gates = {gate["name"]: gate for gate in record["gates"]}
    assert record["promoted"] is False
    assert not any(gates[name]["passed"] for name in ("reward", "not worse than its origin", "better"))
    assert gates["reward"]["high"] < 0, "it is worse, and not by chance"
