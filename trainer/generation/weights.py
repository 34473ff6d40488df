"""Weights for a server: files and adapters in a folder that it can read.

Files are written under new names and renamed into place, so that no reader sees half of one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from gradus.weight_checksums import Checksums, compute_checksum

KEPT = 2
"""Versions that stay: the one in use and the one before."""


class WeightsFolder:
    """What one run writes for its server. Every name begins with the run's; nothing else in the
    folder is touched."""

    def __init__(self, path: Path, run: str) -> None:
        self.path = path
        self._run = run

    def weights(self, name: str, tensors: Iterable[tuple[str, torch.Tensor]]) -> Path:
        """Return all of `tensors` as `<name>.safetensors`; older versions but the last go.

        Raises OSError after the last tensor was asked for, as other processes wait for each of them
        to be.
        """
        # a copy of each: tied weights are one tensor under two names, which the format refuses
        copied = {key: tensor.detach().to("cpu", copy=True).contiguous() for key, tensor in tensors}

        def save(half: Path) -> None:
            save_file(copied, half)
            half.chmod(0o644)  # the server may be another user's

        return self._write_version(f"{name}.safetensors", save)

    def adapter(self, name: str, model: Any) -> Path:
        """Return the LoRA adapter of `model` as a folder `<name>`; older versions but the last
        go."""
        return self._write_version(name, lambda half: model.save_pretrained(str(half)))

    def _write_version(self, name: str, save: Callable[[Path], None]) -> Path:
        self.path.mkdir(parents=True, exist_ok=True)
        half = self.path / f"{Path(name).stem}.partial"
        target = self.path / name
        save(half)
        half.rename(target)
        self._delete_versions(KEPT)
        return target

    def clear(self) -> None:
        """Remove all that this run wrote, and the folder if nothing else is in it."""
        self._delete_versions(0)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    def _delete_versions(self, count: int) -> None:
        versions = sorted(
            self.path.glob(f"{self._run}-*"), key=lambda path: path.stat().st_mtime_ns
        )
        for path in versions[: len(versions) - count]:
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def iter_merged_parameters(model: Any) -> Iterator[tuple[str, Any]]:
    """Parameters of a PEFT model with its adapters added, under the base model's names, one layer
    at a time.

    Sums are made in float32 and rounded once, in copies: the model's own weights stay bit for bit.
    PEFT rounds in place (`merge_adapter`, `unmerge_adapter`), so that in bfloat16 the frozen
    weights drift with each merge. Each tensor owns its memory: vLLM's packed transfer collects up
    to 1 GB of them before it copies, and by then their layer is unmerged.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    def walk(module: Any, prefix: str) -> Iterator[tuple[str, Any]]:
        if isinstance(module, BaseTunerLayer):
            with _merge_in_float32(module):
                yield from module.named_parameters(prefix.removesuffix("."))
            return
        for name, parameter in module.named_parameters(recurse=False):
            yield prefix + name, parameter
        for name, child in module.named_children():
            yield from walk(child, f"{prefix}{name}.")

    visited: set[int] = set()
    for name, parameter in walk(model, ""):
        if model.prefix in name or "original_module" in name or id(parameter) in visited:
            continue
        visited.add(id(parameter))  # tied weights
        name = (
            name.removeprefix("base_model.model.")
            .replace(".base_layer", "")
            .replace("modules_to_save.default.", "")
        )
        yield name, parameter.data.clone()


def compute_adapter_checksums(model: Any, dtype: torch.dtype) -> Checksums:
    """Return checksums of the LoRA adapter of a PEFT model, by vLLM's names and in its type."""
    from peft.tuners.lora import LoraLayer

    checksums = {}
    for name, layer in model.named_modules():
        if not isinstance(layer, LoraLayer):
            continue
        name = name.removeprefix("base_model.model.")
        for adapter, half in layer.lora_A.items():
            checksums[f"{name}.lora_a"] = compute_checksum([half.weight.to(dtype)])
            scaled = layer.lora_B[adapter].weight.to(dtype) * layer.scaling[adapter]
            checksums[f"{name}.lora_b"] = compute_checksum([scaled])
    return checksums


@contextmanager
def _merge_in_float32(layer: Any) -> Iterator[None]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    tuners = [module for module in layer.modules() if isinstance(module, BaseTunerLayer)]
    originals = []
    for parameter in layer.get_base_layer().parameters():
        if parameter.is_floating_point():  # PEFT merges quantized ones itself
            originals.append((parameter, parameter.data))
    try:
        for parameter, data in originals:
            parameter.data = data.to(torch.float32, copy=True)
        for tuner in tuners:
            tuner.merge()
        for parameter, data in originals:
            parameter.data = parameter.data.to(data.dtype)
        yield
    finally:
        for tuner in tuners:
            if tuner.merged:
                tuner.unmerge()
        for parameter, data in originals:
            parameter.data = data
