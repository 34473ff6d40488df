"""`gradus train --dry-run`: what it refuses, and what it names."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.errors import Misuse
from gradus.resources import configs
from tests.tiny_models import SIZES, make_model
from trainer import check
from trainer.config.run import TrainConfig
from trainer.config.stages import load_stage
from trainer.train import main

pytestmark = pytest.mark.training

Findings = dict[str, tuple[str | None, str]]
WINDOW = SIZES["max_position_embeddings"]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return make_model("qwen2", tmp_path / "model")


@pytest.fixture
def found(tmp_path: Path, model: Path) -> Callable[..., Findings]:
    """Runs a dry run of a GRPO config with these changes; what each line of it says."""
    rows = [
        {
            "id": f"t{n}",
            "prompt": f"(* add {n} *)" + " long" * 40 * n,
            "tests": f"let () = assert (f {n} = 1)",
        }
        for n in range(8)
    ]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def look(
        options: dict[str, Any] | None = None,
        data: dict[str, Any] | None = None,
        lora: dict[str, Any] | None = None,
        stop_when: dict[str, Any] | None = None,
        **changed: Any,
    ) -> Findings:
        told = {
            "model": {"name": str(model), "device": "cpu", **changed},
            "data": {"dataset": "tasks.jsonl", **(data or {})},
            "reward": {"grader": "ocaml", "urls": "http://127.0.0.1:1"},
            "grpo": {"per_device_train_batch_size": 8, "num_generations": 4, **(options or {})},
            "lora": lora,
            "stop_when": stop_when or {},
            "output_dir": str(tmp_path / "run"),
        }
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(told))
        return {
            what: (trouble, text)
            for what, trouble, text in check.collect_findings(load_stage(tmp_path / "run.yaml"))
        }

    return look


# ---------------------------------------------------------------------------------------- own code


@pytest.fixture
def own_code(model: Path) -> Path:
    """The model in a folder whose configuration is a class of its own."""
    (model / "own.py").write_text(
        "from transformers import Qwen2Config, Qwen2ForCausalLM\n\n\n"
        'class OwnConfig(Qwen2Config):\n    model_type = "own"\n\n\n'
        "class OwnModel(Qwen2ForCausalLM):\n    config_class = OwnConfig\n"
    )
    told = json.loads((model / "config.json").read_text())
    own = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (model / "config.json").write_text(json.dumps({**told, "model_type": "own", "auto_map": own}))
    return model


@pytest.fixture(autouse=True)
def _no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(prompt: str = "") -> str:
        pytest.fail(f"asked: {prompt}")

    monkeypatch.setattr("builtins.input", asked)


def test_code_of_the_models_own_that_is_trusted_is_read_without_a_question(
    found: Callable[..., Findings], own_code: Path
) -> None:
    assert found(trust_remote_code=True)["model"] == (
        None,
        f"{own_code} (own), on cpu; prompts of at most 1405 tokens",
    )


def test_code_of_the_models_own_that_is_not_trusted_is_refused_with_the_option(
    found: Callable[..., Findings], own_code: Path
) -> None:
    trouble, text = found()["model"]
    assert trouble == "misuse"
    assert "contains custom code which must be executed" in text


# ---------------------------------------------------------------------------------------- packages


@pytest.mark.parametrize(
    ("package", "changed", "says"),
    [
        (
            "bitsandbytes",
            {"load_in_4bit": True, "lora": {}},
            "model.load_in_4bit needs bitsandbytes, which is not installed: pip",
        ),
        (
            "flash_attn",
            {"attn_implementation": "flash_attention_2"},
            "flash_attention_2 needs flash_attn, which is",
        ),
        (
            "wandb",
            {"options": {"report_to": "wandb"}},
            "report_to: WandbCallback requires wandb to be installed",
        ),
        (
            "swanlab",
            {"options": {"report_to": ["swanlab"]}},
            "report_to: SwanLabCallback requires swanlab",
        ),
        (
            "nothing",
            {"options": {"report_to": "wandbs"}},
            "report_to: wandbs is not supported, only",
        ),
    ],
)
def test_an_absent_package_is_named_with_the_setting_that_needs_it(
    found: Callable[..., Findings], package: str, changed: dict[str, Any], says: str
) -> None:
    if importlib.util.find_spec(package) is not None:
        pytest.skip(f"{package} is installed")
    trouble, text = found(**changed)["packages"]
    assert trouble == "misuse"
    assert says in text


def test_a_rule_to_stop_by_needs_what_it_looks_at(found: Callable[..., Findings]) -> None:
    trouble, text = found(stop_when={"kl": 0.5})["grpo options"]
    assert (trouble, "need grpo.beta above 0" in text) == ("misuse", True)
    trouble, text = found(stop_when={"held_out_flat": 2}, data={"held_out": 0.2})["grpo options"]
    assert (trouble, "evaluation.every_steps" in text) == ("misuse", True)
    assert (
        found(stop_when={"kl": 0.5, "no_spread": 0.9}, options={"beta": 0.04})["grpo options"][0]
        is None
    )


def test_the_run_itself_refuses_an_absent_package_before_it_loads_a_model(
    found: Callable[..., Findings], tmp_path: Path
) -> None:
    found(options={"report_to": "wandbs"})
    with pytest.raises(Misuse, match="report_to: wandbs is not supported"):
        main(tmp_path / "run.yaml")
    assert not (tmp_path / "run" / "config.resolved.json").exists()


# ----------------------------------------------------------------------------------------- lengths


def test_prompts_that_leave_no_room_for_a_completion_are_refused_with_the_limit_to_set(
    found: Callable[..., Findings],
) -> None:
    trouble, text = found(options={"max_completion_length": 1000})["model"]
    assert trouble == "misuse"
    assert (
        text == "data.max_prompt_tokens: 2 prompts, the longest of 1405 tokens, leave no room for"
        f" max_completion_length 1000 in the {WINDOW} tokens that the model takes; set it to"
        " 1048 at most"
    )
    trouble, text = found(
        options={"max_completion_length": 1000}, data={"max_prompt_tokens": 1048}
    )["model"]
    assert trouble is None
    assert text.endswith(
        "prompts of at most 1005 tokens; 2 tasks left out, longer than 1048 tokens: t6, t7"
    )


def test_prompts_are_measured_by_the_tokenizer_that_a_fresh_model_would_get(
    found: Callable[..., Findings], tmp_path: Path
) -> None:
    changed = {"name": "fresh:qwen3", "fresh": {"max_length": 2048}}
    trouble, text = found(options={"max_completion_length": 16}, **changed)["model"]
    assert trouble is None
    assert re.search(r"prompts of at most \d+ tokens", text)
    trouble, text = found(
        options={"max_completion_length": 16},
        **{**changed, "fresh": {"max_length": 64}},
    )["model"]
    assert trouble == "misuse"
    assert "leave no room for max_completion_length 16 in the 64 tokens" in text


def test_a_model_of_earlier_settings_is_named(
    found: Callable[..., Findings], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    (run / "model").mkdir(parents=True)
    assert found()["run folder"] == (None, f"{run}, no step is done")
    recorded = load_stage(tmp_path / "run.yaml").model_dump(mode="json")
    recorded["model"]["fresh"]["layers"] = 7
    (run / "config.resolved.json").write_text(json.dumps(recorded))
    trouble, text = found()["run folder"]
    assert trouble is None
    assert "models of other settings (model.fresh.layers) lie there and are set aside" in text


def test_a_limit_that_leaves_no_prompt_is_refused(found: Callable[..., Findings]) -> None:
    trouble, text = found(data={"max_prompt_tokens": 3})["model"]
    assert (trouble, text) == (
        "misuse",
        "data.max_prompt_tokens: every prompt is longer than 3 tokens",
    )


def test_blocks_that_the_model_cannot_take_are_refused(model: Path, tmp_path: Path) -> None:
    (tmp_path / "texts.jsonl").write_text(json.dumps({"text": "x = x + 1; " * 1000}) + "\n")
    phases = [{"length": 100, "steps": 1}, {"length": 3000, "steps": 1}]
    told = {
        "stage": "pretrain",
        "model": str(model),
        "data": {"dataset": "texts.jsonl", "curriculum": phases},
        "output_dir": str(tmp_path / "run"),
    }
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(told))
    found = {
        what: text for what, _, text in check.collect_findings(load_stage(tmp_path / "run.yaml"))
    }
    assert (
        found["model"] == f"data.curriculum: a block has 3000 tokens, and the model takes {WINDOW}"
    )


# ---------------------------------------------------------------------- presets


@pytest.mark.parametrize(
    "preset", sorted(path.name for path in (configs() / "train").glob("*.yaml"))
)
def test_every_preset_passes_or_names_what_is_absent(
    preset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in ("huggingface_hub.constants", "datasets.config"):
        monkeypatch.setattr(f"{library}.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    config = load_stage(configs() / "train" / preset)
    nowhere = ["--reward.urls", "http://127.0.0.1:1"] if isinstance(config, TrainConfig) else []
    config = load_stage(configs() / "train" / preset, nowhere)
    for what, trouble, text in check.collect_findings(config):
        absent = {
            "graders": "no grading service answers at http://127.0.0.1:1",
            "vLLM server": "http://127.0.0.1:8001",
            "packages": "needs bitsandbytes, which is not installed",
        }
        refused = (
            "needs vLLM in the trainer's environment",
            "this build of torch, has no",
            "trains on cpu; use file",
            ": cannot be read: No such file",
            "is neither a .jsonl/.json/.csv file nor a dataset",
            "there is no such folder",
            "couldn't find them in the cached files",
        )
        assert (
            trouble is None or absent.get(what, "\0") in text or any(one in text for one in refused)
        ), (what, text)


def test_an_order_of_tasks_and_shuffling_exclude_each_other(found: Callable[..., Findings]) -> None:
    trouble, text = found({"shuffle_dataset": True}, data={"order": "length"})["grpo options"]
    assert (trouble, "data.order: length forbids it" in text) == ("misuse", True)
    assert found(data={"order": "length"})["grpo options"][0] is None
