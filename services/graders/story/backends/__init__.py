"""What runs the sentence model: one contract, and two ways to keep it. Imports neither.

Every way gives the same sentences nearly the same vectors; how nearly is part of what a reward
means, so the name of backend and precision is part of the grader's revision.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gradus.errors import InternalFault, Misuse
from services.graders.story.model import ExportedModel

Floats = NDArray[np.float32]
Tokens = NDArray[np.int64]


class Pooled(NamedTuple):
    """What the model says of n texts, in order."""

    vectors: Floats
    """(n, width), unit rows: what the texts mean."""
    inner: Floats
    """(n, width), means over each text's tokens of the hidden state of layer `model.INNER_LAYER`;
    not unit rows."""


class Backend(Protocol):
    name: str
    """Backend and precision, `onnxruntime-fp32`: part of the grader's revision."""

    def encode(self, ids: Tokens, mask: Tokens) -> Pooled:
        """Return the vectors of `ids`, (n, longest), padded with 0 where `mask` is 0. Blocks; is
        called by one thread."""
        ...


def open_backend(name: str, precision: str, model: ExportedModel, threads: int) -> Backend:
    """Start the backend `name`. Raises Misuse for a precision that it has not, InternalFault when
    it cannot start, with what to install."""
    if name == "onnxruntime":
        if precision != "fp32":
            raise Misuse(f"the backend {name!r} has no precision {precision!r}; it has: fp32")
        from services.graders.story.backends.onnx import OnnxBackend

        return OnnxBackend(model, threads)
    try:
        from services.graders.story.backends.sentence_transformers import TorchBackend
    except ModuleNotFoundError as missing:
        message = f"the backend {name!r} lacks the package {missing.name}: pip install {name}"
        raise InternalFault(message, retryable=False) from None
    return TorchBackend(model, precision, threads)
