"""Devices, fresh models, sampling and early grading, with a model of a few thousand parameters."""

from __future__ import annotations

from typing import Any

import pytest

from gradus.errors import Misuse
from trainer.config.run import FreshModel, ModelConfig
from trainer.data.demo_tasks import generate_demo_rows

pytestmark = pytest.mark.training

CPU_DEFAULTS = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "dataloader_pin_memory": False,
}


@pytest.fixture(scope="module")
def tiny() -> tuple[Any, Any]:
    from trainer.models.fresh import build_model, train_tokenizer

    sizes = FreshModel(
        hidden_size=32, intermediate_size=64, layers=1, heads=2, kv_heads=1, vocab_size=300
    )
    tokenizer = train_tokenizer(["let f x = x + 1", "(* add 1 *)"], sizes)
    return build_model("qwen3", sizes, tokenizer, seed=3), tokenizer


# ------------------------------------------------------------------------------------------ device


def test_a_cpu_gets_safe_defaults_and_what_was_asked_wins() -> None:
    from trainer.config.device import Device, apply_device_defaults, select_weights_dtype

    cpu = Device("cpu", has_bf16=False, has_eight_bit=False)
    said: list[str] = []
    assert apply_device_defaults({}, cpu, said.append) == CPU_DEFAULTS
    assert (
        apply_device_defaults({"gradient_checkpointing": True}, cpu, said.append)[
            "gradient_checkpointing"
        ]
        is True
    )
    assert select_weights_dtype(cpu, "auto", frozen=True) == "float32"
    assert select_weights_dtype(cpu, "bfloat16", frozen=False) == "bfloat16"
    assert not said


def test_a_gpu_gets_bf16_where_it_can_and_never_beside_fp16() -> None:
    from trainer.config.device import Device, apply_device_defaults, select_weights_dtype

    new = Device("cuda", has_bf16=True, has_eight_bit=True)
    old = Device("cuda", has_bf16=False, has_eight_bit=False)
    assert apply_device_defaults({"optim": "adamw_8bit"}, new, print)["optim"] == "adamw_8bit"
    assert apply_device_defaults({}, new, print)["bf16"] is True
    assert apply_device_defaults({"fp16": True}, new, print)["bf16"] is False
    assert apply_device_defaults({}, old, print)["bf16"] is False
    assert select_weights_dtype(new, "auto", frozen=True) == "bfloat16"
    assert select_weights_dtype(new, "auto", frozen=False) == "float32"
    assert select_weights_dtype(old, "auto", frozen=True) == "float32"


def test_an_eight_bit_optimizer_is_replaced_where_it_cannot_run_and_said_so() -> None:
    from transformers.training_args import OptimizerNames

    from trainer.config.device import Device, apply_device_defaults

    said: list[str] = []
    for name in ("adamw_8bit", OptimizerNames.ADAMW_8BIT):
        chosen = apply_device_defaults(
            {"optim": name}, Device("mps", has_bf16=False, has_eight_bit=False), said.append
        )
        assert chosen["optim"] == "adamw_torch"
    assert len(said) == 2


def test_a_device_that_is_not_there_is_refused() -> None:
    import torch

    from trainer.config.device import choose_device

    assert choose_device(ModelConfig(name="x", device="cpu")).kind == "cpu"
    missing = "mps" if torch.cuda.is_available() else "cuda"
    with pytest.raises(Misuse, match=f"no {missing}; it has: .*cpu"):
        choose_device(ModelConfig(name="x", device=missing))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- fresh models


