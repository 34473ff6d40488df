"""The batching scorer: many threads ask for scores of texts, one thread asks the model. Knows
neither of them.

It does not wait for batches to fill: when the model is free, queued texts are sorted by length
and run in bounded passes.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from gradus.errors import Fault, InternalFault, boundary

LOOK_S = 1.0
"""Seconds between checks of a waiting thread that the model's thread is alive."""
MAX_DRAIN_TEXTS = 512
"""Most texts taken from the queue at a time and sorted by length, so that older requests are
answered first."""

Ids = Sequence[int]


class Scores(Protocol):
    def scores(self, ids_B: Sequence[Ids]) -> list[float]: ...


class Scored(NamedTuple):
    score: float
    """Perhaps not finite: what that means is the caller's to say."""
    cpu_s: float
    """This text's share of the CPU time of its pass, of the thread that ran it."""


@dataclass(slots=True, eq=False)
class _Wanted:
    ids: Ids
    scored: Future[Scored] = field(default_factory=Future)


class Scorer:
    """May be called from many threads at once; `close()` ends its own thread."""

    def __init__(self, model: Scores, *, batch_tokens: int, hang_s: float) -> None:
        self._model = model
        self._batch_tokens = batch_tokens
        self._hang_s = hang_s
        self._changed = threading.Condition()  # guards the queue and whether this is closed
        self._queue: deque[_Wanted] = deque()
        self._closed = False
        self._pass_since: float | None = None
        self._thread = threading.Thread(target=self._run, name="preference-scorer", daemon=True)
        self._thread.start()

    def score(self, ids: Ids) -> Scored:
        """The score of one text, at least one token. Blocks.

        Raises InternalFault when the model fails, hangs, or the scorer is closed; never for what a
        text says.
        """
        wanted = _Wanted(ids)
        with self._changed:
            if self._closed:
                raise InternalFault("the preference scorer is closed")
            self._queue.append(wanted)
            self._changed.notify()
        while True:
            try:
                return wanted.scored.result(min(LOOK_S, self._hang_s))
            except TimeoutError:
                since = self._pass_since
                if since is not None and time.monotonic() - since > self._hang_s:
                    message = (
                        f"the reward model has not answered for {self._hang_s:g} s: restart this"
                        " worker"
                    )
                    raise InternalFault(message) from None
                if not self._thread.is_alive():
                    raise InternalFault(
                        "the preference scorer has ended: restart this worker"
                    ) from None

    def close(self) -> None:
        """End the thread after the pass under way; requests that still wait get a fault. May be
        called twice."""
        with self._changed:
            self._closed = True
            left = [*self._queue]
            self._queue.clear()
            self._changed.notify()
        for wanted in left:
            wanted.scored.set_exception(InternalFault("the preference scorer is closed"))
        self._thread.join(timeout=self._hang_s)

    def _run(self) -> None:
        while taken := self._drained():
            for one_pass in make_batches(taken, self._batch_tokens):
                try:
                    self._score(one_pass)
                except Fault as fault:
                    for wanted in one_pass:
                        wanted.scored.set_exception(fault)

    def _drained(self) -> list[_Wanted]:
        """What is queued, oldest first; waits while that is nothing. Empty once the scorer is
        closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_DRAIN_TEXTS))]

    def _score(self, one_pass: Sequence[_Wanted]) -> None:
        self._pass_since = time.monotonic()
        cpu_s = time.thread_time()
        try:
            with boundary(InternalFault, "the reward model failed"):
                scores = self._model.scores([wanted.ids for wanted in one_pass])
        finally:
            self._pass_since = None
        if len(scores) != len(one_pass):
            raise InternalFault(
                f"the reward model gave {len(scores)} scores for {len(one_pass)} texts"
            )
        share_s = (time.thread_time() - cpu_s) / len(one_pass)
        for wanted, score in zip(one_pass, scores, strict=True):
            wanted.scored.set_result(Scored(score, share_s))


def make_batches(taken: Sequence[_Wanted], max_tokens: int) -> list[list[_Wanted]]:
    """`taken` by length; no pass has more than `max_tokens` with padding, unless it is of one
    text."""
    made: list[list[_Wanted]] = []
    for wanted in sorted(taken, key=lambda wanted: len(wanted.ids)):
        if made and (len(made[-1]) + 1) * len(wanted.ids) <= max_tokens:
            made[-1].append(wanted)
        else:
            made.append([wanted])
    return made
