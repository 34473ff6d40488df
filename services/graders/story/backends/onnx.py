"""The sentence model on ONNX Runtime: fp32, exact and everywhere, or int8, with the weights
rounded."""

from __future__ import annotations

import onnxruntime

from gradus.errors import InternalFault, boundary
from services.graders.story.backends import Pooled, Tokens
from services.graders.story.model import ExportedModel


class OnnxBackend:
    """Raises InternalFault when the graph is damaged or there is none of this precision."""

    def __init__(self, model: ExportedModel, precision: str, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # threads that wait by spinning burn the cores that other workers need
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.name = f"onnxruntime-{precision}"
        with boundary(InternalFault, f"{model.graph(precision)} cannot be loaded"):
            self._session = onnxruntime.InferenceSession(
                model.graph(precision), options, providers=["CPUExecutionProvider"]
            )

    def encode(self, ids: Tokens, mask: Tokens) -> Pooled:
        vectors, inner = self._session.run(["vectors", "inner"], {"ids": ids, "mask": mask})
        return Pooled(vectors, inner)
