"""LoRA and quantized weights: experts really train or the run does not start, and small updates are
not lost."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gradus.errors import Misuse
from tests.tiny_models import make_model, run_of, trainer_of
from trainer.config.run import LoraSettings, ModelConfig
from trainer.config.stages import load_stage

pytestmark = [
    pytest.mark.training,
    # PEFT's own, about rank patterns that it has made itself for fused experts
    pytest.mark.filterwarnings("ignore:The following (rank|alpha)_pattern keys:RuntimeWarning"),
]

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
USUAL = [*ATTENTION, "gate_proj", "up_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
MIXTURES = ["qwen3_moe", "mixtral", "gpt_oss"]
WARM_START = """
model: {{name: {model}, device: cpu, load_in_4bit: true}}
lora: {{r: 2}}
data: {{dataset: {folder}/rows.jsonl, ignore_columns: ['*']}}
reward: {{grader: ocaml}}
warm_start: {{dataset: {folder}/rows.jsonl, ignore_columns: ['*'],
              sft: {{max_steps: 2, per_device_train_batch_size: 4, learning_rate: 1.0e-2}}}}
grpo: {{num_generations: 2, per_device_train_batch_size: 2, max_steps: 1}}
output_dir: {folder}/run
"""
IS_THERE = pytest.mark.skipif(
    importlib.util.find_spec("bitsandbytes") is None,
    reason="bitsandbytes is not installed (extra `quantized`)",
)


def needs_bitsandbytes(test: Callable[..., None]) -> Callable[..., None]:
    """Marks a test for `make test-slow`, which installs the package."""
    return pytest.mark.slow(IS_THERE(test))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("models")
    return lambda name: (
        folder / name if (folder / name).exists() else make_model(name, folder / name)
    )


def trainable(model: Any) -> dict[str, Any]:
    return {
        name: weight.detach().clone()
        for name, weight in model.named_parameters()
        if weight.requires_grad
    }


def changed(trainer: Any) -> set[str]:
    """Names of the trained weights that one step moves."""
    before = trainable(trainer.model)
    trainer.train()
    return {
        name for name, weight in trainable(trainer.model).items() if not weight.equal(before[name])
    }


# ----------------------------------------------------------------------------------------- experts


@pytest.mark.parametrize(
    "name",
    [pytest.param(one, marks=() if one == "gpt_oss" else pytest.mark.slow) for one in MIXTURES],
)
def test_a_step_changes_the_adapters_of_every_layers_experts(
    name: str, model, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    trainer = trainer_of(model(name), tmp_path, LoraSettings(r=2, targets=[*ATTENTION, *EXPERTS]))
    moved = {weight for weight in changed(trainer) if ".mlp.experts." in weight}
    # Of each layer both parameters, one wrapped around the other; A moves from the second step on,
    # when B is not 0.
    for layer in range(2):
        for wrapper in ("experts.lora_B", "experts.base_layer.lora_B"):
            assert f"base_model.model.model.layers.{layer}.mlp.{wrapper}.default.weight" in moved


@pytest.mark.parametrize("name", MIXTURES)
def test_a_run_whose_experts_would_stay_frozen_is_refused_with_what_to_add(
    name: str, model, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    says = (
        r"experts of 2 layers \(model.layers.0.mlp.experts ...\).*add mlp.experts.down_proj and"
        r" mlp.experts.gate_up"
    )
    with pytest.raises(Misuse, match=says):
        trainer_of(model(name), tmp_path, LoraSettings(r=2, targets=ATTENTION))


def test_what_the_refusal_says_to_add_is_accepted(model, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Misuse) as refused:
        trainer_of(model("gpt_oss"), tmp_path, LoraSettings(r=2))
    added = [word for word in str(refused.value).split() if word.startswith("mlp.experts.")]
    trainer_of(model("gpt_oss"), tmp_path, LoraSettings(r=2, targets=[*ATTENTION, *added]))


def test_frozen_experts_can_be_wanted(model, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lora = LoraSettings(r=2, targets=ATTENTION, allow_frozen_experts=True)
    assert not any(
        "experts" in name for name in changed(trainer_of(model("qwen3_moe"), tmp_path, lora))
    )


def test_experts_of_some_layers_only_are_frozen_experts_too(model, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    lora = LoraSettings(r=2, targets=[*ATTENTION, "layers.0.mlp.experts.gate_up_proj"])
    with pytest.raises(Misuse, match=r"on the experts of 1 layers \(model.layers.1.mlp.experts"):
        trainer_of(model("qwen3_moe"), tmp_path, lora)


def test_a_dense_model_and_one_that_is_trained_whole_have_nothing_to_refuse(
    model, tmp_path: Path
) -> None:  # type: ignore[no-untyped-def]
    trainer_of(model("qwen2"), tmp_path, LoraSettings(r=2, targets=USUAL))
    assert any("experts" in name for name in changed(trainer_of(model("qwen3_moe"), tmp_path)))


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        (["q_proj", "wi"], "no module or parameter that is called wi"),
        (["q_proj", "mlp.experts.up_gate_proj"], "that is called mlp.experts.up_gate_proj"),
        (["wi", "wo"], "lora.targets: .*not found"),
        (["experts.gate_up_proj.nothing"], "lora.targets: "),
    ],
)
def test_a_target_that_is_nowhere_in_the_model_is_refused(
    model, tmp_path: Path, targets: list[str], says: str
) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(Misuse, match=says):
        trainer_of(model("qwen2"), tmp_path, LoraSettings(r=2, targets=targets))


def test_saved_adapters_on_experts_come_back_merged_and_say_the_same(model, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import torch

    from trainer.models.loading import load_trained

    trainer = trainer_of(
        model("qwen3_moe"), tmp_path / "run", LoraSettings(r=2, targets=[*ATTENTION, *EXPERTS])
    )
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    merged, _ = load_trained(tmp_path / "final", ModelConfig(name="x", device="cpu"), "float32")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        trained = trainer.model.eval()(ids).logits
        base = model("qwen3_moe")
        assert torch.allclose(merged.eval()(ids).logits, trained, atol=1e-5)
        untrained, _ = load_trained(base, ModelConfig(name="x", device="cpu"), "float32")
        assert not torch.allclose(untrained(ids).logits, trained, atol=1e-4)


# ---------------------------------------------------------------------- quantized weights


@needs_bitsandbytes
def test_adapters_on_quantized_weights_train_in_float32(model, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import torch

    settings = ModelConfig(name=str(model("qwen2")), device="cpu", load_in_4bit=True)
    trainer = trainer_of(model("qwen2"), tmp_path, LoraSettings(r=2), model=settings)
    weights = dict(trainer.model.named_parameters())
    packed = weights["base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight"]
    assert packed.dtype == torch.uint8
    assert {weight.dtype for weight in weights.values() if weight.requires_grad} == {torch.float32}
    assert any("lora_B" in name for name in changed(trainer))


@needs_bitsandbytes
def test_steps_of_the_size_that_grpo_makes_are_not_rounded_away(model, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    settings = ModelConfig(name=str(model("qwen2")), device="cpu", load_in_4bit=True)
    trainer = trainer_of(
        model("qwen2"), tmp_path, LoraSettings(r=2), model=settings, learning_rate=1e-6
    )
    # B is where it is after a while of training; a change of 1e-6 is far below what bfloat16 can
    # tell apart there.
    for name, weight in trainer.model.named_parameters():
        if "lora_B" in name:
            weight.data.fill_(0.01)
    assert any("lora_B" in name for name in changed(trainer))


@needs_bitsandbytes
def test_a_quantized_run_is_measured_as_it_was_trained(model, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    import torch

    from trainer.models.loading import load_trained

    settings = ModelConfig(name=str(model("qwen2")), device="cpu", load_in_4bit=True)
    trainer = trainer_of(model("qwen2"), tmp_path / "run", LoraSettings(r=2), model=settings)
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    loaded, _ = load_trained(tmp_path / "final", settings, "float32")
    ids = torch.arange(3, 40)[None]
    with torch.no_grad():
        assert torch.allclose(
            loaded.eval()(ids).logits, trainer.model.eval()(ids).logits, atol=1e-5
        )


@needs_bitsandbytes
def test_what_a_warm_start_learned_on_quantized_weights_is_in_the_whole_model_that_it_leaves(
    model,  # type: ignore[no-untyped-def]
    tmp_path: Path,
) -> None:
    from safetensors.torch import load_file

    from trainer.stages.rl import Rl

    worked = [{"prompt": f"(* add {n} *)", "completion": f"let f x = x + {n}"} for n in range(8)]
    rows = [
        {"id": f"t{n}", "tests": f"assert (f 1 = {n + 1})", **row} for n, row in enumerate(worked)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.yaml").write_text(WARM_START.format(model=model("qwen2"), folder=tmp_path))
    config = load_stage(tmp_path / "run.yaml")
    left = Path(Rl(config).warm_start(run_of(config), str(model("qwen2"))))
    before = load_file(model("qwen2") / "model.safetensors")
    after = load_file(left / "model.safetensors")
    assert {name: weight.dtype for name, weight in after.items()} == {
        n: w.dtype for n, w in before.items()
    }
    moved = {name for name in before if not after[name].equal(before[name])}
    assert moved == {name for name in before if name.endswith("_proj.weight")}
    assert [path.name for path in left.parent.iterdir()] == ["warm_start"]


def test_without_bitsandbytes_the_refusal_says_what_to_install(
    model,  # type: ignore[no-untyped-def]
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trainer.models.loading import load_model

    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "bitsandbytes" else found(name)
    )
    with pytest.raises(
        Misuse, match=r"model.load_in_4bit needs bitsandbytes.*pip install 'gradus-rl\[quantized\]'"
    ):
        load_model(
            str(model("qwen2")), ModelConfig(name="x", device="cpu", load_in_4bit=True), "float32"
        )


@pytest.mark.parametrize("saved", [[], ["lm_head"]])
def test_a_merged_copy_in_bfloat16_holds_the_whole_change_and_the_model_stays_as_it_was(
    model: Callable[[str], Path], saved: list[str]
) -> None:
    import torch
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    from trainer.generation.weights import iter_merged_parameters
    from trainer.models.adapters import build_lora_config

    base = AutoModelForCausalLM.from_pretrained(model("qwen2"), dtype=torch.bfloat16)
    names = {name for name, _ in base.named_parameters()}
    settings = LoraSettings(r=4, alpha=8, targets=[*USUAL, "embed_tokens"], modules_to_save=saved)
    trained = get_peft_model(base, build_lora_config(settings, base))
    generator = torch.Generator().manual_seed(0)
    for name, weight in trained.named_parameters():
        if "lora_" in name:
            weight.data = 0.01 * torch.randn(weight.shape, generator=generator)
    before = {name: weight.detach().clone() for name, weight in trained.named_parameters()}

    merged = dict(iter_merged_parameters(trained))  # as a packed transfer collects them
    assert set(merged) >= names - {"lm_head.weight"}
    assert all(torch.equal(before[name], weight) for name, weight in trained.named_parameters())
    layer = trained.base_model.model.model.layers[0].self_attn.q_proj
    exact = layer.base_layer.weight.float() + layer.get_delta_weight("default").float()
    name = "model.layers.0.self_attn.q_proj.weight"
    assert torch.equal(merged[name], exact.to(torch.bfloat16))
    trained.merge_adapter()
    trained.unmerge_adapter()
    after = layer.base_layer.weight
    assert not torch.equal(
        after, before["base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight"]
    )


def test_layers_below_the_first_get_no_adapters(model: Any) -> None:
    from transformers import AutoModelForCausalLM

    from trainer.models.adapters import build_lora_config

    loaded = AutoModelForCausalLM.from_pretrained(model("qwen2"))
    count = loaded.config.num_hidden_layers
    settings = LoraSettings(r=2, targets=USUAL, first_layer=count - 1)
    from peft import get_peft_model

    adapted = get_peft_model(loaded, build_lora_config(settings, loaded))
    named = [name for name, weight in adapted.named_parameters() if weight.requires_grad]
    assert len(named) == 2 * len(USUAL)
    assert all(f".layers.{count - 1}." in name for name in named)
    with pytest.raises(Misuse, match=f"first_layer: must be below {count}"):
        build_lora_config(settings.model_copy(update={"first_layer": count}), loaded)
