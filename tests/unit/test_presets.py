"""Presets and options: each of TRL's options is reached, each preset builds its trainer, each loss
takes a step.

Models are tiny, of the architecture that the preset names; what needs a GPU is checked as far as a
CPU can.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import typing
from pathlib import Path
from typing import Any

import pytest
import yaml

from gradus.errors import Misuse
from gradus.resources import configs
from tests.tiny_models import built, make_model, trainer_of
from tests.trl_examples import example_for
from trainer.config.run import OWN_NAMES, TrainConfig
from trainer.config.stages import load_stage

pytestmark = pytest.mark.training

MINIMAL = """
model: some/model
data: {dataset: tasks.jsonl}
reward: {grader: ocaml}
output_dir: runs/x
"""


def grpo_fields() -> dict[str, Any]:
    """TRL's options with their types."""
    from trl import GRPOConfig

    hints = typing.get_type_hints(GRPOConfig)
    return {field.name: hints[field.name] for field in dataclasses.fields(GRPOConfig) if field.init}


# ---------------------------------------------------------------------- TRL's options


def test_every_option_of_trl_is_taken_from_the_file_but_those_that_say_where_they_are_set(
    tmp_path: Path,
) -> None:
    options = {
        name: example_for(name, hint)
        for name, hint in grpo_fields().items()
        if name not in OWN_NAMES
    }
    assert len(options) > 150
    path = tmp_path / "run.yaml"
    path.write_text(MINIMAL + yaml.safe_dump({"grpo": options}))
    taken = load_stage(path).grpo
    assert taken.pop("parallelism_config").tp_size == options.pop("parallelism_config")["tp_size"]
    assert {name: getattr(value, "value", value) for name, value in taken.items()} == options


def test_a_mistyped_key_inside_an_option_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(MINIMAL + "grpo: {parallelism_config: {tp_sise: 2}}")
    with pytest.raises(Misuse, match=r"grpo.parallelism_config: tp_sise: unknown key in it"):
        load_stage(path)


