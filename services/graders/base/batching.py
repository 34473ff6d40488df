"""A model that many threads ask and one thread runs. Knows no model.

It does not wait for passes to fill: when the model is free, some of what is queued is sorted by
length and run in passes of bounded size. Requests take turns by weighted fair queuing: a small one
goes before what a large one that came earlier has left.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, NamedTuple, TypeVar

from gradus.errors import Fault, InternalFault, wrap_exceptions
from services.sandbox.cancellation import CANCELLED, current_token

MAX_DRAIN_TEXTS = 512
"""Texts that are taken from the queue at a time and sorted by length."""
MAX_DRAIN_TOKENS = 8192
"""Tokens of the texts that are taken at a time: about a second of the model on a CPU, for which a
request that comes now waits."""
CALLER_RESUME_TIMEOUT_S = 0.1
"""The model waits no longer than this for callers that were answered and have not gone on."""
_LOOK_S = 0.5
"""Seconds between checks of a waiting thread that its attempt is not cancelled and that the model's
thread is alive."""

Ids = Sequence[int]
RowT = TypeVar("RowT")


class Answer(NamedTuple, Generic[RowT]):
    row: RowT
    cpu_s: float
    """This text's share of the CPU time of its pass, of the thread that ran it."""


class Withdrawn(InternalFault):
    """A text that is not answered, because the attempt that queued it was cancelled."""


class Queued(NamedTuple, Generic[RowT]):
    ids: Ids
    answer: Future[Answer[RowT]]


class _Place(NamedTuple, Generic[RowT]):
    """A place in the queue: the smallest is next."""

    finish: float
    """Virtual time at which its request would end if all requests shared the model: its tokens
    after the time at which it was queued."""
    number: int
    queued: Queued[RowT]


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
        self._queue: list[_Place[RowT]] = []
        """A heap."""
        self._now = 0.0
        """Virtual time: the tokens that each of the waiting requests could have had so far."""
        self._numbers = count()
        self._waiting: dict[int, Sequence[Future[Answer[RowT]]]] = {}
        """What each waiting caller asked for."""
        self._closed = False
        self._pass_since: float | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, ids: Sequence[int]) -> Future[Answer[RowT]]:
        """Queue one text. Raises InternalFault once this is closed."""
        [answer] = self.submit_all([ids])
        return answer

    def submit_all(self, texts: Sequence[Ids]) -> list[Future[Answer[RowT]]]:
        """Queue the texts of one request. Raises InternalFault once this is closed."""
        queued = [Queued[RowT](ids, Future()) for ids in texts]
        with self._changed:
            self._refuse_when_closed()
            finish = self._now + sum(map(len, texts))
            for question in queued:
                heappush(self._queue, _Place(finish, next(self._numbers), question))
            self._changed.notify()
        return [question.answer for question in queued]

    def answers(self, futures: Sequence[Future[Answer[RowT]]]) -> list[Answer[RowT]]:
        """Return what `submit` promised. Blocks.

        Raises InternalFault when the model fails, hangs or was closed, or the attempt of this
        thread is cancelled, and Withdrawn where another attempt was that had queued the text; never
        for what a text says.
        """
        token = current_token()
        with self._changed:
            self._waiting[id(futures)] = futures
        try:
            while wait(futures, min(_LOOK_S, self._hang_s)).not_done:
                self._refuse_when_stuck()
                if token is not None and token.is_cancelled:
                    self._withdraw(futures)
                    raise InternalFault(CANCELLED)
        finally:
            with self._changed:
                del self._waiting[id(futures)]
                self._changed.notify()
        return [future.result() for future in futures]

    def _withdraw(self, futures: Sequence[Future[Answer[RowT]]]) -> None:
        """Take those texts out of the queue that no other caller waits for."""
        with self._changed:
            unwanted = set(futures)
            for key, waiting in self._waiting.items():
                if key != id(futures):
                    unwanted.difference_update(waiting)
            withdrawn = [place for place in self._queue if place.queued.answer in unwanted]
            self._queue = [place for place in self._queue if place.queued.answer not in unwanted]
            heapify(self._queue)
        for place in withdrawn:
            place.queued.answer.set_exception(Withdrawn(CANCELLED))

    def close(self) -> None:
        """End the thread after the pass under way; callers that still wait get a fault. May be
        called twice."""
        with self._changed:
            self._closed = True
            unanswered = [place.queued for place in self._queue]
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
        """Block until texts are queued; pop those that are next. Empty once this is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            self._changed.wait_for(self._has_every_caller_resumed, CALLER_RESUME_TIMEOUT_S)
            taken: list[Queued[RowT]] = []
            n_tokens = 0
            while self._queue and len(taken) < MAX_DRAIN_TEXTS and n_tokens < MAX_DRAIN_TOKENS:
                taken.append(heappop(self._queue).queued)
                n_tokens += len(taken[-1].ids)
            self._now += n_tokens / max(len(self._waiting), 1)
            return taken

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
