"""A model that many threads ask and one thread runs. Knows no model.

It does not wait for passes to fill: when the model is free, what is queued is sorted by length and
run in passes of bounded size.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Generic, NamedTuple, TypeVar

from gradus.errors import Fault, InternalFault, wrap_exceptions

MAX_DRAIN_TEXTS = 512
"""Taken from the queue at a time and sorted by length: who asked long before is answered before."""
CALLER_RESUME_TIMEOUT_S = 0.1
"""The model waits no longer than this for callers that were answered and have not gone on."""
_LOOK_S = 1.0
"""Seconds between checks of a waiting thread that the model's thread is alive."""

Ids = Sequence[int]
RowT = TypeVar("RowT")


class Answer(NamedTuple, Generic[RowT]):
    row: RowT
    cpu_s: float
    """This text's share of the CPU time of its pass, of the thread that ran it."""


class Queued(NamedTuple, Generic[RowT]):
    ids: Ids
    answer: Future[Answer[RowT]]


class BatchingModel(Generic[RowT]):
    """May be called from many threads at once; `close()` ends its own thread."""

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[Ids]], Sequence[RowT]],
        *,
        max_pass_tokens: int,
        hang_s: float,
    ) -> None:
        """`name`: as faults call it. `run`: one row for each text of a pass."""
        self._name = name
        self._run_pass = run
        self._max_pass_tokens = max_pass_tokens
        self._hang_s = hang_s
        self._changed = threading.Condition()  # guards the queue and whether this is closed
        self._queue: deque[Queued[RowT]] = deque()
        self._waiting: dict[int, Sequence[Future[Answer[RowT]]]] = {}
        """What each waiting caller asked for."""
        self._closed = False
        self._pass_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, ids: Sequence[int]) -> Future[Answer[RowT]]:
        """Queue one text. Raises InternalFault once this is closed."""
        queued = Queued[RowT](ids, Future())
        with self._changed:
            self._refuse_when_closed()
            self._queue.append(queued)
            self._changed.notify()
        return queued.answer

    def answers(self, futures: Sequence[Future[Answer[RowT]]]) -> list[Answer[RowT]]:
        """Return what `submit` promised. Blocks.

        Raises InternalFault when the model fails, hangs or was closed; never for what a text says.
        """
        with self._changed:
            self._waiting[id(futures)] = futures
        try:
            while wait(futures, min(_LOOK_S, self._hang_s)).not_done:
                self._refuse_when_stuck()
        finally:
            with self._changed:
                del self._waiting[id(futures)]
                self._changed.notify()
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the thread after the pass under way; callers that still wait get a fault. May be
        called twice."""
        with self._changed:
            self._closed = True
            unanswered = [*self._queue]
            self._queue.clear()
            self._changed.notify()
        for queued in unanswered:
            queued.answer.set_exception(InternalFault(f"{self._name} is closed"))
        self._thread.join(timeout=self._hang_s)

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise InternalFault(f"{self._name} is closed")

    def _refuse_when_stuck(self) -> None:
        since = self._pass_since
        if since is not None and time.monotonic() - since > self._hang_s:
            message = f"{self._name} has not answered for {self._hang_s:g} s"
            raise InternalFault(f"{message}: restart this worker")
        if not self._thread.is_alive():
            raise InternalFault(f"the thread of {self._name} has ended: restart this worker")

    def _run(self) -> None:
        while taken := self._take_queued():
            passes = make_passes(taken, self._max_pass_tokens)
            # Callers go on once all that was taken with theirs is there: what they do between two
            # passes costs twice as much, as a pass empties the processor's caches.
            for one_pass, answers in [(batch, self._compute_answers(batch)) for batch in passes]:
                for queued, answer in zip(one_pass, answers, strict=True):
                    if isinstance(answer, Fault):
                        queued.answer.set_exception(answer)
                    else:
                        queued.answer.set_result(answer)

    def _take_queued(self) -> list[Queued[RowT]]:
        """Block until texts are queued; pop the oldest first. Empty once this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            self._changed.wait_for(self._has_every_caller_resumed, CALLER_RESUME_TIMEOUT_S)
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_DRAIN_TEXTS))]

    def _has_every_caller_resumed(self) -> bool:
        """Return whether no caller waits any more for what is there."""
        return not any(all(map(Future.done, futures)) for futures in self._waiting.values())

    def _compute_answers(self, one_pass: Sequence[Queued[RowT]]) -> Sequence[Answer[RowT] | Fault]:
        """Return what the model gave for one pass, or the fault for each of its texts."""
        cpu_s = time.thread_time()
        self._pass_since = time.monotonic()
        try:
            self._refuse_when_closed()
            with wrap_exceptions(InternalFault, f"{self._name} failed"):
                rows = self._run_pass([queued.ids for queued in one_pass])
            if len(rows) != len(one_pass):
                raise InternalFault(f"{self._name} gave {len(rows)} rows for {len(one_pass)} texts")
        except Fault as fault:
            return [fault] * len(one_pass)
        finally:
            self._pass_since = None
        share_s = (time.thread_time() - cpu_s) / len(one_pass)
        return [Answer(row, share_s) for row in rows]


def make_passes(taken: Sequence[Queued[RowT]], max_tokens: int) -> list[list[Queued[RowT]]]:
    """`taken` by length; no pass has more than `max_tokens` with padding, unless it is of one
    text."""
    passes: list[list[Queued[RowT]]] = []
    for queued in sorted(taken, key=lambda queued: len(queued.ids)):
        if passes and (len(passes[-1]) + 1) * len(queued.ids) <= max_tokens:
            passes[-1].append(queued)
        else:
            passes.append([queued])
    return passes
