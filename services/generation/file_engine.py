"""A vLLM weight-transfer engine that takes weights from a safetensors file or from a URL of one;
CPU included.

Runs inside vLLM's worker processes. vLLM's own engines move tensors between GPUs; where there is
none, or no network between them, a file does. Knows nothing of training.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

FETCH_S = 600


@dataclass
class FileInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """There is nothing to set up."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    path: str | None = None
    url: str | None = None

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.url):
            raise ValueError("give either `path` or `url` of a safetensors file")
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError("`url` must begin with http:// or https://")


class FileEngine(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):  # type: ignore[misc]
    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Nothing to set up."""

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        self.model.load_weights(_tensors(update_info))

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # vLLM's own method waits for an accelerator afterwards, which fails where there is none
        self.receive_weights(self.parse_update_info(update_info))
        if torch.accelerator.is_available():
            torch.accelerator.synchronize()

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)
        if self.device.type == "cpu":
            self._repack_embeddings()

    def _repack_embeddings(self) -> None:
        """vLLM 0.32 keeps a packed copy of `lm_head` for the CPU; tied embeddings are reloaded
        without it."""
        from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm
        from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

        for module in self.model.modules():
            if isinstance(module, VocabParallelEmbedding) and hasattr(module, "cpu_linear"):
                dispatch_cpu_unquantized_gemm(module, remove_weight=False)

    def shutdown(self) -> None:
        """Nothing to tear down."""


def _tensors(info: FileUpdateInfo) -> Iterator[tuple[str, torch.Tensor]]:
    """One after the other and off the device, which has no room for a second copy of all."""
    if info.url:
        with urllib.request.urlopen(
            info.url, timeout=FETCH_S
        ) as response:  # http and https only, see above
            yield from load(response.read()).items()
        return
    with safe_open(info.path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118, it is no mapping
            yield name, file.get_tensor(name)
