"""The pair model: what one text is to another, which no comparison of two vectors tells. `upload`
and `never upload`.

Runs the shipped one (`pairs.safetensors` on the default sentence model), or a model for
natural-language inference from the hub or a folder, in ONNX. Both are batched and cached by
`encoder.Encoder`, a pair being one text for it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from tokenizers import Tokenizer

from gradus.errors import InternalFault, boundary
from services.graders.story.backends import Floats, Pooled, Tokens
from services.graders.story.encoder import Encoder
from services.graders.story.export import open_model
from services.graders.story.model import (
    DEFAULT_MODEL,
    NONE,
    SHIPPED,
    TOKENIZER,
    ExportedModel,
    file_sha256,
    refuse_unless_named,
)

SAME, CONTRADICTED = 0, 1
_LABELS = ("entailment", "contradiction", "neutral")
_BETWEEN = "\0"
_MARKS = str.maketrans({_BETWEEN: " ", "[": "(", "]": ")"})
"""No text spells what ends a text for the model, `[SEP]`."""
_MAX_TOKENS = 128
_MAX_CHARS = 2000
_GRAPHS = {
    "fp32": ("onnx/model.onnx", "model.onnx"),
    "int8": ("onnx/model_quantized.onnx", "model_quantized.onnx", "onnx/model_int8.onnx"),
}


class PairModel:
    """May be called from many threads at once."""

    def __init__(
        self,
        graph: Path,
        tokenizer: Path,
        columns: Sequence[int],
        name: str,
        threads: int,
        cache_mb: int,
    ) -> None:
        """`columns`: which of the graph's outputs mean the same, contradicted, other."""
        self.name = name
        with boundary(InternalFault, f"{tokenizer} is no tokenizer"):
            self._tokenizer = Tokenizer.from_file(str(tokenizer))
            self._tokenizer.no_padding()
            self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._end = self._tokenizer.encode("a", "b").ids[-1]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        with boundary(InternalFault, f"{graph} cannot be loaded"):
            self._session = onnxruntime.InferenceSession(
                graph, options, providers=["CPUExecutionProvider"]
            )
        self._inputs = [one.name for one in self._session.get_inputs()]
        self._columns = list(columns)
        self._encoder = Encoder(self, self, cache_mb=cache_mb)

    def chances(self, pairs: Sequence[tuple[str, str]]) -> tuple[NDArray[np.float64], float]:
        """(len(pairs), 3): how likely the second text says the same as the first, contradicts it,
        or says something else; rows add up to 1. And the CPU seconds of the model. Raises
        InternalFault when the model fails."""
        if not pairs:
            return np.zeros((0, 3)), 0.0
        joined = []
        for pair in pairs:
            texts = [text[:_MAX_CHARS].translate(_MARKS) for text in pair]
            joined.append(_BETWEEN.join(texts))
        found = self._encoder.embed(joined)
        return found.vectors.astype(np.float64), found.cpu_s

    def close(self) -> None:
        self._encoder.close()

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        made = []
        for text in texts:
            first, _, second = text.partition(_BETWEEN)
            made.append(self._tokenizer.encode(first, second).ids)
        return made

    def encode(self, ids: Tokens, mask: Tokens) -> Pooled:
        ends = ids == self._end
        behind = (ends.cumsum(1) - ends > 0) & (mask > 0)
        given = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": behind.astype(np.int64),
        }
        [logits] = self._session.run(None, {name: given[name] for name in self._inputs})
        odds = np.exp(logits - logits.max(1, keepdims=True))[:, self._columns]
        chances: Floats = (odds / odds.sum(1, keepdims=True)).astype(np.float32)
        return Pooled(chances, chances[:, :0])


def open_pairs(
    pairs: str, model: ExportedModel, precision: str, threads: int, cache_mb: int
) -> PairModel | None:
    """The pair model that the configuration names: `shipped`, `none`, a folder, or a name on the
    hub.

    Raises InternalFault saying what is missing, Misuse for a name that means nothing.
    """
    if pairs == NONE:
        return None
    kind = "int8" if precision == "int8" else "fp32"
    if pairs == SHIPPED:
        own = model if f"pairs-{kind}" in model.about.graphs else open_model(DEFAULT_MODEL)
        name = f"pairs {own.revision} {kind}"
        return PairModel(
            own.graph(f"pairs-{kind}"), own.folder / TOKENIZER, (0, 1, 2), name, threads, cache_mb
        )
    refuse_unless_named(pairs)
    folder = Path(pairs) if Path(pairs).is_dir() else _fetched(pairs)
    graph = next((folder / name for name in _GRAPHS[kind] if (folder / name).is_file()), None)
    if graph is None:
        raise InternalFault(f"{folder} has none of {', '.join(_GRAPHS[kind])}", retryable=False)
    with boundary(
        InternalFault, f"{folder / 'config.json'} does not name the labels {', '.join(_LABELS)}"
    ):
        named = json.loads((folder / "config.json").read_text())["id2label"]
        column_by_label = {label.lower(): int(column) for column, label in named.items()}
        columns = [column_by_label[label] for label in _LABELS]
    name = f"{Path(pairs).name} {file_sha256(graph)[:12]} {kind}"
    return PairModel(graph, folder / TOKENIZER, columns, name, threads, cache_mb)


def _fetched(pairs: str) -> Path:
    from huggingface_hub import snapshot_download

    wanted = ["config.json", TOKENIZER, *_GRAPHS["fp32"], *_GRAPHS["int8"]]
    with boundary(
        InternalFault,
        f"{pairs} cannot be downloaded: name a folder that holds it, or `pairs: shipped`",
    ):
        return Path(snapshot_download(pairs, allow_patterns=wanted))