def test_an_option_that_is_set_elsewhere_says_where(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    assert set(OWN_NAMES) <= set(grpo_fields())
    for name, where in OWN_NAMES.items():
        path.write_text(
            MINIMAL + yaml.safe_dump({"grpo": {name: example_for(name, grpo_fields()[name])}})
        )
        with pytest.raises(Misuse, match=re.escape(f"grpo.{name}: not set here: {where}")):
            load_stage(path)
        for field in re.findall(r"`([a-z_]+\.[a-z0-9_]+)`", where):
            section, _, key = field.partition(".")
            assert key in TrainConfig.model_fields[section].annotation.model_fields  # type: ignore[union-attr]


# ---------------------------------------------------------------------- loss types

LOSSES: dict[str, dict[str, Any]] = {
    "grpo": {"beta": 0.04},
    "bnpo": {"num_iterations": 2},
    "dr_grpo": {"scale_rewards": "none"},
    "dapo": {"epsilon_high": 0.28},
    "cispo": {"epsilon_high": 5.0},
    "sapo": {},
    "vespo": {},
    "luspo": {"importance_sampling_level": "sequence"},
}
VARIANTS: dict[str, dict[str, Any]] = {
    "GSPO": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "two-sided clipping": {"loss_type": "grpo", "delta": 2.0},
    "a reference that follows": {"beta": 0.04, "sync_ref_model": True, "ref_model_sync_steps": 1},
    "entropy bonus": {"entropy_coef": 0.01, "use_adaptive_entropy": True},
    "high-entropy tokens": {"top_entropy_quantile": 0.2},
    "advantages scaled by the batch": {"scale_rewards": "batch"},
}


STEPS = {name: {"loss_type": name, **more} for name, more in LOSSES.items()} | VARIANTS
TRIED_HERE = ("dapo", "luspo", "a reference that follows")
"""One that divides by tokens, one that weighs whole samples, and one with a second model; the
others are tried in `make test-slow`."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> typing.Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("models")
    return lambda name: (
        folder / name if (folder / name).exists() else make_model(name, folder / name)
    )


def test_the_losses_tried_here_are_all_that_trl_has() -> None:
    from trl.trainer import grpo_trainer

    source = Path(grpo_trainer.__file__).read_text(encoding="utf-8")
    compared = re.findall(r"self\.loss_type (?:==|in) (.+):", source)
    assert {
        name for line in compared for name in re.findall(r'"(\w+)"', line.partition(" and ")[0])
    } == set(LOSSES)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(options, marks=() if name in TRIED_HERE else pytest.mark.slow, id=name)
        for name, options in STEPS.items()
    ],
)
def test_a_step_with_each_loss_moves_the_weights_and_leaves_them_finite(
    options: dict[str, Any], models: Any, tmp_path: Path
) -> None:
    import torch

    trainer = trainer_of(models("qwen2"), tmp_path, **options)
    before = {name: weight.detach().clone() for name, weight in trainer.model.named_parameters()}
    trainer.train()
    after = dict(trainer.model.named_parameters())
    assert all(torch.isfinite(weight).all() for weight in after.values())
    assert any(not after[name].equal(before[name]) for name in before)


# ----------------------------------------------------------------------------------------- presets

PRESETS = sorted(
    path.name
    for path in (configs() / "train").glob("*.yaml")
    if not path.name.startswith(("demo_", "first_step"))
    and "stage" not in yaml.safe_load(path.read_text())
)
"""Files of GRPO with models of the hub; those of other stages are in test_stage_presets.py."""
MODEL_TYPES = {
    r"Qwen/Qwen2\.5-.*": "qwen2",
    r"deepseek-ai/DeepSeek-R1-Distill-Qwen-.*": "qwen2",
    r"Qwen/Qwen3-Coder-30B-A3B-.*": "qwen3_moe",
    r"openai/gpt-oss-.*": "gpt_oss",
}
NEEDS = {
    "vllm": (
        "vLLM writes its completions: trained in tests/vllm_server/test_vllm_with_presets.py (make"
        " test-vllm)"
    ),
    "bitsandbytes": "bitsandbytes is not installed (extra `quantized`); its options were checked",
}


def model_type_of(name: str) -> str:
    found = [kind for pattern, kind in MODEL_TYPES.items() if re.fullmatch(pattern, name)]
    assert found, f"{name}: say in MODEL_TYPES which architecture it has"
    return found[0]


BUILT_HERE = (
    "ocaml_qwen_0.5b_apple.yaml",
    "ocaml_qwen_1.5b_full.yaml",
    "rust_gpt_oss_20b.yaml",
    "rust_qwen3_30b_moe.yaml",
)
"""One of each architecture, with adapters and with all weights; the others, and quantized weights,
are built in `make test-slow`."""


def needs_vllm(config: TrainConfig) -> bool:
    return bool(config.grpo.get("use_vllm")) or config.generation.backend == "vllm"


def what_is_missing(config: TrainConfig) -> str | None:
    """Why the trainer of a preset cannot be built here."""
    if needs_vllm(config):
        return NEEDS["vllm"]
    if config.model.load_in_4bit and importlib.util.find_spec("bitsandbytes") is None:
        return NEEDS["bitsandbytes"]
    return None


@pytest.mark.parametrize("preset", PRESETS)
def test_trl_takes_a_presets_options_as_on_the_device_that_it_is_for(
    preset: str, tmp_path: Path
) -> None:
    from trainer.config.device import Device
    from trainer.stages.rl import Rl

    config = load_stage(configs() / "train" / preset)
    kind = "mps" if config.model.device == "mps" else "cuda"
    # Without bfloat16, as on older cards: transformers asks the machine itself whether it can, and
    # a CPU cannot.
    device = Device(kind, has_bf16=False, has_eight_bit=kind == "cuda")
    said: list[str] = []
    stage = Rl(config)
    made = stage.build_rl_arguments(
        stage.options(device, said.append), tmp_path, len(stage.read().train)
    )
    assert made.num_generations > 1
    assert made.bf16 is False
    assert not said


@pytest.mark.parametrize(
    "preset",
    [pytest.param(name, marks=() if name in BUILT_HERE else pytest.mark.slow) for name in PRESETS],
)
def test_a_preset_builds_its_trainer_with_a_tiny_model_of_its_architecture(
    preset: str, models: Any, tmp_path: Path
) -> None:
    shipped = load_stage(configs() / "train" / preset)
    model = models(model_type_of(shipped.model.name))
    sizes = ["--model.name", str(model), "--model.device", "cpu", "--model.dtype", "float32"]
    sizes += ["--output_dir", str(tmp_path / "run"), "--data.max_prompt_tokens", "2000"]
    config = load_stage(configs() / "train" / preset, sizes)
    if reason := what_is_missing(config):
        pytest.skip(reason)
    trainer = built(config)
    trained = {name for name, weight in trainer.model.named_parameters() if weight.requires_grad}
    whole = len(list(trainer.model.parameters()))
    assert len(trained) == whole if config.lora is None else 0 < len(trained) < whole
    assert any("experts" in name for name in trained) is (
        model_type_of(shipped.model.name) in ("qwen3_moe", "gpt_oss")
    )
    assert (
        len(trainer.train_dataset) * trainer.num_generations >= trainer.args.generation_batch_size
    )


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_samples_from_the_distribution_that_its_loss_is_of(preset: str) -> None:
    from trainer.config.device import Device
    from trainer.stages.rl import Rl

    config = load_stage(configs() / "train" / preset)
    options = Rl(config).options(
        Device("cuda", has_bf16=False, has_eight_bit=True), lambda text: None
    )
    assert options["temperature"] == 1
    assert not {"top_p", "top_k", "min_p", "repetition_penalty"} & set(options)
    assert options["disable_dropout"] is True
    assert config.lora is None or config.lora.dropout == 0
    assert options["epsilon_high"] > options.get("epsilon", 0.2)
    thinks = bool(config.prompt.opening) or "gpt-oss" in config.model.name
    assert options.get("mask_truncated_completions", False) is not thinks


def test_every_preset_writes_to_a_run_folder_of_its_own_name() -> None:
    for preset in PRESETS:
        assert load_stage(configs() / "train" / preset).output_dir == Path(
            "runs"
        ) / preset.removesuffix(".yaml")


# ---------------------------------------------------------------------- what is refused

QUANTIZED = (
    "model: {name: m, load_in_4bit: true}\ndata: {dataset: t}\nreward: {grader:"
    " ocaml}\noutput_dir: r\n"
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (QUANTIZED, "model.load_in_4bit needs lora"),
        (QUANTIZED.replace("true", "maybe"), "model.load_in_4bit: Input should be a valid boolean"),
        (
            QUANTIZED + "lora: {}\ngrpo: {use_vllm: true}",
            "with vLLM needs generation: {backend: vllm, sync: lora}",
        ),
        (QUANTIZED + "lora: {}\ngeneration: {backend: vllm}", "with vLLM needs generation"),
        (
            QUANTIZED + "lora: {}\ngeneration: {backend: vllm, sync: nccl}",
            "with vLLM needs generation",
        ),
        (MINIMAL + "lora: {targets: []}", "lora.targets"),
        (MINIMAL + "lora: {targets: [3]}", "lora.targets"),
        (MINIMAL + "lora: {targets: everything}", "lora.targets"),
        (
            MINIMAL + "lora: {allow_frozen_expert: true}",
            "unknown key; did you mean allow_frozen_experts?",
        ),
    ],
)
def test_weights_that_could_not_be_trained_are_refused(
    text: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(Misuse, match=re.escape(says)):
        load_stage(path)


def test_quantized_weights_go_with_vllm_by_adapters(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    # use_vllm is what a resolved config says beside it
    path.write_text(
        QUANTIZED + "lora: {}\ngeneration: {backend: vllm, sync: lora}\ngrpo: {use_vllm: true}"
    )
    assert load_stage(path).model.load_in_4bit


# ---------------------------------------------------------------------- several processes

LAUNCHES = sorted(path.name for path in (configs() / "accelerate").glob("*.yaml"))


@pytest.mark.parametrize("file", LAUNCHES)
def test_accelerate_takes_a_launch_config_with_the_command_in_its_comment(file: str) -> None:
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    path = configs() / "accelerate" / file
    comment = "".join(
        line.lstrip("# ").replace("\\\n", "") for line in path.read_text().splitlines(keepends=True)
    )
    command = re.search(r"^accelerate launch (.+)$", comment, re.MULTILINE)
    assert command
    words = [
        str(path) if word.endswith(f"accelerate/{file}") else word for word in command[1].split()
    ]
    asked = launch_command_parser().parse_args(words)
    arguments, _, _ = _validate_launch_command(asked)
    stage = re.search(r"stage(\d)", file)
    kinds = (arguments.multi_gpu, arguments.use_deepspeed, arguments.use_fsdp)
    assert kinds == ("multi" in file, stage is not None, "fsdp" in file)
    assert stage is None or arguments.zero_stage == int(stage[1])
    assert arguments.num_processes > 1
    assert (arguments.module, arguments.training_script) == (True, "gradus")
    subcommand, preset, *overrides = arguments.training_script_args
    assert subcommand == "train"
    load_stage(configs() / "train" / Path(preset).name, overrides)


@pytest.mark.parametrize(
    "preset", ["story_full_deepspeed.yaml", "ocaml_qwen_1.5b.yaml", "ocaml_qwen_1.5b_full.yaml"]
)
def test_batches_of_presets_for_several_processes_come_out_even(preset: str) -> None:
    grpo = load_stage(configs() / "train" / preset).grpo
    for processes in (2, 4):
        at_once = grpo["per_device_train_batch_size"] * processes
        round_of_generation = (
            grpo.get("generation_batch_size") or at_once * grpo["gradient_accumulation_steps"]
        )
        assert round_of_generation % at_once == 0
        assert round_of_generation % grpo["num_generations"] == 0
