"""What runs the sentence model: one contract, and the table of the ways to keep it. Imports none of
them.

Every way gives the same sentences nearly the same vectors; how nearly is part of what a reward
means, so the name of backend and precision is part of the grader's revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
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
        """The vectors of `ids`, (n, longest), padded with 0 where `mask` is 0. Blocks; is called by
        one thread."""
        ...


BACKENDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "onnxruntime": ("services.graders.story.backends.onnx:OnnxBackend", ("fp32",)),
    "sentence-transformers": (
        "services.graders.story.backends.sentence_transformers:TorchBackend",
        ("fp32", "bf16"),
    ),
}
"""Name -> where its class is, and the precisions that it knows."""


def open_backend(name: str, precision: str, model: ExportedModel, threads: int) -> Backend:
    """Start the backend `name`. Raises Misuse for a name or precision that there is not,
    InternalFault when it cannot start, with what to install."""
    if name not in BACKENDS:
        raise Misuse(f"there is no backend {name!r}; there are: {', '.join(BACKENDS)}")
    place, precisions = BACKENDS[name]
    if precision not in precisions:
        raise Misuse(
            f"the backend {name!r} has no precision {precision!r}; it has: {', '.join(precisions)}"
        )
    module, _, attribute = place.partition(":")
    try:
        backend: Backend = getattr(import_module(module), attribute)(model, precision, threads)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0].replace("_", "-")
        message = (
            f"the backend {name!r} of the story grader needs the package {package}: pip install"
            f" {package}"
        )
        raise InternalFault(message, retryable=False) from None
    return backend
