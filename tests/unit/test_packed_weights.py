"""What vLLM's packed NCCL transfer sends of a LoRA model, by vLLM's own packing code on a CPU.

NCCL itself needs two cards. The producer that fills its buffers does not: it collects tensors up to
the size of a buffer and copies them then, by which time an iterator may have changed them.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.tiny_models import make_model
from trainer.generation.weights import iter_merged_parameters

ROOT = Path(__file__).parents[2]
PLACE = "lib/python*/site-packages/vllm/distributed/weight_transfer/packed_tensor.py"
SOURCES = sorted(ROOT.glob(f".venv-vllm/{PLACE}"))
pytestmark = [
    pytest.mark.training,
    pytest.mark.skipif(not SOURCES, reason="`make vllm` installs vLLM"),
]


@pytest.fixture(scope="module")
def packer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packed_tensor", SOURCES[0])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A LoRA model whose adapters change all linear layers."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    path = make_model("qwen2", tmp_path_factory.mktemp("packed"))
    base = AutoModelForCausalLM.from_pretrained(path, dtype=getattr(torch, request.param))
    adapted = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear"))
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:
            weight.data.normal_(0, 0.1)
    return adapted


@pytest.mark.parametrize("buffer_bytes", [1 << 30, 100_000])
def test_every_tensor_arrives_as_it_was_trained(
    packer: ModuleType, model: Any, buffer_bytes: int
) -> None:
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    # Each tensor is read before the next is made: later steps cannot have changed it.
    wanted = {name: tensor.clone() for name, tensor in iter_merged_parameters(model)}
    tensors = iter_merged_parameters(model)
    arrived: dict[str, Any] = {}
    while chunk := packer.pack_tensors(tensors, lambda item: item[1], buffer_bytes):
        parts = (chunk.names, chunk.shapes, chunk.dtypes, chunk.tensor_sizes)
        arrived |= dict(packer.unpack_tensor(chunk.packed_tensor, *parts))
    assert set(arrived) == set(wanted)
    assert [name for name in wanted if not torch.equal(wanted[name], arrived[name])] == []
    changed = 0
    for name, weight in before.items():
        plain = name.removeprefix("base_model.model.").replace(".base_layer", "")
        changed += ".base_layer." in name and not torch.equal(wanted[plain], weight)
    assert changed > 0
    assert all(torch.equal(before[name], weight) for name, weight in model.named_parameters())
