"""Presets whose completions vLLM writes, each trained with a tiny model of its architecture, as far
as a CPU goes.

What differs from the preset stands in the test and is checked to be all that differs. Numbers in
bfloat16, NCCL and the memory that sleep frees are for a GPU, and were not run.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from gradus.resources import configs
from tests.tiny_models import make_model
from tests.unit.test_presets import PRESETS, model_type_of, needs_vllm
from tests.vllm_server.conftest import BIN, EXACT, Server, Training
from trainer.config.run import TrainConfig
from trainer.config.stages import load_stage

pytestmark = pytest.mark.training

COLOCATE, SERVER = "ocaml_qwen_1.5b_colocate.yaml", "ocaml_qwen_7b_two_gpus.yaml"
HEAVY = 0.5
"""Of the weights by which TRL makes up for vLLM's other probabilities; 1 where they are the
same."""
SHORT = {"grpo.max_steps": 2, "evaluation.limit": 1}
"""The first step is warm-up at a rate of 0; the second moves weights."""
ON_CPU = {
    "model.device": "cpu",
    "model.dtype": "float32",
    "model.cpu_threads": 1,
    "grpo.optim": "adamw_torch",
}
"""There are no kernels for 8-bit states; float32 is what the trainer would choose by itself."""
ROUNDED = 0.02
"""vLLM takes a float32 model in bfloat16 unless told otherwise, which TRL does not."""
ALONE = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
PLACES = ("model.name", "reward.urls", "generation.url", "output_dir")


def test_every_preset_with_vllm_is_trained_here() -> None:
    assert [preset for preset in PRESETS if needs_vllm(shipped(preset))] == [COLOCATE, SERVER]


def shipped(preset: str) -> TrainConfig:
    return load_stage(configs() / "train" / preset)


def tiny(preset: str, folder: Path) -> Path:
    return make_model(model_type_of(shipped(preset).model.name), folder)


def words(changes: Mapping[str, Any]) -> list[str]:
    """As on the command line."""
    return [word for name, value in changes.items() for word in (f"--{name}", str(value))]


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        found |= (
            flat(value, f"{prefix}{name}.")
            if isinstance(value, dict)
            else {f"{prefix}{name}": value}
        )
    return found


def assert_trained(run: Training, preset: str, changes: Mapping[str, Any]) -> None:
    """Of all that the preset says only `changes` and places were otherwise, TRL was told so, and
    weights moved."""
    asked, told = flat(shipped(preset).model_dump(mode="json")), flat(run.resolved)
    differing = {
        name: told[name] for name in asked if told[name] != asked[name] and name not in PLACES
    }
    assert differing == changes
    taken = vars(run.arguments(2))
    for name in shipped(preset).grpo:
        assert getattr(taken[name], "value", taken[name]) == told[f"grpo.{name}"]
    assert [step["step"] for step in run.steps] == [1, 2]
    assert run.largest("grad_norm") > 0
    assert all(step["sampling/importance_sampling_ratio/min"] > HEAVY for step in run.steps)
    adapter = load_file(run.folder / "final" / "adapter_model.safetensors")
    assert all(weight.isfinite().all() for weight in adapter.values())
    assert all(weight.any() for name, weight in adapter.items() if "lora_B" in name), (
        "they begin as zeros"
    )


def test_the_preset_for_two_gpus_trains_against_a_server_with_weights_by_file_in_place_of_nccl(
    server: Server, grader: str, tmp_path: Path
) -> None:
    model = tiny(SERVER, tmp_path / "model")
    server.gradus(model, "--max-model-len", "1536", "--max-num-seqs", "64")
    changes = {**ON_CPU, **SHORT, "generation.sync": "file"}
    run = Training(tmp_path / "run", configs() / "train" / SERVER)
    places = {
        "model.name": model,
        "reward.urls": grader,
        "generation.url": server.url,
        "output_dir": run.folder,
    }
    assert run(*words(changes | places)) == 0
    assert_trained(run, SERVER, changes)
    assert "weights are synchronized by files of all weights" in run.said
    assert run.largest("generation/sync_logprob_difference_max") <= EXACT
    assert run.largest("sampling/sampling_logp_difference/max") <= EXACT


def test_the_preset_with_vllm_in_the_trainers_process_trains_there(
    grader: str, tmp_path: Path
) -> None:
    model = tiny(COLOCATE, tmp_path / "model")
    changes = {**ON_CPU, **SHORT}
    run = Training(tmp_path / "run", configs() / "train" / COLOCATE)
    places = {"model.name": model, "reward.urls": grader, "output_dir": run.folder}
    command = [BIN / "python", "-m", "tests.vllm_server.colocated", sysconfig.get_path("purelib")]
    command += [configs() / "train" / COLOCATE, *words(changes | places)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | ALONE, timeout=600
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert_trained(run, COLOCATE, changes)
    assert run.largest("sampling/sampling_logp_difference/max") <= ROUNDED
