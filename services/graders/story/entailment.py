"""A model of natural language inference as one more reader, off by default: does a story contradict what it answers?

Any sequence classifier with a label for contradiction, from the hub or a folder, run by the package transformers. Where
`entailment` names none, nothing here is imported.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gradus.errors import InternalFault, Misuse, boundary

BATCH = 32
MAX_TOKENS = 128
_LABEL = "contradict"


class Entailment:
    """May be called from many threads; one is served at a time."""

    def __init__(self, model: str) -> None:
        """Raises Misuse for a model without a label for contradiction, InternalFault when it cannot be had."""
        try:
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ModuleNotFoundError as missing:
            message = f"entailment: {model} needs the package {missing.name}: pip install 'gradus[train]'"
            raise InternalFault(message, retryable=False) from None
        with boundary(InternalFault, f"entailment: {model} is neither on the hub nor a folder with such a model"):
            self._tokenizer = AutoTokenizer.from_pretrained(model)
            self._model = AutoModelForSequenceClassification.from_pretrained(model).eval()
        self._lock = threading.Lock()
        self._column = _column(model, self._model.config.id2label)
        self.revision = _revision(self._model)

    def contradiction(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """(n,) probabilities that the second text denies the first. Raises InternalFault if the model fails."""
        parts = [self._of(pairs[at : at + BATCH]) for at in range(0, len(pairs), BATCH)]
        return np.concatenate(parts) if parts else np.zeros(0)

    def _of(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        with self._lock, boundary(InternalFault, "the entailment model failed"):
            firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
            tokens = self._tokenizer(
                firsts, seconds, padding=True, truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
            )
            logits = self._model(**tokens).logits.detach().double().numpy()
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        found: NDArray[np.float64] = (shares / shares.sum(axis=1, keepdims=True))[:, self._column]
        if not np.isfinite(found).all():
            raise InternalFault("the entailment model gave no usable numbers")
        return found


def _column(model: str, labels: dict[int, str]) -> int:
    for number, label in labels.items():
        if _LABEL in label.lower():
            return int(number)
    raise Misuse(f"entailment: {model} has no label for contradiction; it has: {', '.join(labels.values())}")


def _revision(model: Any) -> str:
    """12 hexadecimal digits, of the weights."""
    digest = hashlib.sha256()
    for name, weights in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weights.detach().float().contiguous().numpy().tobytes())
    return digest.hexdigest()[:12]
