"""One step of GRPO on what SmolLM2-135M-Instruct writes through vLLM on a CPU, with its own
tokenizer and template.

Only where `make demo-real` has installed the model into .venv-smollm2.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gradus.resources import configs
from tests.e2e.test_demo_real import ROOT, SOURCE, environment
from tests.ports import free_port
from tests.vllm_server.conftest import Server
from trainer.runs.folder import read_lines

pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(
        not SOURCE.exists(), reason="`make demo-real` installs SmolLM2-135M-Instruct"
    ),
]


@pytest.mark.timeout(2400)
def test_a_real_model_is_trained_on_what_vllm_writes(server: Server, tmp_path: Path) -> None:
    from trainer.train import main

    model = tmp_path / "model"
    run = tmp_path / "run"
    convert = [sys.executable, "-m", "tools.gguf_model", str(SOURCE), str(model)]
    subprocess.run(convert, cwd=ROOT, env=environment(), check=True)
    server.gradus(model, "--lora-rank", "16", "--max-model-len", "512")
    places = {"model.name": model, "generation.url": server.url, "output_dir": run}
    small = {
        "warm_start": "null",
        "max_steps": 1,
        "evaluation.limit": 1,
        "max_completion_length": 48,
    }
    port = free_port()
    grading = subprocess.Popen(
        [sys.executable, "-m", "gradus", "serve", "--graders", "ocaml", "--port", str(port)]
    )
    chosen = {
        "reward.urls": f"http://127.0.0.1:{port}",
        "generation.backend": "vllm",
        "generation.verify_sync": "always",
    }
    words = [
        word
        for name, value in {**places, **small, **chosen}.items()
        for word in (f"--{name}", str(value))
    ]
    try:
        assert main(configs() / "train" / "demo_smollm2.yaml", words) == 0
    finally:
        grading.terminate()
        grading.wait(60)
    said = (run / "training.log").read_text()
    assert "weights are synchronized by LoRA adapters" in said
    assert "try 1" not in said
    (step,) = [line for line in read_lines(run / "metrics.jsonl") if "learning_rate" in line]
    assert step["gradus/faulted"] == 0
    assert step["generation/sync_logprob_difference_mean"] < 1e-3
    completions = read_lines(run / "completions.jsonl")
    assert len(completions) == 64
    assert not any("<|im_" in line["completion"] for line in completions)
