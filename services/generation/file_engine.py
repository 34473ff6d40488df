"""A vLLM weight-transfer engine that takes weights from a safetensors file; CPU included.

Runs inside vLLM's worker processes. vLLM's own engines move tensors between GPUs; where there is
none, a file does. Knows nothing of training.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)


@dataclass
class FileInitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """There is nothing to set up."""


@dataclass
class FileUpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    path: str


class FileEngine(WeightTransferEngine[FileInitInfo, FileUpdateInfo]):  # type: ignore[misc]
    init_info_cls = FileInitInfo
    update_info_cls = FileUpdateInfo

    def init_transfer_engine(self, init_info: FileInitInfo) -> None:
        """Nothing to set up."""

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: FileUpdateInfo) -> None:
        self.model.load_weights(_iter_tensors(update_info.path))

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


def _iter_tensors(file: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield one after the other and off the device, which has no room for a second copy of all."""
    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118, it is no mapping
            yield name, opened.get_tensor(name)
