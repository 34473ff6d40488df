"""Texts -> vectors, for many threads: each text is embedded once and kept while there is room."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from gradus.errors import InternalFault
from services.graders.base.batching import Answer, BatchingModel, Ids, Withdrawn

Floats = NDArray[np.float32]
MAX_PASS_TOKENS = 256
"""Most tokens of one pass, padding included; more save next to nothing and let others wait
(docs/decisions/0011)."""
HANG_S = 60.0
"""A pass that takes longer hangs: the largest usual one takes about 0.2 s."""
_ENTRY_BYTES = 400
"""What a kept text costs beside its characters and vectors, roughly."""


class Model(Protocol):
    """What turns texts into vectors: `sentence_model.SentenceModel`, or a test's own."""

    def ids(self, texts: Sequence[str]) -> list[list[int]]: ...

    def encode(self, ids: Sequence[Ids]) -> Floats:
        """Return a row for each text. Blocks; is called by one thread."""
        ...


class Embeddings(NamedTuple):
    """The embeddings of n texts, in order."""

    vectors: Floats
    """(n, width), unit rows."""
    cpu_s: float
    """CPU seconds of the model for texts that no earlier caller had requested."""


class Encoder:
    """May be called from many threads at once; `close()` ends its own thread."""

    def __init__(
        self,
        model: Model,
        *,
        cache_mb: int = 64,
        hang_s: float = HANG_S,
        max_pass_tokens: int = MAX_PASS_TOKENS,
    ) -> None:
        self._encode = model.encode
        self._tokenize = model.ids
        self._max_bytes = cache_mb * 2**20
        self._lock = threading.Lock()  # guards all below
        self._futures: dict[str, Future[Answer[Floats]]] = {}
        """What is there, and what was asked for."""
        self._sizes: OrderedDict[str, int] = OrderedDict()
        """Bytes of each text that is there, the least recently used first."""
        self._bytes = 0
        self._model = BatchingModel(
            "the story model", self._encode_rows, max_pass_tokens=max_pass_tokens, hang_s=hang_s
        )
        self.close = self._model.close

    def vectors(self, texts: Sequence[str]) -> Floats:
        """(len(texts), width) unit rows, in order. Blocks. Raises InternalFault as `embed` does."""
        return self.embed(texts).vectors

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors of `texts`, at least one, in order. Blocks until the model has seen
        those that are new.

        Raises InternalFault when the model fails, hangs, or the encoder is closed; never for what a
        text says.
        """
        futures: dict[str, Future[Answer[Floats]]] = {}
        with self._lock:
            for text in texts:
                if text in self._futures:
                    futures[text] = self._futures[text]
                if text in self._sizes:
                    self._sizes.move_to_end(text)
        new = list(dict.fromkeys(text for text in texts if text not in futures))
        requested: list[str] = []
        if new:
            all_ids = self._tokenize(new)
            with self._lock:
                to_queue = []
                for text, ids in zip(new, all_ids, strict=True):
                    if text not in self._futures:  # else another caller was quicker
                        to_queue.append(ids)
                        requested.append(text)
                queued = self._model.submit_all(to_queue)
                self._futures.update(zip(requested, queued, strict=True))
                futures.update((text, self._futures[text]) for text in new)
            for text in requested:
                futures[text].add_done_callback(partial(self._cache_row, text))
        try:
            answers = dict(zip(futures, self._model.answers([*futures.values()]), strict=True))
        except Withdrawn:  # the attempt that had queued a text was cancelled
            return self.embed(texts)
        return Embeddings(
            np.array([answers[text].row for text in texts]),
            sum(answers[text].cpu_s for text in requested),
        )

    def _cache_row(self, text: str, done: Future[Answer[Floats]]) -> None:
        """Keep what is there, and drop the oldest as far as there is no room. A fault is not
        kept."""
        with self._lock:
            if done.exception() is not None:
                del self._futures[text]
                return
            self._sizes[text] = 4 * len(text) + done.result().row.nbytes + _ENTRY_BYTES
            self._bytes += self._sizes[text]
            while self._bytes > self._max_bytes:
                oldest, size = self._sizes.popitem(last=False)
                self._bytes -= size
                del self._futures[oldest]

    def _encode_rows(self, ids: Sequence[Ids]) -> list[Floats]:
        vectors = self._encode(ids)
        if not np.isfinite(vectors).all():
            raise InternalFault("the story model gave no usable vectors")
        # copies: a view would keep its whole pass alive
        return [np.copy(vector) for vector in vectors]
