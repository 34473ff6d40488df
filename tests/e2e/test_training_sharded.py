"""Training in two processes that share weights or optimizer states (FSDP2, DeepSpeed), on the CPU
with gloo: resumed, it is the same run. DeepSpeed is none of our extras; its cases are skipped where
it is not installed."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradus.contract import Faulted, Graded, build_faulted
from gradus.errors import FaultKind
from services.broker.jobs import JobPayload
from tests.e2e.test_training import (
    ROOT,
    LengthWorker,
    config,
    curve,
    lines,
    model,
    service,
    tasks,
    url,
)
from tests.failing_ranks import ERRORS, PLACES
from tests.sharded_run import SHARDED

__all__ = ["config", "model", "tasks", "url"]
pytestmark = pytest.mark.training


class OddlyFaultyWorker(LengthWorker):
    """Cannot judge answers to every second task, so that one process has verdicts and the other
    none."""

    def _result(self, payload: JobPayload, completion: str) -> Graded | Faulted:
        if int(payload.submission.prompt.split()[2]) % 2:
            return build_faulted(
                payload.submission.id, FaultKind.WORKER, "the box broke", retryable=False
            )
        return super()._result(payload, completion)


def launch(kind: str, config: Path, *overrides: str, status: int = 0) -> str:
    """What two processes print that train as the config says."""
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node",
        "2",
    ]
    done = subprocess.run(
        [
            *command,
            "-m",
            "tests.sharded_run",
            kind,
            str(config),
            "--per_device_train_batch_size",
            "4",
            *overrides,
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=500,
    )
    assert done.returncode == min(status, 1), done.stderr  # torchrun's own
    # The last one is the first process that ended: what is still closing down then, the launcher
    # ends by a signal.
    ends = re.findall(r"exitcode  : (-?\d+) \(pid", done.stderr)
    assert int(ends[-1] if ends else 0) == status, done.stderr
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", SHARDED)
def test_a_sharded_run_resumes_from_its_checkpoint_and_keeps_its_logs(
    kind: str, config: Path, tmp_path: Path
) -> None:
    if kind.startswith("zero") and importlib.util.find_spec("deepspeed") is None:
        pytest.skip("DeepSpeed is not installed")
    run = tmp_path / "run"
    reference = tmp_path / "reference"
    launch(kind, config, "--max_steps", "4", "--output_dir", str(reference))
    shutil.copytree(reference, run)
    for later in (run / "checkpoint-4", run / "final"):
        shutil.rmtree(later)

    assert f"resuming from {run / 'checkpoint-2'}, step 2" in launch(
        kind, config, "--max_steps", "4"
    )
    assert [line["step"] for line in lines(run / "metrics.jsonl")] == [1, 2, 3, 4]
    assert curve(run) == [pytest.approx(step, rel=1e-5) for step in curve(reference)]
    written = []
    for at in (run, reference):  # two processes write them, each its own
        completions = lines(at / "completions.jsonl")
        written.append(sorted((one["step"], one["completion"]) for one in completions))
    assert written[0] == written[1]
    weights = [(folder / "final" / "model.safetensors").read_bytes() for folder in (run, reference)]
    assert weights[0] == weights[1]

    shutil.rmtree(run / "final")  # killed while it was saved
    assert "all 4 steps are done already" in launch(kind, config, "--max_steps", "4")
    assert (run / "final" / "model.safetensors").read_bytes() == weights[1]
    assert len(lines(run / "metrics.jsonl")) == 4


@pytest.mark.slow
def test_what_stops_one_process_stops_all_with_a_checkpoint(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with service(LengthWorker) as url:
        launch("ddp", config, "--max_steps", "1", "--reward.urls", url)
    with service(OddlyFaultyWorker) as url:
        said = launch("ddp", config, "--max_steps", "100000", "--reward.urls", url, status=3)
    assert "none of 4 samples could be graded" in said
    step = len(lines(run / "metrics.jsonl"))
    assert f"resume from checkpoint-{step}" in said
    assert (run / f"checkpoint-{step}" / "rng_state_1.pth").exists()


@pytest.mark.slow
def test_an_error_in_one_process_ends_all_with_its_message_and_a_checkpoint(
    config: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    program = ["--nproc_per_node", "2", "-m", "tests.failing_ranks", str(config), str(tmp_path)]
    done = subprocess.run(
        [*command, *program],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        timeout=500,
    )
    ends = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    runs: dict[str, list[dict[str, Any]]] = {}
    for end in ends:
        runs.setdefault(end.pop("run"), []).append(end)
    assert len(runs) == len(PLACES) * len(ERRORS) * 2, done.stderr[-3000:]
    for name, (first, second) in runs.items():
        assert first == second, name
        assert first["checkpoints"][-1] in ("checkpoint-2", "checkpoint-3"), name
        failure = name.split("-")[1]
        if failure == "stopped":
            assert first["status"] == 3
        else:
            assert type(ERRORS[failure]()).__name__ in first["message"], name
