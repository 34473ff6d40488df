"""Batching encoder: callers in many threads request vectors of texts, one thread runs the model.

When the model is free, all queued texts are sorted by length and run in passes of bounded size. A
text that is known, queued or in a pass is not queued twice. Callers of a batch continue one after
the other, and the model waits for the last of them: many return with more texts, and their work
costs less in one go than between passes, which empty the processor's caches. The model waits for no
other caller (docs/decisions/0011).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np

from gradus.errors import Fault, InternalFault, boundary
from services.graders.story.backends import Backend, Floats, Tokens

MAX_PASS_TOKENS = 256
"""Most tokens of one pass, padding included; more save next to nothing and let others wait
(docs/decisions/0011)."""
PASS_TOKENS = 16
"""What a pass costs besides its tokens, in tokens: measured, and nearly the same for every
backend."""
MAX_DRAIN_TEXTS = 512
"""Taken from the queue at a time and sorted by length: who asked long before is answered before."""
CALLER_RESUME_TIMEOUT_S = 0.1
"""The model waits no longer than this for callers that were answered and have not gone on."""
HANG_S = 60.0
"""A pass that takes longer hangs: the largest usual one takes about 0.2 s."""
_ENTRY_BYTES = 400
"""What a kept text costs beside its characters and vectors, roughly."""


class TokenizerLike(Protocol):
    def ids(self, texts: Sequence[str]) -> list[list[int]]: ...


class Embeddings(NamedTuple):
    """The embeddings of n texts, in order."""

    vectors: Floats
    """(n, width), unit rows."""
    inner: Floats
    """(n, width), the mean hidden state of an inner layer; see `backends.Pooled`."""
    cpu_s: float
    """CPU seconds of the model for texts that no earlier caller had requested."""


class _Row(NamedTuple):
    """What is kept of one text. Both arrays are its own: a view would keep its whole pass alive."""

    vector: Floats
    inner: Floats
    cpu_s: float


@dataclass(slots=True, eq=False)
class _Caller:
    """A thread that waits, woken once, when all that it asked for is there."""

    left: int = 0
    waits: bool = True
    """False once it went on or gave up."""
    unanswered: threading.Lock = field(default_factory=threading.Lock)
    """Held until it may go on: a bare lock, because an Event makes two more of them for each
    wait."""

    def __post_init__(self) -> None:
        self.unanswered.acquire()


@dataclass(slots=True, eq=False)
class _Wanted:
    text: str
    ids: list[int]
    row: _Row | Fault | None = None
    callers: list[_Caller] = field(default_factory=list)
    """Callers that wait for it, in the order of their requests."""


class Encoder:
    """May be called from many threads at once; `close()` ends its own thread."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: TokenizerLike,
        *,
        cache_mb: int = 64,
        hang_s: float = HANG_S,
        max_pass_tokens: int = MAX_PASS_TOKENS,
    ) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
        self._hang_s = hang_s
        self._max_pass_tokens = max_pass_tokens
        self._kept = _Kept(cache_mb * 2**20)
        self._lock = threading.Condition()  # guards all below and `_kept`
        self._queue: deque[_Wanted] = deque()
        self._under_way: dict[str, _Wanted] = {}
        self._answered: deque[_Caller] = deque()
        self._pass_since: float | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="story-encoder", daemon=True)
        self._thread.start()

    def vectors(self, texts: Sequence[str]) -> Floats:
        """(len(texts), width) unit rows, in order. Blocks. Raises InternalFault as `embed` does."""
        return self.embed(texts).vectors

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """The vectors of `texts`, at least one, in order. Blocks until the model has seen those
        that are new.

        Raises InternalFault when the model fails, hangs, or the encoder is closed; never for what a
        text says.
        """
        caller = _Caller()
        with self._lock:
            rows, asked, new = self._looked_up(list(dict.fromkeys(texts)), caller)
        if new:
            asked += self._queued(
                [_Wanted(*one) for one in zip(new, self._tokenizer.ids(new), strict=True)], caller
            )
        if asked:
            self._wait(caller)
        cpu_s = 0.0
        for wanted in asked:
            row = wanted.row
            if not isinstance(row, _Row):
                raise row or InternalFault("the story encoder gave no answer", retryable=False)
            rows[wanted.text] = row
            if wanted.callers[0] is caller:
                cpu_s += row.cpu_s
        found = [rows[text] for text in texts]
        return Embeddings(
            np.array([row.vector for row in found]), np.array([row.inner for row in found]), cpu_s
        )

    def close(self) -> None:
        """End the thread after the pass under way; callers that still wait get a fault. May be
        called twice."""
        with self._lock:
            self._closed = True
            left = [*self._queue]
            self._queue.clear()
            self._lock.notify_all()
        self._settle(left, [InternalFault("the story encoder is closed")] * len(left))
        self._wake_one()
        self._thread.join(timeout=self._hang_s)

    def _looked_up(
        self, texts: Sequence[str], caller: _Caller
    ) -> tuple[dict[str, _Row], list[_Wanted], list[str]]:
        """What is known of `texts`, which are distinct, what others wait for already, and what is
        new."""
        rows: dict[str, _Row] = {}
        asked: list[_Wanted] = []
        new: list[str] = []
        for text in texts:
            if row := self._kept.get(text):
                rows[text] = row
            elif wanted := self._under_way.get(text):
                asked.append(_awaited(wanted, caller))
            else:
                new.append(text)
        caller.left += len(new)  # before the caller can be woken, all of it is counted
        return rows, asked, new

    def _queued(self, made: Sequence[_Wanted], caller: _Caller) -> list[_Wanted]:
        """`made`, each put into the queue unless another caller was quicker: then that caller's."""
        with self._lock:
            self._refuse_when_closed()
            found = [self._under_way.setdefault(wanted.text, wanted) for wanted in made]
            self._queue.extend(wanted for wanted in found if not wanted.callers)
            caller.left -= len(made)
            for wanted in found:
                _awaited(wanted, caller)
            self._lock.notify_all()
        return found

    def _wait(self, caller: _Caller) -> None:
        try:
            while not caller.unanswered.acquire(timeout=min(1.0, self._hang_s)):
                since = self._pass_since
                if since is not None and time.monotonic() - since > self._hang_s:
                    message = (
                        f"the story model has not answered for {self._hang_s:g} s: restart this"
                        " worker"
                    )
                    raise InternalFault(message)
                if not self._thread.is_alive():
                    raise InternalFault("the story encoder has ended: restart this worker")
        finally:
            caller.waits = False
            self._wake_one()

    def _wake_one(self) -> None:
        """Let the next answered caller go on, which wakes the one behind it: all at once would
        fight over the interpreter."""
        with self._lock:
            while self._answered:
                caller = self._answered.popleft()
                if caller.waits:
                    caller.unanswered.release()
                    break
            if not self._answered:
                self._lock.notify_all()

    def _run(self) -> None:
        while taken := self._drained():
            planned = make_batches(taken, self._max_pass_tokens)
            for one_pass, rows in zip(
                planned, [self._rows(one_pass) for one_pass in planned], strict=True
            ):
                self._settle(one_pass, rows)
            self._wake_one()

    def _refuse_when_closed(self) -> None:
        if self._closed:
            raise InternalFault("the story encoder is closed")

    def _drained(self) -> list[_Wanted]:
        """What is queued, oldest first; waits while that is nothing. Empty once the encoder is
        closed."""
        with self._lock:
            self._lock.wait_for(lambda: self._queue or self._closed)
            self._lock.wait_for(lambda: not self._answered or self._closed, CALLER_RESUME_TIMEOUT_S)
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_DRAIN_TEXTS))]

    def _rows(self, one_pass: Sequence[_Wanted]) -> Sequence[_Row | Fault]:
        """What the model gave for one pass, or the fault for each of its texts."""
        try:
            self._refuse_when_closed()
            self._pass_since = time.monotonic()
            cpu_s = time.thread_time()
            with boundary(InternalFault, "the story model failed"):
                vectors, inner = self._backend.encode(*padded([wanted.ids for wanted in one_pass]))
            if not (len(vectors) == len(inner) == len(one_pass) and np.isfinite(vectors).all()):
                raise InternalFault("the story model gave no usable vectors")
        except Fault as fault:
            return [fault] * len(one_pass)
        finally:
            self._pass_since = None
        share_s = (time.thread_time() - cpu_s) / len(one_pass)
        return [
            _Row(vector.copy(), hidden.copy(), share_s)
            for vector, hidden in zip(vectors, inner, strict=True)
        ]

    def _settle(self, one_pass: Sequence[_Wanted], rows: Sequence[_Row | Fault]) -> None:
        with self._lock:
            for wanted, row in zip(one_pass, rows, strict=True):
                wanted.row = row
                if isinstance(row, _Row):
                    self._kept.put(wanted.text, row)
                self._under_way.pop(wanted.text, None)
                for caller in wanted.callers:
                    caller.left -= 1
                    if not caller.left:
                        self._answered.append(caller)