def test_the_demo_model_has_0_6_million_parameters_and_loses_no_text() -> None:
    from trainer.models.fresh import build_model, train_tokenizer

    rows = [
        row["prompt"] + row["completion"] for row in generate_demo_rows("demo:ocaml/warm-start")
    ]
    tokenizer = train_tokenizer(rows[:2000], FreshModel())
    model = build_model("qwen3", FreshModel(), tokenizer, seed=1)
    assert 0.55e6 < sum(parameter.numel() for parameter in model.parameters()) < 0.65e6
    for text in (rows[0], "été  \u2028 😀\n\t let  f"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_an_architecture_that_is_not_offered_is_refused(tiny: tuple[Any, Any]) -> None:
    from trainer.models.fresh import build_model

    with pytest.raises(Misuse, match="there is no fresh:gpt2; there is fresh:qwen3"):
        build_model("gpt2", FreshModel(), tiny[1], seed=1)


# ---------------------------------------------------------------------------------------- sampling

PROMPTS = ["let f x =", "(* add 1 *)\nlet", "x"]


def sample(
    model: Any,
    tokenizer: Any,
    prompts: list[Any],
    k: int,
    temperature: float,
    most: int,
    **options: Any,
) -> list[list[str]]:
    """`k` completions of each prompt."""
    from trainer.evaluate.local import draw

    drawn = draw(
        model, tokenizer, [one for one in prompts for _ in range(k)], temperature, most, **options
    )
    texts = [one.text for one in drawn]
    return [texts[start : start + k] for start in range(0, len(texts), k)]


def test_greedy_completions_do_not_depend_on_their_batch(tiny: tuple[Any, Any]) -> None:
    together = sample(*tiny, PROMPTS, 1, 0.0, 12)
    one_by_one = [sample(*tiny, [prompt], 1, 0.0, 12)[0] for prompt in PROMPTS]
    assert together == one_by_one


def test_a_seed_repeats_samples_and_leaves_the_random_state_alone(tiny: tuple[Any, Any]) -> None:
    import torch

    torch.manual_seed(5)
    first = sample(*tiny, PROMPTS, 4, 1.0, 8, seed=1)
    after = torch.rand(1)
    torch.manual_seed(5)
    assert torch.equal(after, torch.rand(1))
    assert [len(completions) for completions in first] == [4, 4, 4]
    assert (
        first
        == sample(*tiny, PROMPTS, 4, 1.0, 8, seed=1)
        != sample(*tiny, PROMPTS, 4, 1.0, 8, seed=2)
    )


def test_sampling_puts_the_model_back_as_it_was(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    model.train()
    model.config.use_cache = False
    sample(model, tokenizer, ["let"], 1, 1.0, 2)
    assert model.training
    assert model.config.use_cache is False


def test_a_chat_prompt_is_completed_through_the_template(tiny: tuple[Any, Any]) -> None:
    from trainer.data.prompts import encode_prompt

    chat = [{"role": "user", "content": "add 1"}]
    assert (
        tiny[1]
        .decode(encode_prompt(tiny[1], chat))
        .endswith("add 1<|im_end|>\n<|im_start|>assistant\n")
    )
    assert len(sample(*tiny, [chat, "x"], 2, 1.0, 3)) == 2


def test_a_completion_tells_its_length_and_whether_it_was_cut_off(tiny: tuple[Any, Any]) -> None:
    from trainer.evaluate.local import draw

    model, tokenizer = tiny
    (cut,) = draw(model, tokenizer, ["let f x ="], 0.0, 5)
    assert (cut.prompt_tokens, cut.completion_tokens, cut.finish_reason) == (
        len(tokenizer("let f x =")["input_ids"]),
        5,
        "length",
    )
    ends = model.generation_config.eos_token_id
    first = tokenizer(cut.text)["input_ids"][0]
    try:
        model.generation_config.eos_token_id = first
        (ended,) = draw(model, tokenizer, ["let f x ="], 0.0, 5)
    finally:
        model.generation_config.eos_token_id = ends
    assert (ended.completion_tokens, ended.finish_reason) == (1, "stop")


# ---------------------------------------------------------------------- early grading


def test_completions_are_sent_at_their_end_with_the_text_that_they_end_up_with(
    tiny: tuple[Any, Any],
) -> None:
    import torch

    from trainer.stages.online import send_on_end

    model, tokenizer = tiny
    sent: list[tuple[str, str]] = []
    ids = torch.tensor([tokenizer("let f")["input_ids"]] * 32)
    torch.manual_seed(1)
    with send_on_end(
        model, tokenizer, [tokenizer.eos_token_id], [f"p{row}" for row in range(32)], sent.extend
    ):
        output = model.generate(
            ids, attention_mask=torch.ones_like(ids), do_sample=True, top_k=0, max_new_tokens=40
        )
    assert "generate" not in vars(model)
    texts = tokenizer.batch_decode(output[:, ids.shape[1] :], skip_special_tokens=True)
    ended = [row for row in range(32) if tokenizer.eos_token_id in output[row, ids.shape[1] :]]
    assert ended
    assert sorted(sent) == sorted((f"p{row}", texts[row]) for row in ended)
