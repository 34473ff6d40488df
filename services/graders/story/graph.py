"""A BERT encoder's weights as an ONNX graph with pooling inside, built node by node: needs the
packages onnx and safetensors, and no torch.

The graph of `build` takes `ids` and `mask`, int64 (n, longest), and gives `vectors`, unit rows, the
mean over a text's tokens of the last layer, as sentence-transformers pools; and `inner`, the same
mean of layer INNER_LAYER, not scaled. That of `build_pairs` reads two texts in one pass, with the
inputs and the output that models on the hub have. The architecture is that of MiniLM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file

from services.graders.story.model import INNER_LAYER

_OPSET = 17
_LAYERS, _HEADS, _WIDTH = 6, 12, 384
_EPSILON = 1e-12
_MASKED = -10_000.0
"""Added to the attention that padding would get: exp of it is 0 in fp32 and bf16."""

Weights = Mapping[str, NDArray[np.float32]]


def build(folder: Path) -> onnx.ModelProto:
    """Return the graph of the model whose `model.safetensors` is in `folder`."""
    return _create_writer(folder, {}).build_model()


def build_pairs(folder: Path, adapter: Path) -> onnx.ModelProto:
    """Return the graph of the pair model that `tools.story_model.train_pairs` made of the model in
    `folder`.

    Takes `input_ids`, `attention_mask` and `token_type_ids`, int64 (n, longest); gives `logits`,
    (n, 3): the same, contradicted, other.
    """
    return _create_writer(
        folder, {name: array.astype(np.float32) for name, array in load_file(adapter).items()}
    ).build_pair_model()


def _create_writer(folder: Path, adapter: Weights) -> _Writer:
    loaded = load_file(folder / "model.safetensors")
    weights = {
        name.removeprefix("bert."): array.astype(np.float32, copy=False)
        for name, array in loaded.items()
    }
    for name in adapter:
        layer, _, part = name.rpartition(".")
        if part == "a":  # a product of two small matrices on top of a layer
            weights[f"{layer}.weight"] += adapter[f"{layer}.b"] @ adapter[name]
    return _Writer({**weights, **adapter})


class _Writer:
    """Collects nodes and constants; every method adds one part of the model and returns the name of
    what it gives."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._constants: dict[str, onnx.TensorProto] = {}

    def build_model(self) -> onnx.ModelProto:
        added, column = self._add_masks("mask")
        # one sentence has one type: its row is added to every position once and for all
        types = self._weights["embeddings.token_type_embeddings.weight"][0]
        table = self._weights["embeddings.position_embeddings.weight"] + types
        hidden = self._add_norm(self._add_words("ids", table), "embeddings.LayerNorm")
        inner = ""
        for number in range(1, _LAYERS + 1):
            hidden = self._add_layer(hidden, added, f"encoder.layer.{number - 1}")
            if number == INNER_LAYER:
                inner = self._add_mean(hidden, column)
        self._add_node("Identity", inner, to="inner")
        self._add_node("LpNormalization", self._add_mean(hidden, column), to="vectors", axis=1, p=2)
        return self._finish_model(("ids", "mask"), {"vectors": _WIDTH, "inner": _WIDTH})

    def build_pair_model(self) -> onnx.ModelProto:
        inputs = ("input_ids", "attention_mask", "token_type_ids")
        added, column = self._add_masks("attention_mask")
        words = self._add_words("input_ids", self._weights["embeddings.position_embeddings.weight"])
        typed = self._add_node(
            "Add", words, self._add_node("Gather", self._add_weight("types"), "token_type_ids")
        )
        hidden = self._add_norm(typed, "embeddings.LayerNorm")
        for number in range(_LAYERS):
            hidden = self._add_layer(hidden, added, f"encoder.layer.{number}")
        axis = self._add_ints("axes_column", [2])
        types = self._add_node(
            "Unsqueeze", self._add_node("Cast", "token_type_ids", to_type=TensorProto.FLOAT), axis
        )
        second = self._add_node("Mul", column, types)
        first_mean, second_mean = (
            self._add_mean(hidden, side) for side in (self._add_node("Sub", column, second), second)
        )
        difference = self._add_node("Abs", self._add_node("Sub", first_mean, second_mean))
        joined = self._add_node(
            "Concat",
            first_mean,
            second_mean,
            difference,
            self._add_node("Mul", first_mean, second_mean),
            axis=1,
        )
        self._add_node("Identity", self._add_dense(joined, "head"), to="logits")
        return self._finish_model(inputs, {"logits": 3})

    def _finish_model(self, inputs: Sequence[str], outputs: Mapping[str, int]) -> onnx.ModelProto:
        """Return the model with what it takes, and the names and widths of what it gives."""
        input_infos = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "t"]) for name in inputs
        ]
        output_infos = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])
            for name, width in outputs.items()
        ]
        graph = helper.make_graph(
            self._nodes, "sentences", input_infos, output_infos, list(self._constants.values())
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=9
        )
        onnx.checker.check_model(model)
        return model

    # ----------------------------------------------------------------------------------- the model

    def _add_masks(self, name: str) -> tuple[str, str]:
        """Return what is added to attention, (n, 1, 1, t), and the mask as a column, (n, t, 1)."""
        mask = self._add_node("Cast", name, to_type=TensorProto.FLOAT)
        wide = self._add_node("Unsqueeze", mask, self._add_ints("axes_attention", [1, 2]))
        away = self._add_node("Sub", self._add_floats("one", [1.0]), wide)
        added = self._add_node("Mul", away, self._add_floats("masked", [_MASKED]))
        return added, self._add_node("Unsqueeze", mask, self._add_ints("axes_column", [2]))

    def _add_words(self, ids: str, table: NDArray[np.float32]) -> str:
        """Embeddings of words, and of their places by `table`, added up."""
        words = self._add_node("Gather", self._add_weight("embeddings.word_embeddings.weight"), ids)
        length = self._add_node(
            "Gather", self._add_node("Shape", ids), self._add_ints("second", [1])
        )
        rows = [self._add_ints("zero", [0]), length, self._add_ints("axis_rows", [0])]
        positions = self._add_node("Slice", self._add_constant("positions", table), *rows)
        return self._add_node("Add", words, positions)

    def _add_layer(self, hidden: str, added: str, name: str) -> str:
        attended = self._add_dense(
            self._add_attention(hidden, added, f"{name}.attention.self"),
            f"{name}.attention.output.dense",
        )
        hidden = self._add_norm(
            self._add_node("Add", attended, hidden), f"{name}.attention.output.LayerNorm"
        )
        grown = self._add_gelu(self._add_dense(hidden, f"{name}.intermediate.dense"))
        shrunk = self._add_dense(grown, f"{name}.output.dense")
        return self._add_norm(self._add_node("Add", shrunk, hidden), f"{name}.output.LayerNorm")

    def _add_attention(self, hidden: str, added: str, name: str) -> str:
        size = _WIDTH // _HEADS
        queries = self._add_node(
            "Mul",
            self._add_heads(hidden, f"{name}.query", [0, 2, 1, 3]),
            self._add_floats("scale", [size**-0.5]),
        )
        keys = self._add_heads(hidden, f"{name}.key", [0, 2, 3, 1])
        weights = self._add_node(
            "Softmax",
            self._add_node("Add", self._add_node("MatMul", queries, keys), added),
            axis=-1,
        )
        values = self._add_heads(hidden, f"{name}.value", [0, 2, 1, 3])
        mixed = self._add_node(
            "Transpose", self._add_node("MatMul", weights, values), perm=[0, 2, 1, 3]
        )
        return self._add_node("Reshape", mixed, self._add_ints("joined", [0, 0, _WIDTH]))

    def _add_heads(self, hidden: str, name: str, order: list[int]) -> str:
        shape = self._add_ints("split", [0, 0, _HEADS, _WIDTH // _HEADS])
        return self._add_node(
            "Transpose", self._add_node("Reshape", self._add_dense(hidden, name), shape), perm=order
        )

    def _add_gelu(self, value: str) -> str:
        """x / 2 * (1 + erf(x / sqrt 2)), in the form that runtimes know and fuse."""
        error = self._add_node(
            "Erf", self._add_node("Div", value, self._add_floats("root_of_2", [2**0.5]))
        )
        bent = self._add_node(
            "Mul", value, self._add_node("Add", error, self._add_floats("one", [1.0]))
        )
        return self._add_node("Mul", bent, self._add_floats("half", [0.5]))

    def _add_mean(self, hidden: str, column: str) -> str:
        """Over the tokens that are there, (n, width)."""
        axis = self._add_ints("axis_tokens", [1])
        total = self._add_node("ReduceSum", self._add_node("Mul", hidden, column), axis, keepdims=0)
        return self._add_node("Div", total, self._add_node("ReduceSum", column, axis, keepdims=0))

    def _add_dense(self, value: str, name: str) -> str:
        # torch keeps (out, in); MatMul wants (in, out)
        turned = self._add_constant(
            f"{name}.weight", np.ascontiguousarray(self._weights[f"{name}.weight"].T)
        )
        return self._add_node(
            "Add", self._add_node("MatMul", value, turned), self._add_weight(f"{name}.bias")
        )

    def _add_norm(self, value: str, name: str) -> str:
        parts = [self._add_weight(f"{name}.weight"), self._add_weight(f"{name}.bias")]
        return self._add_node("LayerNormalization", value, *parts, axis=-1, epsilon=_EPSILON)

    # ------------------------------------------------------------------------------------ the ONNX

    def _add_node(
        self,
        kind: str,
        *inputs: str,
        to: str | None = None,
        to_type: int | None = None,
        **attributes: Any,
    ) -> str:
        """Add a node; returns the name of its output, `to` or a new one. `to_type`: what Cast casts
        to."""
        output = to or f"{kind.lower()}_{len(self._nodes)}"
        if to_type is not None:
            attributes["to"] = to_type
        self._nodes.append(helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def _add_weight(self, name: str) -> str:
        return self._add_constant(name, self._weights[name])

    def _add_ints(self, name: str, values: list[int]) -> str:
        return self._add_constant(name, np.array(values, np.int64))

    def _add_floats(self, name: str, values: list[float]) -> str:
        return self._add_constant(name, np.array(values, np.float32))

    def _add_constant(self, name: str, array: NDArray[Any]) -> str:
        self._constants.setdefault(name, numpy_helper.from_array(array, name))
        return name
