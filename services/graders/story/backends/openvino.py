"""The sentence model on OpenVINO: fp32, or bf16 where the processor multiplies it. Optional:
package openvino."""

from __future__ import annotations

import openvino

from gradus.errors import InternalFault, boundary
from services.graders.story.backends import Pooled, Tokens
from services.graders.story.model import ExportedModel

_HINTS = {"fp32": "f32", "bf16": "bf16"}


class OpenvinoBackend:
    """Raises InternalFault when the graph is damaged, or for bf16 on a processor that only has it
    emulated."""

    def __init__(self, model: ExportedModel, precision: str, threads: int) -> None:
        self.name = f"openvino-{precision}"
        graph = model.graph("fp32")
        core = openvino.Core()
        if precision == "bf16" and "BF16" not in core.get_property(
            "CPU", "OPTIMIZATION_CAPABILITIES"
        ):
            message = (
                "this processor has no bf16 (AVX512-BF16 or AMX): set `precision: fp32` in"
                " configs/graders/story.yaml"
            )
            raise InternalFault(message, retryable=False)
        settings = {
            "INFERENCE_PRECISION_HINT": _HINTS[precision],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        with boundary(InternalFault, f"{graph} cannot be loaded"):
            self._model = core.compile_model(core.read_model(graph), "CPU", settings)
        self._request = self._model.create_infer_request()

    def encode(self, ids: Tokens, mask: Tokens) -> Pooled:
        given = self._request.infer({"ids": ids, "mask": mask})
        return Pooled(given["vectors"], given["inner"])
