"""The sentence model on ONNX Runtime in fp32: exact, and everywhere."""

from __future__ import annotations

from pathlib import Path

import onnxruntime

from gradus.errors import InternalFault, wrap_exceptions
from services.graders.story.backends import Pooled, Tokens
from services.graders.story.model import FP32, ExportedModel


def open_session(graph: Path, threads: int) -> onnxruntime.InferenceSession:
    """Raise InternalFault when the graph is damaged."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    # threads that wait by spinning burn the cores that other workers need
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with wrap_exceptions(InternalFault, f"{graph} cannot be loaded"):
        return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class OnnxBackend:
    """Raises InternalFault when the graph is damaged or missing."""

    name = "onnxruntime-fp32"

    def __init__(self, model: ExportedModel, threads: int) -> None:
        self._session = open_session(model.get_graph_path(FP32), threads)

    def encode(self, ids: Tokens, mask: Tokens) -> Pooled:
        vectors, inner = self._session.run(["vectors", "inner"], {"ids": ids, "mask": mask})
        return Pooled(vectors, inner)
