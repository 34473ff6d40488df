"""Models of a few thousand parameters with the architectures that presets train, saved as hub
models are; a trainer of them whose reward is a function of the text. They know nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from trainer.config.run import FreshModel, LoraSettings, ModelConfig, RunConfig

SIZES = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 2048,
    "bos_token_id": None,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "qwen3_moe": {
        "head_dim": 16,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    },
    "mixtral": EXPERTS,
    "gpt_oss": {"head_dim": 16, **EXPERTS},
    "llama": {},
    "gemma3_text": {"head_dim": 16},
    "gpt2": {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 2048},
}


def make_model(model_type: str, folder: Path) -> Path:
    """The untrained model with a tokenizer and a chat template; the same each time."""
    from transformers import AutoModelForCausalLM

    return _made(model_type, folder, AutoModelForCausalLM)


def make_judge(model_type: str, folder: Path) -> Path:
    """The same as a reward model: its head is as random as its layers, and it is saved."""
    from transformers import AutoModelForSequenceClassification

    return _made(model_type, folder, AutoModelForSequenceClassification, num_labels=1)


def _made(model_type: str, folder: Path, auto_class: Any, **more: Any) -> Path:
    import torch
    from transformers import AutoConfig

    from trainer.models.fresh import train_tokenizer

    tokenizer = train_tokenizer(["let f x = x + 1", "(* add 1 *)"], FreshModel(vocab_size=300))
    tokenizer.model_max_length = SIZES["max_position_embeddings"]
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {"vocab_size": SIZES["vocab_size"]} if model_type == "gpt2" else SIZES
    config = AutoConfig.for_model(
        model_type, **{**sizes, **ARCHITECTURES[model_type], **ends, **more}
    )
    with torch.random.fork_rng():
        torch.manual_seed(1)
        auto_class.from_config(config).float().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


async def by_length(completions: Sequence[str], **columns: Any) -> list[float]:
    """A reward that differs within groups, so that weights move."""
    await asyncio.sleep(0)
    return [len(text.encode()) % 7 / 6 for text in completions]


def trainer_of(
    folder: Path,
    output: Path,
    lora: LoraSettings | None = None,
    log: Callable[[str], None] = print,
    model: ModelConfig | None = None,
    reward_funcs: Sequence[Callable[..., Any]] = (by_length,),
    stage: str = "grpo",
    **options: Any,
) -> Any:
    """Our trainer of that stage on four prompts, four completions for each, on the CPU, ready for
    its only step."""
    from datasets import Dataset
    from trl import GRPOConfig, RLOOConfig

    from trainer.config.device import Device, apply_device_defaults
    from trainer.models.adapters import build_lora_config, prepare_adapters, validate_lora_targets
    from trainer.models.loading import load_model, load_tokenizer
    from trainer.stages.rl import TRAINERS, Rl

    settings = model or ModelConfig(name=str(folder), device="cpu")
    if lora is not None:
        validate_lora_targets(lora, str(folder), settings)
    loaded = load_model(str(folder), settings, "float32")
    given = {
        **Rl.DEFAULTS,
        "max_steps": 1,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 8,
        "learning_rate": 1e-2,
        **options,
    }
    told = apply_device_defaults(given, Device("cpu", has_bf16=False, has_eight_bit=False), log)
    rows = [{"prompt": f"(* add {n} *)", "prompt_id": f"p{n}"} for n in range(4)]
    ours = {
        "output_dir": str(output),
        "seed": 1,
        "disable_tqdm": True,
        "reward_weights": [1.0] * len(reward_funcs),
    }
    arguments = {"grpo": GRPOConfig, "rloo": RLOOConfig}[stage]
    made = TRAINERS[stage](
        model=loaded,
        reward_funcs=list(reward_funcs),
        args=arguments(**told, **ours),
        train_dataset=Dataset.from_list(rows),
        processing_class=load_tokenizer(str(folder), settings),
        peft_config=build_lora_config(lora, loaded) if lora else None,
    )
    if lora is not None:
        prepare_adapters(made.model, lora)
    return made


def run_of(config: RunConfig) -> Any:
    """What the parts of a run of `config` are handed, from its beginning; nothing is graded yet."""
    from trainer.config.device import choose_device
    from trainer.runs.context import RunContext
    from trainer.runs.folder import RunFolder
    from trainer.runs.signals import StopWish
    from trainer.stages.base import build_stage

    stage = build_stage(config)
    device = choose_device(config.model)
    folder = RunFolder(config.output_dir)
    options = stage.options(device, print)
    data = stage.read()
    run = RunContext(config, options, data, device, folder, StopWish(print), print, None)
    return replace(run, data=stage.prepare_data(run, config.model.name))


def built(config: RunConfig) -> Any:
    """The trainer of a run of `config`, before its first step."""
    from trainer.models.loading import load_tokenizer
    from trainer.stages.base import build_stage

    stage = build_stage(config)
    start = config.model.name
    return stage.make_trainer(run_of(config), start, load_tokenizer(start, config.model))


def reward_model_scores(
    folder: Path, prompts: Sequence[Any], completions: Sequence[Any]
) -> list[float]:
    """The scores of a reward model, as the grader `preference` gives them."""
    from gradus.reward_model.model import load
    from trainer.rewards.judge import get_completion_text

    model = load(str(folder), "cpu", "float32")
    return model.compute_scores(
        [
            model.reader.read(prompt, get_completion_text(one)).ids
            for prompt, one in zip(prompts, completions, strict=True)
        ]
    )
