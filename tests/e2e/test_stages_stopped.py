"""Stages of training as a person runs them: a process of its own, killed, asked to end, short of memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tiny_models import make_model
from trainer.run_folder import read_lines, why_incomplete

pytestmark = [pytest.mark.training, pytest.mark.slow]

STEPS = 60
GRADUS = [sys.executable, "-m", "gradus"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Path]:
    """Writes the config of a supervised run on rows of its own."""
    model = make_model("qwen3", tmp_path / "model")
    rows = [{"prompt": f"(* add {n} *)", "completion": f"let f x = x + {n}"} for n in range(64)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def written(name: str) -> Path:
        told: dict[str, Any] = {
            "stage": "sft",
            "model": {"name": str(model), "device": "cpu", "cpu_threads": 1},
            "data": {"dataset": "rows.jsonl", "held_out": 0.1},
            "sft": {"max_steps": STEPS, "save_steps": 10, "logging_steps": 1, "per_device_train_batch_size": 4},
            "output_dir": str(tmp_path / name),
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(told))
        return path

    return written


def start(config: Path) -> subprocess.Popen[bytes]:
    with config.with_suffix(".err").open("wb") as said:
        return subprocess.Popen([*GRADUS, "train", "sft", str(config)], env=ENVIRONMENT, stderr=said)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + 120
    while why_incomplete(path) is not None:
        assert process.poll() is None, f"the run ended before {path.name}"
        assert time.monotonic() < give_up_at, f"{path.name} did not come"
        time.sleep(0.02)


def test_a_run_that_is_killed_goes_on_and_ends_as_one_that_was_not(run: Callable[..., Path], tmp_path: Path) -> None:
    whole = start(run("whole"))
    assert whole.wait(240) == 0
    killed = start(run("killed"))
    wait_for(tmp_path / "killed" / "checkpoint-20", killed)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "killed" / "final").exists()
    assert start(run("killed")).wait(240) == 0
    files = [tmp_path / name / "final" / "model.safetensors" for name in ("whole", "killed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    for name in ("whole", "killed"):
        steps = [line["step"] for line in read_lines(tmp_path / name / "metrics.jsonl") if "loss" in line]
        assert steps == list(range(1, STEPS + 1))


def test_a_run_that_is_asked_to_end_saves_its_step_and_says_how_to_go_on(
    run: Callable[..., Path], tmp_path: Path
) -> None:
    process = start(run("asked"))
    wait_for(tmp_path / "asked" / "checkpoint-10", process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    said = (tmp_path / "asked.err").read_text()
    assert "stopped by SIGTERM. Start again with the same config and output_dir to go on from checkpoint-" in said


# The limit is on the address space of the process, set once the model is there: from then on an allocation of torch's
# that is too large fails as it does on a machine that is full.
LIMITED = """
import resource, sys
from pathlib import Path
from transformers import TrainerCallback
from trainer.stages import making

class Limit(TrainerCallback):
    is_set = False

    def on_train_begin(self, args, state, control, **named):
        if not Limit.is_set:
            used = next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmSize"))
            resource.setrlimit(resource.RLIMIT_AS, (used * 1024 + int(sys.argv[2]) * 2**20, resource.RLIM_INFINITY))
            Limit.is_set = True

of_a_run = making._callbacks
making._callbacks = lambda *given: [Limit(), *of_a_run(*given)]
from trainer.train import main
sys.exit(main(Path(sys.argv[1])))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited as on Linux")
def test_when_the_machine_has_no_more_memory_a_run_makes_do_with_smaller_batches(tmp_path: Path) -> None:
    import numpy as np

    model = make_model("llama", tmp_path / "model")
    np.save(tmp_path / "tokens.npy", np.random.default_rng(1).integers(0, 300, 300_000).astype("uint16"))
    told = {
        "stage": "pretrain",
        "model": {"name": str(model), "device": "cpu", "cpu_threads": 1},
        "data": {"dataset": "tokens.npy", "curriculum": [{"length": 512, "steps": 3}]},
        "pretrain": {"per_device_train_batch_size": 128, "logging_steps": 1},
        "output_dir": str(tmp_path / "run"),
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(told))
    command = [sys.executable, "-c", LIMITED, str(tmp_path / "run.yaml"), "700"]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    said = (tmp_path / "run" / "training.log").read_text()
    assert "out of memory after step 0 with 128 samples at a time" in said
    assert "can't allocate memory" in said
    assert "going on with 64 at a time, 2 times for each update, from the beginning" in said
    assert [line["step"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")] == [1, 2, 3]
    assert (tmp_path / "run" / "final" / "model.safetensors").exists()
