"""The sentence model on torch, through sentence-transformers: the yardstick, and the way to a GPU.
Optional: package sentence-transformers. Needs the weights themselves, not only the exported graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sentence_transformers
import torch

from gradus.errors import InternalFault, wrap_exceptions
from services.graders.story.backends import Pooled, Tokens
from services.graders.story.export import find_weights
from services.graders.story.model import INNER_LAYER, MODEL, ExportedModel

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class TorchBackend:
    """On CUDA, MPS or the CPU, the first there is. Raises InternalFault when the weights are not
    there."""

    def __init__(self, model: ExportedModel, precision: str, threads: int) -> None:
        is_there = Path(model.about.source).is_dir()
        folder = find_weights(model.about.source if is_there else MODEL)
        torch.set_num_threads(threads)
        with wrap_exceptions(InternalFault, f"sentence-transformers cannot load {folder}"):
            loaded: Any = sentence_transformers.SentenceTransformer(
                str(folder), local_files_only=True, model_kwargs={"dtype": _TYPES[precision]}
            )
        self._encoder = loaded[0].auto_model.eval()
        self._device = loaded.device
        self.name = f"sentence-transformers-{precision}-{self._device.type}"

    @torch.inference_mode()
    def encode(self, ids: Tokens, mask: Tokens) -> Pooled:
        attention_mask = torch.from_numpy(mask).to(self._device)
        output = self._encoder(
            torch.from_numpy(ids).to(self._device), attention_mask, output_hidden_states=True
        )
        inner = _compute_mean(output.hidden_states[INNER_LAYER], attention_mask)
        vectors = torch.nn.functional.normalize(
            _compute_mean(output.last_hidden_state, attention_mask), dim=1
        )
        return Pooled(vectors.cpu().numpy(), inner.cpu().numpy())


def _compute_mean(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Over the tokens that are there, in fp32: (n, t, width) -> (n, width)."""
    column = mask.unsqueeze(-1).float()
    return (hidden.float() * column).sum(1) / column.sum(1)
