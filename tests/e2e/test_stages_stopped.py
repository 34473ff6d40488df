"""Stages of training in a process of their own: one is killed, one runs out of memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.tiny_models import make_model
from trainer.runs.folder import find_defect, find_newest_checkpoint, read_lines, read_step
from trainer.train import main

pytestmark = pytest.mark.training

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def written(folder: Path, model: Path, **told: Any) -> Path:
    """The config of a run on one thread of the CPU."""
    told = {
        "model": {"name": str(model), "device": "cpu", "cpu_threads": 1},
        "output_dir": str(folder / "run"),
        **told,
    }
    (folder / "run.yaml").write_text(yaml.safe_dump(told))
    return folder / "run.yaml"


@pytest.mark.slow
def test_a_run_that_is_killed_goes_on_and_ends_as_one_that_was_not(tmp_path: Path) -> None:
    """The run starts as a process, is killed and continued here, and compared with one that ran
    here without a stop."""
    rows = [{"prompt": f"(* add {n} *)", "completion": f"let f x = x + {n}"} for n in range(64)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {
        "save_steps": 4,
        "logging_steps": 1,
        "per_device_train_batch_size": 4,
        "lr_scheduler_type": "constant",
    }
    model = make_model("qwen3", tmp_path / "model")
    config = written(
        tmp_path, model, stage="sft", data={"dataset": "rows.jsonl", "held_out": 0.1}, sft=options
    )
    killed = tmp_path / "killed"
    whole = tmp_path / "whole"

    # The process has far more steps to do than it ever will, so that the kill never comes after its
    # end.
    command = [sys.executable, "-m", "gradus", "train", "sft", str(config), "--max_steps", "100000"]
    with subprocess.Popen([*command, "--output_dir", str(killed)], env=ENVIRONMENT) as process:
        wait_for(killed / "checkpoint-8", process)
        process.kill()
    assert not (killed / "final").exists()

    checkpoint = find_newest_checkpoint(killed, up_to=100000)
    assert checkpoint is not None
    steps = read_step(checkpoint) + 6
    for folder in (killed, whole):
        assert (
            main(config, ["--output_dir", str(folder), "--max_steps", str(steps)], stage="sft") == 0
        )
        done = [line["step"] for line in read_lines(folder / "metrics.jsonl") if "loss" in line]
        assert done == list(range(1, steps + 1))
    assert f"resuming from {checkpoint}, step" in (killed / "training.log").read_text()
    files = [folder / "final" / "model.safetensors" for folder in (killed, whole)]
    assert files[0].read_bytes() == files[1].read_bytes()


def wait_for(checkpoint: Path, process: subprocess.Popen[bytes]) -> None:
    give_up_at = time.monotonic() + 240
    while find_defect(checkpoint) is not None:
        assert process.poll() is None, f"the run ended before {checkpoint.name}"
        assert time.monotonic() < give_up_at, f"{checkpoint.name} did not come"
        time.sleep(0.02)


# The limit is on the address space of the process, set once the model is there: from then on an
# allocation of torch's that is too large fails as it does on a machine that is full.
LIMITED = """
import resource, sys
from pathlib import Path
from transformers import TrainerCallback
from trainer.stages import base

class Limit(TrainerCallback):
    is_set = False

    def on_train_begin(self, args, state, control, **named):
        if not Limit.is_set:
            used = next(int(line.split()[1]) for line in Path("/proc/self/status").open() if line.startswith("VmSize"))
            resource.setrlimit(resource.RLIMIT_AS, (used * 1024 + int(sys.argv[2]) * 2**20, resource.RLIM_INFINITY))
            Limit.is_set = True

made = base.Stage.build_trainer
base.Stage.build_trainer = lambda self, *given, **parts: made(self, *given, **{**parts, "callbacks": [Limit()]})
from trainer.train import main
sys.exit(main(Path(sys.argv[1])))
"""  # noqa: E501


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited as on Linux")
def test_when_the_machine_has_no_more_memory_a_run_makes_do_with_smaller_batches(
    tmp_path: Path,
) -> None:
    import numpy as np

    model = make_model("llama", tmp_path / "model")
    np.save(
        tmp_path / "tokens.npy", np.random.default_rng(1).integers(0, 300, 300_000).astype("uint16")
    )
    config = written(
        tmp_path,
        model,
        stage="pretrain",
        data={"dataset": "tokens.npy", "curriculum": [{"length": 512, "steps": 2}]},
        pretrain={"per_device_train_batch_size": 128, "logging_steps": 1},
    )
    command = [sys.executable, "-c", LIMITED, str(config), "700"]
    done = subprocess.run(
        command, env=ENVIRONMENT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = (tmp_path / "run" / "training.log").read_text()
    assert "out of memory after step 0 with 128 samples at a time" in said
    assert "can't allocate memory" in said
    assert "continuing with 64 at a time, 2 times for each update, from the beginning" in said
    assert [line["step"] for line in read_lines(tmp_path / "run" / "metrics.jsonl")] == [1, 2]
    assert (tmp_path / "run" / "final" / "model.safetensors").exists()
