"""Checksums of weights before and after vLLM has joined, cut and scaled them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gradus.weight_checksums import (
    collect_adapter_checksums,
    collect_checksums,
    compute_checksum,
    find_differing,
)

JOINED = {"qkv_proj": ["q_proj", "k_proj", "v_proj"]}


def build_trained() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    sizes = {"attn.q_proj": (8, 4), "attn.k_proj": (2, 4), "attn.v_proj": (2, 4), "down": (4, 8)}
    trained = {}
    for name, size in sizes.items():
        trained[f"{name}.weight"] = torch.randn(size, generator=generator)
    trained["norm.weight"] = torch.randn(4, generator=generator)
    return trained


def sum_up(trained: dict[str, torch.Tensor]) -> dict[str, list[float]]:
    return {name: compute_checksum([tensor]) for name, tensor in trained.items()}


def build_served(trained: dict[str, torch.Tensor], part: int = 0, parts: int = 1) -> Any:
    """A model as one of vLLM's processes holds it: joined, and cut by rows or columns."""
    joined = [trained[f"attn.{name}.weight"].chunk(parts)[part] for name in JOINED["qkv_proj"]]
    model = nn.Module()
    model.packed_modules_mapping = JOINED
    for path, weight in (
        ("attn.qkv_proj.base_layer", torch.cat(joined)),
        ("down", trained["down.weight"].chunk(parts, dim=1)[part]),
        ("norm", trained["norm.weight"]),
    ):
        place = model
        for name in path.split("."):
            if not hasattr(place, name):
                place.add_module(name, nn.Module())
            place = getattr(place, name)
        place.register_parameter("weight", nn.Parameter(weight.clone()))
    return model


@pytest.mark.parametrize("parts", [1, 2])
def test_joined_and_cut_weights_are_those_that_were_sent(parts: int) -> None:
    trained = build_trained()
    held = [collect_checksums(build_served(trained, part, parts)) for part in range(parts)]
    assert find_differing(sum_up(trained), held) == (3, [])


@pytest.mark.parametrize("name", ["attn.k_proj.weight", "down.weight", "norm.weight"])
@pytest.mark.parametrize("parts", [1, 2])
def test_one_weight_of_another_step_is_found(name: str, parts: int) -> None:
    trained = build_trained()
    held = [collect_checksums(build_served(trained, part, parts)) for part in range(parts)]
    trained[name][0].mul_(1.001)
    compared, differing = find_differing(sum_up(trained), held)
    assert compared == 3
    assert differing == [name.replace("k_proj", "qkv_proj")]


def test_what_vllm_keeps_in_another_form_is_left_out() -> None:
    trained = build_trained()
    model = build_served(trained)
    model.down.weight = nn.Parameter(torch.empty(0))
    model.norm.weight = nn.Parameter(trained["norm.weight"].half())
    assert find_differing(sum_up(trained), [collect_checksums(model)]) == (1, [])


def test_adapters_are_compared_as_vllm_has_joined_and_scaled_them() -> None:
    own = {}
    loras = {"lora_a": [], "lora_b": []}
    for number, name in enumerate(JOINED["qkv_proj"]):
        for half, held in loras.items():
            tensor = torch.full((2, 3), float(number + 1))
            own[f"attn.{name}.{half}"] = compute_checksum(
                [tensor * (2.0 if half == "lora_b" else 1)]
            )
            held.append(tensor * 2.0 if half == "lora_b" else tensor)
    adapter = SimpleNamespace(loras={"attn.qkv_proj": SimpleNamespace(**loras)})
    assert find_differing(own, [collect_adapter_checksums(adapter, JOINED)]) == (2, [])
    loras["lora_b"][1][0, 0] += 0.01
    held_now = [collect_adapter_checksums(adapter, JOINED)]
    assert find_differing(own, held_now) == (2, ["attn.qkv_proj.lora_b"])
