"""Checksums of weights, alike in a trainer and in vLLM, however vLLM has cut and joined them.

Sum and sum of squares add up: over the parts that vLLM joins into one tensor (`q_proj`, `k_proj`
and `v_proj` into `qkv_proj`), and over the slices that its processes hold. Callers have torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Checksum = list[float]
"""Sum and sum of squares, in float64."""
Checksums = dict[str, Checksum]
"""By name of the tensor."""
TOLERANCE = 1e-7
"""What an order of summing in float64 may change, as a share of the root of the sum of squares."""


def compute_checksum(tensors: Iterable[Any]) -> Checksum:
    """Return the checksum of tensors as if they were one."""
    import torch

    total = 0.0
    squares = 0.0
    for tensor in tensors:
        tensor = tensor.detach()
        total += float(tensor.sum(dtype=torch.float64))
        squares += float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) ** 2
    return [total, squares]


def collect_checksums(model: Any) -> dict[str, Any]:
    """Return checksums of a vLLM model's weights, and which names it has joined into which.

    Left out are those that are of another type than most, such as quantized ones, and those that a
    CPU keeps in packed form alone.
    """
    main_type = next(model.parameters()).dtype
    tensors = {}
    for name, weight in model.named_parameters():
        if weight.numel() and weight.dtype == main_type and not weight.is_meta:
            tensors[name.replace(".base_layer", "")] = compute_checksum([weight])
    joined = getattr(model, "packed_modules_mapping", None) or {}
    return {"joined": joined, "tensors": tensors}


def collect_adapter_checksums(adapter: Any, joined: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return checksums of a LoRA adapter as vLLM holds it, where `lora_b` is scaled."""
    tensors = {}
    for name, layer in adapter.loras.items():
        for matrix in ("lora_a", "lora_b"):
            weights = getattr(layer, matrix)
            if not isinstance(weights, list):
                weights = [weights]
            trained = [weight for weight in weights if weight is not None]
            tensors[f"{name}.{matrix}"] = compute_checksum(trained)
    return {"joined": joined, "tensors": tensors}


def join_checksums(sent: Mapping[str, Checksum], joined: Mapping[str, Sequence[str]]) -> Checksums:
    """Return a trainer's checksums under the names that vLLM has for them."""
    joined_name = {}
    for name, parts in joined.items():
        joined_name.update(dict.fromkeys(parts, name))
    summed: Checksums = {}
    for name, (total, squares) in sent.items():
        renamed = ".".join(joined_name.get(word, word) for word in name.split("."))
        so_far = summed.get(renamed, [0.0, 0.0])
        summed[renamed] = [so_far[0] + total, so_far[1] + squares]
    return summed


def find_differing(
    sent: Mapping[str, Checksum], by_process: Sequence[Mapping[str, Any]]
) -> tuple[int, list[str]]:
    """Return how many of vLLM's tensors were compared, and the names of those that differ.

    Each process has the whole of a tensor, or a slice of it.
    """
    summed = join_checksums(sent, by_process[0]["joined"])
    compared = 0
    differing = []
    for name, expected in summed.items():
        checksums = [part["tensors"][name] for part in by_process if name in part["tensors"]]
        if not checksums:
            continue
        compared += 1
        total = list(map(math.fsum, zip(*checksums, strict=True)))
        if not (_is_close(expected, total) or all(_is_close(expected, part) for part in checksums)):
            differing.append(name)
    return compared, differing


def _is_close(expected: Checksum, actual: Checksum) -> bool:
    size = math.sqrt(expected[1])
    return (
        abs(expected[0] - actual[0]) <= TOLERANCE * size
        and abs(expected[1] - actual[1]) <= TOLERANCE * expected[1]
    )
