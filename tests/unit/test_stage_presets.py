"""Presets of the stages besides GRPO: TRL takes their options, and each builds its trainer with a
tiny model of its architecture. What needs a GPU is checked as far as a CPU can."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.resources import configs
from tests.tiny_models import built, make_model
from trainer.config.stages import load_stage

pytestmark = pytest.mark.training

FOLDER = configs() / "train"
PRESETS = sorted(
    path.name
    for path in FOLDER.glob("*.yaml")
    if not path.name.startswith("demo_") and "stage" in yaml.safe_load(path.read_text())
)
ARCHITECTURES = {
    "sft_ocaml_qwen_1.5b.yaml": "qwen2",
    "sft_rust_gpt_oss_20b.yaml": "gpt_oss",
    "dpo_rust_gpt_oss_20b.yaml": "gpt_oss",
    "pretrain_llama_7b.yaml": "llama",
    "sft_alpaca_gpt2.yaml": "gpt2",
    "dpo_hh_gpt2.yaml": "gpt2",
    "reward_hh_gpt2.yaml": "gpt2",
    "rloo_hh_gpt2.yaml": "gpt2",
    "sft_meetings_gemma3_270m.yaml": "gemma3_text",
    "dpo_agent_qwen3_0.6b.yaml": "qwen3",
}
TALK = "\n\nHuman: What is {n} and 1?\n\nAssistant: {answer}"
CALL = {
    "type": "function",
    "function": {"name": "run_command", "arguments": {"command": "cargo test"}},
}
ROWS: dict[str, Callable[[int], dict[str, Any]]] = {
    "sft_ocaml_qwen_1.5b.yaml": lambda n: {"prompt": f"(* add {n} *)", "solution": f"```ocaml\nlet f x = x + {n}\n```"},  # noqa: E501
    "sft_rust_gpt_oss_20b.yaml": lambda n: {
        "messages": [
            {"role": "user", "content": f"Fix test {n}."},
            {"role": "assistant", "content": "", "tool_calls": [CALL]},
            {"role": "tool", "name": "run_command", "content": "ok"},
            {"role": "assistant", "content": "Done."},
        ],
        "tools": [{"type": "function", "function": {"name": "run_command", "parameters": {"type": "object"}}}],  # noqa: E501
    },
    "dpo_rust_gpt_oss_20b.yaml": lambda n: {"prompt": f"Add {n}.", "chosen": f"x + {n}", "rejected": f"x - {n}"},  # noqa: E501
    "sft_alpaca_gpt2.yaml": lambda n: {"instruction": f"Add {n}.", "input": "x" * (n % 2), "output": f"x + {n}"},  # noqa: E501
    "dpo_hh_gpt2.yaml": lambda n: {
        "chosen": TALK.format(n=n, answer=f"It is {n + 1}."),
        "rejected": TALK.format(n=n, answer="No."),
    },
    "sft_meetings_gemma3_270m.yaml": lambda n: {
        "input_text": f"Meeting {n}",
        "target_probability": f"0.{n}",
        "target_reason": "late",
        "ground_truth_prob": "0.5",
    },
}  # fmt: skip
ROWS["reward_hh_gpt2.yaml"] = ROWS["dpo_hh_gpt2.yaml"]
ROWS["rloo_hh_gpt2.yaml"] = ROWS["sft_alpaca_gpt2.yaml"]
ROWS["dpo_agent_qwen3_0.6b.yaml"] = ROWS["dpo_rust_gpt_oss_20b.yaml"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("models")
    return lambda name: (
        folder / name if (folder / name).exists() else make_model(name, folder / name)
    )


def test_every_preset_of_a_stage_is_built_here() -> None:
    assert set(PRESETS) == set(ARCHITECTURES)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_says_its_stage_first_in_its_name_and_writes_to_a_folder_of_that_name(
    preset: str,
) -> None:
    config = load_stage(FOLDER / preset)
    assert config.output_dir == Path("runs") / preset.removesuffix(".yaml")
    assert preset.split("_")[0] == config.stage  # type: ignore[attr-defined]
    assert f"gradus train {config.stage} configs/train/{preset}" in (FOLDER / preset).read_text()  # type: ignore[attr-defined]


def dataset_for(preset: str, tmp_path: Path) -> Path:
    if preset == "pretrain_llama_7b.yaml":
        import numpy as np

        folder = tmp_path / "tokens"
        folder.mkdir()
        np.save(folder / "a.npy", np.arange(300, dtype="uint16").repeat(80))
        return folder
    rows = [ROWS[preset](n) for n in range(40)]
    file = tmp_path / ("rows.csv" if "meetings" in preset else "rows.jsonl")
    if file.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
        file.write_text("\n".join(lines) + "\n")
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize("preset", PRESETS)
def test_trl_takes_a_presets_options_as_on_the_device_that_it_is_for(
    preset: str, tmp_path: Path
) -> None:
    from trainer.config.device import Device
    from trainer.stages.base import build_stage

    config = load_stage(FOLDER / preset)
    kind = "mps" if config.model.device == "mps" else "cuda"
    device = Device(kind, has_bf16=False, has_eight_bit=kind == "cuda")
    said = list[str]()
    stage = build_stage(config)
    made = stage.build_arguments(stage.options(device, said.append), tmp_path)
    assert made.learning_rate < 1e-3
    assert made.bf16 is False
    assert not said


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_builds_its_trainer_with_a_tiny_model_of_its_architecture(
    preset: str, models: Callable[[str], Path], tmp_path: Path
) -> None:
    model = models(ARCHITECTURES[preset])
    given = ["--model.name", str(model), "--model.device", "cpu", "--model.dtype", "float32"]
    given += [
        "--data.dataset",
        str(dataset_for(preset, tmp_path)),
        "--output_dir",
        str(tmp_path / "run"),
    ]
    if "rloo" in preset:
        given += ["--reward.models", f"[{{path: {a_judge(model, tmp_path / 'judge')}}}]"]
    if "pretrain" in preset:
        given += ["--data.held_out", "0.2"]
    config = load_stage(FOLDER / preset, given)
    trainer = built(config)
    trained = {name for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    whole = len(list(trainer.model.parameters()))
    assert len(trained) == whole if config.lora is None else 0 < len(trained) < whole
    assert any("experts" in name for name in trained) is (ARCHITECTURES[preset] == "gpt_oss")
    assert any("score" in name for name in trained) is ("reward" in preset)
    assert len(trainer.train_dataset) > 0


def a_judge(model: Path, folder: Path) -> Path:
    """A reward model whose head nobody trained, but which has one."""
    from trainer.config.run import ModelConfig
    from trainer.models.loading import load_model, load_tokenizer

    settings = ModelConfig(name=str(model))
    load_model(str(model), settings, "float32", scores=True).save_pretrained(folder)
    load_tokenizer(str(model), settings).save_pretrained(folder)
    return folder


def test_the_demo_of_a_stage_needs_nothing_but_a_cpu(tmp_path: Path) -> None:
    from trainer.runs.folder import read_lines
    from trainer.train import main

    given = ["--output_dir", str(tmp_path / "run"), "--data.limit", "640", "--max_steps", "8"]
    given += ["--logging_steps", "1", "--warmup_steps", "0"]
    assert main(FOLDER / "demo_sft.yaml", given, stage="sft") == 0
    losses = [
        line["loss"] for line in read_lines(tmp_path / "run" / "metrics.jsonl") if "loss" in line
    ]
    assert losses[-1] < losses[0]


def test_weights_that_are_published_in_four_bits_are_asked_for_as_sixteen(tmp_path: Path) -> None:
    from trainer.config.run import ModelConfig
    from trainer.models.loading import _build_quantization

    model = make_model("gpt_oss", tmp_path / "model")
    assert _build_quantization(str(model), ModelConfig(name=str(model)), "bfloat16") == {}
    told = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps({**told, "quantization_config": {"quant_method": "mxfp4"}})
    )
    asked = _build_quantization(str(model), ModelConfig(name=str(model)), "bfloat16")[
        "quantization_config"
    ]
    assert (type(asked).__name__, asked.dequantize) == ("Mxfp4Config", True)
