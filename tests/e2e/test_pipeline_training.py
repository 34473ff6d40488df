"""Pipelines with real training: stopped or killed, resumed, and ended by a gate that refuses or
promotes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from services.graders.ocaml.grader import OcamlGrader
from tests.e2e.test_demo_run import descendants, wait_gone

pytestmark = [
    pytest.mark.training,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="graders need Linux"),
]

DEMO = Path(__file__).parents[2] / "configs" / "pipelines" / "demo.yaml"
SAMPLED = "measurements[mode=sampled]"
GATES = [
    {"name": "reward", "of": "{change.results}", "metric": "reward.change", "at_least": -0.02},
    {
        "name": "origin",
        "of": "{after.results}",
        "against": "{before.results}",
        "metric": f"{SAMPLED}.mean_reward",
        "at_least": -0.1,
    },
    {
        "name": "better",
        "of": "{change.results}",
        "metric": "pass_rate.change",
        "p_value": "test.p_value",
    },
    {
        "name": "graded",
        "of": "{after.results}",
        "metric": f"{SAMPLED}.faulted",
        "at_most": 0,
        "bound": "value",
    },
]
MEASURED = ["--samples=1", "--limit=30", "--no-greedy", "--max-new-tokens=40", "--set=seed=1"]
CHANGES: dict[str, Any] = {
    # The supervised model has to earn enough for a worse one to be told from it.
    "stages.sft.set": {
        "max_steps": 110,
        "per_device_train_batch_size": 32,
        "data.limit": 4000,
        "data.held_out": 0,
        "eval_strategy": "no",
    },
    "stages.answers.options": ["--samples=4", "--no-greedy", "--limit=10", "--max-new-tokens=40"],
    # Steps this wide spoil the model.
    "stages.grpo.set.learning_rate": 0.1,
    "stages.grpo.set.grpo.max_steps": 8,
    "stages.grpo.set.save_steps": 1,
    "stages.grpo.set.per_device_train_batch_size": 16,
    "stages.before.options": [*MEASURED, "--rubric=ocaml/graduated@1"],
    "stages.after.options": [*MEASURED, "--rubric=ocaml/graduated@1"],
    "stages.promotion.gates": GATES,
}


@pytest.fixture(autouse=True)
def _needs_the_grader(ocaml_grader: OcamlGrader) -> None:
    """Skips where OCaml cannot be graded."""


def started(file: Path, changes: dict[str, Any]) -> subprocess.Popen[str]:
    options = [f"--set={name}={json.dumps(value)}" for name, value in changes.items()]
    command = [sys.executable, "-m", "gradus", "pipeline", "run", str(file), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def state_of(folder: Path) -> dict[str, Any]:
    stages: dict[str, Any] = json.loads((folder / "pipeline.json").read_text())["stages"]
    return stages


def end_once(
    it_is_time: Callable[[], bool], process: subprocess.Popen[str], how: signal.Signals
) -> str:
    """Signals the pipeline when it is time; all processes that it has started have to end as
    well."""
    while not it_is_time():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    left = descendants(process.pid)
    process.send_signal(how)
    said, _ = process.communicate()
    assert wait_gone(left, timeout_s=120) == []
    return said


@pytest.mark.slow
def test_the_demo_goes_on_after_a_signal_and_refuses_a_worse_model(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    changes = {"folder": str(folder), **CHANGES}
    there_is = lambda: any(folder.glob("grpo/checkpoint-*/trainer_state.json"))  # noqa: E731
    said = end_once(there_is, started(DEMO, changes), signal.SIGTERM)
    assert "stopped by SIGTERM" in said
    stages = state_of(folder)
    assert [stages[name]["status"] for name in ("sft", "answers", "pairs", "ipo", "grpo")] == [
        "done"
    ] * 4 + ["running"]

    last = started(DEMO, changes)
    said, _ = last.communicate()
    assert last.returncode == 1, said
    assert "promotion refused" in said
    assert "resuming from" in (folder / "grpo" / "training.log").read_text()
    stages = state_of(folder)
    assert {
        name: entry["status"] for name, entry in stages.items() if entry["status"] != "done"
    } == {"promotion": "failed"}
    record = json.loads((folder / "promotion" / "promotion.json").read_text())
    assert record["promoted"] is False
    gates = {gate["name"]: gate for gate in record["gates"]}
    assert {gate["name"]: gates[gate["name"]]["passed"] for gate in GATES} == {
        "reward": False,
        "origin": False,
        "better": False,
        "graded": True,
    }
    assert gates["reward"]["high"] < 0, "it is worse, and not by chance"
    assert "model.safetensors" in record["model"]["files"]
    assert record["evidence"][1]["graders"][0].startswith("ocaml@")
    assert set(record["lineage"]["stages"]) == {*stages} - {"promotion"}
    assert "data.json" in record["lineage"]["stages"]["sft"]["left"]

    # A gate that the same model passes: everything else is done already.
    again = started(DEMO, {**changes, "stages.promotion.gates": [GATES[-1]]})
    said, _ = again.communicate()
    assert again.returncode == 0, said
    assert json.loads((folder / "promotion" / "promotion.json").read_text())["promoted"] is True
    assert said.count("done before") == len(stages) - 1


def test_a_training_goes_on_after_the_pipeline_was_killed_and_its_model_is_promoted(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "out"
    file = tmp_path / "pipeline.yaml"
    settings = {
        "max_steps": 40,
        "logging_steps": 1,
        "per_device_train_batch_size": 16,
        "data.limit": 640,
    }
    stage = {
        "kind": "train",
        "config": str(DEMO.parents[1] / "train" / "demo_sft.yaml"),
        "set": settings,
    }
    learnt = {"name": "loss", "of": "{sft.metrics}", "metric": "loss", "at_most": 100}
    gate = {"kind": "gate", "model": "{sft.model}", "gates": [{**learnt, "bound": "value"}]}
    file.write_text(json.dumps({"name": "stopped", "stages": {"sft": stage, "gate": gate}}))
    changes = {"folder": str(folder)}
    metrics = folder / "sft" / "metrics.jsonl"
    # the loss before the first step is measured, too, and there is nothing to save then
    end_once(
        lambda: metrics.exists() and '"loss"' in metrics.read_text(),
        started(file, changes),
        signal.SIGKILL,
    )
    assert list((folder / "sft").glob("checkpoint-*")), "the training saved what it had done"
    assert state_of(folder)["sft"]["status"] == "running"
    last = started(file, changes)
    said, _ = last.communicate()
    assert last.returncode == 0, said
    assert "resuming from" in (folder / "sft" / "training.log").read_text()
    assert state_of(folder)["sft"]["status"] == "done"
    record = json.loads((folder / "gate" / "promotion.json").read_text())
    assert record["promoted"] is True
    assert "model.safetensors" in record["model"]["files"]
    assert "data.json" in record["lineage"]["stages"]["sft"]["left"]