def _awaited(wanted: _Wanted, caller: _Caller) -> _Wanted:
    """`wanted`, with one more who waits for it. Under the encoder's lock."""
    wanted.callers.append(caller)
    caller.left += 1
    return wanted


class _Kept:
    """Rows of texts, the least recently used dropped first, bounded in bytes. Not safe for threads
    by itself."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.bytes = 0
        self._rows: OrderedDict[str, _Row] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rows)

    def get(self, text: str) -> _Row | None:
        if row := self._rows.get(text):
            self._rows.move_to_end(text)
        return row

    def put(self, text: str, row: _Row) -> None:
        """Keep `row`, and drop the oldest ones as far as there is no room."""
        if old := self._rows.pop(text, None):
            self.bytes -= _size(text, old)
        self._rows[text] = row
        self.bytes += _size(text, row)
        while self.bytes > self.max_bytes:
            self.bytes -= _size(*self._rows.popitem(last=False))


def _size(text: str, row: _Row) -> int:
    return 4 * len(text) + row.vector.nbytes + row.inner.nbytes + _ENTRY_BYTES


def make_batches(taken: Sequence[_Wanted], max_tokens: int) -> list[list[_Wanted]]:
    """`taken` by length, cut where that costs least in padding and passes; no pass has more than
    `max_tokens` with padding, unless it is of one text."""
    ordered = sorted(taken, key=lambda wanted: len(wanted.ids))
    cuts = _cheapest_cuts([len(wanted.ids) for wanted in ordered], max_tokens)
    return [ordered[begin:end] for begin, end in pairwise(cuts)]


def _cheapest_cuts(lengths: Sequence[int], max_tokens: int) -> list[int]:
    """Where passes begin and end, from 0 to len(lengths). `lengths`: ascending."""
    costs, begins = (
        [0],
        [0],
    )  # of the cheapest passes for the first n texts: what they cost, where the last one begins
    for end, longest in enumerate(lengths, 1):
        first = max(0, end - max(1, max_tokens // longest))
        options = [costs[begin] + (end - begin) * longest for begin in range(first, end)]
        least = min(options)
        costs.append(least + PASS_TOKENS)
        begins.append(first + options.index(least))
    cuts = [len(lengths)]
    while cuts[-1]:
        cuts.append(begins[cuts[-1]])
    return cuts[::-1]


def padded(ids: Sequence[Sequence[int]]) -> tuple[Tokens, Tokens]:
    """Ids and mask, int64 (len(ids), longest)."""
    shape = len(ids), max(map(len, ids))
    padded_ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, one in enumerate(ids):
        padded_ids[row, : len(one)] = one
        mask[row, : len(one)] = 1
    return padded_ids, mask
