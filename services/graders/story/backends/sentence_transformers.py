"""The sentence model on torch, through sentence-transformers: the yardstick, and the way to a GPU.
Optional: package sentence-transformers. Needs the weights themselves, not only the exported graph.
"""

from __future__ import annotations

from typing import Any

import sentence_transformers
import torch

from gradus.errors import InternalFault, boundary
from services.graders.story.backends import Pooled, Tokens
from services.graders.story.export import weights_of
from services.graders.story.model import ExportedModel, file_sha256

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class TorchBackend:
    """On CUDA, MPS or the CPU, the first there is. Raises InternalFault when the weights are not
    those exported."""

    def __init__(self, model: ExportedModel, precision: str, threads: int) -> None:
        folder = weights_of(model.about.model)
        if file_sha256(folder / "model.safetensors") != model.about.weights_sha256:
            raise InternalFault(
                f"{folder} holds other weights than the exported graph", retryable=False
            )
        torch.set_num_threads(threads)
        with boundary(InternalFault, f"sentence-transformers cannot load {folder}"):
            loaded: Any = sentence_transformers.SentenceTransformer(
                str(folder), local_files_only=True, model_kwargs={"dtype": _TYPES[precision]}
            )
        self._encoder = loaded[0].auto_model.eval()
        self._device = loaded.device
        self._inner_layer = model.about.inner_layer
        self.name = f"sentence-transformers-{precision}-{self._device.type}"

    @torch.inference_mode()
    def encode(self, ids: Tokens, mask: Tokens) -> Pooled:
        there = torch.from_numpy(mask).to(self._device)
        given = self._encoder(
            torch.from_numpy(ids).to(self._device), there, output_hidden_states=True
        )
        inner = _mean(given.hidden_states[self._inner_layer], there)
        vectors = torch.nn.functional.normalize(_mean(given.last_hidden_state, there), dim=1)
        return Pooled(vectors.cpu().numpy(), inner.cpu().numpy())


def _mean(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Over the tokens that are there, in fp32: (n, t, width) -> (n, width)."""
    column = mask.unsqueeze(-1).float()
    return (hidden.float() * column).sum(1) / column.sum(1)
